"""Runs side by side in a terminal: one column per run, one line per quantity.

The same text goes to a pipe, 80 columns wide and without colour; runs that do not fit beside each
other follow below. All values come from the summaries, so they are those of the JSON.
Not here: whether a difference between two runs is more than chance (that takes seeds).
"""

import io
import math
import sys
from collections.abc import Callable, Sequence
from typing import Final, TextIO

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from results.latency import QUANTILES, RESOLUTION
from results.summary import Summary

TOO_SMALL: Final = "n too small"
NONE: Final = "-"
NOTES: Final = (
    "Counts are over the requests that arrive in the measured span. Latency is that of the "
    f"answered ones, to {RESOLUTION}; a quantile needs 10 requests beyond it. "
    "The interval (Clopper-Pearson) takes requests for independent, which those of one run "
    "are not: compare policies over seeds."
)
_ALWAYS: Final = ("p50", "p90", "p99", "p99.9", "p99.99")
_NAME_WIDTH: Final = 27
_VALUE_WIDTH: Final = 16

Row = tuple[str, Callable[[Summary], str]]

_REQUESTS: Final[list[Row]] = [
    ("measured span (s)", lambda s: f"{s.span_s:,.1f}"),
    ("arrivals", lambda s: f"{s.arrivals:,}"),
    ("offered (req/s)", lambda s: _rate(s.offered_rps)),
    ("goodput (req/s)", lambda s: _rate(s.goodput_rps)),
    ("in time (% of SLO requests)", lambda s: percent(s.share_in_time)),
    ("  its 95 % interval", lambda s: _interval(s.share_in_time_95)),
]
_FATES: Final[list[Row]] = [
    ("late", lambda s: f"{s.outcomes['late']:,}"),
    ("rejected", lambda s: f"{s.outcomes['rejected']:,}"),
    ("timed out", lambda s: f"{s.outcomes['timed_out']:,}"),
    ("failed", lambda s: f"{s.outcomes['failed']:,}"),
    ("unfinished", lambda s: f"{s.outcomes['unfinished']:,}"),
]
_MACHINES: Final[list[Row]] = [
    ("mean batch (per execution)", lambda s: _number(s.mean_batch_executed)),
    ("GPU utilisation (%)", lambda s: percent(s.mean_gpu_utilisation, 1)),
    ("loads (1/s)", lambda s: _number(s.loads_rps)),
    ("cold requests", lambda s: f"{s.cold_requests:,}"),
]
_IF_ANY: Final[list[tuple[str, Callable[[Summary], int]]]] = [
    ("requests without SLO", lambda s: s.no_slo_requests),
    ("undecided at interruption", lambda s: s.slo_undecided),
    ("missed actions", lambda s: s.missed_actions),
    ("failed actions", lambda s: s.failed_actions),
    ("lost actions", lambda s: s.lost_actions),
    ("workers lost", lambda s: s.workers_lost_whole_run),
    ("actions not audited", lambda s: s.unchecked_actions_whole_run),
]
"""Lines for what most runs have none of."""


def print_runs(summaries: Sequence[Summary], file: TextIO | None = None) -> None:
    """Print a table of runs; with colour and as wide as the window if `file` is a terminal."""
    file = file or sys.stdout
    console = Console(file=file, width=None if file.isatty() else 80, highlight=False)
    console.print(runs_table(summaries, console.width))


def runs_text(summaries: Sequence[Summary], width: int = 80) -> str:
    """The table as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(runs_table(summaries, width))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text under their heads, as wide as they need be; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    left = [not any(cell[:1].isdigit() for cell in column) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in (head, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(lines)


def runs_table(summaries: Sequence[Summary], width: int = 80) -> Group:
    """The table for a rich console of that many columns."""
    side_by_side = max(1, (width - _NAME_WIDTH) // _VALUE_WIDTH)
    # One list of lines for all the blocks, so that they can be read across.
    rows = lines(summaries)
    parts: list[Table | Padding] = [
        _block(summaries[at : at + side_by_side], rows)
        for at in range(0, len(summaries), side_by_side)
    ]
    return Group(*parts, Padding(Text(NOTES, style="dim"), (0, 1)))


def _block(summaries: Sequence[Summary], rows: Sequence[Row | None]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", show_edge=False, pad_edge=False)
    table.add_column("", min_width=_NAME_WIDTH, no_wrap=True)
    for summary in summaries:
        table.add_column(Text(summary.name), justify="right", overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            name, value = row
            table.add_row(name, *(Text(value(summary)) for summary in summaries))
    return table


def lines(summaries: Sequence[Summary]) -> list[Row | None]:
    """The table's lines: a name and what it says of a run, or None where a gap helps the eye."""
    rows: list[Row | None] = [*_differences(summaries), *_REQUESTS, None, *_FATES, None]
    for quantile in QUANTILES:
        if quantile in _ALWAYS or any(s.latency.quantiles_ms[quantile] for s in summaries):
            rows.append((f"latency {quantile} (ms)", lambda s, q=quantile: _quantile(s, q)))  # type: ignore[misc]
    rows += [
        ("latency, largest (ms)", lambda s: ms(s.latency.max_ms)),
        ("latency, mean (ms)", lambda s: ms(s.latency.mean_ms)),
        None,
        *_MACHINES,
    ]
    for name, count in _IF_ANY:
        if any(count(summary) for summary in summaries):
            rows.append((name, lambda s, count=count: f"{count(s):,}"))  # type: ignore[misc]
    for why in {why: None for summary in summaries for why in summary.refusals}:
        name = f"refused: {why.replace('_', ' ')}"
        rows.append((name, lambda s, why=why: f"{s.refusals.get(why, 0):,}"))  # type: ignore[misc]
    if any(summary.interrupted for summary in summaries):
        rows.append(("interrupted at (s)", _stopped))
    return rows


def _differences(summaries: Sequence[Summary]) -> list[Row]:
    """Runs of different scenarios or seeds did not get the same requests: say so on top."""
    return [
        (key, lambda s, key=key: s.about.get(key, NONE))  # type: ignore[misc]
        for key in ("scenario", "seed")
        if len({summary.about.get(key) for summary in summaries}) > 1
    ]


def _stopped(summary: Summary) -> str:
    return f"{summary.end_ns / 1e9:,.1f}" if summary.interrupted else NONE


def _quantile(summary: Summary, quantile: str) -> str:
    value = summary.latency.quantiles_ms[quantile]
    return TOO_SMALL if value is None else ms(value)


def ms(value: float | None) -> str:
    """Milliseconds, to what the histogram resolves: five digits, and none below a microsecond."""
    if value is None:
        return NONE
    whole_digits = 1 + math.floor(math.log10(value)) if value >= 1 else 1
    return f"{value:,.{min(3, max(0, 5 - whole_digits))}f}"


def _rate(value: float | None) -> str:
    return NONE if value is None else f"{value:,.1f}"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.2f}"


def percent(share: float | None, digits: int = 3) -> str:
    """A share in percent, without the sign."""
    if share is None:
        return NONE
    text = f"{share * 100:.{digits}f}"
    # Rounding must not make a run look perfect.
    return f">{100 - 10**-digits:.{digits}f}" if share < 1 and text.startswith("100") else text


def _interval(ends: tuple[float, float] | None) -> str:
    return NONE if ends is None else f"{ends[0] * 100:.3f}-{ends[1] * 100:.3f}"
