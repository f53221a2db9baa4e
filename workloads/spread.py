"""Which model each arrival asks for, where nothing recorded says it.

One stream of the whole rate is made, and each arrival then picks its model. For a Poisson stream
that is the same as an independent Poisson process for each model. Of other streams a model sees a
random sample, which is closer to Poisson than the whole: with a share p of arrivals whose gaps
have the coefficient of variation c, its own gaps have sqrt(1 + p * (c**2 - 1)).
Not here: the instants.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from workloads.common import Chunk, Common, WorkloadError, require_positive

Floats = npt.NDArray[np.float64]
Choose = Callable[[int], npt.NDArray[np.int32]]

WEIGHTS = ("uniform", "zipf", "turns")


class Spread(Common, frozen=True, kw_only=True):
    """The fields of workloads whose arrivals pick a model.

    weights: how the models share the arrivals: "uniform", each with the same probability; "zipf",
    where the k-th of the workload's models (from 1) has a probability in proportion to
    1 / k**zipf_s; a list with one number a model, in proportion to which they are chosen; or
    "turns", one after the other without any chance.
    concurrency: always refused: it belongs to kind = "closed".
    """

    weights: str | list[float] = "uniform"
    zipf_s: float | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._refuse_concurrency()
        if isinstance(self.weights, str):
            if self.weights not in WEIGHTS:
                raise WorkloadError(
                    f'weights = "{self.weights}"; expected one of "uniform", "zipf", "turns", '
                    "or a list with a number for each model"
                )
        elif not (
            all(math.isfinite(weight) and weight >= 0 for weight in self.weights)
            and sum(self.weights) > 0
        ):
            raise WorkloadError(
                f"weights = {self.weights}; expected a number for each model, finite, "
                "at least 0, and not all of them 0"
            )
        if self.weights == "zipf":
            if self.zipf_s is None:
                raise WorkloadError('weights = "zipf" needs zipf_s, its exponent, such as 1.0')
            require_positive("zipf_s", self.zipf_s, "an exponent")
        elif self.zipf_s is not None:
            raise WorkloadError(f'zipf_s = {self.zipf_s} needs weights = "zipf"')

    def _refuse_concurrency(self) -> None:
        if self.concurrency is not None:
            raise WorkloadError(
                f"concurrency = {self.concurrency}; this kind is open-loop: its requests come at "
                "their own rate, however many are under way. Clients that wait for their answer "
                'are kind = "closed", which has concurrency and no rate'
            )

    def spread(
        self,
        times: Iterable[Floats],
        models: Sequence[int],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """Give the arrivals their models, up to the end of the run, which is not included.

        times: blocks of instants in nanoseconds, in order; where they end in the run, it is idle
        from there. A block gets its models as a whole, so that a longer run begins as a shorter.
        """
        if self.start_ns >= duration_ns:
            return
        choose = self.chooser(models, rng)
        for block in times:
            chosen = choose(len(block))
            n = int(np.searchsorted(block, duration_ns))
            yield Chunk(block[:n].astype(np.int64), chosen[:n])
            if n < len(block):
                return

    def chooser(self, models: Sequence[int], rng: np.random.Generator) -> Choose:
        """A function that gives the models of the next n arrivals.

        Raises WorkloadError if weights is a list of another length than `models`.
        """
        ids = np.array(models, dtype=np.int32)
        if self.weights == "uniform":
            return lambda n: ids[rng.integers(len(ids), size=n)]
        if self.weights == "turns":
            return _turns(ids)
        shares = self._cumulative_shares(len(ids))
        return lambda n: ids[np.searchsorted(shares, rng.random(n), side="right")]

    def _cumulative_shares(self, n: int) -> Floats:
        if isinstance(self.weights, list):
            if len(self.weights) != n:
                raise WorkloadError(
                    f"weights has {len(self.weights)} numbers, and the workload asks for {n} "
                    "models; expected one for each"
                )
            shares = np.cumsum(np.array(self.weights, dtype=np.float64))
        else:
            ranks = np.arange(1, n + 1, dtype=np.float64)
            shares = np.cumsum(ranks ** -float(self.zipf_s or 0))
        # The last share is exactly 1, so that every draw in [0, 1) falls on a model.
        return np.asarray(shares / shares[-1])


def _turns(ids: npt.NDArray[np.int32]) -> Choose:
    done = 0

    def choose(n: int) -> npt.NDArray[np.int32]:
        nonlocal done
        chosen = ids[(done + np.arange(n)) % len(ids)]
        done = (done + n) % len(ids)
        return chosen

    return choose
