"""The simulation against closed forms, which nobody here made.

One GPU, one model that is loaded before the first request counts, the FIFO policy and no delays
are a plain single-server queue.
"""

from math import sqrt

import numpy as np
import pytest
from scipy.stats import expon

from profiles.durations import Constant, Samples
from scheduler.records import FOREVER
from sim.cluster import Client
from tests.worlds import MS, ModelSpec, run

SERVICE_NS = 1_000_000
REQUESTS = 700_000
"""At load 0.5 three standard errors of the mean wait are then below 2% of it."""


def poisson(rate_per_ns: float, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    # The model is loaded by then; the first request of all comes at once and loads it.
    return np.cumsum(rng.exponential(1 / rate_per_ns, count)).astype(np.int64) + 50 * MS


class Waits:
    """A sink that keeps each answered request's wait: latency less service is not known per
    request where service varies, so the action's start is taken."""

    def __init__(self) -> None:
        self.arrivals: list[int] = []
        self.starts: list[int] = []
        self.durations: list[int] = []

    def request(self, row: tuple[int, ...]) -> None:
        self.arrivals.append(row[3])

    def action(self, row: tuple[int, ...]) -> None:
        if row[1] == "infer":
            self.starts.append(row[10])
            self.durations.append(row[12])

    def waits_ns(self) -> np.ndarray:
        """FIFO and one server: the n-th answer is the n-th start."""
        return np.array(self.starts[1:]) - np.array(self.arrivals[1:])


def serve(arrivals_ns: np.ndarray, spec: ModelSpec) -> Waits:
    times = np.concatenate([[0], arrivals_ns])
    sink = Waits()
    run(
        "fifo",
        (times, np.zeros(len(times), dtype=np.int32)),
        models=[spec],
        slo_ms=None,
        end_s=times[-1] / 1e9 + 1,
        sink=sink,
    )
    return sink


def mean_and_error(values: np.ndarray, batches: int = 100) -> tuple[float, float]:
    """Mean and its standard error by batch means: waits of neighbours are correlated."""
    means = np.array([part.mean() for part in np.array_split(values, batches)])
    return float(means.mean()), float(means.std(ddof=1) / sqrt(batches))


def check(waits_ns: np.ndarray, theory_ns: float) -> None:
    mean_ns, error_ns = mean_and_error(waits_ns)
    assert 3 * error_ns < 0.02 * theory_ns, "the sample is too small to catch an error of 2%"
    assert abs(mean_ns - theory_ns) < 3 * error_ns


def test_the_mean_wait_of_m_d_1() -> None:
    load = 0.5
    arrivals = poisson(load / SERVICE_NS, REQUESTS, seed=11)
    spec = ModelSpec({1: Constant(SERVICE_NS)}, Constant(MS), 1)
    # Pollaczek-Khinchine: W = rho S / (2 (1 - rho))
    check(serve(arrivals, spec).waits_ns(), load * SERVICE_NS / (2 * (1 - load)))


def test_the_mean_wait_of_m_m_1() -> None:
    load = 0.5
    arrivals = poisson(load / SERVICE_NS, REQUESTS, seed=12)
    points = 20_000  # an exponential distribution in so many equally likely values
    service = expon.ppf((np.arange(points) + 0.5) / points) * SERVICE_NS
    spec = ModelSpec({1: Samples(tuple(service.astype(np.int64).tolist()))}, Constant(MS), 1)
    # W = rho S / (1 - rho)
    check(serve(arrivals, spec).waits_ns(), load * SERVICE_NS / (1 - load))


def test_every_single_wait_is_lindleys() -> None:
    arrivals = poisson(0.9 / SERVICE_NS, 20_000, seed=13)
    rng = np.random.default_rng(14)
    service = Samples(tuple(rng.integers(1, 2 * SERVICE_NS, 1000).tolist()))
    sink = serve(arrivals, ModelSpec({1: service}, Constant(MS), 1))
    free_ns = 0
    for arrival_ns, start_ns, duration_ns in zip(
        sink.arrivals[1:], sink.starts[1:], sink.durations[1:], strict=True
    ):
        assert start_ns == max(arrival_ns, free_ns)
        free_ns = start_ns + duration_ns


@pytest.mark.parametrize(
    ("clients", "think_ms", "expected_rps"),
    [
        (1, 0.0, 1 / 0.001001),  # one at a time; a client waits 1 us before it asks again
        (4, 0.0, 1000.0),  # the GPU is never idle
        (3, 9.0, 3 / 0.010),  # nobody waits: N / (Z + S)
        (20, 9.0, 1000.0),  # more than (Z + S) / S clients: the GPU is the limit
    ],
)
def test_closed_loop_throughput(clients: int, think_ms: float, expected_rps: float) -> None:
    seconds = 10.0
    world = run(
        "fifo",
        models=[ModelSpec({1: Constant(SERVICE_NS)}, Constant(MS), 1)],
        slo_ms=None,
        clients=[
            Client(1 + i, 0, FOREVER, round(think_ms * MS), i * 100_000, round(seconds * 1e9))
            for i in range(clients)
        ],
        end_s=seconds,
    )
    assert len(world.requests) / seconds == pytest.approx(expected_rps, rel=0.005)
