"""Small worlds for the tests: a cluster in a line, and what came of it."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from profiles.durations import Constant, Durations
from scheduler.faults import Fault
from scheduler.policies import POLICIES
from scheduler.records import (
    ACTION_COLUMNS,
    FOREVER,
    REQUEST_COLUMNS,
    GpuInfo,
    ModelInfo,
    Outcome,
)
from sim.cluster import Cluster, Delays, OpenLoop
from sim.drawn import Drawn
from sim.faults import FaultyCluster
from sim.gpu import ModelCost, SimGpu
from workloads import Client

MS = 1_000_000

RESNET50 = {1: 2.73, 2: 4.05, 4: 5.88, 8: 9.93, 16: 17.33}
"""Execution in ms by batch size: Clockwork's documentation, docs/firstrun."""
RESNET50_LOAD_MS = 8.31
RESNET50_PAGES = 7
GPU_PAGES = 1376
"""A V100's page cache: Clockwork, default of 23,085,449,216 bytes in pages of 16 MiB."""


class Row(NamedTuple):
    """A request's fate."""

    id: int
    model: int
    client: int
    arrival_ns: int
    deadline_ns: int
    end_ns: int
    outcome: int
    reason: int
    kind: int
    gpu: int
    batch: int
    cold: bool
    action: int

    @property
    def latency_ns(self) -> int:
        return self.end_ns - self.arrival_ns


class ActionRow(NamedTuple):
    """An action's fate."""

    id: int
    type: str
    gpu: int
    model: int
    batch: int
    tasks: int
    earliest_ns: int
    latest_ns: int
    expected_ns: int
    sent_ns: int
    start_ns: int
    end_ns: int
    duration_ns: int
    status: int
    why: int
    expected_end_ns: int
    clock_mhz: int


assert Row._fields == REQUEST_COLUMNS
assert ActionRow._fields == ACTION_COLUMNS


class Sink:
    """Keeps everything."""

    def __init__(self) -> None:
        self.requests: list[Row] = []
        self.actions: list[ActionRow] = []
        self.lost: list[tuple[int, int]] = []
        """Workers: (GPU, when)."""

    def request(self, row: tuple[Any, ...]) -> None:
        self.requests.append(Row(*row))

    def action(self, row: tuple[Any, ...]) -> None:
        self.actions.append(ActionRow(*row))

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        self.lost.append((gpu, at_ns))

    def ended(self, outcome: Outcome) -> list[Row]:
        return [row for row in self.requests if row.outcome == outcome]


class World(NamedTuple):
    """A run that is over."""

    cluster: Cluster
    sink: Sink

    @property
    def requests(self) -> list[Row]:
        return sorted(self.sink.requests)

    @property
    def actions(self) -> list[ActionRow]:
        return self.sink.actions


class ModelSpec(NamedTuple):
    """A model of a small world."""

    exec: dict[int, Durations]
    load: Durations
    pages: int

    def info(self, id: int) -> ModelInfo:
        return ModelInfo(
            id,
            f"model{id}",
            self.pages,
            self.load.estimate_ns(),
            tuple(self.exec),
            tuple(durations.estimate_ns() for durations in self.exec.values()),
        )


def model(
    exec_ms: dict[int, float] | None = None,
    load_ms: float = RESNET50_LOAD_MS,
    pages: int = RESNET50_PAGES,
) -> ModelSpec:
    exec_ms = exec_ms or RESNET50
    return ModelSpec(
        {batch: Constant(round(ms * MS)) for batch, ms in exec_ms.items()},
        Constant(round(load_ms * MS)),
        pages,
    )


def policy(name: str, **params: Any) -> Any:
    kind = POLICIES[name]
    return kind(kind.Params(**params))


def run(
    chosen: Any,
    arrivals: Iterable[tuple[float, int]] | tuple[np.ndarray, np.ndarray] = (),
    *,
    models: Sequence[ModelSpec] | None = None,
    gpus: int = 1,
    pages: int = GPU_PAGES,
    slo_ms: float | None = 100.0,
    delays: Delays | None = None,
    clients: Sequence[Client] = (),
    end_s: float = 1.0,
    drain_s: float = 1.0,
    seed: int = 1,
    sink: Any = None,
    streams: Sequence[int] | None = None,
    slo_ns: Sequence[Sequence[int]] | None = None,
    record: Any = None,
    keys: Any = None,
    gpu_kind: Any = SimGpu,
    link: Any = None,
    truth: Any = None,
    faults: Sequence[Fault] = (),
    drawn: Drawn | None = None,
) -> World:
    """Run a policy. arrivals: (ms, model) pairs, or arrays of times in ns and models.

    streams, slo_ns: which stream each arrival belongs to, and the SLOs by stream and model, where
    one `slo_ms` for all is not enough.
    """
    models = models or [model()]
    if isinstance(arrivals, tuple) and arrivals and isinstance(arrivals[0], np.ndarray):
        times, which = arrivals
    else:
        pairs = sorted((round(ms * MS), m) for ms, m in arrivals)
        times = np.array([ns for ns, _ in pairs], dtype=np.int64)
        which = np.array([m for _, m in pairs], dtype=np.int32)
    if slo_ns is None:
        slo_ns = [[FOREVER if slo_ms is None else round(slo_ms * MS)] * len(models)]
    of_stream = np.zeros(len(times)) if streams is None else np.array(streams)
    sink = sink or Sink()
    kind: Any = partial(FaultyCluster, faults=faults) if faults else Cluster
    cluster = kind(
        policy=policy(chosen) if isinstance(chosen, str) else chosen,
        gpus=tuple(GpuInfo(i, (i,), pages) for i in range(gpus)),
        models=tuple(spec.info(i) for i, spec in enumerate(models)),
        costs=[ModelCost(spec.pages, spec.load, spec.exec) for spec in models],
        delays=delays or Delays(),
        arrivals=OpenLoop(iter([(times, which, of_stream.astype(np.int32))]), slo_ns),
        clients=clients,
        sink=sink,
        rngs=[np.random.default_rng([seed, gpu]) for gpu in range(gpus)],
        policy_rng=np.random.default_rng(seed),
        record=record,
        keys=keys,
        gpu_kind=gpu_kind,
        link=link,
        truth=truth,
        drawn=drawn,
    )
    cluster.run(round(end_s * 1e9), round(drain_s * 1e9))
    return World(cluster, sink)
