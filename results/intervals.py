"""How sure a mean over replications is.

Requests of one run depend on each other, so one run is one number; the numbers of several seeds
are independent, and Student's t says how far their mean may be from the true one. Where all seeds
give the same number the interval has no width: nothing that the seeds change shows in it.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Mean(NamedTuple):
    """A mean over n replications. low, high: its interval; None where n is below 2."""

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """How far a two-sided interval reaches on either side."""
        return None if self.high is None or self.low is None else (self.high - self.low) / 2

    def cut(self, least: float, most: float) -> "Mean":
        """The interval without what the true mean cannot be. It holds as surely as before."""
        if self.low is None or self.high is None:
            return self
        return self._replace(low=max(self.low, least), high=min(self.high, most))


def two_sided(values: Sequence[float], confidence: float = 0.95) -> Mean:
    """The mean and its t interval at that confidence."""
    return _mean(values, 1 - (1 - confidence) / 2)


def one_sided(values: Sequence[float], confidence: float = 0.95) -> Mean:
    """The mean and two bounds, each of which holds at that confidence by itself."""
    return _mean(values, confidence)


def needed(values: Sequence[float], half_width: float, confidence: float = 0.95) -> int:
    """About how many replications make the interval that narrow, judged by those there are."""
    reached = two_sided(values, confidence).half_width
    assert reached is not None, "two replications at least"
    return math.ceil(len(values) * (reached / half_width) ** 2)


def _mean(values: Sequence[float], quantile: float) -> Mean:
    n = len(values)
    if n == 0:
        return Mean(0, None, None, None)
    mean = float(np.mean(values))
    if n == 1:
        return Mean(1, mean, None, None)
    reach = 0.0
    if min(values) < max(values):  # otherwise rounding would make a width of its own
        from scipy.special import stdtrit  # takes a tenth of a second to import

        error = float(np.std(values, ddof=1)) / math.sqrt(n)
        reach = float(stdtrit(n - 1, quantile)) * error
    return Mean(n, mean, mean - reach, mean + reach)
