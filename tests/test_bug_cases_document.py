"""docs/bug-cases.md: every id once, and what it says is tested carries the id."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(
    r"^\| (BUG-\w+-\d+) \|.*\| (.+) \|$", (ROOT / "docs/bug-cases.md").read_text(), re.MULTILINE
)


def test_it_names_every_case_once():
    cases = ROOT.parent / "shared/facts/bug-cases.md"
    if not cases.exists():
        pytest.skip(
            "this test needs facts/bug-cases.md in a folder ../shared beside the repository"
        )
    ids = re.findall(r"^### (BUG-\w+-\d+) ", cases.read_text(), re.MULTILINE)
    assert [id for id, _ in ROWS] == ids


def test_what_it_says_is_tested_carries_the_id():
    tested = [(id, verdict) for id, verdict in ROWS if verdict.startswith("tested in ")]
    assert len(tested) > 80
    for id, verdict in tested:
        for file in re.findall(r"`(tests/[^`]*\.py)`", verdict):
            text = (ROOT / file).read_text().lower().replace("_", "-")
            assert id.lower() in text, f"{file} has no {id}"


def test_what_is_not_tested_has_a_reason():
    reasons = ("does not apply: ", "our convention differs: ", "not built: ", "open: ")
    for id, verdict in ROWS:
        assert verdict.startswith(("tested in `tests/", *reasons)), id
