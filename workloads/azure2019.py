"""Replay the Azure Functions trace of 2019, with functions standing in for models.

The trace (Shahrad et al., Serverless in the Wild, USENIX ATC 2020) holds, for each function, how
many invocations ended in each minute of a day. It says nothing of the instants within a minute,
and the choice decides what the tail latencies are; so `placement` has to be chosen by name.
Both known shapes are read: Microsoft's own (columns HashOwner, HashApp, HashFunction, Trigger,
1 ... 1440) and the In-Vitro samples (minutes 480 ..., or 1_minute ...).
Not here: the durations and memory files that come with the trace. They are of functions on CPUs;
what a model costs is in its profile.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from workloads.common import (
    AGAIN,
    Chunk,
    Common,
    WorkloadError,
    require_choice,
    require_positive,
    warn_of_early_end,
)
from workloads.csvfile import arrow_stream, header, reading, require_columns, rows
from workloads.mapping import MAPPINGS, mapped

MINUTE_NS: Final = 60 * 10**9

ID_COLUMNS: Final = ("HashOwner", "HashApp", "HashFunction")
"""Together they name a function."""

Counts = npt.NDArray[np.int32] | npt.NDArray[np.float64]
"""Invocations by function; of derived functions (workloads/azure2019_derived.py) expected ones."""

PLACEMENTS: Final = ("uniform", "poisson", "even", "start")


class Azure2019(Common, frozen=True, kw_only=True, tag_field="kind", tag="azure2019"):
    """Open-loop arrivals from invocations per function and minute (.csv or .csv.gz).

    path: relative to the scenario file. minutes: the first and the last minute to replay, by the
    labels of their columns; all by default. The first one begins at start_s.

    placement: where a minute's invocations go.
    "uniform": each at a random instant of its minute; the counts are kept.
    "poisson": as "uniform", but the count is drawn too, from a Poisson distribution around the
    recorded one, as the original Clockwork client does.
    "even": in equal gaps, each function with a random phase of its own; the counts are kept.
    "start": all at the first instant of the minute; the counts are kept.

    rate_scale: multiplies the load. A recorded invocation is replayed floor(rate_scale) times,
    and once more with the probability of the rest: 0.25 keeps one in four at random, 2 doubles
    each. With "poisson" it multiplies the expected count.

    repeat: how often these minutes are played, one time after the other.

    mapping: which model stands for which of the F functions, if there are M models.
    "by_volume": functions in the order of their invocations in these minutes, the busiest first,
    and function i is model floor(i * M / F). This is the original Clockwork's rule.
    "round_robin": functions in the order of the file, and function i is model i % M.
    """

    path: str
    placement: str = ""
    minutes: tuple[int, int] | None = None
    rate_scale: float = 1.0
    mapping: str = "by_volume"
    repeat: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.placement:
            raise WorkloadError(
                "placement is missing: the trace counts invocations per minute and does not say "
                "when in the minute they came, and tail latencies depend on it; expected one of "
                '"uniform", "poisson", "even", "start"'
            )
        require_choice("placement", self.placement, PLACEMENTS)
        require_choice("mapping", self.mapping, MAPPINGS)
        require_positive("rate_scale", self.rate_scale, "a factor")
        if self.repeat < 1:
            raise WorkloadError(f"repeat = {self.repeat}; expected how often, at least 1")
        if self.minutes is not None and not 0 <= self.minutes[0] <= self.minutes[1]:
            raise WorkloadError(
                f"minutes = {list(self.minutes)}; expected the first and the last minute"
            )

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """Arrivals from start_s to the end of the trace or of the run, which is not included.

        models: what `select` gave. model_names: of all models of the run (not used here).
        A chunk is a minute. A longer run has the arrivals of a shorter one, and more.
        Raises WorkloadError if the file cannot be read or is not such a trace, and warns if the
        run's end is empty.
        """
        counts = self._counts(rng)
        model_of = self._model_of(counts, np.array(models, dtype=np.int32))
        phases = rng.random(len(model_of)) if self.placement == "even" else None
        for minute, recorded in enumerate(chain.from_iterable(repeat(counts, self.repeat))):
            start_ns = self.start_ns + minute * MINUTE_NS
            if start_ns >= duration_ns:
                return
            n = self._scaled(recorded, rng)
            times_ns = start_ns + self._places_ns(n, phases, rng)
            order = np.argsort(times_ns, kind="stable")
            order = order[: np.searchsorted(times_ns, duration_ns, sorter=order)]
            yield Chunk(times_ns[order], np.repeat(model_of, n)[order])
        end_ns = self.start_ns + len(counts) * self.repeat * MINUTE_NS
        warn_of_early_end(Path(self.path).name, end_ns, self.start_ns, duration_ns, AGAIN)

    def _counts(self, rng: np.random.Generator) -> Sequence[Counts]:
        """Invocations of each function, shape (F,), for each minute in order."""
        return self._read()

    def _scaled(self, recorded: Counts, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """How often each function is invoked in a minute, after rate_scale."""
        if self.placement == "poisson":
            return rng.poisson(recorded * self.rate_scale)
        times, rest = divmod(self.rate_scale, 1)
        whole = recorded.astype(np.int64)
        n = whole * int(times)
        return n + rng.binomial(whole, rest) if rest else n

    def _places_ns(
        self,
        n: npt.NDArray[np.int64],
        phases: npt.NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.int64]:
        """Instants within a minute, function by function; n[f] of them for function f."""
        total = int(n.sum())
        if self.placement == "start":
            return np.zeros(total, dtype=np.int64)
        if phases is None:
            return rng.integers(MINUTE_NS, size=total)
        # The k-th of a function's n calls comes at (k + phase) / n of the minute. Without the
        # phase all functions would place their first call at the same instant.
        k = np.arange(total) - np.repeat(np.cumsum(n) - n, n)
        places = (k + np.repeat(phases, n)) * (MINUTE_NS / np.repeat(n, n))
        return np.minimum(np.rint(places).astype(np.int64), MINUTE_NS - 1)

    def _model_of(
        self, counts: Sequence[Counts], models: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int32]:
        """The model of each function, shape (F,)."""
        volume = np.zeros(len(counts[0]), dtype=np.float64)
        for recorded in counts:
            volume += recorded
        return mapped(self.mapping, volume, models.tolist())

    def _read(self) -> list[npt.NDArray[np.int32]]:
        """Invocations of each function, shape (F,), for each minute in order."""
        path = Path(self.path)
        names = header(path)
        require_columns(path, names, ID_COLUMNS)
        labels = self._labels(names)

        def explain() -> None:
            _explain_counts(path, labels)

        with reading(path, explain), arrow_stream(path) as stream:
            table = pa.csv.read_csv(
                stream,
                convert_options=pa.csv.ConvertOptions(
                    include_columns=[*ID_COLUMNS, *labels],
                    column_types={
                        **dict.fromkeys(ID_COLUMNS, pa.string()),
                        **dict.fromkeys(labels, pa.int32()),
                    },
                    null_values=[],
                ),
            )
        counts = [table.column(label).to_numpy() for label in labels]
        if min(int(recorded.min()) for recorded in counts) < 0:
            explain()
        _refuse_duplicates(path, table)
        return counts

    def _labels(self, names: list[str]) -> list[str]:
        """The columns of the minutes to replay, in order."""
        name = Path(self.path).name
        label_of = {}
        for label in names:
            if match := re.fullmatch(r"(\d+)(_minute)?", label):
                label_of[int(match[1])] = label
        if not label_of:
            raise WorkloadError(f"{name} has no minutes; expected columns such as 480 or 1_minute")
        first, last = self.minutes or (min(label_of), max(label_of))
        for minute in range(first, last + 1):
            if minute not in label_of:
                raise WorkloadError(
                    f"{name} has no minute {minute}; its minutes are "
                    f"{min(label_of)} to {max(label_of)}"
                )
        return [label_of[minute] for minute in range(first, last + 1)]


def _explain_counts(path: Path, labels: list[str]) -> None:
    """Raise WorkloadError at the first cell that is not a count."""
    for line, cells in rows(path):
        for label in labels:
            cell = cells[label].strip()
            if not (cell.isdecimal() and int(cell) < 2**31):
                raise WorkloadError(
                    f"{path.name}, line {line}: {cell or 'an empty cell'} is not a count of "
                    "invocations; expected a whole number"
                )


def _refuse_duplicates(path: Path, table: Any) -> None:
    """Raise WorkloadError if a function has two rows: its load would count twice, or be split."""
    ids = list(zip(*(table.column(column).to_pylist() for column in ID_COLUMNS), strict=True))
    if len(set(ids)) == len(ids):
        return
    first_line: dict[tuple[str, ...], int] = {}
    for line, cells in rows(path):
        function = tuple(cells[column] for column in ID_COLUMNS)
        if function in first_line:
            raise WorkloadError(
                f"{path.name}, line {line}: function {function[-1]} is already on line "
                f"{first_line[function]}; add the two rows up, or remove one"
            )
        first_line[function] = line
