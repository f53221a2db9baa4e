"""Figure 2: how alike equal batches are on a GPU that does nothing else.

One model, one client, one GPU with the noise of an exclusive V100 (sim/varying.py), which was made
from this figure's one published number. So the figure shows that the noise comes through a run as
it was put in; it is no evidence of what a GPU does.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainspring.reproduce.drawing import SYSTEM, drawn, tail_axis
from mainspring.reproduce.experiment import RESNET50, V100, Log, clockwork, play
from mainspring.reproduce.rows import Row, told
from results.plots import GREY, Picture

PUBLISHED = 0.0003
"""The 99.99th percentile is within 0.03% of the median."""

NINES = np.concatenate([np.linspace(0, 0.9, 46), 1 - np.logspace(-1, -5, 161)])


class Point(NamedTuple):
    """length_s: of the closed loop."""

    length_s: float


class Measured(NamedTuple):
    """excess: durations over their median, less 1, at the shares NINES; p9999: at 99.99%."""

    batches: int
    excess: npt.NDArray[np.float64]
    p9999: float


def points(*, full: bool) -> list[Point]:
    """Full: a million batches, or so."""
    return [Point(3000.0 if full else 300.0)]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    if full:
        return "nothing: about a million batches of one"
    return "about 100,000 batches of one, ten above the 99.99th percentile"


def measure(point: Point) -> Measured:
    """Run it."""
    table = {
        "name": "fig2",
        "seed": 2,
        "duration_s": point.length_s,
        "slo_ms": 100.0,
        "cluster": V100,
        "models": [{"profile": RESNET50}],
        "workload": [{"kind": "closed", "concurrency": 1, "retry_after_ms": 0.0}],
        "policy": clockwork(),
    }
    took = play(table, Log()).batches.duration
    excess = np.quantile(took / np.median(took) - 1, np.append(NINES, 0.9999))
    return Measured(len(took), excess[:-1], float(excess[-1]))


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """No verdict: the noise was made from the published number."""
    return [
        told(
            "fig2", f"99.99th percentile over the median, less 1, of {found.batches:,} batches "
            "(what the noise is made from)", found.p9999, reference=PUBLISHED, source="published",
        )
        for _, found in results
    ]  # fmt: skip


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """The tail."""
    title = "Figure 2: durations of equal batches (the noise that is put in)"
    with drawn((6.0, 4.0), title, full=full) as figure:
        axes = figure.add_subplot()
        for _, found in results:
            axes.plot(100 * found.excess, NINES, color=SYSTEM)
        axes.plot([100 * PUBLISHED], [0.9999], "D", mfc="white", color=GREY)
        axes.annotate(
            "published", (100 * PUBLISHED, 0.9999), (-8, 0), textcoords="offset points",
            ha="right", va="center", color=GREY, fontsize=8,
        )  # fmt: skip
        tail_axis(axes, most=1 - 1e-5)
        axes.set_ylabel("share of batches")
        axes.set_xlabel("duration over the median (%)")
    return figure
