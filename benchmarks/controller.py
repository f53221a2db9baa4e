"""Live requests a second that one controller sustains, beside the same policy's rate in simulation.

    python benchmarks/controller.py [--policy clockwork] [--profile]

Arrivals are made inside the controller's process; workers spin for no time at all, so what is
measured is the controller: its policy, books, messages and loop. It is offered more and more; one
that degrades goes on answering what it can, one that collapses answers ever less.
"""

import argparse
import cProfile
import pstats
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from executor.controller import LiveCluster
from executor.wire import Bill, Setup
from mainspring.crew import Crew
from profiles.durations import Constant
from scheduler.policies import POLICIES
from scheduler.records import GpuInfo, ModelInfo, Outcome
from sim.cluster import Cluster, Delays, OpenLoop
from sim.gpu import ModelCost

MODELS, GPUS, PAGES = 15, 1, 1_000
SIZES = (1, 2, 4, 8, 16)
NO_TIME = Constant(1)
SLO_NS = 100_000_000
SECONDS = 4.0
RATES = (2_000, 5_000, 10_000, 20_000, 30_000, 50_000)


class Counts:
    """A sink that counts outcomes."""

    def __init__(self) -> None:
        self.outcomes: Counter[int] = Counter()

    def request(self, row: tuple[Any, ...]) -> None:
        self.outcomes[row[6]] += 1

    def action(self, row: tuple[Any, ...]) -> None:
        pass

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        raise AssertionError("a worker was lost in a benchmark")


def arrivals(rate: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    n = int(rate * SECONDS)
    times = np.sort(np.random.default_rng(1).integers(0, int(SECONDS * 1e9), n))
    models = np.random.default_rng(2).integers(0, MODELS, n).astype(np.int32)
    yield times, models, np.zeros(n, np.int32)


def parts(name: str) -> tuple[Any, tuple[GpuInfo, ...], tuple[ModelInfo, ...]]:
    kind = POLICIES[name]
    gpus = tuple(GpuInfo(i, (i,), PAGES) for i in range(GPUS))
    models = tuple(ModelInfo(i, f"m{i}", 1, 1, SIZES, (1,) * len(SIZES)) for i in range(MODELS))
    return kind(kind.Params()), gpus, models


def live(name: str, rate: int, profile: cProfile.Profile | None) -> tuple[Counts, float, float]:
    """Outcomes, the wall time, and the median lateness of requests in ms."""
    policy, gpus, models = parts(name)
    sink = Counts()
    bills = [Bill(1, NO_TIME, dict.fromkeys(SIZES, NO_TIME)) for _ in models]
    world = LiveCluster(
        policy, gpus, models, [Setup(PAGES, 1, bills) for _ in gpus], arrivals(rate),
        [[SLO_NS] * MODELS], sink, np.random.default_rng(1),
    )  # fmt: skip
    with Crew(world.address, GPUS, [], world.gone, world.fail):
        try:
            if profile:
                profile.enable()
            world.run(int(SECONDS * 1e9), 2_000_000_000)
            if profile:
                profile.disable()
        finally:
            world.close()
    return sink, world.now_ns / 1e9, world.arrivals.quantile_us(0.5) / 1e3


def simulated(name: str, rate: int) -> float:
    """Requests a second of wall time."""
    policy, gpus, models = parts(name)
    costs = [ModelCost(1, NO_TIME, dict.fromkeys(SIZES, NO_TIME)) for _ in models]
    world = Cluster(
        policy, gpus, models, costs, Delays(), OpenLoop(arrivals(rate), [[SLO_NS] * MODELS]), (),
        Counts(), [np.random.default_rng(1)] * GPUS, np.random.default_rng(1),
    )  # fmt: skip
    start_s = time.perf_counter()
    world.run(int(SECONDS * 1e9), 2_000_000_000)
    return world.arrived / (time.perf_counter() - start_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--policy", default="clockwork", choices=POLICIES)
    parser.add_argument("--profile", action="store_true", help="where the time goes, at the end")
    asked = parser.parse_args()
    print(f"{asked.policy}, {MODELS} models, {GPUS} worker that spins for no time, SLO 100 ms")
    print(f"simulated: {simulated(asked.policy, RATES[-1]):,.0f} req/s of wall time")
    print("offered req/s   in time/s   other/s   handled late by (p50, ms)")
    for rate in RATES:
        sink, wall_s, late_ms = live(asked.policy, rate, None)
        ok = sink.outcomes[Outcome.OK]
        other = sum(sink.outcomes.values()) - ok
        span_s = max(wall_s, SECONDS)
        print(f"{rate:>13,} {ok / span_s:>11,.0f} {other / span_s:>9,.0f} {late_ms:>12,.2f}")
    if asked.profile:
        profile = cProfile.Profile()
        live(asked.policy, RATES[1], profile)
        pstats.Stats(profile).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
