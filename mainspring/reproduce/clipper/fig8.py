"""Figure 8: model selection when the best model fails.

20,000 queries of CIFAR-10, five models; from query 5,000 to 10,000 the best one says anything.
Exp3 asks one model a query, Exp4 all of them; after each query both learn whether they were right.
The figure is the mean error so far. The algorithms are `scheduler/selection.py`; Exp4 draws its
label and weighs the loss by its probability, as the authors' notebook does.
Not comparable: the error levels themselves, which were not found in text form; and the models'
answers, which are drawn (`sim/answers.py`) with the published accuracies, and with the likeness
of errors that figure 7's agreement gives.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainspring.reproduce.clipper.agreement import CIFAR, fit
from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, shape, told
from results.plots import COLOURS, GREY, Picture
from scheduler.selection import Exp3, Exp4, Exp4Rule
from sim.answers import Answers

ACCURACIES = (0.7575, 0.654, 0.832, 0.54, 0.9085)
BEST = 4
LABELS = 10
QUERIES, FAILS, RECOVERS = 20_000, 5_000, 10_000
ETA_EXP3, ETA_EXP4 = 0.05, 0.2
TRIALS = 50
SEED = 1982
"""The notebook's."""

EVERY = 100
"""Errors are kept for every so many queries."""

Curve = npt.NDArray[np.float64]


class Point(NamedTuple):
    """Some trials. queries: of the whole, with the failure in its place."""

    first: int
    trials: int
    queries: int


class Measured(NamedTuple):
    """Means over the trials of the error so far, shape (queries / EVERY,); static: by model.

    chosen: how often Exp3 asked the best model, by the same stretches.
    """

    exp3: Curve
    exp4: Curve
    static: npt.NDArray[np.float64]
    chosen: Curve


def points(*, full: bool) -> list[Point]:
    """Full: four times the paper's 50 trials."""
    return [Point(first, 5, QUERIES) for first in range(0, 4 * TRIALS if full else TRIALS, 5)]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    return f"{4 * TRIALS if full else TRIALS} trials of 20,000 queries; the paper has 50"


def measure(point: Point) -> Measured:
    """Run some trials."""
    curves = [
        _trial(trial, point.queries) for trial in range(point.first, point.first + point.trials)
    ]
    exp3, exp4, static, chosen = (np.mean(curve, axis=0) for curve in zip(*curves, strict=True))
    return Measured(exp3, exp4, static, chosen)


def _trial(trial: int, queries: int) -> tuple[Curve, Curve, Curve, Curve]:
    alike, confused = fit(CIFAR)
    answers = Answers([1 - a for a in ACCURACIES], LABELS, alike, confused, [SEED, trial])
    truth, said = answers.block(0, queries)
    rng = np.random.default_rng([SEED, trial, 1])
    fails, recovers = FAILS * queries // QUERIES, RECOVERS * queries // QUERIES
    said[fails:recovers, BEST] = rng.integers(LABELS, size=recovers - fails)
    exp3, exp4 = Exp3(len(ACCURACIES), ETA_EXP3), Exp4(len(ACCURACIES), ETA_EXP4, Exp4Rule.LABEL)
    wrong3, wrong4, best = np.zeros((3, queries))
    for i, (right, labels) in enumerate(zip(truth.tolist(), said.tolist(), strict=True)):
        asked = exp3.select(rng)
        wrong3[i] = labels[asked.model] != right
        best[i] = asked.model == BEST
        exp3.observe(asked, wrong3[i])
        vote = exp4.combine(labels, rng)
        wrong4[i] = vote.label != right
        exp4.observe(vote, labels, right)
    wrong = np.column_stack([wrong3, wrong4, said != truth[:, None]])
    so_far = np.cumsum(wrong, axis=0) / np.arange(1, queries + 1)[:, None]
    kept = so_far[EVERY - 1 :: EVERY]
    return kept[:, 0], kept[:, 1], kept[:, 2:], best.reshape(-1, EVERY).mean(axis=1)


def _means(results: list[tuple[Point, Measured]]) -> Measured:
    weights = [point.trials for point, _ in results]
    exp3, exp4, static, chosen = (
        np.average([found[i] for _, found in results], axis=0, weights=weights) for i in range(4)
    )
    return Measured(exp3, exp4, static, chosen)


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts, of the means over all trials."""
    if not results:
        return []
    means = _means(results)
    end = len(means.exp3)
    fails, recovers = end * FAILS // QUERIES, end * RECOVERS // QUERIES
    static = means.static.min(axis=1)
    trials = sum(point.trials for point, _ in results)
    made = []
    for name, curve in (("Exp3", means.exp3), ("Exp4", means.exp4)):
        made.append(
            shape(
                "fig8", f"{name}, mean of {trials} trials: error at the end, less the best model's",
                "below 0: overtakes every single model after the failure",
                float(curve[-1] - static[-1]), holds=bool(curve[-1] < static[-1]),
            )
        )  # fmt: skip
        rises = (curve[recovers - 1] * recovers - curve[fails - 1] * fails) / (recovers - fails)
        late = (curve[-1] * end - curve[recovers + end // 4 - 1] * (recovers + end // 4)) / (
            end - recovers - end // 4
        )
        made.append(
            shape(
                "fig8", f"{name}: error in the last 5,000 queries", "below 0.168, the second best",
                float(late), holds=bool(late < 1 - ACCURACIES[2]), reference=1 - ACCURACIES[BEST],
                source="published (the best model's)",
            )
        )  # fmt: skip
        made.append(told("fig8", f"{name}: error during the failure", float(rises)))
        made.append(told("fig8", f"{name}: error at the end", float(curve[-1])))
    gap = means.exp4 - means.exp3
    made.append(
        shape(
            "fig8", "Exp4 less Exp3: error at the end", "at most 0: Exp4 at or below Exp3",
            float(gap[-1]), holds=bool(gap[-1] <= 0),
        )
    )  # fmt: skip
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """The error so far."""
    means = _means(results)
    queries = EVERY * np.arange(1, len(means.exp3) + 1)
    with drawn((7.0, 4.2), "Figure 8: the best of five models fails", full=full) as figure:
        axes = figure.add_subplot()
        for i in range(means.static.shape[1]):
            axes.plot(
                queries, means.static[:, i], color=GREY, lw=0.8, ls="--" if i == BEST else "-"
            )
            axes.text(queries[-1], means.static[-1, i], f" model {i + 1}", fontsize=7, color=GREY)
        axes.plot(queries, means.exp3, color=COLOURS[1], label="Exp3")
        axes.plot(queries, means.exp4, color=SYSTEM, label="Exp4")
        scale = queries[-1] / QUERIES
        axes.axvspan(FAILS * scale, RECOVERS * scale, color=GREY, alpha=0.12, lw=0)
        axes.set_xlabel("queries; shaded: model 5 says anything")
        axes.set_ylabel("mean error so far")
        axes.grid(visible=True)
        axes.legend()
    return figure
