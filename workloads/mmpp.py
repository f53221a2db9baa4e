"""Requests whose rate jumps at random between levels: a Markov-modulated Poisson process.

A level lasts for a random time (exponential), then another one begins; each of the others is as
likely. So level i holds for the share mean_s[i] / sum(mean_s) of the time. Over a long window of
two levels, the variance of the count divided by its mean tends to

    1 + 2 (r1 - r2)**2 s1 s2 / ((s1 + s2)**2 (r1 s2 + r2 s1)),      s = 1 / mean_s

where a Poisson process has 1 (Heffes and Lucantoni, 1986).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from workloads.common import Chunk, WorkloadError, require_positive
from workloads.spread import Floats
from workloads.stretch import Stretched

BLOCK = 1024
"""Stays drawn at a time."""


class Mmpp(Stretched, frozen=True, kw_only=True, tag_field="kind", tag="mmpp"):
    """Open-loop arrivals whose rate jumps at random between levels.

    rate_rps: requests a second over all models together, on average over a long time. levels: the
    rates of the levels in proportion to each other, as [1, 10]; 0 is idle. mean_s: how long each
    level lasts on average. The run begins in a level that is drawn as in the midst of things.
    """

    rate_rps: float
    levels: list[float]
    mean_s: list[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_rps", self.rate_rps, "requests a second over all models")
        if len(self.levels) < 2 or len(self.levels) != len(self.mean_s):
            raise WorkloadError(
                f"levels = {self.levels} with mean_s = {self.mean_s}; expected at least two "
                "levels, and how long each lasts on average"
            )
        if not all(math.isfinite(level) and level >= 0 for level in self.levels):
            raise WorkloadError(
                f"levels = {self.levels}; expected rates in proportion to each other, at least 0"
            )
        if max(self.levels) == 0:
            raise WorkloadError(f"levels = {self.levels}; expected one above 0")
        for mean_s in self.mean_s:
            if not 1e-9 <= mean_s <= 1e9:
                raise WorkloadError(f"mean_s = {self.mean_s}; expected seconds, each above 0")

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """Arrivals from start_s to the end of the run, which is not included.

        models: what `select` gave. model_names: of all models of the run (not used here).
        A longer run has the arrivals of a shorter one, and more.
        """
        if self.start_ns >= duration_ns:
            return iter(())
        # The levels have random numbers of their own: how far ahead they are drawn is no matter.
        knots = self._knots(rng.spawn(1)[0])
        times = self.through_knots(knots, duration_ns, rng)
        return self.spread(times, models, duration_ns, rng)

    def rates_rps(self) -> Floats:
        """The rate of each level, requests a second over all models."""
        stays = np.array(self.mean_s)
        levels = np.array(self.levels, dtype=np.float64)
        return np.asarray(levels * (self.rate_rps * stays.sum() / (levels @ stays)))

    def _knots(self, rng: np.random.Generator) -> Iterator[tuple[Floats, Floats]]:
        n = len(self.levels)
        mean_s, rates = np.array(self.mean_s), self.rates_rps()
        level = int(rng.choice(n, p=mean_s / mean_s.sum()))
        at_s = expected = 0.0
        while True:
            # From one level to any other one: a step of 1 to n - 1 around the circle.
            steps = rng.integers(1, n, size=BLOCK) if n > 2 else np.ones(BLOCK, dtype=np.int64)
            path = (level + np.cumsum(steps) - steps) % n
            level = int((path[-1] + steps[-1]) % n)
            stays_s = rng.standard_exponential(BLOCK) * mean_s[path]
            times = at_s + np.cumsum(stays_s)
            arrivals = expected + np.cumsum(stays_s * rates[path])
            at_s, expected = float(times[-1]), float(arrivals[-1])
            yield times, arrivals
