"""Ablation, which the paper has not: what each element of Clockwork is worth.

Two GPUs hold 24 of 40 models of different popularity, each asked with three SLOs, so that every
element has something to do. One element at a time is taken away, or one of the artifact's faults
put in; loads go from half of what two GPUs can do to twice that. It is done on an exclusive GPU,
and on one with the noise of an unfit environment, where what is there against surprises can show
its worth.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mainspring.reproduce.drawing import drawn
from mainspring.reproduce.experiment import DELAYS_US, RESNET50, Log, clockwork, play
from mainspring.reproduce.rows import Row, told
from results.plots import COLOURS, GREY, Picture

NOISY = Path(__file__).parent / "noisy.toml"

WORLDS = {"exclusive": RESNET50, "noisy": f"{NOISY}/resnet50_v2"}
LOADS_RPS = (400, 800, 1200, 1600)
SLOS = {18.0: 0.2, 100.0: 0.6, 1000.0: 0.2}
"""SLO in ms, and its share of the requests."""

WHOLE = "Clockwork (infer4)"
ELEMENTS: dict[str, dict[str, Any]] = {
    WHOLE: {},
    "no windows: late actions run": {"latest_delta_ms": 1e6},
    "no lookahead": {"schedule_ahead_ms": 1.001},
    "no batching": {"max_batch": 1},
    "loads by arrival, not by demand": {"loads": "arrival"},
    "earliest deadline first": {"order": "deadline"},
    "median, not 99th percentile": {"estimate_percentile": 0.5},
    "fault: load_satisfied": {"faults": ["load_satisfied"]},
    "fault: plan_floor": {"faults": ["plan_floor"]},
    "fault: silent_rejects": {"faults": ["silent_rejects"]},
    "fault: used_up": {"faults": ["used_up"]},
    "fault: forget": {"faults": ["forget"]},
    "fault: in_order": {"faults": ["in_order"]},
    "fault: in_id_order": {"faults": ["in_id_order"]},
}


class Point(NamedTuple):
    """One run."""

    element: str
    world: str
    rate_rps: int
    seed: int
    length_s: float


class Measured(NamedTuple):
    """Of requests after the lead-in. p99_ms: of the answers, as a multiple of their SLO."""

    share: float
    goodput_rps: float
    p99_slos: float


LEAD_IN_S = 2.0


def points(*, full: bool) -> list[Point]:
    """Full: five times as many seeds, each five times as long."""
    seeds, length_s = (5, 60.0) if full else (1, 10.0)
    return [
        Point(element, world, rate, seed, length_s)
        for rate in reversed(LOADS_RPS)
        for world in WORLDS
        for element in ELEMENTS
        for seed in range(seeds)
    ]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    if full:
        return "5 seeds of 60 s a point"
    return (
        "one seed of 10 s a point, the same arrivals for all elements: shares are known to half a "
        "point to one point, differences under one point mean nothing"
    )


def measure(point: Point) -> Measured:
    """Run one point."""
    requests = play(_table(point), Log()).requests
    requests = requests.between(LEAD_IN_S * 1e9, (LEAD_IN_S + point.length_s) * 1e9)
    answered = requests.where(requests.answered)
    slos = (answered.end - answered.arrival) / (answered.deadline - answered.arrival)
    return Measured(
        share=float(requests.ok.mean()),
        goodput_rps=float(requests.ok.sum() / point.length_s),
        p99_slos=float(np.quantile(slos, 0.99)) if len(slos) else 0.0,
    )


def _table(point: Point) -> dict[str, Any]:
    return {
        "name": "ablation",
        "seed": 100 + point.seed,
        "duration_s": LEAD_IN_S + point.length_s,
        "drain_s": 2.0,
        "cluster": {"gpus": 2, "pages": 12 * 7, "delays_us": DELAYS_US},
        "models": [{"profile": WORLDS[point.world], "copies": 40}],
        "workload": [
            {
                "kind": "poisson",
                "rate_rps": share * point.rate_rps,
                "slo_ms": slo_ms,
                "weights": "zipf",
                "zipf_s": 0.9,
            }
            for slo_ms, share in SLOS.items()
        ],
        "policy": clockwork(variant="infer4", faithful_to="none", **ELEMENTS[point.element]),
    }


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """What each element changes; there is nothing to hold it against."""
    made = []
    means = _means(results)
    for world in WORLDS:
        for element in ELEMENTS:
            for rate in (LOADS_RPS[1], LOADS_RPS[-1]):
                here, whole = (means.get((each, world, rate)) for each in (element, WHOLE))
                if here is None or whole is None:
                    continue
                name = f"{world}, {rate:,} req/s, {element}"
                made.append(
                    told("ablation", f"{name}: share in time", here[0])
                    if element == WHOLE
                    else told("ablation", f"{name}: points gained", 100 * (here[0] - whole[0]))
                )
                made.append(told("ablation", f"{name}: p99 (SLOs)", here[1]))
    return made


def _means(
    results: list[tuple[Point, Measured]],
) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Share in time, and the tail, over the seeds."""
    runs: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for point, found in results:
        key = (point.element, point.world, point.rate_rps)
        runs.setdefault(key, []).append((found.share, found.p99_slos))
    return {
        key: (float(np.mean([s for s, _ in each])), float(np.mean([p for _, p in each])))
        for key, each in runs.items()
    }


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """A row an element, a dot a load: goodput left, the tail right; a row of panels a device."""
    means = _means(results)
    with drawn((11.0, 8.6), "Ablation: Clockwork with one element taken away", full=full) as figure:
        grid = figure.subplots(2, 2, sharey=True, sharex="col", width_ratios=(1.2, 1))
        place = {element: -i for i, element in enumerate(ELEMENTS)}
        for (share, tail), world in zip(grid, WORLDS, strict=True):
            for rate, colour in zip(LOADS_RPS, COLOURS, strict=False):
                for axes, which in ((share, 0), (tail, 1)):
                    have = [e for e in ELEMENTS if (e, world, rate) in means]
                    values = [means[e, world, rate][which] * (100 - 99 * which) for e in have]
                    axes.plot(
                        values, [place[e] for e in have], "o", color=colour, ms=5,
                        label=f"{rate:,} req/s",
                    )  # fmt: skip
                    if WHOLE in have:
                        axes.axvline(values[have.index(WHOLE)], color=colour, lw=0.8, ls=":")
            share.set_yticks(list(place.values()), list(place))
            share.set_title(f"{world} GPUs")
            for axes in (share, tail):
                axes.grid(visible=True, axis="y")
            tail.axvline(1, color=GREY, lw=0.8, ls="--")
        grid[1, 0].set_xlabel("in time (% of the offered); dotted: Clockwork as it is")
        grid[1, 1].set_xlabel("99th percentile of answers (multiples of their SLO)")
        grid[0, 0].legend(fontsize=8, loc="lower left")
    return figure
