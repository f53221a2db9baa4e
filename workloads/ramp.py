"""Requests whose rate grows, or falls, in a straight line: find the load that is too much."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from workloads.common import Chunk, WorkloadError, require_positive
from workloads.spread import Floats
from workloads.stretch import Stretched


class Ramp(Stretched, frozen=True, kw_only=True, tag_field="kind", tag="ramp"):
    """Open-loop arrivals at a rate that goes from one value to another.

    from_rps, to_rps: requests a second over all models together, at start_s and ramp_s later;
    after that the rate stays at to_rps.
    """

    from_rps: float
    to_rps: float
    ramp_s: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("from_rps", "to_rps"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value >= 0):
                raise WorkloadError(
                    f"{key} = {value}; expected requests a second over all models, at least 0"
                )
        if self.from_rps == self.to_rps == 0:
            raise WorkloadError("to_rps = 0, as from_rps; expected one of them above 0")
        require_positive("ramp_s", self.ramp_s, "seconds")

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
        return self.spread(self.through(self._time_s, rng), models, duration_ns, rng)

    def _time_s(self, points: Floats) -> Floats:
        """When so many arrivals are expected: the root of from t + (to - from) t**2 / 2 ramp."""
        total = (self.from_rps + self.to_rps) / 2 * self.ramp_s
        slope = (self.to_rps - self.from_rps) / self.ramp_s
        within = np.minimum(points, total)
        root = np.sqrt(np.maximum(self.from_rps**2 + 2 * slope * within, 0))
        # This form of the root loses no digits where the ramp is nearly flat.
        with np.errstate(divide="ignore", invalid="ignore"):
            at_s = np.where(within > 0, 2 * within / (self.from_rps + root), 0.0)
            beyond = self.ramp_s + (points - total) / self.to_rps
        return np.where(points < total, at_s, np.where(self.to_rps > 0, beyond, np.inf))
