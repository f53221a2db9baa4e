"""Figure 11: Clipper beside TensorFlow Serving, three models on a GPU.

Both run a full batch after the other while another one waits, so there are two batches in the
system. For the Clipper containers the time of a batch is what their authors' breakdown says
(prediction and copying), and throughput and latency are predicted. TensorFlow Serving has no
breakdown: half its mean latency is taken for the time of a batch, and only its throughput is
predicted.
Not comparable: 99th percentiles, for there is nothing to take noise from.
"""

from typing import NamedTuple

from mainspring.reproduce.clipper.containers import (
    Container,
    Line,
    Served,
    run_containers,
    served,
)
from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, compared, fitted, shape
from results.plots import GREY, Picture

BATCHES = {"MNIST": 512, "CIFAR-10": 128, "ImageNet": 16}
"""The static size that TensorFlow Serving was given; all systems run with it."""

TFS, CPP, PYTHON = "TF Serving", "Clipper, TF C++", "Clipper, TF Python"

PUBLISHED = {
    (TFS, "MNIST"): (23_139.0, 43.0),
    (CPP, "MNIST"): (22_270.0, 46.0),
    (PYTHON, "MNIST"): (19_538.0, 52.4),
    (TFS, "CIFAR-10"): (5_519.0, 47.0),
    (CPP, "CIFAR-10"): (5_472.0, 46.8),
    (PYTHON, "CIFAR-10"): (4_571.0, 56.0),
    (TFS, "ImageNet"): (56.8, 562.0),
    (CPP, "ImageNet"): (52.5, 609.0),
    (PYTHON, "ImageNet"): (47.9, 668.0),
}
"""Queries a second, and mean latency in ms."""

BREAKDOWN_MS = {
    (CPP, "MNIST"): (22.1, 0.8),
    (CPP, "CIFAR-10"): (22.4, 0.9),
    (CPP, "ImageNet"): (295.2, 9.2),
    (PYTHON, "MNIST"): (24.6, 1.6),
    (PYTHON, "CIFAR-10"): (26.6, 1.4),
    (PYTHON, "ImageNet"): (306.7, 26.9),
}
"""Prediction and copying, of a batch."""

SOURCE = "published (an earlier variant in the authors' script differs by 1 to 5%)"


class Point(NamedTuple):
    """One system and model. batches: how many are measured."""

    system: str
    model: str
    batches: int


class Measured(NamedTuple):
    """latency_ms: of a request, its mean."""

    served: Served
    latency_ms: float


def points(*, full: bool) -> list[Point]:
    """Full: ten times as many batches."""
    return [Point(system, model, 600 if full else 60) for system, model in PUBLISHED]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    return f"{600 if full else 60} batches each, all alike: nothing is given away"


def measure(point: Point) -> Measured:
    """Run one system with one model."""
    size = BATCHES[point.model]
    key = (point.system, point.model)
    if point.system == TFS:
        took_ms, copy_ms = PUBLISHED[key][1] / 2, 0.0
    else:
        took_ms, copy_ms = BREAKDOWN_MS[key]
    # A batch takes what it takes, however full it is; after the first there are only full ones.
    container = Container(point.model, Line(1e3 * took_ms, 0.0), Line(1e3 * copy_ms, 0.0))
    cycle_s = (took_ms + copy_ms) / 1e3
    lead_in_s = (size / 2 + 10) * cycle_s
    length_s = lead_in_s + point.batches * cycle_s
    log, _ = run_containers(
        "clipper-nsdi-aimd",
        # The SLO is out of reach, so the size grows to the static one, by 2 a batch, and stays.
        {"max_batch": size, "wait_ms": 0.0, "defaults": False, "slo_ms": 1e5},
        [container],
        clients=[2 * size],
        length_s=length_s,
        largest=size,
    )
    asked = log.requests.between(lead_in_s * 1e9, (length_s - 3 * cycle_s) * 1e9)
    return Measured(served(log, 0, lead_in_s, length_s), float(asked.latency_ms.mean()))


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts."""
    made = []
    for point, found in results:
        name = f"{point.model}, {point.system}"
        rate_rps, latency_ms = PUBLISHED[point.system, point.model]
        made.append(
            compared(
                "fig11", f"{name}: throughput (req/s)", rate_rps, SOURCE, found.served.rate_rps,
                relative=0.05,
            )
        )  # fmt: skip
        quantity = f"{name}: mean latency (ms)"
        if point.system == TFS:
            made.append(fitted("fig11", quantity, latency_ms, SOURCE, found.latency_ms))
        else:
            made.append(
                compared("fig11", quantity, latency_ms, SOURCE, found.latency_ms, relative=0.05)
            )
    rates = {(point.system, point.model): found.served.rate_rps for point, found in results}
    for model in BATCHES:
        if (PYTHON, model) in rates and (CPP, model) in rates:
            lost = 1 - rates[PYTHON, model] / rates[CPP, model]
            ours, theirs = (PUBLISHED[system, model][0] for system in (PYTHON, CPP))
            made.append(
                shape(
                    "fig11", f"{model}: share of throughput that Python costs",
                    "8% to 18%, as published for the three", lost, holds=0.08 <= lost <= 0.18,
                    reference=1 - ours / theirs,
                )
            )  # fmt: skip
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """A panel a model: bars of throughput, published beside ours."""
    rates = {(point.system, point.model): found.served.rate_rps for point, found in results}
    title = "Figure 11: throughput beside TensorFlow Serving"
    with drawn((9.0, 3.6), title, full=full) as figure:
        for axes, model in zip(figure.subplots(1, len(BATCHES)), BATCHES, strict=True):
            for i, system in enumerate((TFS, CPP, PYTHON)):
                axes.bar(i - 0.2, PUBLISHED[system, model][0], 0.38, color=GREY)
                axes.bar(i + 0.2, rates.get((system, model), 0.0), 0.38, color=SYSTEM)
            axes.set_xticks(range(3), ["TF Serving", "Clipper\nC++", "Clipper\nPython"], fontsize=8)
            axes.set_title(f"{model}, batch {BATCHES[model]}", fontsize=9)
            axes.grid(visible=True, axis="y")
        figure.axes[0].set_ylabel("throughput (req/s)\ngrey: published; colour: mainspring")
    return figure
