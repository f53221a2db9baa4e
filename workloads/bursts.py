"""Requests in bursts at fixed times: every so often the rate is higher for a while."""

from collections.abc import Iterator, Sequence

import numpy as np

from workloads.common import Chunk, WorkloadError, require_positive
from workloads.spread import Floats
from workloads.stretch import Stretched

BLOCK = 1024
"""Bursts to a block of knots."""


class Bursts(Stretched, frozen=True, kw_only=True, tag_field="kind", tag="bursts"):
    """Open-loop arrivals with a burst of burst_s at the beginning of every every_s.

    rate_rps: requests a second over all models together, on average over every_s.
    burst_share: which share of all requests comes in bursts, as 0.5; with 1 it is idle between
    them. The rate in a burst is rate_rps * burst_share * every_s / burst_s.
    """

    rate_rps: float
    every_s: float
    burst_s: float
    burst_share: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_rps", self.rate_rps, "requests a second over all models")
        require_positive("every_s", self.every_s, "seconds from burst to burst")
        if not 0 < self.burst_s < self.every_s:
            raise WorkloadError(
                f"burst_s = {self.burst_s}; expected seconds, above 0 and below every_s, "
                f"{self.every_s}"
            )
        if not 0 < self.burst_share <= 1:
            raise WorkloadError(
                f"burst_share = {self.burst_share}; expected the share of the requests that "
                "come in bursts, above 0 and at most 1"
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
        each = self.rate_rps * self.every_s
        first = 0
        while True:
            k = np.repeat(np.arange(first, first + BLOCK, dtype=np.float64), 2)
            ends = np.tile([0.0, 1.0], BLOCK)  # of a burst, and of the quiet after it
            at_s = (k + ends) * self.every_s + (1 - ends) * self.burst_s
            yield at_s, (k + ends) * each + (1 - ends) * self.burst_share * each
            first += BLOCK
