"""The durations and memory that come with the Azure Functions trace of 2019.

They are of functions on CPUs, so no model is priced by them; they tell how the functions of a
trace differ. What has to be known about them (github Azure/AzurePublicDataset, issues 13, 23, 46):
an average may be negative or 0, a function may have two rows, or none though it was invoked; the
percentiles are of averages over 30 seconds, weighted by invocations, and not of invocations; the
counts differ a little from those of the invocations; there is no memory file for the last days.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from workloads.common import WorkloadError, WorkloadWarning
from workloads.csvfile import header, require_columns, rows

ID_COLUMNS: Final = ("HashOwner", "HashApp", "HashFunction")

Function = tuple[str, ...]
"""Owner, app and function: together they name a function."""


class Joined(NamedTuple):
    """How long each invoked function takes. dropped: functions left out, with their calls."""

    ms: dict[Function, float]
    calls: dict[Function, int]
    dropped: dict[Function, int]

    def report(self) -> str:
        """What was left out, in one line."""
        lost, total = sum(self.dropped.values()), sum(self.dropped.values())
        total += sum(self.calls.values())
        return (
            f"no duration for {len(self.dropped)} of {len(self.dropped) + len(self.calls)} "
            f"functions: {lost} of {total} calls dropped ({lost / total:.1%})"
        )


def read_durations(path: Path, *, strict: bool = False) -> dict[Function, float]:
    """The average duration of each function, in milliseconds.

    Rows of the same function are merged, weighted by their count. Where an average is not above 0
    the row's median is used. Both are warned of; with `strict` they raise WorkloadError.
    """
    needed = (*ID_COLUMNS, "Average", "Count", "percentile_Average_50")
    require_columns(path, header(path), needed)
    sums: dict[Function, tuple[float, int, int]] = {}
    for line, cells in rows(path):
        place = f"{path.name}, line {line}"
        average = _number(place, "Average", cells)
        count = int(_number(place, "Count", cells))
        if count < 0:
            raise WorkloadError(f"{place}: Count = {count}; expected executions, at least 0")
        median = _number(place, "percentile_Average_50", cells)
        if average < 0 or (average == 0 and median > 0):
            problem = f"{place}: an average of {average:g} ms over {count} executions"
            if strict or median < 0:
                raise WorkloadError(f"{problem}; expected a duration, at least 0")
            _warn(f"{problem}; its median is used, {median:g} ms")
            average = median
        function = tuple(cells[column] for column in ID_COLUMNS)
        before, n, merged = sums.get(function, (0.0, 0, 0))
        sums[function] = (before + average * count, n + count, merged + 1)
    for function, (_, _, merged) in sums.items():
        if merged > 1:
            problem = f"{path.name}: function {function[-1]} has {merged} rows"
            if strict:
                raise WorkloadError(f"{problem}; expected one")
            _warn(f"{problem}; merged {merged} rows, weighted by their count")
    return {function: total / n if n else 0.0 for function, (total, n, _) in sums.items()}


def read_memory(
    path: Path | None, functions: Mapping[Function, object], default_mb: float
) -> dict[Function, float]:
    """The memory of each function in MB, from AverageAllocatedMb; default_mb where it is unknown.

    path: None if there is no file, as for days 13 and 14. Warns once of what is unknown.
    """
    known: dict[Function, float] = {}
    if path is not None:
        require_columns(path, header(path), (*ID_COLUMNS, "AverageAllocatedMb"))
        for line, cells in rows(path):
            mb = _number(f"{path.name}, line {line}", "AverageAllocatedMb", cells)
            known[tuple(cells[column] for column in ID_COLUMNS)] = mb
    lacking = sum(function not in known for function in functions)
    if lacking:
        where = path.name if path is not None else "no memory file"
        _warn(
            f"{where}: no memory for {lacking} of {len(functions)} functions; "
            f"{default_mb:g} MB is assumed"
        )
    return {function: known.get(function, default_mb) for function in functions}


def join(
    calls: Mapping[Function, int],
    durations: Mapping[Function, float],
    *,
    default_ms: float | None = None,
) -> Joined:
    """The duration of each function that is called; calls are those of the invocations.

    default_ms: for functions without one; None leaves them out.
    """
    known = {
        function: durations.get(function, default_ms if default_ms is not None else -1.0)
        for function in calls
    }
    ms = {function: value for function, value in known.items() if value >= 0}
    kept = {function: calls[function] for function in ms}
    return Joined(ms, kept, {function: n for function, n in calls.items() if function not in ms})


def _number(place: str, column: str, cells: Mapping[str, str]) -> float:
    try:
        return float(cells[column])
    except ValueError:
        raise WorkloadError(
            f"{place}: {cells[column] or 'an empty cell'} is not a number ({column})"
        ) from None


def _warn(message: str) -> None:
    warnings.warn(message, WorkloadWarning, stacklevel=3)
