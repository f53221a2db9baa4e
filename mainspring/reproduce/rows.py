"""Rows: what a reference says, what we obtain, and the verdict.

Every figure that is reproduced gives rows of this one kind, so that one table and one JSON hold
all of them. A number with a reference holds or falls short; a shape is an inequality that the row
names, and holds or fails; what nobody has published is told without a verdict; and what was used
to fit something is called fitted, and does not count.
"""

from typing import Literal

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
    """

    figure: str
    quantity: str
    reference: float | None
    source: str
    obtained: float | None
    difference: float | None
    tolerance: str
    verdict: Verdict


def compared(
    figure: str,
    quantity: str,
    reference: float,
    source: str,
    obtained: float,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
) -> Row:
    """A number beside its reference. It may be off by the larger of both allowances."""
    allowed = max(relative * abs(reference), absolute)
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
        verdict="holds" if abs(obtained - reference) <= allowed else "falls short",
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
) -> Row:
    """An inequality. inequality: in words or signs; obtained: the number that decided it."""
    return Row(
        figure=figure,
        quantity=quantity,
        reference=reference,
        source=source,
        obtained=obtained,
        difference=_relative(obtained, reference),
        tolerance=inequality,
        verdict="shape holds" if holds else "shape fails",
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


def print_rows(rows: list[Row]) -> None:
    """The table on stdout."""
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    right = ("reference", "obtained", "difference")
    for column in Row.__struct_fields__:
        table.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        table.add_row(
            row.figure,
            row.quantity,
            _number(row.reference),
            row.source,
            _number(row.obtained),
            "" if row.difference is None else f"{row.difference:+.1%}",
            row.tolerance,
            row.verdict,
        )
    Console(width=None if Console().is_terminal else 190).print(table)


def _number(value: float | None) -> str:
    """Four digits, but as many as a share close to 1 needs."""
    if value is None:
        return ""
    if 0.9999 <= value < 1:
        return f"{value:.7f}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
