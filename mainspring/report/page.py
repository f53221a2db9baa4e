"""A page that can be forwarded: one HTML file with everything in it, no script, no network.

It opens with a question and its answer, and then shows what the answer rests on. Widths from a
telephone's up, light and dark, and paper are the template's business (page.html.j2).
Not here: what the pages say (runs.py, studies.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mainspring import __version__
from results.files import naming, write_whole
from results.plots import Picture
from results.svg import inline

TEMPLATE: Final = "page.html.j2"


class Bar(NamedTuple):
    """A cell with a bar behind its text. share: 0 to 1, or None for no bar."""

    text: str
    share: float | None


Cell = str | Bar


class Table(NamedTuple):
    """Rows under a head. The first column names them; numbers go to the right.

    words: columns of words, which go to the left. total: so many last rows sum up the others.
    folded: shown when it is asked for, under its title.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    words: Sequence[int] = ()
    total: int = 0
    folded: bool = False
    kind: str = "table"


class Chart(NamedTuple):
    """A figure. svg: as `results.svg.inline` makes it."""

    title: str
    svg: Markup
    note: str = ""
    kind: str = "chart"


class Lines(NamedTuple):
    """Sentences, one to a line. beside: the section's figure, where there is room."""

    lines: Sequence[str]
    title: str = ""
    beside: bool = False
    kind: str = "lines"


class Code(NamedTuple):
    """Text as it is, such as a command or a file."""

    title: str
    text: str
    folded: bool = False
    kind: str = "code"


class Card(NamedTuple):
    """The numbers of one run that are looked at first. run: from 1, for its colour; or 0."""

    name: str
    number: str
    unit: str
    lines: Sequence[tuple[str, str]]
    run: int = 0


class Cards(NamedTuple):
    """Cards side by side."""

    cards: Sequence[Card]
    kind: str = "cards"


Item = Table | Chart | Lines | Code | Cards


class Section(NamedTuple):
    """A part of the page.

    key: for links to it. lead: what it shows, in sentences. side_by_side: tables, where there is
    room. Cards come first, then figures, then all else in its order.
    """

    key: str
    title: str
    lead: str
    items: Sequence[Item]
    side_by_side: bool = False


class Page(NamedTuple):
    """A whole page. kind: of what it is a report. warnings: what the reader must know first."""

    title: str
    kind: str
    question: str
    answer: str
    how_sure: str
    warnings: Sequence[str]
    sections: Sequence[Section]


def chart(title: str, picture: Picture, key: str, note: str = "") -> Chart:
    """A figure for a page. key: its own on the page."""
    return Chart(title, Markup(inline(picture, title, key)), note)


def write_page(page: Page, path: str | Path) -> Path:
    """Write a page, whole or not at all; one that is there is replaced. Returns its path.

    Raises ResultsError where that cannot be done.
    """
    path = Path(path)
    with naming(path):
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, to_html(page).encode())
    return path


def to_html(page: Page) -> str:
    """A page as HTML. Whatever it says is text: names in it can do nothing."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(TEMPLATE).render(page=page, version=__version__) + "\n"
