"""A live controller with a place for one worker, for tests that bring their own."""

from typing import Any

import numpy as np

from executor.controller import LiveCluster
from executor.wire import Bill, Setup
from profiles.durations import Constant
from scheduler.policies import POLICIES
from scheduler.records import GpuInfo, ModelInfo

SHORT = Constant(1_000_000)


class Fates:
    """A sink that keeps how requests ended."""

    def __init__(self) -> None:
        self.outcomes: list[int] = []
        self.lost = 0

    def request(self, row: tuple[Any, ...]) -> None:
        self.outcomes.append(row[6])

    def action(self, row: tuple[Any, ...]) -> None:
        pass

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        self.lost += 1


def cluster(sink: Fates, requests: int = 100, **more: Any) -> LiveCluster:
    """A request each 20 ms. more: arguments of LiveCluster."""
    kind = POLICIES["fifo"]
    times = np.arange(requests, dtype=np.int64) * 20_000_000
    chunk = (times, np.zeros(requests, np.int32), np.zeros(requests, np.int32))
    return LiveCluster(
        kind(kind.Params()), (GpuInfo(0, (0,), 4),), (ModelInfo(0, "m", 1, 1, (1,), (1,)),),
        [Setup(4, 1, [Bill(1, SHORT, {1: SHORT})])], iter([chunk]), [[10**10]], sink,
        np.random.default_rng(1), **more,
    )  # fmt: skip
