"""Triton's perf_analyzer: one row for each number of closed-loop clients, averages in µs.

What the server computed at the lowest concurrency is taken as the duration of a batch: input,
inference and output. The file tells neither model, nor batch size, nor device. Its percentiles
are of the clients' latencies, queueing included, and say nothing of the model.
"""

from pathlib import Path

from profiles.durations import Constant
from profiles.errors import ProfileError
from profiles.importers.draft import Draft, Given, cells_of, head_of, micros, text_of, whole

COMPUTE = ("Server Compute Input", "Server Compute Infer", "Server Compute Output")


def is_one(path: Path) -> bool:
    """Whether the file looks like one."""
    return {"Concurrency", *COMPUTE} <= set(head_of(path).split(","))


def read(path: Path, given: Given) -> list[Draft]:
    """The model of the file, by the file's name."""
    lines = text_of(path).splitlines()
    names = [name.strip() for name in lines[0].split(",")] if lines else []
    for column in ("Concurrency", *COMPUTE):
        if column not in names:
            raise ProfileError(f"{path.name}, line 1: no column {column}; expected it")
    if given.batch is None:
        raise ProfileError(
            f"{path.name} does not tell the batch size; give --batch (perf_analyzer's -b, which "
            "is 1 where it was not set)"
        )
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            where = f"{path.name}, line {number}"
            cells = cells_of(where, line, names)
            rows.append((whole(where, cells["Concurrency"]), where, cells))
    if not rows:
        raise ProfileError(f"{path.name} has no rows; expected at least one below its header")
    concurrency, where, cells = min(rows, key=lambda row: row[0])
    parts = [cells[column] for column in COMPUTE]
    total_us = sum(float(part) for part in parts if _is_number(where, part))
    return [
        Draft(
            name=path.name.partition(".")[0],
            exec={given.batch: Constant(micros(where, str(total_us)))},
            about="Triton's perf_analyzer",
            notes=[
                f"exec_ms is the server's mean compute time (input, inference, output) at "
                f"concurrency {concurrency}"
            ],
        )
    ]


def _is_number(where: str, cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        raise ProfileError(f"{where}: {cell or 'an empty cell'} is not a duration in us") from None
    return True
