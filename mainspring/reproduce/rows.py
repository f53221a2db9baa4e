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
    """One quantity. difference: relative to the reference."""

    figure: str
    quantity: str
    reference: float
    source: str
    obtained: float
    difference: float
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
            f"{row.reference:.4g}",
            f"{row.obtained:.4g}",
            f"{row.difference:+.1%}",
            row.tolerance,
            row.verdict,
        )
    Console(width=None if Console().is_terminal else 100).print(table)
