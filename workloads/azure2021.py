"""Replay the Azure Functions trace of 2021: one row an invocation, functions stand for models.

The trace (Zhang et al., Faster and Cheaper Serverless Computing, SOSP 2021) gives the end and the
duration of each invocation in seconds, in no order; it began at their difference. The duration
leaves the cold start out. A function has a name only inside its app.
Not here: using the durations, which are of functions on CPUs.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.common import Chunk, WorkloadError, require_choice
from workloads.mapping import MAPPINGS, mapped
from workloads.recorded import Recorded
from workloads.tables import Kind, blocks, cells, require_columns

COLUMNS: Final[dict[str, Kind]] = {
    "app": "text",
    "func": "text",
    "end_timestamp": "number",
    "duration": "number",
}


class Invocations(NamedTuple):
    """All invocations, by their start. functions: numbers from 0, by the first row of each."""

    start_s: npt.NDArray[np.float64]
    duration_s: npt.NDArray[np.float64]
    functions: npt.NDArray[np.int64]
    n_functions: int


class Azure2021(Recorded, frozen=True, kw_only=True, tag_field="kind", tag="azure2021"):
    """Open-loop arrivals at the starts of recorded invocations (.csv or .csv.gz).

    The earliest one is at start_s. The whole trace is held in memory, to put it in order.
    mapping: which model stands for a function, "by_volume" or "round_robin": workloads/mapping.py.
    """

    mapping: str = "by_volume"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("mapping", self.mapping, MAPPINGS)
        self.refuse_weights("mapping")

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """Arrivals from start_s to the end of the run, which is not included.

        models: what `select` gave. model_names: of all models of the run (not used here).
        Raises WorkloadError if the file cannot be read or is not such a trace.
        """
        calls = self.read()
        volume = np.bincount(calls.functions, minlength=calls.n_functions)
        chosen = mapped(self.mapping, volume, models)[calls.functions]
        times_ns = np.rint((calls.start_s - calls.start_s[0]) * 1e9).astype(np.int64)
        return self.play(
            lambda: iter([Chunk(times_ns, chosen)]), Path(self.path).name, duration_ns, rng
        )

    def read(self) -> Invocations:
        """All invocations. A start before second 0 is as it was recorded."""
        path = Path(self.path)
        require_columns(path, list(COLUMNS))
        index: dict[tuple[str, str], int] = {}
        ends, durations, functions = [], [], []
        for app, func, end, duration in blocks(path, COLUMNS, self._explain):
            ends.append(end.to_numpy())
            durations.append(duration.to_numpy())
            names = zip(app.to_pylist(), func.to_pylist(), strict=True)
            functions.append([index.setdefault(name, len(index)) for name in names])
        end_s, duration_s = np.concatenate(ends), np.concatenate(durations)
        if not (np.isfinite(end_s).all() and (duration_s >= 0).all() and duration_s.max() < 1e9):
            self._explain()
        start_s = end_s - duration_s
        order = np.argsort(start_s, kind="stable")
        return Invocations(
            start_s[order], duration_s[order], np.concatenate(functions)[order], len(index)
        )

    def notes(self) -> list[str]:
        """What a reader should know about the file, each in a line."""
        calls = self.read()
        n, apps = len(calls.start_s), calls.n_functions
        notes = [f"{n} invocations of {apps} functions"]
        if zero := int((calls.duration_s == 0).sum()):
            notes.append(f"zero duration: {zero} of {n} ({zero / n:.0%}); they are arrivals too")
        if early := int((calls.start_s < 0).sum()):
            notes.append(f"{early} of {n} began before second 0 of the trace")
        return notes

    def _explain(self) -> None:
        path = Path(self.path)
        for place, row in cells(path):
            for column, least in (("end_timestamp", -1e9), ("duration", 0.0)):
                try:
                    good = least <= float(row[column]) < 1e9
                except ValueError:
                    good = False
                if not good:
                    raise WorkloadError(
                        f"{path.name}, {place}: {row[column] or 'an empty cell'} is no "
                        f"{column} in seconds; expected a number"
                        f"{', at least 0' if least == 0 else ''}"
                    )
