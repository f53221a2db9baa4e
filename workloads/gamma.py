"""Requests that come more, or less, regularly than at random: gaps with a gamma distribution.

The shape of the gaps is 1 / cv**2 and their mean 1 / rate, so that runs which differ in cv are
under the same load.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from workloads.common import CHUNK, Chunk, WorkloadError, require_positive
from workloads.spread import Floats, Spread

LARGEST_CV = 1e3
"""Beyond it one gap in a million is all there is: a run sees a burst, or nothing."""


class Gamma(Spread, frozen=True, kw_only=True, tag_field="kind", tag="gamma"):
    """Open-loop arrivals with independent gaps of a gamma distribution.

    rate_rps: requests a second, over all models together. cv: the coefficient of variation of the
    gaps, standard deviation / mean: below 1 more regular than a Poisson process, which has 1,
    above 1 in bursts. It is that of the whole stream; see workloads/spread.py for one model's.
    """

    rate_rps: float
    cv: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_rps", self.rate_rps, "requests a second over all models")
        require_positive("cv", self.cv, "a coefficient of variation")
        if not 1 / LARGEST_CV <= self.cv <= LARGEST_CV:
            raise WorkloadError(
                f"cv = {self.cv}; expected from {1 / LARGEST_CV:g} to {LARGEST_CV:g} "
                '(kind = "constant" has equal gaps)'
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
        return self.spread(self._times(rng), models, duration_ns, rng)

    def _times(self, rng: np.random.Generator) -> Iterator[Floats]:
        shape = self.cv**-2
        scale_ns = 1e9 / self.rate_rps / shape
        now_ns = float(self.start_ns)
        while True:
            times = now_ns + np.cumsum(rng.gamma(shape, scale_ns, CHUNK))
            now_ns = float(times[-1])
            yield times
