"""docs/fidelity.md: every recorded run of the original beside ours, written by a command.

    mainspring reproduce clockwork original --markdown docs/fidelity.md

A test makes the page again and holds the file against it, so that it cannot go stale.
Not here: the runs and the tolerances (`mainspring.reproduce.original`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mainspring.reproduce.original import (
    CAUSES,
    INFER5_RUN,
    LEFT_OUT,
    QUANTITIES,
    WAY_BACK_MS,
    recorded,
)
from mainspring.reproduce.rows import Row

_HEAD: Final = """\
# How far our Clockwork is from the original

The authors' own C++ controller was recorded with its emulated GPUs, on two cores. Here is each of
those runs beside ours: the same arrivals, profile, pages and delays, with the artifact's faults
(`faithful_to = "osdi20-artifact"`). The delays of the platform were set once, for all runs. A cell
is *original* / *ours*; **bold** is beyond its tolerance. Written by

    mainspring reproduce clockwork original --markdown docs/fidelity.md

"""


def as_markdown(data: Path, rows: Sequence[Row]) -> str:
    """The page. data: the folder of the recorded runs; rows: what `original` gave."""
    by_run: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_run.setdefault(row.figure, {})[row.quantity] = row
    judged = [row for row in rows if row.verdict != "no reference"]
    off = [row for row in judged if row.verdict != "holds"]
    about = {run["run"]: run for run in recorded(data)}
    tolerances = "; ".join(_tolerance(quantity.name, judged) for quantity in QUANTITIES)
    lines = [
        f"{len(judged) - len(off)} of {len(judged)} judged quantities hold, in {len(by_run)} runs. "
        f"Tolerances, set before any run: {tolerances}. Where the SLO is 15 ms or less, goodput "
        "and share may be off by 3%.",
        "",
        *_table(
            ["run", "GPUs", "SLO (ms)", "client", *(quantity.name for quantity in QUANTITIES)],
            [
                [
                    run,
                    about[run]["gpus"],
                    _slo(about[run]["controller_args"]),
                    f"`{about[run]['workload']}`",
                    *(_cell(found.get(quantity.name)) for quantity in QUANTITIES),
                ]
                for run, found in by_run.items()
            ],
        ),
        "",
        f"`{INFER5_RUN}` is the single run of the other scheduler, INFER5; only its goodput is "
        f"held against ours, within 2%. Left out: {', '.join(f'`{run}`' for run in LEFT_OUT)} "
        "(`mainspring/reproduce/original.py` says why). The closed-loop run, `e6c_closed16_g1`, "
        "hangs on little: with other ways back to the clients, 0 to 0.3 ms in place of "
        f"{WAY_BACK_MS:g}, its mean batch is 7.2 to 9.2.",
        "",
        "## Request by request",
        "",
        "Five runs were recorded with every request. The n-th request of a model there is the n-th "
        "of it here. Same fate: in time, late, or given up, in both. No tolerance is set.",
        "",
        *_table(
            ["run", "requests", "same fate", "latencies apart, p50 (ms)", "p90", "p99"],
            [
                [run, *_one_by_one(found)]
                for run, found in by_run.items()
                if any(quantity.startswith("same fate") for quantity in found)
            ],
        ),
        "",
        "## What is off, and why",
        "",
    ]
    for run in dict.fromkeys(row.figure for row in off):
        what = ", ".join(
            f"{row.quantity} {row.difference:+.1%}"
            for row in off
            if row.figure == run and row.difference is not None
        )
        lines.append(f"- `{run}`: {what}. {CAUSES.get(run, 'The cause is not known.')}")
    if not off:
        lines.append("Nothing.")
    return _HEAD + "\n".join(lines) + "\n"


def _tolerance(name: str, judged: Sequence[Row]) -> str:
    widest = {row.tolerance for row in judged if row.quantity == name and row.tolerance != "3%"}
    usual = {row.tolerance for row in judged if row.quantity == name}
    return f"{name} {' or '.join(sorted(widest or usual)[:1])}"


def _slo(controller_args: str) -> str:
    given = controller_args.split()
    return f"{float(given[3]) / 1e6:g}" if len(given) > 3 else "100"


def _cell(row: Row | None) -> str:
    if row is None or row.reference is None or row.obtained is None:
        return ""
    largest = max(row.reference, row.obtained)
    digits = 4 if largest <= 1 else 2 if largest < 100 else 1
    text = f"{row.reference:.{digits}f} / {row.obtained:.{digits}f}"
    return text if row.verdict == "holds" else f"**{text}**"


def _one_by_one(found: dict[str, Row]) -> list[str]:
    cells = []
    for quantity, row in found.items():
        if row.verdict != "no reference" or row.obtained is None:
            continue
        if quantity.startswith("same fate"):
            cells += [f"{row.reference or 0:,.0f}", f"{row.obtained / (row.reference or 1):.1%}"]
        else:
            cells.append(f"{row.obtained:.2f}")
    return cells


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"| {' | '.join(['---'] * len(head))} |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
