"""Many functions made from few recorded ones: a load of the Clockwork paper's kind.

The paper replays a day of some 17,000 and more functions; what can be had freely is an extract of
500. This makes F functions from the recorded ones by a rule without any choice that would be made
by hand. Whatever is shown of it says "derived": it is not the paper's trace.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from workloads.azure2019 import Azure2019
from workloads.common import WorkloadError, require_choice, require_positive

LEAST_KEPT: Final = 0.01
"""A derived function has from this share to all of the invocations of the one it is made from."""


class Azure2019Derived(
    Azure2019, frozen=True, kw_only=True, tag_field="kind", tag="azure2019_derived"
):
    """Open-loop arrivals of functions derived from a recorded trace.

    functions: how many are made. rate_rps: requests a second of all of them together, in the mean
    over the minutes, before rate_scale. Each function
    1. is a recorded one, drawn anew for each, all alike (resampled);
    2. has its minutes turned round by a random number of them, so that copies of one function do
       not rise and fall together (rotated);
    3. keeps a share of its invocations, drawn so that its logarithm is uniform between 1% and
       100%; then all functions are scaled by one factor to rate_rps (thinned).
    What it is asked in a minute is a Poisson number around that; the other fields are those of
    "azure2019", whose placement has to be "poisson" here. One seed of the run makes one set of
    functions.
    """

    functions: int = 17_000
    rate_rps: float
    placement: str = "poisson"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("placement", self.placement, ("poisson",))
        require_positive("rate_rps", self.rate_rps, "requests a second over all functions")
        if not 1 <= self.functions <= 10**7:
            raise WorkloadError(
                f"functions = {self.functions}; expected how many to make, at least 1"
            )

    def _counts(self, rng: np.random.Generator) -> list[npt.NDArray[np.float64]]:
        recorded = np.array(self._read(), dtype=np.float64)
        minutes, recorded_functions = recorded.shape
        source = rng.integers(recorded_functions, size=self.functions)
        turned = rng.integers(minutes, size=self.functions)
        kept = LEAST_KEPT ** rng.random(self.functions)
        total = float(kept @ recorded.sum(axis=0)[source])
        if not total:
            raise WorkloadError(
                f"functions = {self.functions}: none of those drawn is ever invoked in these "
                "minutes; expected more functions, or other minutes"
            )
        kept *= self.rate_rps * 60 * minutes / total
        return [recorded[(minute + turned) % minutes, source] * kept for minute in range(minutes)]
