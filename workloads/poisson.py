"""Requests at random instants, at a steady rate: a Poisson process."""

from collections.abc import Iterator, Sequence

import numpy as np

from workloads.common import CHUNK, Chunk, require_positive
from workloads.spread import Floats, Spread


class Poisson(Spread, frozen=True, kw_only=True, tag_field="kind", tag="poisson"):
    """Open-loop Poisson arrivals.

    rate_rps: requests a second, over all models together.
    """

    rate_rps: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_rps", self.rate_rps, "requests a second over all models")

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
        return self.spread(self._times(rng), models, duration_ns, rng)

    def _times(self, rng: np.random.Generator) -> Iterator[Floats]:
        mean_gap_ns = 1e9 / self.rate_rps
        # Times add up as float64, which is exact to a nanosecond for runs of up to 104 days.
        now_ns = float(self.start_ns)
        while True:
            times = now_ns + np.cumsum(rng.exponential(mean_gap_ns, CHUNK))
            now_ns = float(times[-1])
            yield times
