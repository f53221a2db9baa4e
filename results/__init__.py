"""The fate of every request: written while a run goes on, checked, summed up, shown.

A world hands rows to a `RunWriter`; what it leaves in its directory is read with the functions
here, shown with `results.table` and drawn with `results.plots` (kept apart: matplotlib is slow to
import).
"""

from results.errors import InvariantError, ResultsError
from results.reader import (
    read_actions,
    read_latencies,
    read_outcomes,
    read_seconds,
    read_summary,
)
from results.summary import Summary
from results.writer import RunWriter

__all__ = [
    "InvariantError",
    "ResultsError",
    "RunWriter",
    "Summary",
    "read_actions",
    "read_latencies",
    "read_outcomes",
    "read_seconds",
    "read_summary",
]
