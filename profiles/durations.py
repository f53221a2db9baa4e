"""How long something takes: a constant, a few quantiles, or the raw samples.

All three answer the same questions: what to expect (`estimate_ns`), the mean, and a draw. Each is
an inverse distribution function. Quantiles are joined by straight lines and held flat outside the
first and the last, so no draw is outside what was measured; samples are drawn as they are.
Not here: durations of batch sizes that nobody measured (see profiles.schema), and slow-downs.
"""

import math
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from profiles.errors import ProfileError

Nanoseconds = npt.NDArray[np.int64]

LONGEST_NS = 2**62
"""Longer than any run, and still far from overflow when it is added to a time."""


def from_ms(ms: float) -> int:
    """Milliseconds as whole nanoseconds, at least one. Raises ProfileError for anything else."""
    if not math.isfinite(ms) or not 1 <= round(ms * 1e6) <= LONGEST_NS:
        raise ProfileError(f"{ms} is not a duration; expected milliseconds, finite and above 0")
    return round(ms * 1e6)


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """It always takes `ns` nanoseconds."""

    ns: int

    def __post_init__(self) -> None:
        if not 1 <= self.ns <= LONGEST_NS:
            raise ProfileError(f"{self.ns} ns is not a duration; expected a whole number above 0")

    @property
    def constant_ns(self) -> int | None:
        """The duration, as there is only one."""
        return self.ns

    def estimate_ns(self, q: float = 0.99) -> int:
        """The duration that a share `q` of the runs does not exceed."""
        _check_share(q)
        return self.ns

    def mean_ns(self) -> float:
        """The mean duration."""
        return float(self.ns)

    def draw_ns(self, rng: np.random.Generator, n: int) -> Nanoseconds:
        """`n` durations, shape (n,). Takes nothing from `rng`."""
        return np.full(n, self.ns, dtype=np.int64)


class Quantiles(msgspec.Struct, frozen=True, tag="quantiles", dict=True):
    """Some quantiles are known; between two of them the inverse distribution is a straight line.

    shares: ascending, each from 0 to 1. ns: the quantile at each share, never falling.
    Below the first share and above the last, the end value holds: nothing is invented there.
    """

    shares: tuple[float, ...]
    ns: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.shares or len(self.shares) != len(self.ns):
            raise ProfileError("no quantiles; expected at least one share and its duration")
        for q in self.shares:
            _check_share(q)
        for (q, ns), (next_q, next_ns) in pairwise(self._points):
            if next_q <= q:
                raise ProfileError(f"quantile {next_q} comes after {q}; expected ascending shares")
            if next_ns < ns:
                raise ProfileError(
                    f"quantile {next_q} ({next_ns} ns) is below quantile {q} ({ns} ns); "
                    "expected durations that do not fall"
                )
        if self.ns[0] < 1:
            raise ProfileError(f"{self.ns[0]} ns is not a duration; expected a number above 0")

    @property
    def _points(self) -> list[tuple[float, int]]:
        return list(zip(self.shares, self.ns, strict=True))

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return np.array(self.shares, dtype=np.float64), np.array(self.ns, dtype=np.float64)

    @property
    def constant_ns(self) -> int | None:
        """The duration if all quantiles are equal."""
        return self.ns[0] if self.ns[0] == self.ns[-1] else None

    def estimate_ns(self, q: float = 0.99) -> int:
        """The duration that a share `q` of the runs does not exceed."""
        _check_share(q)
        return round(float(np.interp(q, *self._arrays)))

    def mean_ns(self) -> float:
        """The mean duration: the area under the inverse distribution."""
        shares, ns = self._arrays
        between = float(np.sum(np.diff(shares) * (ns[1:] + ns[:-1]) / 2))
        return float(shares[0] * ns[0]) + between + float((1 - shares[-1]) * ns[-1])

    def draw_ns(self, rng: np.random.Generator, n: int) -> Nanoseconds:
        """`n` durations, shape (n,)."""
        return np.rint(np.interp(rng.random(n), *self._arrays)).astype(np.int64)


class Samples(msgspec.Struct, frozen=True, tag="samples", dict=True):
    """The measurements themselves, in the order in which they were taken."""

    ns: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ns:
            raise ProfileError("no samples; expected at least one duration")
        if min(self.ns) < 1:
            raise ProfileError(f"{min(self.ns)} ns is not a duration; expected a number above 0")

    @cached_property
    def _array(self) -> Nanoseconds:
        return np.array(self.ns, dtype=np.int64)

    @property
    def constant_ns(self) -> int | None:
        """The duration if all samples are equal."""
        return self.ns[0] if min(self.ns) == max(self.ns) else None

    def estimate_ns(self, q: float = 0.99) -> int:
        """The smallest sample that a share `q` of the samples does not exceed."""
        _check_share(q)
        return int(np.quantile(self._array, q, method="inverted_cdf"))

    def mean_ns(self) -> float:
        """The mean duration."""
        return float(np.mean(self._array))

    def draw_ns(self, rng: np.random.Generator, n: int) -> Nanoseconds:
        """`n` durations, shape (n,): samples drawn with replacement."""
        return self._array[rng.integers(len(self.ns), size=n)]


Durations = Constant | Quantiles | Samples


def _check_share(q: float) -> None:
    if not 0 <= q <= 1:
        raise ProfileError(f"{q} is not a quantile; expected a share from 0 to 1, such as 0.99")
