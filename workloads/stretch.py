"""Arrivals at a rate that changes: make them at rate 1, then stretch time.

If Λ(t) arrivals are expected by the time t, then the arrivals at rate 1, moved from x to the time
at which Λ passes x, have the rate that was asked for. Poisson arrivals stay Poisson, and evenly
spaced ones stay as even as the rate allows. Most rates are given by knots: (time, Λ), and between
two knots the rate is constant.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from workloads.common import CHUNK, require_choice
from workloads.spread import Floats, Spread

Knots = Iterable[tuple[Floats, Floats]]
"""Blocks of knots after (0, 0): seconds, and arrivals expected by then; neither ever falls."""


class Stretched(Spread, frozen=True, kw_only=True):
    """The fields of workloads whose rate changes.

    gaps: "poisson", or "even": as evenly spaced as the rate allows, without any chance.
    """

    gaps: str = "poisson"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("gaps", self.gaps, ("poisson", "even"))

    def points(self, rng: np.random.Generator) -> Iterator[Floats]:
        """Arrivals at rate 1, in blocks, without end."""
        base = 0.0
        while True:
            if self.gaps == "even":
                yield base + np.arange(CHUNK, dtype=np.float64)
                base += CHUNK
            else:
                points = base + np.cumsum(rng.standard_exponential(CHUNK))
                base = float(points[-1])
                yield points

    def through_knots(
        self, knots: Knots, duration_ns: int, rng: np.random.Generator
    ) -> Iterator[Floats]:
        """The times of the arrivals in nanoseconds, for `spread`; a block for a block of knots.

        Where a rate is 0 the arrivals come after the gap.
        """
        end_s = (duration_ns - self.start_ns) / 1e9
        blocks = self.points(rng)
        points = next(blocks)
        last_s, last_expected = np.zeros(1), np.zeros(1)
        for at_s, expected in knots:
            at_s = np.concatenate([last_s, at_s])
            expected = np.concatenate([last_expected, expected])
            while n := int(np.searchsorted(points, expected[-1])):
                yield self._ns(_inverse(points[:n], at_s, expected))
                points = points[n:] if n < len(points) else next(blocks)
            if at_s[-1] >= end_s:
                return
            last_s, last_expected = at_s[-1:], expected[-1:]

    def through(
        self, inverse: Callable[[Floats], Floats], rng: np.random.Generator
    ) -> Iterator[Floats]:
        """The same for a rate whose time of x expected arrivals has a formula, in seconds."""
        for points in self.points(rng):
            yield self._ns(inverse(points))

    def _ns(self, times_s: Floats) -> Floats:
        return np.asarray(self.start_ns + np.rint(times_s * 1e9))


def _inverse(points: Floats, at_s: Floats, expected: Floats) -> Floats:
    """When `expected` passes each point; the last knot lies beyond all of them."""
    after = np.searchsorted(expected, points, side="right")
    before = after - 1
    slope = (at_s[after] - at_s[before]) / (expected[after] - expected[before])
    return np.asarray(at_s[before] + (points - expected[before]) * slope)
