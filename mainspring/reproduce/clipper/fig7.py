"""Figure 7: ensembles, and how right they are where their members agree.

Five models a data set. Answers are drawn with each model's own error (`sim/answers.py`); how alike
errors are is fitted on the queries on which all five agree (`agreement.py`). The error of the
ensemble and of the queries on which at least four agree are predicted. What the fitted numbers
leave open, over all ensembles there could be, is computed (`bounds.py`) and told with what misses.
"""

from typing import NamedTuple

import numpy as np

from mainspring.reproduce.clipper.agreement import (
    CIFAR,
    IMAGENET,
    LEARNED_ON,
    Ensemble,
    agree,
    fit,
    learn,
    vote,
)
from mainspring.reproduce.clipper.bounds import least_violation, left_open
from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, compared, fitted, shape, told
from results.plots import GREY, Picture
from sim.answers import Answers

ENSEMBLES = {ensemble.name: ensemble for ensemble in (CIFAR, IMAGENET)}

PUBLISHED = {
    "CIFAR-10": {
        "ensemble": 0.0845, "4-agree share": 0.8035, "4-agree": 0.0610, "4-agree, the rest": 0.1807,
        "5-agree share": 0.405, "5-agree": 0.0235, "5-agree, the rest": 0.1260,
    },
    "ImageNet": {
        "ensemble": 0.0586, "4-agree share": 0.957, "4-agree": 0.0469, "4-agree, the rest": 0.3182,
        "5-agree share": 0.844, "5-agree": 0.0327, "5-agree, the rest": 0.1983,
    },
}  # fmt: skip
"""Errors, and shares of the queries."""

FITTED = ("5-agree share", "5-agree")
POINT = 0.005
"""Half a point, the tolerance asked for."""


class Point(NamedTuple):
    """One ensemble."""

    name: str
    draws: int


Measured = dict[str, float]


def points(*, full: bool) -> list[Point]:
    """Full: five times the draws."""
    return [Point(name, 500_000 if full else 100_000) for name in ENSEMBLES]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    return f"{500_000 if full else 100_000:,} queries each: errors are known to 0.1 point"


def measure(point: Point) -> Measured:
    """Draw answers, combine them, sort them by agreement."""
    ensemble = ENSEMBLES[point.name]
    answers = drawn_answers(ensemble)
    weights = learn(*answers.block(1, LEARNED_ON), ensemble.labels)
    truth, said = answers.block(2, point.draws)
    wrong = vote(said, weights) != truth
    agreeing = agree(said)
    found = {"ensemble": float(wrong.mean())}
    for least in (5, 4):
        group = agreeing >= least
        found[f"{least}-agree share"] = float(group.mean())
        found[f"{least}-agree"] = float(wrong[group].mean())
        found[f"{least}-agree, the rest"] = float(wrong[~group].mean())
    found |= {
        f"single {i + 1}": float(e) for i, e in enumerate((said != truth[:, None]).mean(axis=0))
    }
    return found


def drawn_answers(ensemble: Ensemble) -> Answers:
    """The generator for an ensemble."""
    alike, confused = fit(ensemble)
    return Answers(ensemble.errors, ensemble.labels, alike, confused, 77)


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts."""
    made = []
    for point, found in results:
        published = PUBLISHED[point.name]
        singles = ENSEMBLES[point.name].errors
        for i, error in enumerate(singles):
            name = f"{point.name}, single {i + 1}: error"
            made.append(fitted("fig7", name, error, "published", found[f"single {i + 1}"]))
        source = "published"
        right5 = published["5-agree share"] * (1 - published["5-agree"])
        if right5 > 1 - max(singles):
            source = f"published; at odds with the worst single, right on {1 - max(singles):.1%}"
        for quantity, reference in published.items():
            name = f"{point.name}, {quantity}" + ("" if "share" in quantity else ": error")
            if quantity in FITTED:
                made.append(fitted("fig7", name, reference, source, found[quantity]))
            elif "share" in quantity:
                made.append(told("fig7", name, found[quantity], reference=reference, source=source))
            else:
                made.append(
                    compared(
                        "fig7", name, reference, source, found[quantity], absolute=POINT,
                        cause=_cause(ENSEMBLES[point.name], quantity, found),
                    )
                )  # fmt: skip
        gain = found["ensemble"] / min(singles) - 1
        made.append(
            shape(
                "fig7", f"{point.name}: the ensemble's error beside the best single's",
                "below: at most 0", gain, holds=gain <= 0,
                reference=published["ensemble"] / min(singles) - 1,
                cause=_cause(ENSEMBLES[point.name], "ensemble", found),
            )
        )  # fmt: skip
    return made


def _cause(ensemble: Ensemble, quantity: str, found: Measured) -> str:
    """Why a predicted error is off; empty where that is not known."""
    published = PUBLISHED[ensemble.name]
    share4 = published["4-agree share"]
    space = left_open(ensemble, share4, published["ensemble"])
    if space is None:
        right5, worst = ensemble.agree5 * (1 - ensemble.wrong5), max(ensemble.errors)
        return (
            f"{ensemble.name}: no ensemble has the fitted numbers, if to agree is to say one "
            f"label: at least one of them is {100 * least_violation(ensemble):.2f} points off in "
            f"any (linear program over what five members can say). All five agree and are right on "
            f"{ensemble.agree5:.1%} x (1 - {ensemble.wrong5:.4f}) = {right5:.1%} of the queries, "
            f"but the worst of them is right on {1 - worst:.1%} only. What agreement is among "
            "first-five lists was not published."
        )
    if not quantity.startswith("4-agree"):
        return ""
    (low, high), given = (
        (space.error4, "") if quantity == "4-agree" else (space.rest, " and the ensemble's error")
    )
    return (
        f"{ensemble.name}: the numbers that may be used do not determine it. The singles and the "
        f"queries on which all five agree leave the share on which four do open from "
        f"{space.share4[0]:.1%} to {space.share4[1]:.1%} (published {share4:.1%}, here "
        f"{found['4-agree share']:.1%}). Even with the published share{given} given, this error is "
        f"anything from {low:.1%} to {high:.1%} (linear programs over all that five members can "
        "say); one number for how alike members are picks one of these."
    )


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """A panel a data set: errors, published beside ours."""
    title = "Figure 7: ensembles of five, and where they agree"
    with drawn((10.0, 4.0), title, full=full) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(results)))
        for axes, (point, found) in zip(panels, results, strict=True):
            published = PUBLISHED[point.name]
            names = [name for name in published if "share" not in name]
            for i, name in enumerate(names):
                axes.bar(i - 0.2, 100 * published[name], 0.38, color=GREY)
                axes.bar(i + 0.2, 100 * found[name], 0.38, color=SYSTEM)
            axes.axhline(100 * min(ENSEMBLES[point.name].errors), color=GREY, lw=0.8, ls="--")
            labels = [name.replace(", ", "\n") for name in names]
            axes.set_xticks(range(len(names)), labels, fontsize=8)
            axes.set_title(f"{point.name}; dashed: the best single", fontsize=9)
            axes.grid(visible=True, axis="y")
        panels[0].set_ylabel("error (%)\ngrey: published; colour: mainspring")
    return figure
