"""How long will it take? The answer of the last few times.

Clockwork's estimator: a window of the last measurements, and a high percentile of it with linear
interpolation. With 10 values and the 99th percentile that is practically the maximum.
Source: Clockwork, src/clockwork/sliding_window.h and the constants estimate_window_size and
estimate_percentile of its scheduler.
"""

from collections import deque


class Estimator:
    """A rolling percentile, seeded with the profile's value until the first measurement."""

    __slots__ = ("_percentile", "_same", "_window", "estimate_ns")

    def __init__(self, seed_ns: int, window: int, percentile: float) -> None:
        self.estimate_ns = seed_ns
        self._window: deque[int] = deque(maxlen=window)
        self._percentile = percentile
        self._same = 0  # how many of the latest measurements in a row were equal

    def add(self, duration_ns: int) -> int:
        """Take a measurement, return the new estimate in ns."""
        window = self._window
        same = window and window[-1] == duration_ns
        self._same = self._same + 1 if same else 1
        window.append(duration_ns)
        if self._same >= len(window):  # all equal: a device without noise gets by without a sort
            self.estimate_ns = duration_ns
            return duration_ns
        values = sorted(window)
        rank = self._percentile * (len(values) - 1)
        low = int(rank)
        high = min(low + 1, len(values) - 1)
        self.estimate_ns = int(values[low] + (rank - low) * (values[high] - values[low]))
        return self.estimate_ns
