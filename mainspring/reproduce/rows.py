"""Rows: what a reference says, what we obtain, and the verdict.

Every figure that is reproduced gives rows of this one kind, so that one table and one JSON hold
all of them.
"""

from typing import Literal

import msgspec
import rich.box
from rich.console import Console
from rich.table import Table

Verdict = Literal["holds", "falls short", "shape holds", "shape fails", "no reference"]


class Row(msgspec.Struct, frozen=True):
    """One quantity of one figure.

    reference: None where there is none, or where the row is a shape, an inequality that `quantity`
    names. source: who made the reference: published, read off a figure by a third party, a run of
    the original, or physics. difference: relative to the reference; None without one, or if it
    is 0.
    """

    figure: str
    quantity: str
    reference: float | None
    source: str
    obtained: float | None
    difference: float | None
    tolerance: str
    verdict: Verdict


def print_rows(rows: list[Row]) -> None:
    """The table on stdout."""
    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for column in ("figure", "quantity", "reference", "obtained", "difference", "tolerance"):
        table.add_column(column, justify="left" if column in ("figure", "quantity") else "right")
    table.add_column("verdict")
    for row in rows:
        table.add_row(
            row.figure,
            row.quantity,
            _number(row.reference),
            _number(row.obtained),
            "" if row.difference is None else f"{row.difference:+.1%}",
            row.tolerance,
            row.verdict,
        )
    Console(width=None if Console().is_terminal else 100).print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
