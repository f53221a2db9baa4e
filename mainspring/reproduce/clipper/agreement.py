"""How alike the errors of an ensemble's members are, and how an ensemble weighs them.

The authors published, of two ensembles of five, each member's error, and for the queries on which
all five agree how many they are and how many of them are wrong. The two numbers of the generator
(`sim/answers.py`) are fitted on those two; nothing is taken from the errors of the whole ensemble
and of the queries on which four agree. The weights are a logistic regression on the members'
labels, as in the prototype (L2, C = 1), learned on queries of their own.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from sim.answers import Answers, Labels

SEED = 7
DRAWS = 40_000
LEARNED_ON = 5_000


class Ensemble(NamedTuple):
    """errors: of the members. labels: how many there are.

    agree5: the share of queries on which all say the same; wrong5: how many of those are wrong.
    """

    name: str
    errors: tuple[float, ...]
    labels: int
    agree5: float
    wrong5: float


CIFAR = Ensemble("CIFAR-10", (0.0915, 0.168, 0.2425, 0.3461, 0.46), 10, 0.405, 0.0235)
IMAGENET = Ensemble("ImageNet", (0.0618, 0.0902, 0.1152, 0.1305, 0.2061), 1000, 0.844, 0.0327)
"""A member of ImageNet's is right if the truth is among its first five; agreement is taken as if
each said one label, for how it was counted is not known."""

Shares = npt.NDArray[np.float64]


def same(said: Labels) -> npt.NDArray[np.bool_]:
    """Who says the same as whom. said: shape (n, members); returns shape (n, members, members)."""
    return np.asarray(said[:, :, None] == said[:, None, :])


def agree(said: Labels) -> Labels:
    """How many say what the most say, shape (n,)."""
    return np.asarray(same(said).sum(axis=2).max(axis=1))


@cache
def fit(ensemble: Ensemble) -> tuple[float, float]:
    """`alike` and `confused` for which all members agree, and are wrong then, as published."""

    def off(x: Shares) -> float:
        alike, confused = np.clip(x, 0.0, 0.999)
        answers = Answers(ensemble.errors, ensemble.labels, alike, confused, SEED)
        truth, said = answers.block(0, DRAWS)
        all_five = agree(said) == 5
        wrong = (said[all_five, 0] != truth[all_five]).mean()
        outside = np.abs(x - np.clip(x, 0.0, 0.999)).sum()
        apart = (all_five.mean() - ensemble.agree5, wrong - ensemble.wrong5, outside)
        return float(np.hypot.reduce(apart))

    found = minimize(off, [0.5, 0.5], method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-5})
    alike, confused = np.clip(found.x, 0.0, 0.999)
    return float(alike), float(confused)


def learn(truth: Labels, said: Labels, labels: int) -> Shares:
    """A weight for each member, shape (members,): the likeliest, if the probability of a label is
    in proportion to exp(sum of the weights of those that say it)."""
    together = same(said)
    right = said == truth[:, None]
    said_by = together.sum(axis=2)
    unsaid = labels - (1 / said_by).sum(axis=1)

    def loss(weights: Shares) -> float:
        scores = together @ weights
        total = (np.exp(scores) / said_by).sum(axis=1) + unsaid
        likely = np.where(right.any(axis=1), (right * weights).sum(axis=1), 0.0)
        return float((np.log(total) - likely).sum() + weights @ weights / 2)

    return np.asarray(minimize(loss, np.ones(said.shape[1]), method="L-BFGS-B").x)


def vote(said: Labels, weights: Shares) -> Labels:
    """What the ensemble says, shape (n,)."""
    winner = (same(said) @ weights).argmax(axis=1)
    return np.asarray(said[np.arange(len(said)), winner])
