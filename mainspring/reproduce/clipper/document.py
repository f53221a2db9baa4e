"""docs/clipper.md: every row, and why a miss is one.

mainspring reproduce clipper all --markdown docs/clipper.md
"""

from collections.abc import Sequence
from typing import Final

from mainspring.reproduce.figures import Made
from mainspring.reproduce.rows import Row, counted, number, numbered, why

_HEAD: Final = """\
# How far our Clippers are from the published ones

The figures of the Clipper paper (NSDI '17), Clipper 0.3 beside Clockwork, and what was fitted to
the measurements of others. Numbers held against ours are the authors' own, from the repository of
their plots; *fitted* is what was used to make a container, and does not count, nor does a row
without a verdict. A row that misses has a number, and below its table stands why. Written by

    mainspring reproduce clipper all --markdown docs/clipper.md

"""

_COLUMNS: Final = ("what", "reference", "obtained", "difference", "asked", "verdict")


def as_markdown(figures: Sequence[Made]) -> str:
    """The page."""
    rows = [row for made in figures for row in made.rows]
    parts = [f"{_HEAD}{counted(rows)}.\n"]
    return "\n".join([*parts, *(_section(made) for made in figures)])


def _section(made: Made) -> str:
    numbers = numbered(made.rows)
    lines = [f"## {made.name}", "", f"{made.cost[0].upper()}{made.cost[1:]}.", ""]
    lines += [_line(_COLUMNS), _line(["---", "--:", "--:", "--:", "---", "---"])]
    lines += [_line(_cells(row, numbers)) for row in made.rows]
    if numbers:
        lines += ["", *(f"{i}. {cause}" for cause, i in numbers.items())]
    if made.causes:
        lines += ["", *(f"- {cause}" for cause in made.causes)]
    return "\n".join([*lines, ""])


def _cells(row: Row, numbers: dict[str, int]) -> list[str]:
    return [
        row.quantity,
        number(row.reference),
        number(row.obtained),
        "" if row.difference is None else f"{row.difference:+.1%}",
        row.tolerance,
        f"**{row.verdict}** ({numbers[why(row)]})"
        if row.missed
        else row.verdict.replace("no reference", ""),
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
