"""Pages on reproduced figures: the HTML of `--html`, and docs/clipper.md."""

import re
from pathlib import Path

import pytest

from mainspring.cli import main
from mainspring.report.page import to_html
from mainspring.report.reproduction import reproduction_page
from mainspring.reproduce import clipper
from mainspring.reproduce.clipper.document import as_markdown
from mainspring.reproduce.figures import Made, make
from mainspring.reproduce.rows import compared, fitted, shape, told

DOCUMENT = Path(__file__).parents[3] / "docs/clipper.md"

ROWS = [
    compared("fig4", "throughput (req/s)", 100.0, "published", 50.0, cause="half <of> it & why"),
    compared("fig4", "mean batch", 4.0, "published", 4.0),
    shape("fig4", "gain", "at least 1", 0.5, holds=False, cause="half <of> it & why"),
    shape("fig4", "tail", "at most 1", 2.0, holds=False),
    fitted("fig4", "alone", 1.0, "published", 1.0),
    told("fig4", "told only", 7.0),
]
MADE = Made("fig4", ROWS, None, [], "5 s of simulated time", ("Besides, this.",), 1.0, True)


def test_the_page_opens_with_what_misses_and_why():
    html = to_html(reproduction_page("Clipper", "mainspring reproduce clipper fig4", [MADE]))
    assert "1 of 4 numbers that can be judged hold; 3 miss, in fig4" in html
    assert html.index("What misses, and why") < html.index("All rows")
    assert "(1) half &lt;of&gt; it &amp; why" in html
    assert "(2) not known" in html
    assert html.count("half &lt;of&gt;") == 1
    assert "1 hold, 3 miss, 1 fitted, 1 told. 5 s of simulated time." in html
    assert "Besides, this." in html


def test_a_page_without_misses_says_so():
    fine = MADE._replace(rows=ROWS[1:2])
    page = reproduction_page("Clipper", "x", [fine])
    assert page.answer == "1 of 1 number that can be judged hold."
    assert [section.key for section in page.sections] == ["fig4", "again"]


def test_the_document_has_every_row_and_the_causes_below():
    lines = as_markdown([MADE]).splitlines()
    assert "| throughput (req/s) | 100 | 50 | -50.0% | 0 | **falls short** (1) |" in lines
    assert "| gain |  | 0.5 |  | at least 1 | **shape fails** (1) |" in lines
    assert "1. half <of> it & why" in lines
    assert "2. not known" in lines
    assert "| told only |  | 7 |  |  |  |" in lines


def test_every_miss_in_the_document_has_its_cause():
    text = DOCUMENT.read_text(encoding="utf-8")
    sections = text.split("\n## ")[1:]
    assert [section.split("\n")[0] for section in sections] == list(clipper.FIGURES)
    assert "not known" not in re.findall(r"^\d+\. (.*)$", text, re.MULTILINE)
    for section in sections:
        wanted = {
            int(i) for i in re.findall(r"\*\*(?:falls short|shape fails)\*\* \((\d+)\)", section)
        }
        assert wanted == {int(i) for i in re.findall(r"^(\d+)\. .", section, re.MULTILINE)}
        assert not re.search(r"\*\*(?:falls short|shape fails)\*\* \|", section)


@pytest.mark.parametrize("name", ["fig5"])
def test_the_document_is_what_comes_out(name, tmp_path):
    """One of the quick figures is made again; `mainspring reproduce clipper all` makes all."""
    (made,) = make([name], tmp_path, full=False, package=clipper.__name__)
    section = as_markdown([made]).split("\n## ")[1]
    assert section.strip() in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["clipper", "all", "--html", "{here}"], "{here}: it is a directory; expected a file"),
        (["clipper", "all", "--markdown", "{here}"], "{here}: it is a directory; expected a file"),
        (["clockwork", "original", "--html", "x.html"], "original has none; give --markdown"),
    ],
)
def test_a_page_that_cannot_be_is_told_before_anything_is_made(args, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as exited:
        main(["reproduce", *(arg.format(here=tmp_path) for arg in args)])
    told_so = capsys.readouterr()
    assert exited.value.code == 2
    assert message.format(here=tmp_path) in told_so.err
    assert told_so.err.count("\n") == 1
    assert told_so.out == ""


def test_a_figure_writes_its_pages(tmp_path, capsys):
    """Figure 11 of Clipper, the quickest."""
    html, text = tmp_path / "page.html", tmp_path / "page.md"
    with pytest.raises(SystemExit) as exited:
        main(["reproduce", "clipper", "fig11", "--out", str(tmp_path / "out"),
              "--html", str(html), "--markdown", str(text), "--json"])  # fmt: skip
    assert not exited.value.code
    assert '"verdict":"holds"' in capsys.readouterr().out.replace(" ", "")
    assert "numbers that can be judged hold." in html.read_text(encoding="utf-8")
    assert "<svg" in html.read_text(encoding="utf-8")
    assert text.read_text(encoding="utf-8").count("| holds |") == 15
