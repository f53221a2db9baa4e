"""A steady rate, shared by ever more models: what figure 6 of the Clockwork paper asks.

The first models are in use at the start, and one more is every so often. The whole is a Poisson
process at a steady rate; each arrival picks one of the models in use at that moment, all alike.
So each model sees a Poisson process of its own, at a rate that falls as others join.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from workloads.common import CHUNK, Chunk, Common, WorkloadError, require_positive


class Activation(Common, frozen=True, kw_only=True, tag_field="kind", tag="activation"):
    """Open-loop Poisson arrivals over a growing number of models.

    rate_rps: requests a second, over all models in use together. every_s: one more model is in
    use after each such time, in the order of the models, until all are. active: how many are at
    start_s.
    """

    rate_rps: float
    every_s: float = 1.0
    active: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_rps", self.rate_rps, "requests a second over all models")
        require_positive("every_s", self.every_s, "seconds")
        if self.active < 1:
            raise WorkloadError(f"active = {self.active}; expected models in use, at least 1")

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
        ids = np.array(models, dtype=np.int32)
        if self.active > len(ids):
            raise WorkloadError(
                f"active = {self.active}; expected at most the workload's {len(ids)} models"
            )
        now_ns = 0.0  # since start_s
        while self.start_ns + now_ns < duration_ns:
            times = now_ns + np.cumsum(rng.exponential(1e9 / self.rate_rps, CHUNK))
            now_ns = float(times[-1])
            joined = (times / (self.every_s * 1e9)).astype(np.int64)
            in_use = np.minimum(self.active + joined, len(ids))
            chosen = ids[(rng.random(CHUNK) * in_use).astype(np.int64)]
            times_ns = self.start_ns + times.astype(np.int64)
            n = int(np.searchsorted(times_ns, duration_ns))
            yield Chunk(times_ns[:n], chosen[:n])
