"""Clipper's model selection: which model to ask, or how much to believe each.

    Exp3    one model a request, drawn by weight (Auer et al., 2002; Clipper, section 5.1)
    Exp4    all models, combined by weight (Clipper, section 5.2)

Weights are kept as logarithms and shifted after each update, so they stay finite however long a
run is; a weight far below the best comes back as soon as the best loses. Feedback may come late:
it is divided by the probability at the time of the draw, which is why a draw hands that out.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

LEAST_LOG: Final = -690.0
"""Where a weight stops to fall: its share is still above 0, and can be divided by."""


class Exp4Rule(StrEnum):
    """How Exp4 learns."""

    LOSS = "loss"
    """s_i *= exp(-eta * loss_i / p_i): the code of pull request 48."""
    LABEL = "label"
    """The label is drawn, and its loss weighed by its probability: the notebook of figure 8."""


class _Weights:
    """Weights as logarithms, the largest 0."""

    def __init__(self, n: int) -> None:
        self._log = [0.0] * n

    def __len__(self) -> int:
        return len(self._log)

    def probabilities(self) -> list[float]:
        """Each weight's share."""
        weights = [math.exp(log) for log in self._log]
        total = math.fsum(weights)
        return [weight / total for weight in weights]

    def weights(self) -> list[float]:
        """The weights, the largest 1."""
        return [math.exp(log) for log in self._log]

    def lose(self, i: int, amount: float) -> None:
        """Multiply a weight by exp(-amount)."""
        self._log[i] -= amount

    def settle(self) -> None:
        """Shift the weights so that the largest is 1."""
        largest = max(self._log)
        self._log = [max(log - largest, LEAST_LOG) for log in self._log]

    def join(self) -> None:
        """A model is new: it gets the mean weight."""
        weights = self.weights()
        self._log.append(math.log(math.fsum(weights) / len(weights)))
        self.settle()


class Draw(NamedTuple):
    """A model that was drawn, and how probable that was."""

    model: int
    probability: float


class Exp3(_Weights):
    """s_i *= exp(-eta * loss / p_i), for the model that was drawn."""

    def __init__(self, models: int, eta: float) -> None:
        super().__init__(models)
        self.eta = eta

    def select(self, rng: np.random.Generator) -> Draw:
        """Draw a model."""
        shares = self.probabilities()
        model = _draw(shares, rng)
        return Draw(model, shares[model])

    def observe(self, draw: Draw, loss: float) -> None:
        """Feedback on a draw. loss: 0 for right, 1 for wrong."""
        _check_loss(loss)
        self.lose(draw.model, self.eta * loss / draw.probability)
        self.settle()


class Vote(NamedTuple):
    """What an ensemble answers.

    confidence: the share of members that agree with it. shares: the weights' when it was made.
    probability: of the label, under those.
    """

    label: int
    confidence: float
    shares: list[float]
    probability: float


class Exp4(_Weights):
    """Every model is asked; every model is judged."""

    def __init__(self, models: int, eta: float, rule: Exp4Rule = Exp4Rule.LOSS) -> None:
        super().__init__(models)
        self.eta = eta
        self.rule = rule

    def combine(self, labels: Sequence[int | None], rng: np.random.Generator) -> Vote:
        """One label from those of the members; None where a member's is missing.

        Raises ValueError if all are missing: then only a default is left.
        """
        shares = self.probabilities()
        votes = _votes(labels, shares)
        if self.rule is Exp4Rule.LABEL:
            names = list(votes)
            label = names[_draw([votes[name] for name in names], rng)]
        else:
            label = max(votes, key=lambda name: (votes[name], -name))
        return Vote(label, agreement(label, labels), shares, votes[label])

    def observe(self, vote: Vote, labels: Sequence[int | None], truth: int) -> None:
        """Feedback on a vote, which may be an old one. labels: what the members had said."""
        for i, label in enumerate(labels):
            if label is None:
                continue
            if self.rule is Exp4Rule.LOSS:
                loss = self.eta * (label != truth) / vote.shares[i]
            else:
                wrong = label == vote.label and vote.label != truth
                loss = self.eta * wrong / vote.probability
            self.lose(i, loss)
        self.settle()


def agreement(label: int, labels: Sequence[int | None], of_all: bool = True) -> float:
    """The share of members that say `label`.

    of_all: of all members, missing ones counted as not agreeing; else of those that answered. The
    paper does not say which; we take all.
    """
    said = [other for other in labels if other is not None]
    return said.count(label) / (len(labels) if of_all else len(said))


def majority(labels: Sequence[int | None]) -> int:
    """The label most members say; the smallest of several. Raises ValueError if none says one."""
    counts = Counter(label for label in labels if label is not None)
    if not counts:
        raise ValueError("no member answered; expected at least one label")
    return min(counts, key=lambda label: (-counts[label], label))


class Selections:
    """One state for each user and context, made when it is first asked for."""

    def __init__(self, models: int, eta: float) -> None:
        self._models = models
        self._eta = eta
        self._states: dict[Hashable, Exp3] = {}

    def __getitem__(self, who: Hashable) -> Exp3:
        state = self._states.get(who)
        if state is None:
            state = self._states[who] = Exp3(self._models, self._eta)
        return state


class Exp3Gamma:
    """Auer's own Exp3, with gains and a share gamma of uniform exploration."""

    def __init__(self, models: int, gamma: float) -> None:
        self.gamma = gamma
        self._log = [0.0] * models

    def set_weights(self, weights: Sequence[float]) -> None:
        """Start from these weights."""
        self._log = [math.log(weight) for weight in weights]

    def weights(self) -> list[float]:
        """The weights as they are; only their ratios matter."""
        return [math.exp(log) for log in self._log]

    def probabilities(self) -> list[float]:
        """The probability with which each model is drawn."""
        largest = max(self._log)
        weights = [math.exp(log - largest) for log in self._log]
        total, n = math.fsum(weights), len(weights)
        return [(1 - self.gamma) * weight / total + self.gamma / n for weight in weights]

    def observe(self, draw: Draw, gain: float) -> None:
        """Feedback on a draw. gain: from 0 to 1."""
        _check_loss(gain)
        self._log[draw.model] += self.gamma * gain / draw.probability / len(self._log)


def exp4_gamma(
    advice: Sequence[Sequence[float]], weights: Sequence[float], gamma: float
) -> list[float]:
    """Auer's Exp4: the probability of each arm. advice: by expert, one share for each arm."""
    total, arms = math.fsum(weights), len(advice[0])
    return [
        (1 - gamma) * math.fsum(w * of[arm] for w, of in zip(weights, advice, strict=True)) / total
        + gamma / arms
        for arm in range(arms)
    ]


def exp4_gamma_update(
    advice: Sequence[Sequence[float]],
    weights: Sequence[float],
    gamma: float,
    arm: int,
    gain: float,
    probability: float,
) -> list[float]:
    """The experts' weights after a gain: one number for each expert (BUG-COR-14)."""
    arms = len(advice[0])
    return [
        weight * math.exp(gamma * of[arm] * gain / probability / arms)
        for weight, of in zip(weights, advice, strict=True)
    ]


def _votes(labels: Sequence[int | None], shares: Sequence[float]) -> Mapping[int, float]:
    votes: dict[int, float] = {}
    for label, share in zip(labels, shares, strict=True):
        if label is not None:
            votes[label] = votes.get(label, 0.0) + share
    if not votes:
        raise ValueError("no member answered; expected at least one label")
    total = math.fsum(votes.values())
    return {label: vote / total for label, vote in votes.items()}


def _draw(shares: Sequence[float], rng: np.random.Generator) -> int:
    point = rng.random()
    for i, share in enumerate(shares):
        point -= share
        if point < 0:
            return i
    return len(shares) - 1


def _check_loss(loss: float) -> None:
    if not 0 <= loss <= 1:
        raise ValueError(f"{loss} is not a loss; expected 0 to 1")
