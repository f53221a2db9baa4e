"""How long will it take? The answer of the last few times.

Clockwork's estimator: a window of the last measurements, and a high percentile of it with linear
interpolation. With 10 values and the 99th percentile that is practically the maximum.
Source: Clockwork, src/clockwork/sliding_window.h and the constants estimate_window_size and
estimate_percentile of its scheduler.
"""


class Estimator:
    """A rolling percentile, seeded with the profile's value until the first measurement."""

    __slots__ = ("_last_ns", "_percentile", "_same", "_size", "_window", "estimate_ns")

    def __init__(self, seed_ns: int, window: int, percentile: float) -> None:
        self.estimate_ns = seed_ns
        self._window: list[int] = []
        self._size = window
        self._percentile = percentile
        self._last_ns = -1
        self._same = 0  # how many of the latest measurements in a row were equal

    def add(self, duration_ns: int) -> int:
        """Take a measurement, return the new estimate in ns."""
        window = self._window
        if duration_ns == self._last_ns:
            self._same += 1
            if self._same > self._size:  # all equal: nothing changes
                return duration_ns
        else:
            self._same = 1
            self._last_ns = duration_ns
        window.append(duration_ns)
        if len(window) > self._size:
            del window[0]
        values = sorted(window)
        rank = self._percentile * (len(values) - 1)
        low = int(rank)
        high = min(low + 1, len(values) - 1)
        self.estimate_ns = int(values[low] + (rank - low) * (values[high] - values[low]))
        return self.estimate_ns
