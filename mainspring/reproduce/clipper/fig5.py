"""Figure 5: delayed batching, two linear SVMs at 20,000 queries a second.

The containers of figure 4 (`mnist.py`), one replica, AIMD, an open loop at even distances. The
generator was asked for 20,000 a second and made 18,400: that is what the Spark container served at
every wait, so it is taken for the rate, and Spark's own throughput is fitted.
A batch goes when it is full, or when its first query has been there for the wait; so at light load
a batch goes every wait, and holds what came meanwhile.
"""

from typing import NamedTuple

import numpy as np

from mainspring.reproduce.clipper.containers import (
    Served,
    run_containers,
    served,
)
from mainspring.reproduce.clipper.mnist import LINEAR, SPARK, container
from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, compared, fitted, shape, told
from results.plots import COLOURS, GREY, Picture
from scheduler.records import FOREVER
from sim.cluster import OpenLoop

SKLEARN, PYSPARK = "SKLearn SVM", "PySpark SVM"
CONTAINERS = {SKLEARN: LINEAR, PYSPARK: SPARK}


class Published(NamedTuple):
    """One run. latency_us: mean of a query's latency."""

    rate_rps: float
    mean_batch: float
    latency_us: float


PUBLISHED = {
    PYSPARK: (
        Published(18_291, 16.0, 1302), Published(18_290, 28.8, 1180), Published(18_406, 37.6, 1539),
        Published(18_501, 57.2, 2592), Published(18_299, 74.7, 3174),
    ),
    SKLEARN: (
        Published(5_510, 5.7, 279), Published(16_452, 18.1, 713), Published(18_454, 36.8, 1596),
        Published(18_286, 54.6, 2335), Published(18_237, 72.4, 3018),
    ),
}  # fmt: skip
"""By container, with a wait of 0, 1, 2, 3 and 4 ms."""

WAITS_MS = (0, 1, 2, 3, 4)
OFFERED_RPS = float(np.mean([run.rate_rps for run in PUBLISHED[PYSPARK]]))
LARGEST = 256
LEAD_IN_S = 0.5

AT_ODDS = "published; at odds with its own latency of 279 us: by Little's law nothing queued"

BURST = 18
"""Queries that come at one instant, a millisecond apart, where a sender sleeps in between."""

CLIENTS = 37
"""As many as the published batch with 2 ms: in a closed loop no batch can be larger."""

CAUSES = ("The wait itself does what it did: a batch a wait, with what came meanwhile, for both.",)
"""Why numbers are as they are that nothing is held against."""


class Point(NamedTuple):
    """One container and wait. burst: queries that come at one instant; clients: how many there are
    in a closed loop, which then stand for the open one."""

    name: str
    wait_ms: int
    length_s: float
    burst: int = 1
    clients: int = 0


def points(*, full: bool) -> list[Point]:
    """Full: ten times as long."""
    length_s = 30.0 if full else 3.0
    asked = [Point(name, wait_ms, length_s) for name in CONTAINERS for wait_ms in WAITS_MS]
    others = [
        Point(SKLEARN, wait_ms, length_s, **other)
        for other in ({"burst": BURST}, {"clients": CLIENTS})
        for wait_ms in (0, 1, 2)
    ]
    return asked + others


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    return f"{30 if full else 3} s of simulated time, some 1,000 batches or more: under 1%"


def measure(point: Point) -> Served:
    """Run one container with one wait."""
    length_s = LEAD_IN_S + point.length_s
    times = np.repeat(np.arange(0.01, length_s, point.burst / OFFERED_RPS) * 1e9, point.burst)
    if point.clients:
        times = times[:0]
    zeros = np.zeros(len(times), dtype=np.int32)
    log, _ = run_containers(
        "clipper-nsdi-aimd",
        {"wait_ms": float(point.wait_ms), "defaults": False},
        [container(CONTAINERS[point.name])],
        clients=[point.clients],
        length_s=length_s,
        largest=LARGEST,
        arrivals=OpenLoop(iter([(times.astype(np.int64), zeros, zeros)]), [[FOREVER]]),
    )
    return served(log, 0, LEAD_IN_S, length_s)


def rows(results: list[tuple[Point, Served]]) -> list[Row]:
    """Verdicts."""
    made = []
    found = {
        (point.name, point.wait_ms): each
        for point, each in results
        if point.burst == 1 and not point.clients
    }
    for (name, wait_ms), ours in found.items():
        rate_rps, batch, _ = PUBLISHED[name][wait_ms]
        quantity = f"{name}, {wait_ms} ms"
        throughput = f"{quantity}: throughput (req/s)"
        if name == PYSPARK:
            made.append(fitted("fig5", throughput, rate_rps, "published", ours.rate_rps))
        else:
            source = "published" if wait_ms else AT_ODDS
            made.append(told("fig5", throughput, ours.rate_rps, reference=rate_rps, source=source))
        if wait_ms >= 2:  # below, the wait is not longer than a batch
            made.append(
                compared(
                    "fig5", f"{quantity}: mean batch", batch, "published", ours.mean_batch,
                    relative=0.1,
                )
            )  # fmt: skip
        else:
            made.append(
                told(
                    "fig5", f"{quantity}: mean batch", ours.mean_batch, reference=batch,
                    source="published",
                )
            )  # fmt: skip
    others = _others(results)
    for name, low, high in ((SKLEARN, 3.0, 3.7), (PYSPARK, 0.95, 1.05)):
        none, two = found.get((name, 0)), found.get((name, 2))
        if none is not None and two is not None:
            gain = two.rate_rps / none.rate_rps
            made.append(
                shape(
                    "fig5", f"{name}: throughput with 2 ms over none", f"{low:g} to {high:g}", gain,
                    holds=low <= gain <= high,
                    reference=PUBLISHED[name][2][0] / PUBLISHED[name][0][0],
                    source=AT_ODDS if name == SKLEARN else "published",
                    cause=_no_gain(name, others),
                )
            )  # fmt: skip
    made += [
        told(
            "fig5", f"{SKLEARN}, were it {kind}, {wait_ms} ms: {quantity}", ours,
            reference=theirs, source=AT_ODDS if wait_ms == 0 else "published",
        )
        for kind, runs in others.items()
        for wait_ms, each in runs.items()
        for quantity, ours, theirs in (
            ("throughput (req/s)", each.rate_rps, PUBLISHED[SKLEARN][wait_ms].rate_rps),
            ("mean batch", each.mean_batch, PUBLISHED[SKLEARN][wait_ms].mean_batch),
        )
    ]  # fmt: skip
    return made


def _others(results: list[tuple[Point, Served]]) -> dict[str, dict[int, Served]]:
    """By what the sender would be, and wait."""
    made: dict[str, dict[int, Served]] = {}
    for point, each in results:
        if point.burst > 1:
            made.setdefault(f"bursts of {point.burst}", {})[point.wait_ms] = each
        elif point.clients:
            made.setdefault(f"{point.clients} closed-loop clients", {})[point.wait_ms] = each
    return made


def _no_gain(name: str, others: dict[str, dict[int, Served]]) -> str:
    """Why a wait gains nothing: by the published run without one, no query ever queued."""
    none, one, two, *_ = PUBLISHED[name]
    inside = none.rate_rps * none.latency_us / 1e6
    late_ms = 1e3 * (1 - none.rate_rps / OFFERED_RPS) / 2
    cycle_us = 1e6 * none.mean_batch / none.rate_rps
    # A closed loop of n clients that think for z: n = rate x (latency + z), the same n and z twice.
    n_one = one.rate_rps * one.latency_us
    think_us = (n_one - none.rate_rps * none.latency_us) / (none.rate_rps - one.rate_rps)
    tried = [
        f"{kind} give {runs[2].rate_rps / runs[0].rate_rps:.2f} (batches of "
        f"{runs[0].mean_batch:.1f}, {runs[1].mean_batch:.1f} and {runs[2].mean_batch:.1f} with 0, "
        "1 and 2 ms)"
        for kind, runs in others.items()
        if {0, 1, 2} <= runs.keys()
    ]
    spark = PUBLISHED[PYSPARK][0]
    return (
        f"No batching rule can do it. Published without a wait are {none.rate_rps:,.0f}/s with a "
        f"mean latency of {none.latency_us:g} us. That includes the queue, for Spark's is "
        f"{spark.latency_us:,.0f} us with a batch every "
        f"{1e6 * spark.mean_batch / spark.rate_rps:.0f} us, one at a time. So by Little's law "
        f"{inside:.1f} queries were under way, and the container had work in at most "
        f"{none.latency_us:g} of the {cycle_us:.0f} us of a batch's cycle: nothing queued, and "
        f"{none.rate_rps:,.0f}/s is what came. Had {OFFERED_RPS:,.0f}/s come, as with a wait of 2 "
        f"ms, queries would have waited {late_ms:.0f} ms in the mean after a second. The published "
        f"gain of {two.rate_rps / none.rate_rps:.2f} is one of what was sent, and not of what a "
        "wait lets through. Nor is it a closed loop: clients that think for a fixed time would "
        f"think for {think_us:,.0f} us by the runs with 0 and 1 ms, less than none. When a timer "
        "starts, with the first query or after the last batch, does not matter where the wait is 0."
        + (f" Simulated, {'; '.join(tried)}." if tried else "")
    )


def draw(results: list[tuple[Point, Served]], *, full: bool) -> Picture:
    """Throughput left, mean batch right."""
    with drawn((9.0, 4.0), "Figure 5: delayed batching", full=full) as figure:
        left, right = figure.subplots(1, 2)
        for name, colour in ((PYSPARK, COLOURS[1]), (SKLEARN, SYSTEM)):
            ours = sorted(
                (point.wait_ms, each)
                for point, each in results
                if point.name == name and point.burst == 1 and not point.clients
            )
            waits = [wait for wait, _ in ours]
            left.plot(waits, [each.rate_rps for _, each in ours], "o-", color=colour, label=name)
            right.plot(waits, [each.mean_batch for _, each in ours], "o-", color=colour)
            mark = "D" if name == SKLEARN else "s"
            published = PUBLISHED[name]
            left.plot(
                WAITS_MS, [run.rate_rps for run in published], mark, color=GREY, mfc="white",
                label=f"published, {name}",
            )  # fmt: skip
            right.plot(
                WAITS_MS, [run.mean_batch for run in published], mark, color=GREY, mfc="white"
            )
        left.set_ylim(0, 21_000)
        left.set_ylabel("throughput (req/s)")
        right.set_ylabel("mean batch")
        left.legend(fontsize=8)
        for axes in (left, right):
            axes.set_xlabel("wait (ms)")
            axes.grid(visible=True)
    return figure
