"""Figure 7 with a third number: generators that were tried beside `sim/answers.py`.

Its two numbers, how alike errors are and how often wrong answers are the same, are fitted on the
queries on which all five agree. A third one is fitted on the ensemble's error, too, which then is
no prediction any more; the groups are:

    two kinds     a query is hard or it is not, with nothing in between: the share of hard ones
    best apart    how much the best member's errors go with those of the others; `alike` is what
                  the others' have in common

Not here: verdicts. What these predict is told beside figure 7's rows, and counts for nothing.
"""

from functools import cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize
from scipy.special import ndtr, ndtri

from mainspring.reproduce.clipper.agreement import (
    DRAWS,
    LEARNED_ON,
    SEED,
    Ensemble,
    Shares,
    agree,
    learn,
    vote,
)
from sim.answers import Labels

Kind = Literal["two kinds", "best apart"]
KINDS: Final[tuple[Kind, ...]] = ("two kinds", "best apart")

_START: Final = {"two kinds": (0.5, 0.7, 0.2), "best apart": (0.6, 0.8, 0.25)}
_LEAST, _MOST = 0.01, 0.99


class Drawn:
    """Answers of an ensemble. third: the third number of its kind, 0 to 1."""

    def __init__(
        self, ensemble: Ensemble, kind: Kind, alike: float, confused: float, third: float, seed: int
    ) -> None:
        self._errors = np.array(ensemble.errors)
        self._labels = ensemble.labels
        self._kind = kind
        self._alike, self._confused, self._third = alike, confused, third
        self._seed = seed

    def block(self, number: int, n: int) -> tuple[Labels, Labels]:
        """Truth, shape (n,), and what each member says, shape (n, members), as `Answers` has it."""
        rng = np.random.default_rng([self._seed, number])
        shape = (n, len(self._errors))
        wrong = self._wrong(rng, shape)
        truth = rng.integers(self._labels, size=n)
        taken_for = rng.integers(1, self._labels, size=(n, 1))
        any_other = rng.integers(1, self._labels, size=shape)
        shift = np.where(rng.random(shape) < self._confused, taken_for, any_other)
        return truth, (truth[:, None] + np.where(wrong, shift, 0)) % self._labels

    def _wrong(self, rng: np.random.Generator, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        own = rng.standard_normal(shape)
        if self._kind == "best apart":
            alike = np.where(self._errors == self._errors.min(), self._third, self._alike)
            seen = np.sqrt(alike) * rng.standard_normal((shape[0], 1)) + np.sqrt(1 - alike) * own
            return np.asarray(seen > ndtri(1 - self._errors))
        share = self._third
        # Hardness with mean 0 and variance 1, as a Gaussian's.
        hard, easy = np.sqrt((1 - share) / share), -np.sqrt(share / (1 - share))
        common, rest = np.sqrt(self._alike), np.sqrt(1 - self._alike)

        def too_many(limit: float, error: float) -> float:
            by_kind = ndtr((common * np.array([hard, easy]) - limit) / rest)
            return float(share * by_kind[0] + (1 - share) * by_kind[1] - error)

        limits = [brentq(too_many, -20, 20, args=(error,)) for error in self._errors]
        kinds = np.where(rng.random((shape[0], 1)) < share, hard, easy)
        return np.asarray(common * kinds + rest * own > limits)


@cache
def fit(ensemble: Ensemble, kind: Kind, error: float) -> tuple[float, float, float]:
    """`alike`, `confused` and the third number for which all agree, and are wrong then, and the
    ensemble errs, as published. error: the ensemble's."""

    def off(x: Shares) -> float:
        inside = np.clip(x, _LEAST, _MOST)
        alike, confused, third = inside.tolist()
        answers = Drawn(ensemble, kind, alike, confused, third, SEED)
        weights = learn(*answers.block(1, LEARNED_ON), ensemble.labels)
        truth, said = answers.block(0, DRAWS)
        wrong = vote(said, weights) != truth
        everyone = agree(said) == said.shape[1]
        apart = (
            everyone.mean() - ensemble.agree5,
            wrong[everyone].mean() - ensemble.wrong5,
            wrong.mean() - error,
            np.abs(x - inside).sum(),
        )
        return float(np.hypot.reduce(apart))

    found = minimize(
        off, _START[kind], method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-5}
    )
    alike, confused, third = np.clip(found.x, _LEAST, _MOST).tolist()
    return alike, confused, third
