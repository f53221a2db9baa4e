"""A page on reproduced figures: what holds, what misses and why, each figure with its rows.

    mainspring reproduce clipper all --html clipper.html

The same rows and causes as the command prints and `--json` gives.
"""

from collections.abc import Iterator, Sequence

from mainspring.report.page import Code, Item, Lines, Page, Section, Table, chart
from mainspring.report.words import listed, n
from mainspring.reproduce.figures import Made
from mainspring.reproduce.rows import Row, counted, number, numbered, why


def reproduction_page(paper: str, command: str, figures: Sequence[Made]) -> Page:
    """What there is to say. paper: its system's name; command: how to make the page again."""
    rows = [row for made in figures for row in made.rows]
    misses = [row for row in rows if row.missed]
    judged = len(misses) + sum(row.verdict in ("holds", "shape holds") for row in rows)
    answer = f"{judged - len(misses)} of {n(judged, 'number')} that can be judged hold"
    if misses:
        where = listed([made.name for made in figures if any(row.missed for row in made.rows)])
        answer += f"; {n(len(misses), 'misses', 'miss')}, in {where}, each with its cause below"
    return Page(
        title=paper,
        kind="Figures of a paper, reproduced",
        question=f"Does mainspring give what was published of {paper}?",
        answer=f"{answer}.",
        how_sure="A number whose reference was used to fit something is called fitted and is not "
        "judged; nor is one that nobody has published.",
        warnings=[],
        sections=[*_misses(misses), *map(_figure, figures), _again(command)],
    )


def _misses(misses: list[Row]) -> Iterator[Section]:
    """Every miss with its cause, before anything else."""
    if not misses:
        return
    numbers = numbered(misses)
    table = Table(
        "",
        ["what", "figure", "reference", "obtained", "asked", "why"],
        [
            [row.quantity, row.figure, number(row.reference), number(row.obtained), row.tolerance,
             f"({numbers[why(row)]})"]
            for row in misses
        ],
        words=(1, 4),
    )  # fmt: skip
    causes = Lines([f"({i}) {cause}" for cause, i in numbers.items()], "Why")
    yield Section("misses", "What misses, and why", "", [table, causes])


def _figure(made: Made) -> Section:
    items: list[Item] = []
    if made.picture is not None:
        items.append(chart("", made.picture, made.name))
    items.append(
        Table(
            "All rows",
            ["what", "reference", "source", "obtained", "difference", "asked", "verdict"],
            [
                [row.quantity, number(row.reference), row.source, number(row.obtained),
                 "" if row.difference is None else f"{row.difference:+.1%}", row.tolerance,
                 row.verdict]
                for row in made.rows
            ],
            words=(2, 5, 6),
            folded=True,
        )
    )  # fmt: skip
    if made.causes:
        items.append(Lines(made.causes, "Besides"))
    cut = "" if made.complete else " Interrupted: not all of its points were measured."
    return Section(made.name, made.name, f"{counted(made.rows)}. {made.cost}.{cut}", items)


def _again(command: str) -> Section:
    return Section("again", "Run it again", "", [Code("", command)])
