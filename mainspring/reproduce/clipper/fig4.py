"""Figure 4: how large a batch? AIMD, quantile regression, none; six containers of MNIST models.

The containers are made of the columns "none" and "quantile regression" (`mnist.py`), so those rows
are fitted. The AIMD column is predicted: throughput, mean batch and 99th percentile come out of
the controller at work on latencies that were not measured under it.
Every container always has a batch waiting, as in the paper (100,000 queries a second offered).
What misses carries a bound: what any line through the two columns can give at most (`bounds.py`).
"""

from typing import NamedTuple

import numpy as np

from mainspring.reproduce.clipper import fig3
from mainspring.reproduce.clipper.bounds import Columns
from mainspring.reproduce.clipper.containers import (
    Served,
    lognormal_sigma,
    run_containers,
    served,
)
from mainspring.reproduce.clipper.mnist import (
    FOREST,
    KERNEL,
    LINEAR,
    LOGISTIC,
    NOOP,
    QUANTILE,
    SPARK,
    UNBATCHED,
    Published,
    container,
)
from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, compared, fitted, shape, told
from results.plots import COLOURS, GREY, Picture

AIMD = {
    NOOP: Published(48_386, 20_448, 1305),
    LOGISTIC: Published(47_220, 20_513, 1225),
    LINEAR: Published(48_934, 20_172, 1319),
    SPARK: Published(29_351, 20_740, 632),
    KERNEL: Published(198, 28_812, 4.0),
    FOREST: Published(22_859, 20_784, 491),
}

STRATEGIES = {"AIMD": AIMD, "quantile regression": QUANTILE, "no batching": UNBATCHED}
SLO_MS = 20.0
LARGEST = 2_000
LARGEST_KERNEL = 16

SOURCE = "published"
SOURCE_FOREST = (
    "published; at odds with its fig. 3, whose line (11 ms + 20 us a query) is half as steep as "
    "from 5.2 ms unbatched to 19.7 ms at 392"
)


class Point(NamedTuple):
    """One container under one strategy. lead_in_s: until the batch has grown."""

    name: str
    strategy: str
    lead_in_s: float
    length_s: float


def points(*, full: bool) -> list[Point]:
    """Full: four times as long after the lead-in."""
    length_s = 80.0 if full else 20.0
    made = [
        Point(name, strategy, 1.0 if strategy == "no batching" else 14.0, length_s)
        for name in UNBATCHED
        for strategy in STRATEGIES
    ]
    return sorted(made, key=_work, reverse=True)


def _work(point: Point) -> float:
    """How many queries the point runs."""
    return STRATEGIES[point.strategy][point.name].rate_rps * (point.lead_in_s + point.length_s)


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    if full:
        return "80 s of simulated time after 14 s in which batches grow"
    return (
        "20 s of simulated time after 14 s in which batches grow: some 1,000 batches, so "
        "throughput is known to a quarter of a percent and the 99th percentile to half of one"
    )


def measure(point: Point) -> Served:
    """Run one container under one strategy."""
    largest = LARGEST_KERNEL if point.name == KERNEL else LARGEST
    params = {"wait_ms": 0.0, "defaults": False, "slo_ms": SLO_MS}
    policy = "clipper-nsdi-aimd"
    if point.strategy == "quantile regression":
        policy = "clipper-nsdi-quantile"
    elif point.strategy == "no batching":
        params["max_batch"] = largest = 1
    length_s = point.lead_in_s + point.length_s
    log, _ = run_containers(
        policy,
        params,
        [container(point.name)],
        clients=[2 * largest],
        length_s=length_s,
        largest=largest,
    )
    return served(log, 0, point.lead_in_s, length_s)


def rows(results: list[tuple[Point, Served]]) -> list[Row]:
    """Verdicts: AIMD predicted, the rest fitted."""
    made = []
    found = {(point.name, point.strategy): each for point, each in results}
    for name in UNBATCHED:
        for strategy, column in STRATEGIES.items():
            if (name, strategy) not in found:
                continue
            ours, theirs = found[name, strategy], column[name]
            quantity = f"{name}, {strategy}"
            if strategy != "AIMD":
                made.append(
                    fitted(
                        "fig4", f"{quantity}: throughput (req/s)", theirs.rate_rps, SOURCE,
                        ours.rate_rps,
                    )
                )  # fmt: skip
                made.append(
                    fitted(
                        "fig4", f"{quantity}: p99 of a batch (ms)", theirs.p99_us / 1e3, SOURCE,
                        ours.p99_ms,
                    )
                )  # fmt: skip
                continue
            source = SOURCE_FOREST if name == FOREST else SOURCE
            made.append(
                compared(
                    "fig4", f"{quantity}: throughput (req/s)", theirs.rate_rps, source,
                    ours.rate_rps, relative=0.1, cause=_too_slow(name, ours),
                )
            )  # fmt: skip
            p99 = f"{quantity}: p99 of a batch (ms)"
            if name == KERNEL:
                made.append(
                    told("fig4", p99, ours.p99_ms, reference=theirs.p99_us / 1e3, source=SOURCE)
                )
            else:
                made.append(
                    shape(
                        "fig4", p99, "at most 21, 1.05 x SLO", ours.p99_ms,
                        holds=ours.p99_ms <= 1.05 * SLO_MS, reference=theirs.p99_us / 1e3,
                    )
                )  # fmt: skip
            made.append(
                told(
                    "fig4", f"{quantity}: mean batch", ours.mean_batch,
                    reference=theirs.mean_batch, source=SOURCE,
                )
            )  # fmt: skip
            other = found.get((name, "quantile regression"))
            if other is not None:
                made.append(
                    shape(
                        "fig4", f"{name}: AIMD's throughput over quantile regression's",
                        f"at least 1; known to {_noise(name, ours, other):.1%}",
                        ours.rate_rps / other.rate_rps,
                        holds=ours.rate_rps >= other.rate_rps,
                        reference=theirs.rate_rps / QUANTILE[name].rate_rps,
                        cause=_no_gain(name, ours, other),
                    )
                )  # fmt: skip
    batched, alone = found.get((LINEAR, "AIMD")), found.get((LINEAR, "no batching"))
    if batched is not None and alone is not None:
        ratio = batched.rate_rps / alone.rate_rps
        made.append(
            shape(
                "fig4", f"{LINEAR}: throughput with AIMD over none", "23 to 28", ratio,
                holds=23 <= ratio <= 28,
                reference=AIMD[LINEAR].rate_rps / UNBATCHED[LINEAR].rate_rps,
            )
        )  # fmt: skip
    return made


def _columns(name: str) -> Columns:
    return Columns(UNBATCHED[name], QUANTILE[name], AIMD[name])


def _too_slow(name: str, ours: Served) -> str:
    """Why AIMD's throughput is off."""
    columns, batch = _columns(name), AIMD[name].mean_batch
    there_rps = columns.rate_rps(batch)
    before_us, beyond_us = columns.steps_us
    return (
        f"{name}: its cycles are on no line. Any line through the two columns that may be used "
        f"gives {there_rps:,.0f}/s at AIMD's published batch of {batch:g}, "
        f"{there_rps / columns.aimd.rate_rps - 1:+.2%}; the line that is least off from all three "
        f"columns is {columns.least_off():.1%} off. A query more adds {before_us:.0f} us to a "
        f"cycle up to quantile regression's batch of {columns.quantile.mean_batch:g}, and "
        f"{beyond_us:.0f} us from there to AIMD's. Here batches came to {ours.mean_batch:.0f}, "
        f"where that line has {columns.rate_rps(ours.mean_batch):,.0f}/s. Figure 3's line, which "
        f"may not be used, with the same idle gap has {by_figure3_rps(name, batch):,.0f}/s at "
        f"{batch:g}, {by_figure3_rps(name, batch) / columns.aimd.rate_rps - 1:+.1%}."
    )


def by_figure3_rps(name: str, batch: float) -> float:
    """Queries a second, were a batch's latency by figure 3's published line."""
    return 1e6 * batch / (fig3.mean_line(name).at(batch) + container(name).gap.at(batch))


def _no_gain(name: str, ours: Served, other: Served) -> str:
    """Why AIMD is no better than quantile regression."""
    columns = _columns(name)
    published = columns.aimd.rate_rps / columns.quantile.rate_rps
    here = columns.rate_rps(ours.mean_batch) / columns.rate_rps(other.mean_batch)
    text = (
        f"{name}: by the line through the two columns that may be used, AIMD's published batch "
        f"({columns.aimd.mean_batch:g}, for {columns.quantile.mean_batch:g} under quantile "
        f"regression) gives {columns.gain:.5g} of quantile regression's throughput"
    )
    if columns.gain < 1:
        text += ", so at least 1 cannot follow"
    elif published > columns.most_gain:
        text += f", and no batch, however large, more than {columns.most_gain:.5g}"
    if columns.aimd.mean_batch < columns.quantile.mean_batch:
        text += (
            f"; published is a smaller batch with {published - 1:.1%} more throughput, which no "
            "function of the size gives: the runs differed"
        )
    elif published > columns.most_gain:
        text += f"; the published {published:.4g} is beyond that: the runs differed"
    return (
        f"{text}. Here batches came to {ours.mean_batch:.4g} and {other.mean_batch:.4g}, for which "
        f"the line has {here:.5g}."
    )


def _noise(name: str, *runs: Served) -> float:
    """The standard error of the ratio of two throughputs."""
    one = container(name)
    parts = []
    for run in runs:
        cycle_us = 1e6 * run.mean_batch / run.rate_rps
        share = one.latency.at(run.mean_batch) / cycle_us
        parts.append(lognormal_sigma(one.tail) * share / np.sqrt(run.batches))
    return float(np.hypot(*parts))


def draw(results: list[tuple[Point, Served]], *, full: bool) -> Picture:
    """Throughput and 99th percentile: bars ours, diamonds published."""
    found = {(point.name, point.strategy): each for point, each in results}
    title = "Figure 4: how large a batch?"
    with drawn((11.0, 5.4), title, full=full) as figure:
        above, below = figure.subplots(2, 1, sharex=True)
        colours = (SYSTEM, COLOURS[1], COLOURS[2])
        for i, (strategy, column) in enumerate(STRATEGIES.items()):
            x = np.arange(len(UNBATCHED)) + 0.27 * (i - 1)
            ours = [found.get((name, strategy)) for name in UNBATCHED]
            label = strategy if strategy == "AIMD" else f"{strategy} (fitted)"
            for axes, which in ((above, "rate_rps"), (below, "p99_ms")):
                heights = [getattr(each, which) if each else 0.0 for each in ours]
                axes.bar(x, heights, 0.25, color=colours[i], label=label)
            above.plot(x, [run.rate_rps for run in column.values()], "D", color=GREY, mfc="white")
            below.plot(
                x, [run.p99_us / 1e3 for run in column.values()], "D", color=GREY, mfc="white"
            )
        above.plot([], [], "D", color=GREY, mfc="white", label="published")
        above.set_yscale("log")
        above.set_ylabel("throughput (req/s)")
        above.legend(fontsize=8, ncols=4)
        below.axhline(SLO_MS, color=GREY, lw=0.8, ls="--")
        below.set_ylabel("p99 of a batch (ms)")
        names = [
            name.replace(" SKLearn", "\nSKLearn").replace(" PySpark", "\nPySpark")
            for name in UNBATCHED
        ]
        below.set_xticks(range(len(names)), names, fontsize=8)
        for axes in (above, below):
            axes.grid(visible=True, axis="y")
    return figure
