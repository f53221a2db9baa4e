"""What is wrong with a simulated GPU at the moment (`scheduler/faults.py` says what may be)."""

from scheduler.records import Why


class Trouble:
    """Set by `sim/faults.py`, looked at by GPUs.

    errors: so many batches will go wrong. slow_until_ns: batches that begin before then take
    `factor` times as long. stalled_until_ns: no load ends before then.
    """

    __slots__ = ("errors", "factor", "slow_until_ns", "stalled_until_ns")

    def __init__(self) -> None:
        self.errors = 0
        self.factor = 1.0
        self.slow_until_ns = 0
        self.stalled_until_ns = 0

    def slowed(self, now_ns: int, duration_ns: int) -> int:
        """How long a batch takes that begins now."""
        return round(duration_ns * self.factor) if now_ns < self.slow_until_ns else duration_ns

    def batch_ends(self) -> Why:
        """Whether a batch that ends now has gone wrong."""
        if not self.errors:
            return Why.NOTHING
        self.errors -= 1
        return Why.DEVICE_ERROR
