"""Requests at random instants, at a steady rate: a Poisson process.

One stream of the whole rate is drawn, and each arrival then picks its model. That is the same as
an independent Poisson process for each model, and costs the same for one model as for thousands.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from workloads.common import (
    CHUNK,
    Chunk,
    Common,
    WorkloadError,
    require_choice,
    require_positive,
)


class Poisson(Common, frozen=True, kw_only=True, tag_field="kind", tag="poisson"):
    """Open-loop Poisson arrivals.

    rate_rps: requests a second, over all models together. weights: how they share it: "uniform",
    or "zipf", where the k-th of its models (from 1) gets a share in proportion to 1 / k**zipf_s.
    """

    rate_rps: float
    weights: str = "uniform"
    zipf_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_rps", self.rate_rps, "requests a second over all models")
        require_choice("weights", self.weights, ("uniform", "zipf"))
        if self.weights == "zipf":
            if self.zipf_s is None:
                raise WorkloadError('weights = "zipf" needs zipf_s, its exponent, such as 1.0')
            require_positive("zipf_s", self.zipf_s, "an exponent")
        elif self.zipf_s is not None:
            raise WorkloadError(f'zipf_s = {self.zipf_s} needs weights = "zipf"')

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
        mean_gap_ns = 1e9 / self.rate_rps
        ids = np.array(models, dtype=np.int32)
        shares = self._cumulative_shares(len(ids))
        # Times add up as float64, which is exact to a nanosecond for runs of up to 104 days.
        now_ns = float(self.start_ns)
        while now_ns < duration_ns:
            times = now_ns + np.cumsum(rng.exponential(mean_gap_ns, CHUNK))
            if shares is None:
                chosen = ids[rng.integers(len(ids), size=CHUNK)]
            else:
                chosen = ids[np.searchsorted(shares, rng.random(CHUNK), side="right")]
            now_ns = float(times[-1])
            n = CHUNK if now_ns < duration_ns else int(np.searchsorted(times, duration_ns))
            yield Chunk(times[:n].astype(np.int64), chosen[:n])

    def _cumulative_shares(self, n: int) -> npt.NDArray[np.float64] | None:
        if self.zipf_s is None:
            return None
        ranks = np.arange(1, n + 1, dtype=np.float64)
        shares: npt.NDArray[np.float64] = np.cumsum(ranks**-self.zipf_s)
        # The last share is exactly 1, so that every draw in [0, 1) falls on a model.
        shares /= shares[-1]
        return shares
