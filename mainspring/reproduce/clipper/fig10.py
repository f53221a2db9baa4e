"""Figure 10: models of dialects, and what feedback of one speaker is worth. Told, not judged.

TIMIT: 168 speakers of 8 dialects, a model for each dialect and one without. Published are means
over the speakers. They do not determine the curve: which policy it was is not known, nor what a
piece of feedback is, nor how the errors of one speaker differ from model to model. So speakers are
generated, and what is not known is varied:

    spread   standard deviation of one model's error over speakers, beyond its dialect's
    alike    how alike the models err on a sound (`sim/answers.py`)
    eta      how fast weights follow: Exp4's of pull request 48 and of figure 8's notebook

Given are what was published: the error of a speaker's own dialect, and what it costs to have none,
which is taken for what another dialect costs. A piece of feedback is a sentence of 38 sounds
(TIMIT's mean). Each speaker has Exp4 weights of their own (`scheduler/selection.py`).
"""

from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainspring.reproduce.clipper.agreement import same
from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, fitted, told
from results.plots import COLOURS, GREY, Picture
from scheduler.selection import Exp4
from sim.answers import Answers

OWN, NONE = 0.3212, 0.3620
PUBLISHED = (0.3620, 0.3117, 0.3124, 0.3091, 0.3039, 0.3048, 0.3059, 0.3023, 0.2999)
"""Error after 0 to 8 pieces of feedback; after none it is that of the model without dialects."""

SPEAKERS, DIALECTS, LABELS = 168, 8, 39
SENTENCE = 38
ASKED = 200
"""Sounds of each speaker on which the error is measured."""

SPREADS, ALIKE, ETAS = (0.0, 0.03, 0.06), (0.5, 0.9), (0.01, 0.2)
CONFUSED = 0.9
SOURCE = "published"

CAUSES = (
    "Not judged, for the published means leave the curve open: with the same means, and what is "
    "not known varied, the error after 8 sentences is to both sides of the published one. Where it "
    "rises with feedback, Exp4 gives up a vote of eight for the one model that did best.",
)
"""Why nothing is held against it."""


class Point(NamedTuple):
    """One population, and one eta. speakers, asked: how many, and sounds of each."""

    spread: float
    alike: float
    eta: float
    speakers: int
    asked: int = ASKED


class Measured(NamedTuple):
    """Means over the speakers: of their own dialect's model; and after 1, 2, ... sentences."""

    own: float
    curve: tuple[float, ...]


def points(*, full: bool) -> list[Point]:
    """Full: six times the speakers."""
    speakers = 6 * SPEAKERS if full else SPEAKERS
    return [Point(*each, speakers) for each in product(SPREADS, ALIKE, ETAS)]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    return f"{6 * SPEAKERS if full else SPEAKERS} speakers; the paper has {SPEAKERS}"


def measure(point: Point) -> Measured:
    """Let every speaker give feedback."""
    found = np.mean([_speaker(point, number) for number in range(point.speakers)], axis=0)
    return Measured(float(found[0]), tuple(found[1:].tolist()))


def _speaker(point: Point, number: int) -> npt.NDArray[np.float64]:
    """The error of the own dialect's model, and of the vote after each sentence."""
    rng = np.random.default_rng([10, number])
    own = number % DIALECTS
    errors = OWN + (NONE - OWN) * (np.arange(DIALECTS) != own)
    errors = np.clip(errors + point.spread * rng.standard_normal(DIALECTS), 0.01, 0.99)
    answers = Answers(errors.tolist(), LABELS, point.alike, CONFUSED, [10, number])
    truth, said = answers.block(0, point.asked)
    together = same(said)
    exp4 = Exp4(DIALECTS, point.eta)
    found = [float((said[:, own] != truth).mean())]
    for sentence in range(1, len(PUBLISHED)):
        for right, labels in zip(
            *map(np.ndarray.tolist, answers.block(sentence, SENTENCE)), strict=True
        ):
            exp4.observe(exp4.combine(labels, rng), labels, right)
        winner = (together @ np.array(exp4.weights())).argmax(axis=1)
        found.append(float((said[np.arange(point.asked), winner] != truth).mean()))
    return np.array(found)


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """What was obtained; nothing is judged."""
    if not results:
        return []
    own = float(np.mean([found.own for _, found in results]))
    made = [fitted("fig10", "a speaker's own dialect: error", OWN, SOURCE, own)]
    for after in (1, len(PUBLISHED) - 1):
        errors = [found.curve[after - 1] for _, found in results]
        for name, value in (("least", min(errors)), ("most", max(errors))):
            made.append(
                told(
                    "fig10", f"error after {after} of 8 sentences: the {name} of {len(errors)} "
                    "populations", value, reference=PUBLISHED[after], source=SOURCE,
                )
            )  # fmt: skip
    for point, found in results:
        name = f"spread {point.spread:g}, alike {point.alike:g}, eta {point.eta:g}"
        made += [
            told(
                "fig10", f"{name}: error after {after} of 8 sentences", found.curve[after - 1],
                reference=PUBLISHED[after], source=SOURCE,
            )
            for after in (1, len(PUBLISHED) - 1)
        ]  # fmt: skip
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """Error over feedback: every population, and what was published."""
    title = "Figure 10: feedback of one speaker, and what is not known varied"
    with drawn((7.0, 4.4), title, full=full) as figure:
        axes = figure.add_subplot()
        for point, found in results:
            axes.plot(
                range(1, len(PUBLISHED)), found.curve, lw=0.5 + 30 * point.spread,
                color=SYSTEM if point.eta == ETAS[0] else COLOURS[1],
                ls="-" if point.alike == ALIKE[0] else "--",
            )  # fmt: skip
        for eta, colour in zip(ETAS, (SYSTEM, COLOURS[1]), strict=True):
            axes.plot([], [], color=colour, label=f"eta {eta:g}")
        for alike, dash in zip(ALIKE, ("-", "--"), strict=True):
            axes.plot([], [], color=GREY, ls=dash, label=f"alike {alike:g}")
        axes.plot(range(len(PUBLISHED)), PUBLISHED, "D", color=GREY, mfc="white", label="published")
        axes.axhline(OWN, color=GREY, lw=0.8, ls=":")
        axes.set_xlabel("sentences of feedback; dotted: the own dialect; thicker: more spread")
        axes.set_ylabel("error")
        axes.grid(visible=True)
        axes.legend(fontsize=8, ncols=2)
    return figure
