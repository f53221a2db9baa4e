"""Replay a recorded trace: a CSV file with the instant and the model of each request.

The columns may have any name and the times any unit, but the unit has to be said: a factor of a
thousand makes a run look idle or hopeless, and nothing in the file gives it away.
Rows are read in blocks, so that a long trace needs little memory.
Not here: time stamps with a date, and changing a trace's speed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from workloads.common import (
    CHUNK,
    Chunk,
    Common,
    WorkloadError,
    close_to,
    require_choice,
    shortened,
)
from workloads.csvfile import arrow_stream, header, line_of, reading, require_columns, rows

UNIT_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}

BLOCK_BYTES = 2**18
"""What is read at a time: a chunk, if a row has some 16 bytes."""


class Trace(Common, frozen=True, kw_only=True, tag_field="kind", tag="trace"):
    """Open-loop arrivals as recorded in a CSV file, which may be gzipped (.gz).

    path: relative to the scenario file. time_column: a number in `time_unit` ("ns", "us", "ms" or
    "s"). time_origin: which time of the file is start_s, its "zero" or its "first" request.
    model_column: the name of a model, or its place in the workload's models, from 0.
    sort: put the requests in order first, which needs the whole trace in memory; without it an
    unsorted trace is an error.
    Times go through float64: exact to the nanosecond within 104 days of zero.
    """

    path: str
    time_column: str
    model_column: str
    time_unit: str = ""
    time_origin: str = "zero"
    sort: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.time_unit:
            raise WorkloadError(
                f"time_unit is missing, and {self.path} cannot tell it; "
                'expected one of "ns", "us", "ms", "s"'
            )
        require_choice("time_unit", self.time_unit, tuple(UNIT_NS))
        require_choice("time_origin", self.time_origin, ("zero", "first"))

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """The trace's requests from start_s to the end of the run, which is not included.

        models: what `select` gave. model_names: of all models of the run. Takes nothing from rng.
        Raises WorkloadError if the file cannot be read, a cell is wrong, or no request is within
        the run.
        """
        path = Path(self.path)
        require_columns(path, header(path), [self.time_column, self.model_column])
        places = _Places(models, model_names)
        blocks = self._sorted(places) if self.sort else self._blocks(places)
        origin_ns: int | None = 0 if self.time_origin == "zero" else None
        done = 0
        for times_ns, chosen in blocks:
            if origin_ns is None:
                origin_ns = int(times_ns[0])
            times_ns = times_ns + (self.start_ns - origin_ns)
            n = int(np.searchsorted(times_ns, duration_ns))
            if done == n == 0:
                raise WorkloadError(
                    f"{path.name}: the first request comes at {times_ns[0] / 1e9:g} s, and the "
                    f"run ends at {duration_ns / 1e9:g} s; "
                    'check time_unit, or set time_origin = "first"'
                )
            for i in range(0, n, CHUNK):
                yield Chunk(times_ns[i : min(i + CHUNK, n)], chosen[i : min(i + CHUNK, n)])
            done += n
            if n < len(times_ns):
                return

    def _sorted(self, places: "_Places") -> Iterator[Chunk]:
        blocks = list(self._blocks(places))
        times_ns = np.concatenate([block.times_ns for block in blocks])
        chosen = np.concatenate([block.models for block in blocks])
        order = np.argsort(times_ns, kind="stable")
        yield Chunk(times_ns[order], chosen[order])

    def _blocks(self, places: "_Places") -> Iterator[Chunk]:
        """The file's rows as they are, in the file's time, some at a time."""
        path = Path(self.path)
        row, last_ns = 0, 0
        with reading(path, lambda: self._explain(places)), arrow_stream(path) as stream:
            for batch in pa.csv.open_csv(
                stream,
                read_options=pa.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
                convert_options=pa.csv.ConvertOptions(
                    include_columns=[self.time_column, self.model_column],
                    column_types={
                        self.time_column: pa.float64(),
                        self.model_column: pa.dictionary(pa.int32(), pa.string()),
                    },
                    null_values=[],
                ),
            ):
                if batch.num_rows == 0:
                    continue
                times = batch.column(0).to_numpy() * UNIT_NS[self.time_unit]
                chosen = places.of(batch.column(1))
                # Written so that not-a-number fails too.
                if chosen is None or not (times.min() >= 0 and times.max() < 2**62):
                    self._explain(places)
                    raise AssertionError(f"{path.name}: a row is bad only when read in blocks")
                times_ns = np.rint(times).astype(np.int64)
                falls = np.flatnonzero(np.diff(times_ns, prepend=last_ns) < 0)
                if falls.size and not self.sort:
                    raise WorkloadError(
                        f"{path.name}, line {line_of(path, row + int(falls[0]))}: its "
                        f"{self.time_column} is before that of the line above; "
                        "expected them in order, or set sort = true"
                    )
                yield Chunk(times_ns, chosen)
                row, last_ns = row + len(times_ns), int(times_ns[-1])

    def _explain(self, places: "_Places") -> None:
        """Raise WorkloadError at the first row that has a bad cell."""
        path = Path(self.path)
        for line, cells in rows(path):
            if not _is_time(cells[self.time_column], UNIT_NS[self.time_unit]):
                raise WorkloadError(
                    f"{path.name}, line {line}: {cells[self.time_column] or 'an empty cell'} is "
                    f"not a time in {self.time_unit}; expected a number, at least 0"
                )
            if places.place(cells[self.model_column]) is None:
                name = cells[self.model_column]
                known = places.names
                raise WorkloadError(
                    f"{path.name}, line {line}: {name or 'an empty cell'} is not a model of this "
                    f"workload{close_to(name, known)}; expected {shortened(known)}, "
                    f"or a number from 0 to {len(known) - 1}"
                )


class _Places:
    """Which model a cell means: the one of that name, else the one at that place."""

    def __init__(self, models: Sequence[int], model_names: Sequence[str]) -> None:
        self.names = [model_names[model] for model in models]
        self._model = {str(place): model for place, model in enumerate(models)}
        self._model.update(zip(self.names, models, strict=True))

    def place(self, cell: str) -> int | None:
        return self._model.get(cell)

    def of(self, column: Any) -> npt.NDArray[np.int32] | None:
        """The models of a dictionary-encoded column; None if one is not known."""
        meant = [self.place(cell) for cell in column.dictionary.to_pylist()]
        if None in meant:
            return None
        indices: npt.NDArray[np.int32] = column.indices.to_numpy()
        return np.array(meant, dtype=np.int32)[indices]


def _is_time(cell: str, unit_ns: float) -> bool:
    try:
        return 0 <= float(cell) * unit_ns < 2**62
    except ValueError:
        return False
