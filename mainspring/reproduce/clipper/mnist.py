"""The six containers of figures 3, 4, 5 and 9, made of two columns of figure 4.

Published are, without batching and under quantile regression: queries a second, the 99th
percentile of a batch's latency, and the mean batch. So the cycle of a container (latency and idle
gap) is known at two sizes; how it divides is not. Two numbers are taken to be common to all, as
the queries and the machine were the same: Clipper's own work for a query, which is idle time to
the container, and the ratio of the 99th percentile to the mean. They are fitted by least squares:

    cycle / batch  =  gap per query  +  p99 / batch / tail         (quantile column, 5 containers)

The kernel SVM is left out of this fit, for its mean batch of 3.1 is none. Then each container's
line of latency and line of gaps go through the two sizes.
No number is taken from the AIMD column, or from figures 3, 5 and 9.
"""

from functools import cache
from typing import Final, NamedTuple

import numpy as np

from mainspring.reproduce.clipper.containers import Container, Line, line_through


class Published(NamedTuple):
    """One run of figure 4. mean_batch: of the batches that were sent."""

    rate_rps: float
    p99_us: float
    mean_batch: float


NOOP, LOGISTIC, LINEAR, SPARK, KERNEL, FOREST = (
    "No-op",
    "Log. regression SKLearn",
    "Linear SVM SKLearn",
    "Linear SVM PySpark",
    "Kernel SVM SKLearn",
    "Random forest SKLearn",
)

UNBATCHED: Final = {
    NOOP: Published(8964, 152, 1),
    LOGISTIC: Published(1921, 349, 1),
    LINEAR: Published(1921, 342, 1),
    SPARK: Published(7207, 195, 1),
    KERNEL: Published(204, 5998, 1),
    FOREST: Published(317, 5150, 1),
}

QUANTILE: Final = {
    NOOP: Published(46_085, 20_262, 1331),
    LOGISTIC: Published(43_954, 20_985, 1261),
    LINEAR: Published(47_879, 17_823, 1232),
    SPARK: Published(27_743, 19_784, 571),
    KERNEL: Published(189, 28_713, 3.1),
    FOREST: Published(19_904, 19_714, 392),
}

NOT_IN_THE_FIT: Final = (KERNEL,)


class Common(NamedTuple):
    """What all containers have in common. tail: 99th percentile of the latency over its mean."""

    gap_per_query_us: float
    tail: float


@cache
def common() -> Common:
    """The two numbers, by least squares."""
    runs = [run for name, run in QUANTILE.items() if name not in NOT_IN_THE_FIT]
    p99 = np.array([run.p99_us / run.mean_batch for run in runs])
    cycle = np.array([1e6 / run.rate_rps for run in runs])
    share, gap = np.polyfit(p99, cycle, 1)
    return Common(float(gap), float(1 / share))


@cache
def container(name: str) -> Container:
    """A container, from its two columns.

    Where p99 / tail would leave less of the cycle than the gap per query, the latency is what the
    gap leaves.
    """
    gap_us, tail = common()
    sizes, cycles, latencies = [], [], []
    for run in (UNBATCHED[name], QUANTILE[name]):
        cycle_us = 1e6 * run.mean_batch / run.rate_rps
        sizes.append(run.mean_batch)
        cycles.append(cycle_us)
        latencies.append(min(run.p99_us / tail, cycle_us - gap_us * run.mean_batch))
    latency = line_through(sizes[0], latencies[0], sizes[1], latencies[1])
    cycle = line_through(sizes[0], cycles[0], sizes[1], cycles[1])
    gap = Line(cycle.base_us - latency.base_us, cycle.per_query_us - latency.per_query_us)
    return Container(name, latency, gap, tail)
