"""Rows: what a reference says, what we obtain, and the verdict.

Every figure that is reproduced gives rows of this one kind, so that one table and one JSON hold
all of them. A number with a reference holds or falls short; a shape is an inequality that the row
names, and holds or fails; what nobody has published is told without a verdict; and what was used
to fit something is called fitted, and does not count. A row that misses says why, in figures.
"""

import os
from typing import Final, Literal

import msgspec
import rich.box
from rich.console import Console
from rich.table import Table

Verdict = Literal["holds", "falls short", "shape holds", "shape fails", "no reference", "fitted"]


class Row(msgspec.Struct, frozen=True):
    """One quantity of one figure.

    reference: None where there is none, or where the row is a shape, an inequality that
    `tolerance` names. source: who made the reference: published, read off a figure by a third
    party, a run of the original, or physics; and what speaks against it, where it is not alone.
    difference: relative to the reference; None without one, or if it is 0.
    cause: why it falls short or fails, as far as is known; empty for all other rows.
    """

    figure: str
    quantity: str
    reference: float | None
    source: str
    obtained: float | None
    difference: float | None
    tolerance: str
    verdict: Verdict
    cause: str = ""

    @property
    def missed(self) -> bool:
        """Whether it falls short or fails."""
        return self.verdict in ("falls short", "shape fails")


def compared(
    figure: str,
    quantity: str,
    reference: float,
    source: str,
    obtained: float,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    cause: str = "",
) -> Row:
    """A number beside its reference. It may be off by the larger of both allowances.

    cause: why it is off, if it is.
    """
    allowed = max(relative * abs(reference), absolute)
    holds = abs(obtained - reference) <= allowed
    parts = [f"{relative * 100:g}%"] if relative else []
    parts += [f"{absolute:g}"] if absolute else []
    return Row(
        figure=figure,
        quantity=quantity,
        reference=reference,
        source=source,
        obtained=obtained,
        difference=_relative(obtained, reference),
        tolerance=" or ".join(parts) or "0",
        verdict="holds" if holds else "falls short",
        cause="" if holds else cause,
    )


def shape(
    figure: str,
    quantity: str,
    inequality: str,
    obtained: float,
    *,
    holds: bool,
    reference: float | None = None,
    source: str = "published",
    cause: str = "",
) -> Row:
    """An inequality. inequality: in words or signs; obtained: the number that decided it.

    cause: why it fails, if it does.
    """
    return Row(
        figure=figure,
        quantity=quantity,
        reference=reference,
        source=source,
        obtained=obtained,
        difference=_relative(obtained, reference),
        tolerance=inequality,
        verdict="shape holds" if holds else "shape fails",
        cause="" if holds else cause,
    )


def told(
    figure: str,
    quantity: str,
    obtained: float,
    *,
    reference: float | None = None,
    source: str = "",
) -> Row:
    """A number that nothing is held against."""
    return Row(
        figure=figure,
        quantity=quantity,
        reference=reference,
        source=source,
        obtained=obtained,
        difference=_relative(obtained, reference),
        tolerance="",
        verdict="no reference",
    )


def fitted(figure: str, quantity: str, reference: float, source: str, obtained: float) -> Row:
    """A number whose reference was used to fit something: that it comes out proves nothing."""
    row = told(figure, quantity, obtained, reference=reference, source=source)
    return msgspec.structs.replace(row, verdict="fitted")


def _relative(obtained: float, reference: float | None) -> float | None:
    return obtained / reference - 1 if reference else None


UNKNOWN: Final = "not known"
"""What stands for the cause of a miss that nobody has looked into."""


def why(row: Row) -> str:
    """Why a row misses; empty if it does not."""
    return (row.cause or UNKNOWN) if row.missed else ""


def numbered(rows: list[Row]) -> dict[str, int]:
    """The causes in their order, each with a number from 1; rows may share one."""
    return {cause: i for i, cause in enumerate(dict.fromkeys(filter(None, map(why, rows))), 1)}


def counted(rows: list[Row]) -> str:
    """How many rows hold, miss and are fitted, in words."""
    misses = sum(row.missed for row in rows)
    fits = sum(row.verdict == "fitted" for row in rows)
    holds = sum(row.verdict in ("holds", "shape holds") for row in rows)
    return f"{holds} hold, {misses} miss, {fits} fitted, {len(rows) - holds - misses - fits} told"


WIDE: Final = 190
"""Columns of a table in a file or a pipe, so that each row is one line, unless COLUMNS says."""


def print_rows(rows: list[Row]) -> None:
    """The table on stdout, and below it why rows miss."""
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    right = ("reference", "obtained", "difference")
    for column in Row.__struct_fields__[:-1]:
        table.add_column(column, justify="right" if column in right else "left")
    numbers = numbered(rows)
    for row in rows:
        table.add_row(
            row.figure,
            row.quantity,
            number(row.reference),
            row.source,
            number(row.obtained),
            "" if row.difference is None else f"{row.difference:+.1%}",
            row.tolerance,
            row.verdict + (f" ({numbers[why(row)]})" if row.missed else ""),
        )
    told = Console().is_terminal or "COLUMNS" in os.environ
    console = Console(width=None if told else WIDE, highlight=False)
    console.print(table)
    console.print(counted(rows), markup=False)
    for cause, i in numbers.items():
        console.print(f"({i}) {cause}", markup=False)


def number(value: float | None) -> str:
    """Four digits, but as many as a share close to 1 needs."""
    if value is None:
        return ""
    if 0.9999 <= value < 1:
        return f"{value:.7f}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
