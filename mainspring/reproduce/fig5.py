"""Figure 5: one GPU, 15 copies of ResNet50, 16 closed-loop clients each, over the SLO.

The paper's system is INFER5 with batches up to 8 and 5 ms of lookahead. It is shown with messages
that carry nothing, and with inputs of 602 kB, which its clients send, over 10 Gbit/s. INFER4 with
batches up to 16 stands beside it where the original was run so. Clipper, which the paper draws too,
is in `mainspring reproduce clipper clockwork`; INFaaS is not here.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from mainspring.reproduce.drawing import SYSTEM, drawn, tail_axis
from mainspring.reproduce.experiment import RESNET50, V100, Log, clockwork, play
from mainspring.reproduce.original import ORIGINAL_SCENARIO, WAY_BACK_MS
from mainspring.reproduce.rows import Row, compared, shape, told
from mainspring.scenario import load_scenario
from results.plots import COLOURS, GREY, Picture

READ_OFF = {10: 400, 25: 500, 50: 575, 100: 675, 250: 725, 500: 800}
"""SLO in ms, goodput in req/s: the paper's bars as a third party read them, +-25."""

ORIGINAL_RPS = 796.7
"""Row e6c_closed16_g1 of our runs of the original: INFER4, batches to 16, SLO of 100 ms."""

CEILING_RPS = 8 / 9.93e-3
"""A GPU that does nothing but full batches of 8."""

NINES = np.concatenate([np.linspace(0, 0.9, 46), 1 - np.logspace(-1, -5, 81)])

LINK_GBIT_PER_S = 10.0
"""Of the paper's machines, each way; an input has 602,112 bytes."""

TIGHT_AHEAD_MS = 4.0
"""Lookahead with which the SLO of 10 ms is planned for less than itself."""

NO_ROOM = (
    "The artifact plans no request for less than lookahead + buffer, here 5 + 5 ms, the "
    "SLO itself. Most batches then end just there, and the way back (0.26 ms) makes them late. "
    "With 4 ms of lookahead, nothing else changed, all answers are in time, as the row says. A "
    "third party who reran the artifact found the same: a shorter lookahead gave 5 times the "
    "goodput at 10 ms. The authors' GPUs were over-predicted by some 0.2 ms (figure 10, as "
    "remembered), about the way back; ours, by the noise that was published, by 0.001 ms."
)
"""Why answers at an SLO of 10 ms are late."""

CAUSES = (
    "25 ms to 250 ms: above the reading because messages carry nothing here; so is the original "
    "with messages that carry nothing (796.7 req/s at 100 ms, where 675 were read). The paper's "
    "clients sent 602 kB with each request. 240 clients that ask again at each rejection would ask "
    "2,500 times a second and more, but 10 Gbit/s carry 2,076 inputs: fewer requests wait, batches "
    "are smaller, goodput is lower. With that link we come nearer to the reading, as the last rows "
    "say, but not within its 25 req/s. The link to the workers, two sends at a time, changes "
    "nothing at 10 Gbit/s. This is a possible cause, not a proven one: figure 7 has 2,400 requests "
    "a second in time, which are 11.6 Gbit/s, so the machines' two links of 10 Gbit/s, or the "
    "clients' compression, must have carried more there.",
)
"""Why numbers are as they are that nothing is held against."""


class Point(NamedTuple):
    """system: infer5, or infer4 as in the original's row. inputs: go over links."""

    system: str
    slo_ms: int
    length_s: float
    lead_in_s: float
    last_s: float
    ahead_ms: float = 5.0
    inputs: bool = False


class Measured(NamedTuple):
    """latency_ms: of the answers, at the shares NINES. answers: how many there were."""

    goodput_rps: float
    answers: int
    in_slo: float
    mean_batch: float
    worst_ms: float
    latency_ms: npt.NDArray[np.float64]


def points(*, full: bool) -> list[Point]:
    """Full: half an hour each, judged by the last ten minutes but one."""
    times = (1800.0, 1200.0, 60.0) if full else (60.0, 10.0, 0.0)
    linked = times if full else (30.0, 10.0, 0.0)
    return [
        *(Point("infer5", slo, *times) for slo in READ_OFF),
        *(Point("infer5", slo, *linked, inputs=True) for slo in READ_OFF),
        Point("infer5", 10, *linked, ahead_ms=TIGHT_AHEAD_MS),
        Point("infer4", 100, *((1800.0, 1200.0, 60.0) if full else (30.0, 10.0, 0.0))),
    ]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    if full:
        return "30 min of simulated time an SLO, as in the paper"
    return (
        "60 s of simulated time an SLO in place of 30 min: some 20,000 to 40,000 answers each, so "
        "that goodput is known to 1% and a share of 99.99% to a few answers"
    )


def measure(point: Point) -> Measured:
    """Run one SLO."""
    log = play(_table(point), Log())
    inside = log.requests
    inside = inside.where(
        (inside.end >= point.lead_in_s * 1e9) & (inside.end < (point.length_s - point.last_s) * 1e9)
    )
    batches = log.batches.between(point.lead_in_s * 1e9, point.length_s * 1e9)
    answered = inside.where(inside.answered)
    latency_ms = answered.latency_ms
    return Measured(
        goodput_rps=float(inside.ok.sum() / (point.length_s - point.last_s - point.lead_in_s)),
        answers=len(latency_ms),
        in_slo=float(answered.ok.mean()) if len(latency_ms) else 0.0,
        mean_batch=float(batches.tasks.mean()) if len(batches.tasks) else 0.0,
        worst_ms=float(latency_ms.max(initial=0)),
        latency_ms=np.quantile(latency_ms, NINES) if len(latency_ms) else np.zeros(len(NINES)),
    )


def _table(point: Point) -> dict[str, Any]:
    cluster: dict[str, Any] = dict(V100)
    clients: dict[str, Any] = {"kind": "closed", "concurrency": 16, "retry_after_ms": 0.0}
    if point.system == "infer4":  # on the platform on which it was recorded
        cluster = msgspec.to_builtins(load_scenario(ORIGINAL_SCENARIO).spec.cluster)
        clients["think_ms"] = WAY_BACK_MS
    if point.inputs:
        cluster["link"] = {"gbit_per_s": LINK_GBIT_PER_S}
        clients["link_gbit_per_s"] = LINK_GBIT_PER_S
    policies = {
        "infer5": clockwork(
            default_slo_ms=point.slo_ms,
            schedule_ahead_ms=point.ahead_ms,
            latest_delta_ms=point.ahead_ms,
            max_batch=8,
        ),
        "infer4": clockwork(default_slo_ms=point.slo_ms, variant="infer4"),
    }
    return {
        "name": "fig5",
        "seed": 5,
        "duration_s": point.length_s,
        "slo_ms": point.slo_ms,
        "cluster": cluster,
        "models": [{"profile": RESNET50, "copies": 15}],
        "workload": [clients],
        "policy": policies[point.system],
    }


Results = list[tuple[Point, Measured]]


def _apart(results: Results) -> tuple[list[Measured], dict[int, Measured], Results]:
    """With less lookahead; with inputs over links, by SLO; and all others."""
    tight = [found for point, found in results if point.ahead_ms == TIGHT_AHEAD_MS]
    linked = {point.slo_ms: found for point, found in results if point.inputs}
    others = [
        (point, found)
        for point, found in results
        if point.ahead_ms != TIGHT_AHEAD_MS and not point.inputs
    ]
    return tight, linked, others


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts."""
    made = []
    tight, linked, results = _apart(results)
    ours = {point.slo_ms: found for point, found in results if point.system == "infer5"}
    for point, found in results:
        if point.system == "infer4":
            made.append(
                compared(
                    "fig5", "INFER4, batches to 16, SLO 100 ms: goodput (req/s)", ORIGINAL_RPS,
                    "run of the original", found.goodput_rps, relative=0.02,
                )
            )  # fmt: skip
    for slo, found in ours.items():
        made.append(
            told(
                "fig5", f"SLO {slo} ms: goodput (req/s)", found.goodput_rps,
                reference=READ_OFF[slo], source="read off a figure by a third party",
            )
        )  # fmt: skip
    if len(ours) > 1:
        goodput = [found.goodput_rps for _, found in sorted(ours.items())]
        steps = np.diff(goodput)
        made.append(
            shape(
                "fig5", "goodput over the SLO: smallest step (req/s)", "monotone within 1%: >= -8",
                float(steps.min()), holds=bool(steps.min() >= -0.01 * CEILING_RPS),
            )
        )  # fmt: skip
        made.append(
            shape(
                "fig5", "largest goodput (req/s)", "at most 806, the ceiling of batch 8",
                max(goodput), holds=max(goodput) <= 806, reference=CEILING_RPS,
                source="physics",
            )
        )  # fmt: skip
    for slo, found in ours.items():
        made.append(
            shape(
                "fig5", f"SLO {slo} ms: share of {found.answers:,} answers inside the SLO",
                "at least 99.99%", found.in_slo, holds=found.in_slo >= 0.9999,
                cause=NO_ROOM if slo == 10 else "",
            )
        )  # fmt: skip
    for slo, found in linked.items():
        made.append(
            told(
                "fig5", f"SLO {slo} ms, inputs over links of 10 Gbit/s: goodput (req/s)",
                found.goodput_rps, reference=READ_OFF[slo],
                source="read off a figure by a third party",
            )
        )  # fmt: skip
    if linked and linked.keys() <= ours.keys():
        with_links, without = (
            float(np.mean([abs(of[slo].goodput_rps / READ_OFF[slo] - 1) for slo in linked]))
            for of in (linked, ours)
        )
        for how, distance in (("inputs over links", with_links), ("messages empty", without)):
            made.append(told("fig5", f"mean distance from the reading, {how}", distance))
    for found in tight:
        name = f"SLO 10 ms, {TIGHT_AHEAD_MS:g} ms of lookahead in place of 5"
        made.append(
            told(
                "fig5", f"{name}: goodput (req/s)", found.goodput_rps, reference=READ_OFF[10],
                source="read off a figure by a third party",
            )
        )  # fmt: skip
        made.append(
            shape(
                "fig5", f"{name}: share of {found.answers:,} answers inside the SLO",
                "at least 99.99%", found.in_slo, holds=found.in_slo >= 0.9999,
            )
        )  # fmt: skip
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """Left the goodput over the SLO, right the tail of the latency for each SLO."""
    tight, linked, results = _apart(results)
    by = {(point.system, point.slo_ms): found for point, found in results}
    slos = sorted({point.slo_ms for point, _ in results})
    with drawn((10.5, 4.4), "Figure 5: closed loop, 15 ResNet50, one GPU", full=full) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
        looks: dict[str, dict[str, Any]] = {
            "infer5": {"color": SYSTEM, "marker": "o", "label": "mainspring, INFER5, batch 8"},
            "infer4": {
                "color": COLOURS[2], "marker": "s", "linestyle": "",
                "label": "mainspring, INFER4, batch 16",
            },
        }  # fmt: skip
        place = {slo: i for i, slo in enumerate(READ_OFF)}
        for system, look in looks.items():
            have = [slo for slo in slos if (system, slo) in by]
            left.plot(
                [place[slo] for slo in have], [by[system, slo].goodput_rps for slo in have], **look
            )
        if linked:
            have = sorted(linked)
            left.plot(
                [place[slo] for slo in have], [linked[slo].goodput_rps for slo in have],
                color=COLOURS[1], marker="o", label="INFER5, inputs over 10 Gbit/s",
            )  # fmt: skip
        for found in tight:
            left.plot(
                [place[10]], [found.goodput_rps], "o", color=SYSTEM, mfc="white",
                label=f"INFER5, {TIGHT_AHEAD_MS:g} ms of lookahead in place of 5",
            )  # fmt: skip
        left.errorbar(
            list(place.values()), list(READ_OFF.values()), yerr=25, fmt="D", color=GREY,
            mfc="white", capsize=3, linewidth=1, label="paper, read off by a third party",
        )  # fmt: skip
        left.plot(
            [place[100]], [ORIGINAL_RPS], "x", color="black", ms=8, mew=2, zorder=5,
            label="run of the original, INFER4",
        )  # fmt: skip
        left.axhline(CEILING_RPS, color=GREY, linewidth=0.8, linestyle="--")
        left.text(0, CEILING_RPS + 8, "ceiling of batch 8", color=GREY, fontsize=8)
        left.set_xticks(list(place.values()), [str(slo) for slo in place])
        left.set_xlabel("SLO (ms)")
        left.set_ylabel("goodput (req/s)")
        left.set_ylim(0, 950)
        left.grid(visible=True, axis="y")
        left.legend(loc="lower right", fontsize=8)
        for i, slo in enumerate(slos):
            if ("infer5", slo) in by:
                found = by["infer5", slo]
                right.plot(
                    found.latency_ms, NINES, color=COLOURS[i % len(COLOURS)], label=f"{slo} ms"
                )
                right.axvline(slo, color=COLOURS[i % len(COLOURS)], linewidth=0.7, linestyle=":")
        tail_axis(right, most=1 - 1e-5)
        right.set_xscale("log")
        right.set_xticks(slos, [str(slo) for slo in slos], minor=False)
        right.minorticks_off()
        right.set_xlabel("latency of answers (ms); dotted: the SLO")
        right.legend(title="SLO", loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    return figure
