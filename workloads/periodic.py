"""Requests whose rate swings like a day: a sine around its mean.

The rate at the time t is rate_rps * (1 + amplitude * cos(2 pi (t - peak_s) / period_s)), held
constant over steps of 1/1024 of a period, each with exactly its share of the arrivals: that moves
an arrival by less than a millionth of a period.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from workloads.common import LONGEST_MS, Chunk, WorkloadError, require_positive, require_time
from workloads.spread import Floats
from workloads.stretch import Stretched

STEPS = 1024


class Periodic(Stretched, frozen=True, kw_only=True, tag_field="kind", tag="periodic"):
    """Open-loop arrivals at a rate that swings around its mean.

    rate_rps: requests a second over all models together, on average over a period. amplitude: how
    far the rate swings, as a share of its mean, at most 1. peak_s: when the rate is highest, since
    start_s.
    """

    rate_rps: float
    period_s: float
    amplitude: float
    peak_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_rps", self.rate_rps, "requests a second over all models")
        require_positive("period_s", self.period_s, "seconds")
        require_time("peak_s", self.peak_s, longest=LONGEST_MS / 1e3)
        if not 0 < self.amplitude <= 1:
            raise WorkloadError(
                f"amplitude = {self.amplitude}; expected a share of the mean rate, above 0 and "
                "at most 1"
            )

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
        times = self.through_knots(self._knots(), duration_ns, rng)
        return self.spread(times, models, duration_ns, rng)

    def _knots(self) -> Iterator[tuple[Floats, Floats]]:
        each = self.rate_rps * self.period_s
        steps = np.arange(1, STEPS + 1) / STEPS
        phase = self.peak_s / self.period_s
        swing = np.sin(2 * np.pi * (steps - phase)) + math.sin(2 * math.pi * phase)
        # After a whole period the swing is exactly nothing.
        swing[-1] = 0.0
        within = steps + self.amplitude * swing / (2 * math.pi)
        period = 0
        while True:
            yield (period + steps) * self.period_s, (period + within) * each
            period += 1
