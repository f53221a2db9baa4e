"""What the figures share: run a scenario, keep what became of it, use the machine's processors.

A figure is a list of points, each a scenario that runs by itself. A point comes back as the
numbers that the figure needs, so that little travels between processes. `Log` is the sink: every
request and action in columns of a few bytes each.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest

from mainspring.bars import counts
from mainspring.scenario import Scenario, build_scenario
from mainspring.world import build_world, quiet_collector
from scheduler.records import Outcome, Status

RESNET50: Final = "clockwork_docs/resnet50_v2"

V100_PAGES: Final = 1376
"""16 MiB pages for weights on a V100 of 32 GB, as the artifact sets it."""

DELAYS_US: Final = {
    "client_to_controller": 60,
    "controller_to_worker": 100,
    "worker_to_controller": 200,
    "controller_to_client": 60,
}
"""Messages. Two engine actions follow each other at once, as on a GPU whose queue is full."""

V100: Final = {"pages": V100_PAGES, "delays_us": DELAYS_US, "noise": "v100"}
"""A cluster of the paper's GPUs, which are real; its emulated ones (figure 11) have no noise."""

P = TypeVar("P")
R = TypeVar("R")


class Requests(NamedTuple):
    """Requests by column, in the order in which they ended; times in ns."""

    arrival: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    deadline: npt.NDArray[np.int64]
    model: npt.NDArray[np.int32]
    client: npt.NDArray[np.int32]
    outcome: npt.NDArray[np.int8]
    kind: npt.NDArray[np.int8]
    """The answer's (`AnswerKind`): a default is in time, too, and is no prediction."""
    cold: npt.NDArray[np.bool_]
    batch: npt.NDArray[np.int16]
    """The size of the batch that served it, or how many members of an ensemble did."""

    def where(self, mask: npt.NDArray[np.bool_]) -> "Requests":
        """Some of them."""
        return Requests(*[column[mask] for column in _columns(self)])

    def between(self, start_ns: float, end_ns: float) -> "Requests":
        """Those that arrived in [start_ns, end_ns)."""
        return self.where((self.arrival >= start_ns) & (self.arrival < end_ns))

    @property
    def ok(self) -> npt.NDArray[np.bool_]:
        """Which were answered in time."""
        return np.asarray(self.outcome == Outcome.OK)

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Which were answered, in time or late."""
        return np.asarray(self.outcome <= Outcome.LATE)

    @property
    def latency_ms(self) -> npt.NDArray[np.float64]:
        """From arrival to end."""
        return (self.end - self.arrival) / 1e6


class Actions(NamedTuple):
    """Batches, or loads, that were done, by column; times in ns. batch is 0 for a load."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    expected_end: npt.NDArray[np.int64]
    expected: npt.NDArray[np.int64]
    """How long the policy believed that it takes."""
    duration: npt.NDArray[np.int64]
    model: npt.NDArray[np.int32]
    gpu: npt.NDArray[np.int16]
    batch: npt.NDArray[np.int16]
    tasks: npt.NDArray[np.int16]

    def where(self, mask: npt.NDArray[np.bool_]) -> "Actions":
        """Some of them."""
        return Actions(*[column[mask] for column in _columns(self)])

    def between(self, start_ns: float, end_ns: float) -> "Actions":
        """Those that ended in [start_ns, end_ns)."""
        return self.where((self.end >= start_ns) & (self.end < end_ns))


def _columns(of: tuple[Any, ...]) -> tuple[Any, ...]:
    """The columns, whatever they hold."""
    return of


class _Columns:
    """Rows of integers, put away as columns whenever some thousands have come."""

    BLOCK: Final = 16_384

    def __init__(self, types: Sequence[Any]) -> None:
        self._types = types
        self._rows: list[tuple[int, ...]] = []
        self._blocks: list[list[npt.NDArray[Any]]] = []

    def add(self, row: tuple[int, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) >= self.BLOCK:
            self._put_away()

    def _put_away(self) -> None:
        table = np.array(self._rows, dtype=np.int64).reshape(-1, len(self._types)).T
        self._blocks.append(
            [column.astype(kind) for column, kind in zip(table, self._types, strict=True)]
        )
        self._rows = []

    def columns(self) -> list[npt.NDArray[Any]]:
        self._put_away()
        return [np.concatenate(blocks) for blocks in zip(*self._blocks, strict=True)]


class Log:
    """A sink that keeps requests and finished actions. missed: actions not done, by status."""

    def __init__(self) -> None:
        self._requests = _Columns(
            (np.int64,) * 3 + (np.int32, np.int32, np.int8, np.int8, np.bool_, np.int16)
        )
        self._batches = _Columns((np.int64,) * 5 + (np.int32, np.int16, np.int16, np.int16))
        self._loads = _Columns((np.int64,) * 5 + (np.int32, np.int16, np.int16, np.int16))
        self.not_done = 0

    def request(self, row: tuple[Any, ...]) -> None:
        """Keep what the figures use of REQUEST_COLUMNS."""
        self._requests.add(
            (row[3], row[5], row[4], row[1], row[2], row[6], row[8], row[11], row[10])
        )

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        """Figures have no faults."""

    def action(self, row: tuple[Any, ...]) -> None:
        """Keep what the figures use of ACTION_COLUMNS, of what was done."""
        if row[13] != Status.DONE:
            self.not_done += 1
            return
        kind = row[1]
        if kind == "unload":
            return
        (self._batches if kind == "infer" else self._loads).add(
            (row[10], row[11], row[15], row[8], row[12], row[3], row[2], row[4], row[5])
        )

    @property
    def requests(self) -> Requests:
        """All requests."""
        return Requests(*self._requests.columns())

    @property
    def batches(self) -> Actions:
        """All batches."""
        return Actions(*self._batches.columns())

    @property
    def loads(self) -> Actions:
        """All loads."""
        return Actions(*self._loads.columns())


S = TypeVar("S")


def play(table: Mapping[str, Any], sink: S) -> S:
    """Run the scenario in `table` with its one policy, and give the sink back."""
    return play_scenario(build_scenario(table), None, sink)


def play_scenario(scenario: Scenario, policy: str | None, sink: S) -> S:
    """Run a scenario with one policy of its own, by its label; None where it has but one."""
    (choice,) = scenario.choose([policy] if policy else ())
    world = build_world(scenario, choice.build(), sink)
    with quiet_collector():
        world.run(round(scenario.spec.duration_s * 1e9), round(scenario.spec.drain_s * 1e9))
    return sink


def clockwork(**params: Any) -> dict[str, Any]:
    """The policy table of the paper's system: INFER5 as published, with its faults."""
    defaults = {"name": "clockwork", "variant": "infer5", "faithful_to": "osdi20-artifact"}
    return {"clockwork": defaults | params}


def share_busy(actions: Actions, start_ns: float, end_ns: float, engines: int) -> float:
    """Which share of the time [start_ns, end_ns) the engines were busy."""
    inside = np.minimum(actions.end, end_ns) - np.maximum(actions.start, start_ns)
    return float(np.maximum(inside, 0).sum() / (end_ns - start_ns) / engines)


def busy_by_bin(
    actions: Actions, edges_ns: npt.NDArray[np.float64], engines: int
) -> npt.NDArray[np.float64]:
    """The same for each bin between edges of equal distance. An action counts where it ended."""
    took, _ = np.histogram(actions.end, edges_ns, weights=actions.duration)
    return np.asarray(took / np.diff(edges_ns) / engines)


def wilson(good: int, n: int) -> tuple[float, float]:
    """The 95% interval of a share, by Wilson; it stays between 0 and 1."""
    if n == 0:
        return 0.0, 1.0
    interval = binomtest(good, n).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


class Gathered(NamedTuple):
    """What became of the points: (point, result) in the order of the points."""

    results: list[tuple[Any, Any]]
    complete: bool


def gather(
    measure: Callable[[P], R], points: Sequence[P], label: str, *, processes: int | None = None
) -> Gathered:
    """Measure every point, side by side; after Ctrl-C, those that were finished.

    measure: a function of a module, for it runs in other processes. Points that take long should
    come first.
    """
    processes = max(1, min(processes or os.cpu_count() or 1, len(points)))
    found: dict[int, R] = {}
    complete = True
    with counts(quiet=False) as show:
        assert show is not None, "it is not quiet"
        show(label, 0, len(points))
        try:
            if processes == 1:
                for i, point in enumerate(points):
                    found[i] = measure(point)
                    show(label, len(found), len(points))
            else:
                jobs = [(measure, i, point) for i, point in enumerate(points)]
                # A fresh interpreter, for a fork copies threads' locks; Ctrl-C is the parent's.
                context = multiprocessing.get_context("spawn")
                with context.Pool(processes, _ignore_ctrl_c) as pool:
                    for i, result in pool.imap_unordered(_job, jobs):
                        found[i] = result
                        show(label, len(found), len(points))
        except KeyboardInterrupt:
            complete = False
            print("\nstopping; what was finished is kept", file=sys.stderr)
    return Gathered([(points[i], found[i]) for i in sorted(found)], complete)


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _job(job: tuple[Callable[[Any], Any], int, Any]) -> tuple[int, Any]:
    measure, i, point = job
    return i, measure(point)
