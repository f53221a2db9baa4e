"""What does an arrival cost that a workload makes? Asked: 0.3 us, far below what a request costs.

    python benchmarks/arrivals.py

Beside it is the ratio to the timeouts of a bare SimPy loop, measured before and after.
"""

import math
import time
from typing import Final

import numpy as np
from run import bare

from workloads import Bursts, Constant, Gamma, Mmpp, OpenLoop, Periodic, Poisson, Ramp, Steps

MADE: Final[dict[str, OpenLoop]] = {
    "constant": Constant(rate_rps=10_000),
    "constant, models in turn": Constant(rate_rps=10_000, weights="turns"),
    "poisson": Poisson(rate_rps=10_000),
    "gamma": Gamma(rate_rps=10_000, cv=2),
    "mmpp": Mmpp(rate_rps=10_000, levels=[1, 10], mean_s=[0.5, 0.1]),
    "bursts": Bursts(rate_rps=10_000, every_s=1, burst_s=0.1, burst_share=0.5),
    "periodic": Periodic(rate_rps=10_000, period_s=7, amplitude=1, peak_s=3),
    "ramp": Ramp(from_rps=0, to_rps=20_000, ramp_s=20),
    "steps": Steps(steps=[(0, 5000), (3, 0), (4, 30_000)], period_s=5),
}
MODELS = range(100)
SPAN_NS = 50 * 10**9
ROUNDS = 3


def seconds_each(workload: OpenLoop) -> float:
    """The least of the rounds: others may be at work on this machine."""
    best_s = math.inf
    for _ in range(ROUNDS):
        began_s, n = time.perf_counter(), 0
        for chunk in workload.chunks(MODELS, [], SPAN_NS, np.random.default_rng(1)):
            n += len(chunk.times_ns)
        best_s = min(best_s, (time.perf_counter() - began_s) / n)
    return best_s


if __name__ == "__main__":
    for name, workload in MADE.items():
        before = bare()
        each_s = seconds_each(workload)
        timeout_s = 2 / (before + bare())
        print(f"{name:25} {each_s * 1e6:.3f} us, {each_s / timeout_s:.3f} of a timeout")
