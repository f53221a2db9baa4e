"""Durations of a run of any length, in bounded memory: quantiles, mean and distribution.

An HDR histogram (the `hdrhistogram` library) counts durations in cells of one microsecond, or of
1/16,384 of the value where that is more. A quantile is the nearest rank, read as the upper end of
its cell and never above the largest duration, which is kept exactly. So it is never below the true
one, and above it by less than `RESOLUTION` says.
Tables, JSON and plots all read it from here, so they agree.
Not here: durations' signs, or which requests count.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

from results.columns import Ints
from results.errors import ResultsError

RESOLUTION: Final = "1 us or 0.01 % of the value, whichever is more; never below the true value"
LONGEST_NS: Final = 7 * 86_400 * 10**9
"""A week. A longer duration is an error: it would fall out of the histogram unseen."""

BEYOND: Final = 10
"""A quantile is given only where at least so many durations lie beyond it."""

QUANTILES: Final[dict[str, tuple[int, int]]] = {
    "p50": (1, 2),
    "p90": (9, 10),
    "p99": (99, 100),
    "p99.9": (999, 1_000),
    "p99.99": (9_999, 10_000),
    "p99.999": (99_999, 100_000),
    "p99.9999": (999_999, 1_000_000),
}
"""As fractions, since n * 0.9999 in floating point may round to the next rank."""


def rank_of(n: int, quantile: str) -> int | None:
    """The nearest rank (from 1) of a quantile among n values; None where n is too small for it."""
    top, bottom = QUANTILES[quantile]
    rank = -(-n * top // bottom)
    return rank if n - rank >= BEYOND else None


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary says about durations.

    n: how many. quantiles_ms: None where fewer than ten of the n lie beyond the quantile.
    mean_ms, min_ms, max_ms: exact; None where n is 0.
    resolution: how far the quantiles may be from the exact ones.
    """

    n: int
    mean_ms: float | None
    min_ms: float | None
    max_ms: float | None
    quantiles_ms: dict[str, float | None]
    resolution: str = RESOLUTION


class Durations:
    """Counts durations, and answers with their distribution."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, LONGEST_NS // 1_000, 4)
        self._counts = np.ctypeslib.as_array(self._histogram.counts)
        self.n = 0
        self.sum_ns = 0
        self.min_ns = LONGEST_NS
        self.max_ns = 0

    def record(self, values_ns: Ints) -> None:
        """Count these durations. Raises ResultsError for one below zero or above a week."""
        if not len(values_ns):
            return
        low, high = int(values_ns.min()), int(values_ns.max())
        if low < 0 or high > LONGEST_NS:
            wrong = low if low < 0 else high
            raise ResultsError(
                f"a duration of {wrong} ns cannot be counted; expected 0 to {LONGEST_NS} (a week)"
            )
        # `record_value` takes 2.7 us a call in Python, more than all else that a request costs
        # (benchmarks), so we add to the library's own counters, at the cells that it would choose.
        values_us = -(-values_ns // 1_000)
        np.add.at(self._counts, self._cells_of(values_us), 1)
        self.n += len(values_ns)
        self.sum_ns += int(values_ns.sum())
        self.min_ns = min(self.min_ns, low)
        self.max_ns = max(self.max_ns, high)

    def distribution(self) -> tuple[Ints, Ints]:
        """Durations in ns, ascending, and how many are no longer than each."""
        cells = np.flatnonzero(self._counts)
        upper_ns = np.minimum(self._upper_us(cells) * 1_000, self.max_ns)
        return upper_ns, np.cumsum(self._counts[cells]).astype(np.int64)

    def quantiles_ns(self) -> dict[str, int | None]:
        """Every quantile of `QUANTILES`; None where too few durations lie beyond it."""
        upper_ns, counts = self.distribution()
        found: dict[str, int | None] = {}
        for quantile in QUANTILES:
            rank = rank_of(self.n, quantile)
            found[quantile] = None if rank is None else int(upper_ns[np.searchsorted(counts, rank)])
        return found

    def summary(self) -> Latencies:
        """What a run's summary keeps of it."""
        return Latencies(
            n=self.n,
            mean_ms=self.sum_ns / self.n / 1e6 if self.n else None,
            min_ms=self.min_ns / 1e6 if self.n else None,
            max_ms=self.max_ns / 1e6 if self.n else None,
            quantiles_ms={
                quantile: None if value is None else value / 1e6
                for quantile, value in self.quantiles_ns().items()
            },
        )

    def encode(self) -> bytes:
        """The histogram in the HdrHistogram V2 format (base64), in microseconds."""
        self._histogram.total_count = self.n
        self._histogram.max_value = -(-self.max_ns // 1_000)
        return bytes(self._histogram.encode())

    def _cells_of(self, values_us: Ints) -> Ints:
        """The positions of the values' counters (HdrHistogram's own rule, for a whole array)."""
        half_bits = self._histogram.sub_bucket_half_count_magnitude
        bits = np.frexp((values_us | self._histogram.sub_bucket_mask).astype(np.float64))[1]
        bucket = bits.astype(np.int64) - (half_bits + 1)
        cell: Ints = (bucket << half_bits) + (values_us >> bucket)
        return cell

    def _upper_us(self, cells: Ints) -> Ints:
        """The largest value that is counted in each cell."""
        half_bits = self._histogram.sub_bucket_half_count_magnitude
        bucket = np.maximum((cells >> half_bits) - 1, 0)
        upper: Ints = ((cells - (bucket << half_bits) + 1) << bucket) - 1
        return upper


def decode(encoded: bytes, max_ns: int) -> tuple[Ints, Ints]:
    """The distribution in an encoded histogram, as `Durations.distribution` gave it.

    max_ns: the largest duration, which the format holds only to the resolution.
    """
    durations = Durations()
    counts = np.ctypeslib.as_array(HdrHistogram.decode(encoded).counts)
    durations._counts[: len(counts)] = counts
    durations.max_ns = max_ns
    return durations.distribution()


def signed_quantiles_ns(
    below: Durations, above: Durations, quantiles: Iterable[str]
) -> dict[str, int | None]:
    """Quantiles of errors: `below` holds the sizes of the negative ones, `above` the others.

    None where fewer than ten errors lie beyond.
    """
    sizes, counts = below.distribution()
    each = np.diff(counts, prepend=0)
    upper, above_counts = above.distribution()
    values = np.concatenate([-sizes[::-1], upper])
    ranks: npt.NDArray[np.int64] = np.concatenate([np.cumsum(each[::-1]), below.n + above_counts])
    found: dict[str, int | None] = {}
    for quantile in quantiles:
        rank = rank_of(below.n + above.n, quantile)
        found[quantile] = None if rank is None else int(values[np.searchsorted(ranks, rank)])
    return found
