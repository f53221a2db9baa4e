"""Figure 8: what batch clients cost those with tight SLOs, on six GPUs.

Six models have latency-sensitive clients at 200 req/s in all: the paper's text says an instance,
its code divides 200 by the number of them, and the code is what ran. Batch clients ask M other
models in a closed loop, with an SLO of a day.
"""

from typing import NamedTuple

import numpy as np

from mainspring.reproduce.drawing import drawn
from mainspring.reproduce.experiment import Log, play, wilson
from mainspring.reproduce.rows import Row, shape, told
from mainspring.reproduce.slo_sweep import FACTORS, LEAD_IN_S, satisfaction, table
from results.plots import COLOURS, Picture

SENSITIVE = 6
RATE_RPS = 200.0
CLIENTS = {0: 0, 12: 16, 48: 4}
"""Batch clients for each of M models."""

DAY_MS = 86_400_000.0
FROM = 5
"""The place of 7.6x among the multiples."""


class Point(NamedTuple):
    """One run. batch_models: M."""

    batch_models: int
    step_s: float


class Measured(NamedTuple):
    """In time and of how many, and what the batch clients got (req/s), for each multiple."""

    sensitive: list[tuple[int, int]]
    batch_rps: list[float]


def points(*, full: bool) -> list[Point]:
    """Full: 30 s a step."""
    return [Point(models, 30.0 if full else 10.0) for models in reversed(CLIENTS)]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    if full:
        return "30 s a step, as in the paper"
    return (
        "10 s a step in place of 30: 2,000 requests a step, a share of 99% is known to 0.5 points"
    )


def measure(point: Point) -> Measured:
    """Run one number of batch models."""
    more = []
    if point.batch_models:
        names = [f"resnet50_v2.{SENSITIVE + i}" for i in range(point.batch_models)]
        more.append(
            {
                "kind": "closed",
                "concurrency": CLIENTS[point.batch_models],
                "retry_after_ms": 0.0,
                "models": names,
                "slo_ms": DAY_MS,
            }
        )
    copies = SENSITIVE + point.batch_models
    log = play(table("fig8", copies, SENSITIVE, RATE_RPS, point.step_s, more), Log())
    requests = log.requests
    batch = requests.where(requests.ok & (requests.client > len(FACTORS)))
    edges = (LEAD_IN_S + np.arange(len(FACTORS) + 1) * point.step_s) * 1e9
    counts, _ = np.histogram(batch.end, edges)
    return Measured(satisfaction(requests), (counts / point.step_s).tolist())


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts."""
    made = []
    shares = {
        point.batch_models: [good / max(n, 1) for good, n in found.sensitive]
        for point, found in results
    }
    for models in (12, 48):
        if 0 in shares and models in shares:
            alone, beside = shares[0][FROM:], shares[models][FROM:]
            worst = max(100 * (a - b) for a, b in zip(alone, beside, strict=True))
            made.append(
                shape(
                    "fig8", f"M = {models}: points that batch clients cost, worst from 7.6x on",
                    "at most 2 points", worst, holds=worst <= 2,
                )
            )  # fmt: skip
    for point, found in results:
        if point.batch_models:
            made.append(
                told(
                    "fig8", f"M = {point.batch_models}: what batch clients get (req/s)",
                    float(np.mean(found.batch_rps[1:])),
                )
            )  # fmt: skip
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """Left those with tight SLOs, right the batch clients."""
    title = "Figure 8: six latency-sensitive models (200 req/s in all) beside batch clients"
    with drawn((10.0, 3.8), title, full=full) as figure:
        left, right = figure.subplots(1, 2)
        for (point, found), colour in zip(
            sorted(results, key=lambda r: r[0]), COLOURS, strict=False
        ):
            label = f"M = {point.batch_models}" + (
                f" x {CLIENTS[point.batch_models]} clients" if point.batch_models else ""
            )
            shares = [good / max(n, 1) for good, n in found.sensitive]
            left.plot(FACTORS, shares, color=colour, marker="o", ms=4, label=label)
            low, high = zip(*(wilson(*each) for each in found.sensitive), strict=True)
            left.fill_between(FACTORS, low, high, color=colour, alpha=0.2, linewidth=0)
            right.plot(FACTORS, found.batch_rps, color=colour, marker="o", ms=4, label=label)
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_xticks(
                [1, 2.25, 5.1, 7.6, 11.4, 25.6, 57.7], ["1", "2.25", "5.1", "", "11.4", "26", "58"]
            )
            axes.minorticks_off()
            axes.axvline(FACTORS[FROM], color="#888888", linestyle=":", linewidth=0.8)
            axes.grid(visible=True, axis="y")
            axes.set_xlabel("SLO (multiples of a batch of one; dotted: 7.6)")
        left.set_ylabel("latency-sensitive: share in time")
        left.set_ylim(0, 1.03)
        right.set_ylabel("batch clients (req/s)")
        right.set_ylim(bottom=0)
        left.legend(loc="lower right", fontsize=8)
    return figure
