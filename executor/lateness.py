"""How late things were, over a run of any length, in bounded memory.

An HDR histogram (the `hdrhistogram` library) of microseconds, to three digits. A call of its own
takes 3 us, so values are collected and counted together.
"""

from typing import Final

import numpy as np
from hdrh.histogram import HdrHistogram

_LONGEST_US: Final = 3_600_000_000
_BLOCK: Final = 4_096


class Lateness:
    """Counts. What is early is counted as in time; what is later than an hour as an hour."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _LONGEST_US, 3)
        self._block: list[int] = []
        self.n = 0

    def add(self, late_ns: int) -> None:
        """Something was so late."""
        self.n += 1
        self._block.append(late_ns)
        if len(self._block) == _BLOCK:
            self._count()

    def quantile_us(self, q: float) -> float:
        """In microseconds: so many or fewer for a share q of all."""
        self._count()
        return float(self._histogram.get_value_at_percentile(100 * q))

    def _count(self) -> None:
        values_us = np.clip(np.array(self._block, np.int64) // 1_000, 0, _LONGEST_US)
        for value_us, n in zip(*np.unique(values_us, return_counts=True), strict=True):
            self._histogram.record_value(int(value_us), int(n))
        self._block.clear()
