"""Replay a recorded trace: a table with the instant, and mostly the model, of each request.

The file is CSV, JSON lines (.jsonl) or Parquet. The columns may have any name and the times any
unit, but the unit has to be said: a factor of a thousand makes a run look idle or hopeless, and
nothing in the file gives it away.
Rows are read in blocks, so that a long trace needs little memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from workloads.common import Chunk, WorkloadError, require_choice
from workloads.mapping import MAPPINGS, Names, Order, mapped
from workloads.recorded import Recorded
from workloads.tables import Kind, blocks, cells, is_parquet, place_of, require_columns
from workloads.times import UNITS, StampReader, is_time, numbers_ns


class Trace(Recorded, frozen=True, kw_only=True, tag_field="kind", tag="trace"):
    """Open-loop arrivals as recorded in a table (.csv, .jsonl, each perhaps .gz, or .parquet).

    time_column: a number in `time_unit` ("ns", "us", "ms" or "s"), or a date and time of day with
    "stamp". time_origin: which time of the file is start_s, its "zero" or its "first" request;
    stamps always count from the first.
    model_column: the name of a model, or its place in the workload's models, from 0; rename says
    which model is meant by another name. With mapping "by_volume" or "round_robin" the names mean
    nothing and the models take their places (see workloads/mapping.py). Without a model_column
    the requests pick a model by `weights`.
    sort: put the requests in order first, which needs the whole trace in memory; without it an
    unsorted trace is an error.
    Times with a fraction go through float64: exact to the nanosecond within 104 days of zero.
    """

    time_column: str
    time_unit: str = ""
    time_origin: str = "zero"
    model_column: str | None = None
    mapping: str = "name"
    rename: dict[str, str] = msgspec.field(default_factory=dict)
    sort: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.time_unit:
            raise WorkloadError(
                f"time_unit is missing, and {self.path} cannot tell it; "
                'expected one of "ns", "us", "ms", "s", or "stamp" for dates'
            )
        require_choice("time_unit", self.time_unit, UNITS)
        require_choice("time_origin", self.time_origin, ("zero", "first"))
        require_choice("mapping", self.mapping, ("name", *MAPPINGS))
        if self.model_column is None and (self.mapping != "name" or self.rename):
            raise WorkloadError("mapping and rename need a model_column")
        if self.model_column is not None:
            self.refuse_weights("model_column")

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """The trace's requests from start_s to the end of the run, which is not included.

        models: what `select` gave. model_names: of all models of the run.
        Raises WorkloadError if the file cannot be read, a cell is wrong, or no request is within
        the run.
        """
        path = Path(self.path)
        needed = [self.time_column]
        if self.model_column is not None:
            needed.append(self.model_column)
        require_columns(path, needed)
        names = Names(models, model_names, self.rename)
        model_of = choose = None
        if self.model_column is None:
            choose = self.chooser(models, rng)
        elif self.mapping != "name":
            model_of = mapped(self.mapping, self._volume(names), models)

        def read() -> Iterator[Chunk]:
            order = Order()
            for times_ns, column in self._blocks(names):
                if choose is not None:
                    yield Chunk(times_ns, choose(len(times_ns)))
                elif model_of is not None:
                    yield Chunk(times_ns, model_of[order.of(column)])
                else:
                    by_name = names.of(column)
                    assert by_name is not None, "_blocks has looked at the names"
                    yield Chunk(times_ns, by_name)

        from_first = self.time_origin == "first" or self.time_unit == "stamp"

        def from_zero() -> Iterator[Chunk]:
            chunks = iter([in_order(read())]) if self.sort else read()
            origin_ns: int | None = None if from_first else 0
            for times_ns, chosen in chunks:
                if origin_ns is None:
                    origin_ns = int(times_ns[0])
                yield Chunk(times_ns - origin_ns, chosen)

        hint = '; check time_unit, or set time_origin = "first"'
        hint = "" if self.time_unit == "stamp" else hint
        return self.play(from_zero, path.name, duration_ns, rng, hint=hint)

    def _volume(self, names: Names) -> npt.NDArray[np.int64]:
        """How often each name of the file comes, in the order of their first rows."""
        order = Order()
        volume = np.zeros(0, dtype=np.int64)
        for _, column in self._blocks(names):
            numbers = order.of(column)
            volume = np.pad(volume, (0, len(order.index) - len(volume)))
            volume += np.bincount(numbers, minlength=len(volume))
        return volume

    def _blocks(self, names: Names) -> Iterator[tuple[npt.NDArray[np.int64], Any]]:
        """The file's rows as they are: times in the file's own time, and the model column."""
        path = Path(self.path)
        as_text = self.time_unit == "stamp" and not is_parquet(path)
        kinds: dict[str, Kind] = {self.time_column: "text" if as_text else "number"}
        if self.model_column is not None:
            kinds[self.model_column] = "text"
        stamps = StampReader(path.name)

        def explain() -> None:
            self._explain(names)

        row, last_ns = 0, 0
        for columns in blocks(path, kinds, explain):
            if self.time_unit == "stamp":
                times_ns = stamps.read(columns[0])
            else:
                times_ns = numbers_ns(columns[0], self.time_unit)
            by_name = self.model_column is not None and self.mapping == "name"
            if times_ns is None or (by_name and names.of(columns[1]) is None):
                explain()
                raise AssertionError(f"{path.name}: a row is bad only when read in blocks")
            falls = np.flatnonzero(np.diff(times_ns, prepend=last_ns) < 0)
            if falls.size and not self.sort:
                raise WorkloadError(
                    f"{path.name}, {place_of(path, row + int(falls[0]))}: its "
                    f"{self.time_column} is before that of the line above; "
                    "expected them in order, or set sort = true"
                )
            yield times_ns, columns[1] if len(columns) == 2 else None
            row, last_ns = row + len(times_ns), int(times_ns[-1])

    def _explain(self, names: Names) -> None:
        """Raise WorkloadError at the first row that has a bad cell."""
        path = Path(self.path)
        for place, row in cells(path):
            cell = row.get(self.time_column, "")
            if not is_time(cell, self.time_unit):
                expected = f"time in {self.time_unit}; expected a number, at least 0"
                if self.time_unit == "stamp":
                    expected = "date stamp; expected one such as 2023-11-16 18:15:46.68"
                raise WorkloadError(
                    f"{path.name}, {place}: {cell or 'an empty cell'} is not a {expected}"
                )
            if self.model_column is not None and self.mapping == "name":
                name = row.get(self.model_column, "")
                if names.get(name) is None:
                    raise names.unknown(f"{path.name}, {place}", name)


def in_order(chunks: Iterable[Chunk]) -> Chunk:
    """All chunks as one, sorted by time; equal times stay in the order of the file."""
    parts = list(chunks)
    times_ns = np.concatenate([part.times_ns for part in parts])
    chosen = np.concatenate([part.models for part in parts])
    order = np.argsort(times_ns, kind="stable")
    return Chunk(times_ns[order], chosen[order])
