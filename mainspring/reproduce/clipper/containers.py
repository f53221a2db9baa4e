"""Containers as the figures need them: what a batch takes, and how long the container idles then.

    latency   of a batch, as Clipper sees it: a line over its size, which a batch of one may be off
              (`Step`), times noise
    gap       idle time until the next batch of the same container: a line over the size, too

Every container has a processor (or a GPU) of its own, so nothing slows another down; the time that
they have in common is on Clipper's side, in the gaps. `run_containers` puts them into the
simulated cluster, each on a "GPU" of its own, without the checks of a scenario file: the sizes of
batches go to more than a thousand, and no profile file has that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from mainspring.reproduce.experiment import Log
from mainspring.world import Purpose, generator, quiet_collector
from profiles.durations import Constant, Durations, Quantiles
from scheduler.policies import POLICIES
from scheduler.records import FOREVER, GpuInfo, ModelInfo
from sim.cluster import Cluster, Delays, GpuKind, OpenLoop
from sim.gpu import ModelCost
from sim.shared import SharedGpu, Sharing
from workloads import Client

ALONE = Sharing(contention=0.0, jitter=0.0)
"""Containers with a device each do not slow each other down."""

SHARES = tuple(float(share) for share in (*np.linspace(0.001, 0.979, 34), 0.99, 0.995, 0.999))
"""The quantiles by which noise is kept; it is flat outside."""


class Line(NamedTuple):
    """A time over the size of a batch, in us."""

    base_us: float
    per_query_us: float

    def at(self, batch: float) -> float:
        """In us."""
        return self.base_us + self.per_query_us * batch

    def at_ns(self, batch: int) -> int:
        """In ns, not below 0."""
        return max(0, round(1e3 * self.at(batch)))


class Step(NamedTuple):
    """A time over the size of a batch, in us: a batch of one, and a line from two queries on."""

    alone_us: float
    line: Line

    def at(self, batch: float) -> float:
        """In us."""
        return self.alone_us if batch == 1 else self.line.at(batch)

    def at_ns(self, batch: int) -> int:
        """In ns, not below 0."""
        return max(0, round(1e3 * self.at(batch)))


class Container(NamedTuple):
    """What a model's container costs. tail: 99th percentile of the latency over its mean."""

    name: str
    latency: Line | Step
    gap: Line
    tail: float = 1.0

    def durations(self, batch: int) -> Durations:
        """Latency of a batch: lognormal, with the mean of the line."""
        mean_ns = 1e3 * self.latency.at(batch)
        if self.tail == 1.0:
            return Constant(round(mean_ns))
        return Quantiles(SHARES, tuple(round(mean_ns * factor) for factor in _factors(self.tail)))


def line_through(x1: float, y1: float, x2: float, y2: float) -> Line:
    """The line through two points; x are sizes of batches, y times in us."""
    slope = (y2 - y1) / (x2 - x1)
    return Line(y1 - slope * x1, slope)


def _factors(tail: float) -> list[float]:
    """Quantiles at SHARES of a lognormal with mean 1 whose 99th percentile is `tail`."""
    sigma = lognormal_sigma(tail)
    return np.exp(sigma * ndtri(np.array(SHARES)) - sigma * sigma / 2).tolist()  # type: ignore[no-any-return]


def lognormal_sigma(tail: float) -> float:
    """Standard deviation of the logarithm, where the 99th percentile is `tail` times the mean.

    The 99th percentile is exp(sigma z - sigma^2 / 2) of the mean, with z = 2.326.
    """
    z = float(ndtri(0.99))
    return z - float(np.sqrt(z * z - 2 * np.log(tail)))


def run_containers(
    policy: str,
    params: Mapping[str, Any],
    containers: Sequence[Container],
    *,
    clients: Sequence[int],
    length_s: float,
    largest: int,
    slo_ns: int = FOREVER,
    seed: int = 0,
    arrivals: OpenLoop | None = None,
    keys: Iterator[int] | None = None,
    gpu_kind: Callable[..., Any] = SharedGpu,
    gpus: int | None = None,
) -> tuple[Log, Any]:
    """Run a policy on containers, model i in container i. Returns what came of it, and the policy.

    clients: closed-loop clients by container, which ask again as soon as they are answered.
    largest: batches are from 1 to this. gpus: how many there are, if not one a container; then
    container i is on number i modulo that.
    """
    kind = POLICIES[policy]
    chosen: Any = kind(kind.Params(**params))  # type: ignore[attr-defined]
    costs = [
        ModelCost(1, Constant(1000), {size: each.durations(size) for size in range(1, largest + 1)})
        for each in containers
    ]
    models = tuple(
        ModelInfo(
            id=i,
            name=each.name,
            pages=1,
            load_ns=1000,
            batch_sizes=tuple(range(1, largest + 1)),
            exec_ns=tuple(max(1, each.latency.at_ns(size)) for size in range(1, largest + 1)),
        )
        for i, each in enumerate(containers)
    )
    end_ns = round(length_s * 1e9)
    log = Log()
    world = Cluster(
        policy=chosen,
        gpus=tuple(GpuInfo(i, (i,), len(models)) for i in range(gpus or len(models))),
        models=models,
        costs=costs,
        delays=Delays(),
        arrivals=arrivals or OpenLoop(iter(()), [[FOREVER] * len(models)]),
        clients=[
            Client(1 + model * 1_000_000 + i, model, slo_ns, 0, 0, end_ns)
            for model, count in enumerate(clients)
            for i in range(count)
        ],
        sink=log,
        rngs=[generator(seed, Purpose.DURATIONS, i) for i in range(gpus or len(models))],
        policy_rng=generator(seed, Purpose.POLICY),
        keys=keys,
        gpu_kind=alone(gpu_kind, containers),
    )
    with quiet_collector():
        world.run(end_ns, 0)
    return log, chosen


def alone(gpu_kind: Callable[..., Any], containers: Sequence[Container]) -> GpuKind:
    """The kind of GPU for containers that have a device each."""
    return partial(gpu_kind, sharing=ALONE, gaps=[each.gap.at_ns for each in containers])


class Served(NamedTuple):
    """What a container did after the lead-in. p99_ms, mean_ms: of the batches' latency; batches:
    how many there were."""

    rate_rps: float
    mean_batch: float
    mean_ms: float
    p99_ms: float
    batches: int


def served(log: Log, model: int, lead_in_s: float, length_s: float) -> Served:
    """Of the batches of one container that ended after the lead-in."""
    done = log.batches.between(lead_in_s * 1e9, length_s * 1e9)
    done = done.where(done.model == model)
    took_ms = (done.end - done.start) / 1e6
    if len(took_ms) < 2:
        return Served(0.0, 0.0, 0.0, 0.0, 0)
    # From the end of one batch to the end of another, so that no part of a batch counts.
    span_s = (done.end.max() - done.end.min()) / 1e9
    return Served(
        rate_rps=float(done.tasks[1:].sum() / span_s),
        mean_batch=float(done.tasks.mean()),
        mean_ms=float(took_ms.mean()),
        p99_ms=float(np.quantile(took_ms, 0.99)),
        batches=len(took_ms),
    )
