"""Requests in equal gaps: a steady rate without any chance.

Arrival k comes at k / rate, rounded once, so that rounding errors do not add up to a drift.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from workloads.common import CHUNK, Chunk, require_positive
from workloads.spread import Floats, Spread


class Constant(Spread, frozen=True, kw_only=True, tag_field="kind", tag="constant"):
    """Open-loop arrivals in equal gaps; the first one comes at start_s.

    rate_rps: requests a second, over all models together. With weights = "turns" each model's
    own requests come in equal gaps too.
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
        """
        return self.spread(self._times(), models, duration_ns, rng)

    def _times(self) -> Iterator[Floats]:
        first = 0
        while True:
            k = np.arange(first, first + CHUNK, dtype=np.float64)
            yield self.start_ns + np.rint(k * 1e9 / self.rate_rps)
            first += CHUNK
