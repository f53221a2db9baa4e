"""Figure 7: ensembles, and how right they are where their members agree.

Five models a data set. Answers are drawn with each model's own error (`sim/answers.py`); how alike
errors are is fitted on the queries on which all five agree (`agreement.py`). The error of the
ensemble and of the queries on which at least four agree are predicted. What the fitted numbers
leave open, over all ensembles there could be, is computed (`bounds.py`) and told with what misses.
Generators with a third number, fitted on the ensemble's error, are told beside (`third_number.py`).
"""

from typing import NamedTuple

import numpy as np

from mainspring.reproduce.clipper import third_number
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
from mainspring.reproduce.clipper.bounds import least_violation, left_open, most_four_right
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
    """One ensemble. kind: of a generator with a third number, in place of `sim/answers.py`."""

    name: str
    draws: int
    kind: third_number.Kind | None = None


Measured = dict[str, float]


def points(*, full: bool) -> list[Point]:
    """Full: five times the draws."""
    draws = 500_000 if full else 100_000
    asked = [Point(name, draws) for name in ENSEMBLES]
    return [*asked, *(Point(CIFAR.name, draws, kind) for kind in third_number.KINDS)]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    return f"{500_000 if full else 100_000:,} queries each: errors are known to 0.1 point"


def measure(point: Point) -> Measured:
    """Draw answers, combine them, sort them by agreement."""
    ensemble = ENSEMBLES[point.name]
    answers = drawn_answers(ensemble, point.kind)
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


def drawn_answers(
    ensemble: Ensemble, kind: third_number.Kind | None
) -> Answers | third_number.Drawn:
    """The generator for an ensemble."""
    if kind is not None:
        error = PUBLISHED[ensemble.name]["ensemble"]
        return third_number.Drawn(ensemble, kind, *third_number.fit(ensemble, kind, error), 77)
    alike, confused = fit(ensemble)
    return Answers(ensemble.errors, ensemble.labels, alike, confused, 77)


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts."""
    made = []
    tried = {point.kind: found for point, found in results if point.kind is not None}
    for point, found in results:
        if point.kind is not None:
            continue
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
                        cause=_cause(ENSEMBLES[point.name], quantity, found, tried),
                    )
                )  # fmt: skip
        gain = found["ensemble"] / min(singles) - 1
        made.append(
            shape(
                "fig7", f"{point.name}: the ensemble's error beside the best single's",
                "below: at most 0", gain, holds=gain <= 0,
                reference=published["ensemble"] / min(singles) - 1,
                cause=_cause(ENSEMBLES[point.name], "ensemble", found, tried),
            )
        )  # fmt: skip
    for kind, found in tried.items():
        for quantity, reference in PUBLISHED[CIFAR.name].items():
            name = f"{CIFAR.name}, were it {kind}: {quantity}"
            used = (*FITTED, "ensemble", "5-agree, the rest")  # the last follows from the others
            make = fitted if quantity in used else _told
            made.append(make("fig7", name, reference, "published", found[quantity]))
    return made


def _told(figure: str, quantity: str, reference: float, source: str, obtained: float) -> Row:
    return told(figure, quantity, obtained, reference=reference, source=source)


Tried = dict[third_number.Kind, Measured]


def _cause(ensemble: Ensemble, quantity: str, found: Measured, tried: Tried) -> str:
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
    right4 = share4 * (1 - published["4-agree"])
    others = "; ".join(
        f"{kind}, {each['4-agree share']:.1%}, {each['4-agree']:.2%} and "
        f"{each['4-agree, the rest']:.2%}, with an ensemble's error of {each['ensemble']:.2%}"
        for kind, each in tried.items()
    )
    return (
        f"{ensemble.name}: the numbers that may be used do not determine it. The singles and the "
        f"queries on which all five agree leave the share on which four do open from "
        f"{space.share4[0]:.1%} to {space.share4[1]:.1%} (published {share4:.1%}, here "
        f"{found['4-agree share']:.1%}). Even with the published share{given} given, this error is "
        f"anything from {low:.1%} to {high:.1%} (linear programs over all that five members can "
        "say); one number for how alike members are picks one of these. More numbers do not get "
        f"there: published are four or five right together on {share4:.2%} x (1 - "
        f"{published['4-agree']:.4f}) = {right4:.2%} of the queries, and where members err "
        "independently given how hard a query is, and more the harder it is, it is "
        f"{most_four_right(ensemble):.2%} at the most, however hardness is spread and however it "
        "acts on each of them (Chebyshev's inequality, and linear programs): the authors' models "
        "exclude each other's errors."
        + (
            " With a third number fitted on the ensemble's error, the share, the error and the "
            f"rest's are, {others}; published are {share4:.1%}, {published['4-agree']:.2%} and "
            f"{published['4-agree, the rest']:.2%}."
            if others
            else ""
        )
    )


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """A panel a data set: errors, published beside ours."""
    title = "Figure 7: ensembles of five, and where they agree"
    with drawn((10.0, 4.0), title, full=full) as figure:
        asked = [(point, found) for point, found in results if point.kind is None]
        panels = np.atleast_1d(figure.subplots(1, len(asked)))
        for axes, (point, found) in zip(panels, asked, strict=True):
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
