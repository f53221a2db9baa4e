"""Poisson arrivals as the original Clockwork client draws them, to the nanosecond.

Each model has a stream of its own at an equal share of the rate, seeded with the model's index:
std::minstd_rand, std::generate_canonical (two draws, as libstdc++ does it) and -log(1 - u) / rate,
cut to whole ns. Seeds 0 and 1 are one state of minstd_rand, so the first two models have the same
arrivals, as in the original. Source: Clockwork, src/clockwork/workload; checked against recorded
runs.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from workloads.common import (
    LONGEST_MS,
    Chunk,
    Common,
    WorkloadError,
    require_positive,
    require_time,
)
from workloads.merge import merge

_MODULUS: Final = 2**31 - 1
_FACTOR: Final = 48271
_SPAN: Final = np.float64(_MODULUS - 1)
_DRAWS: Final = 2_048
"""Draws of a block; two make one gap."""


def _powers() -> npt.NDArray[np.uint64]:
    powers, power = [], 1
    for _ in range(_DRAWS):
        power = power * _FACTOR % _MODULUS
        powers.append(power)
    return np.array(powers, dtype=np.uint64)


_POWERS: Final = _powers()
"""From any state, the next _DRAWS states at once: state * powers, modulo _MODULUS."""


class ClockworkClient(Common, frozen=True, kw_only=True, tag_field="kind", tag="clockwork_client"):
    """The original client's open loop.

    rate_rps: requests a second, over all models together. The run's seed changes nothing.
    from_s, until_s: only the requests from then until then, of the same streams. Several such
    workloads are one client that changes its SLO on the way.
    """

    rate_rps: float
    from_s: float = 0.0
    until_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_rps", self.rate_rps, "requests a second over all models")
        require_time("from_s", self.from_s, longest=LONGEST_MS / 1e3)
        if self.until_s is not None and not self.from_s < self.until_s <= LONGEST_MS / 1e3:
            raise WorkloadError(
                f"until_s = {self.until_s}; expected a time after from_s, {self.from_s}"
            )

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """Arrivals from start_s to the end of the run, or until_s, which are not included.

        models: what `select` gave; the n-th has seed n. model_names, rng: not used here.
        """
        rate = self.rate_rps / len(models)
        if self.until_s is not None:
            duration_ns = min(duration_ns, round(self.until_s * 1e9))
        from_ns = round(self.from_s * 1e9)
        streams = [
            self._stream(seed, model, rate, duration_ns) for seed, model in enumerate(models)
        ]
        for times_ns, which, _ in merge(streams):
            first = int(np.searchsorted(times_ns, from_ns))
            if first < len(times_ns):
                yield Chunk(times_ns[first:], which[first:])

    def _stream(self, seed: int, model: int, rate: float, duration_ns: int) -> Iterator[Chunk]:
        state = np.uint64(seed or 1)
        now_ns = self.start_ns
        while now_ns < duration_ns:
            states = state * _POWERS % np.uint64(_MODULUS)
            state = states[-1]
            draws = (states - np.uint64(1)).astype(np.float64)
            low, high = draws[::2], draws[1::2]
            uniform = (low + high * _SPAN) / (_SPAN * _SPAN)
            uniform = np.minimum(uniform, np.nextafter(1.0, 0.0))
            gaps_ns = (-np.log1p(-uniform) / (rate / 1e9)).astype(np.int64)
            times_ns = now_ns + np.cumsum(gaps_ns)
            now_ns = int(times_ns[-1])
            times_ns = times_ns[times_ns < duration_ns]
            yield Chunk(times_ns, np.full(len(times_ns), model, dtype=np.int32))
