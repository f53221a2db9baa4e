"""Clockwork's figure 5 with Clipper 0.3 in it: one GPU, 15 ResNet50, 16 closed-loop clients each.

The same profile, messages and clients. Clockwork has the GPU to itself; Clipper's 15 containers
share it, a lane each, and slow each other down as measured (`sim/shared.py`). Which Clipper the
Clockwork paper ran, and with what settings, is not known; 0.3 is the release of its day.
Not comparable: Clipper's goodput itself, of which no numbers were found.
"""

from typing import Any, NamedTuple

from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.experiment import (
    DELAYS_US,
    RESNET50,
    V100_PAGES,
    Log,
    clockwork,
    play,
)
from mainspring.reproduce.fig5 import READ_OFF
from mainspring.reproduce.rows import Row, shape, told
from results.plots import COLOURS, GREY, Picture
from scheduler.records import AnswerKind

CLOCKWORK, CLIPPER = "Clockwork", "Clipper 0.3"
SLOS_MS = (25, 50, 100, 250, 500)
MODELS = 15
LEAD_IN_S = 10.0

CLIENTS, FEW = 16, 4
"""Of each model: the paper's; and so few that they wait less than 100 ms, to see if that is it."""

CAUSES = (
    "What the comparison depends on: Clipper 0.3 sizes a batch by the time that is left to its "
    "first deadline. 240 clients wait for 15 containers that run batches of one side by side, "
    "which the row of the wait gives in ms. An SLO below that leaves the first of each queue "
    "hardly any time, so its batch stays 1 and it gets the default before it is done; its client "
    "asks again at once, and the queue never recovers. With an SLO above it batches grow. It is "
    "the wait and not the SLO: with a quarter of the clients the wait is well below 100 ms, and at "
    "100 ms the comparison turns, as the last rows say.",
    "With batches of 1 the shared GPU still executes more than the 366 a second of one stream, for "
    "kernels of small batches fit beside each other (as ParvaGPU measured); what is lost is lost "
    "because nearly all of it is too late.",
)
"""Why rows are as they are."""


class Point(NamedTuple):
    """One system and SLO. clients: of each model."""

    system: str
    slo_ms: int
    length_s: float
    clients: int = CLIENTS


class Measured(NamedTuple):
    """Of requests that ended after the lead-in. defaults: the share that got no prediction."""

    goodput_rps: float
    defaults: float
    mean_batch: float
    mean_batch_ms: float


def points(*, full: bool) -> list[Point]:
    """Full: ten times as long."""
    length_s = 300.0 if full else 30.0
    runs = [(slo, CLIENTS) for slo in reversed(SLOS_MS)] + [(100, FEW)]
    return [Point(s, slo, length_s, n) for slo, n in runs for s in (CLOCKWORK, CLIPPER)]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    if full:
        return "5 min of simulated time an SLO, after a lead-in of 10 s"
    return "30 s of simulated time an SLO in place of 30 min, after a lead-in of 10 s"


def measure(point: Point) -> Measured:
    """Run one system with one SLO."""
    log = play(_table(point), Log())
    start_ns, end_ns = LEAD_IN_S * 1e9, (LEAD_IN_S + point.length_s) * 1e9
    requests = log.requests
    inside = requests.where((requests.end >= start_ns) & (requests.end < end_ns))
    predicted = inside.kind != AnswerKind.DEFAULT
    batches = log.batches.between(start_ns, end_ns)
    return Measured(
        goodput_rps=float((inside.ok & predicted).sum() / point.length_s),
        defaults=float((~predicted).mean()) if len(predicted) else 0.0,
        mean_batch=float(batches.tasks.mean()) if len(batches.tasks) else 0.0,
        mean_batch_ms=float(batches.duration.mean() / 1e6) if len(batches.tasks) else 0.0,
    )


def _table(point: Point) -> dict[str, Any]:
    policies = {
        CLOCKWORK: clockwork(
            default_slo_ms=point.slo_ms, schedule_ahead_ms=5.0, latest_delta_ms=5.0, max_batch=8
        ),
        CLIPPER: {"clipper-0.3": {}},
    }
    return {
        "name": "clipper-beside-clockwork",
        "seed": 5,
        "duration_s": LEAD_IN_S + point.length_s,
        "slo_ms": point.slo_ms,
        "cluster": {
            "pages": V100_PAGES,
            "delays_us": DELAYS_US,
            "lanes": 1 if point.system == CLOCKWORK else MODELS,
        },
        "models": [{"profile": RESNET50, "copies": MODELS}],
        "workload": [{"kind": "closed", "concurrency": point.clients, "retry_after_ms": 0.0}],
        "policy": policies[point.system],
    }


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts: orderings, for that is all there is."""
    made = []
    by = {
        (point.system, point.slo_ms): found for point, found in results if point.clients == CLIENTS
    }
    for slo in SLOS_MS:
        ours, theirs = by.get((CLOCKWORK, slo)), by.get((CLIPPER, slo))
        if ours is None or theirs is None:
            continue
        name = f"SLO {slo} ms"
        ratio = ours.goodput_rps / max(theirs.goodput_rps, 0.1)
        quantity = f"{name}: goodput of Clockwork over Clipper 0.3's"
        if slo <= 100:
            made.append(
                shape(
                    "clockwork", quantity, "at least 2", ratio, holds=ratio >= 2,
                    source="from memory, by a third party",
                )
            )  # fmt: skip
        elif slo == 500:
            made.append(
                shape(
                    "clockwork", quantity, "comparable: at most 2", ratio, holds=0.5 <= ratio <= 2,
                    source="from memory, by a third party",
                )
            )  # fmt: skip
        else:
            made.append(told("clockwork", quantity, ratio))
        for system, found in ((CLOCKWORK, ours), (CLIPPER, theirs)):
            made.append(told("clockwork", f"{name}, {system}: goodput (req/s)", found.goodput_rps))
            made.append(told("clockwork", f"{name}, {system}: mean batch", found.mean_batch))
            made.append(
                told("clockwork", f"{name}, {system}: a batch takes (ms)", found.mean_batch_ms)
            )
        made.append(told("clockwork", f"{name}, {CLIPPER}: share of defaults", theirs.defaults))
    return made + _depends(results)


def _depends(results: list[tuple[Point, Measured]]) -> list[Row]:
    """What a client of Clipper's waits while batches are 1, for many clients and for few."""
    made = []
    for clients in (CLIENTS, FEW):
        found = {
            point.system: found
            for point, found in results
            if (point.slo_ms, point.clients) == (100, clients)
        }
        if len(found) < 2:
            continue
        ours, theirs = found[CLOCKWORK], found[CLIPPER]
        name = f"{clients} clients a model, SLO 100 ms"
        wait_ms = clients * theirs.mean_batch_ms / max(theirs.mean_batch, 1.0)
        made.append(told("clockwork", f"{name}, {CLIPPER}: a client waits (ms)", wait_ms))
        if clients == FEW:
            ratio = ours.goodput_rps / max(theirs.goodput_rps, 0.1)
            made.append(
                told("clockwork", f"{name}: goodput of Clockwork over Clipper 0.3's", ratio)
            )
            made.append(told("clockwork", f"{name}, {CLIPPER}: share of defaults", theirs.defaults))
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """Goodput over the SLO."""
    by = {(point.system, point.slo_ms): found for point, found in results}
    title = "Clockwork and Clipper 0.3: closed loop, 15 ResNet50, one GPU"
    with drawn((6.5, 4.2), title, full=full) as figure:
        axes = figure.add_subplot()
        for system, colour in ((CLOCKWORK, SYSTEM), (CLIPPER, COLOURS[1])):
            have = [slo for slo in SLOS_MS if (system, slo) in by]
            axes.plot(
                have, [by[system, slo].goodput_rps for slo in have], "o-", color=colour,
                label=f"mainspring, {system}",
            )  # fmt: skip
        have = [slo for slo in READ_OFF if slo in SLOS_MS]
        axes.errorbar(
            have, [READ_OFF[slo] for slo in have], yerr=25, fmt="D", color=GREY, mfc="white",
            capsize=3, label="the paper's Clockwork, read off by a third party",
        )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(SLOS_MS, [str(slo) for slo in SLOS_MS])
        axes.minorticks_off()
        axes.set_ylim(0, 900)
        axes.set_xlabel("SLO (ms)")
        axes.set_ylabel("goodput: predictions in time (req/s)")
        axes.grid(visible=True)
        axes.legend(fontsize=8, loc="center left")
    return figure
