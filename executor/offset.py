"""By how much a worker's clock is ahead of the controller's.

A question and its answer are assumed to take equally long; the exchange that took the least time
errs least, by half of that time at most. Clocks drift, so only the last exchanges count (Cristian's
algorithm with a minimum filter, as NTP's clock filter has it, RFC 5905 section 10).
"""

from collections import deque


class Offset:
    """An estimate from the last exchanges. offset_ns: worker's time less controller's."""

    KEPT = 16

    def __init__(self) -> None:
        self._exchanges: deque[tuple[int, int]] = deque(maxlen=self.KEPT)
        self.offset_ns = 0
        self.error_ns: int | None = None
        """It is off by this much at most; None before the first exchange."""

    @property
    def exchanges(self) -> int:
        """How many it rests on."""
        return len(self._exchanges)

    def add(self, sent_ns: int, there_ns: int, back_ns: int) -> None:
        """An exchange: sent and back by the controller's clock, there by the worker's."""
        trip_ns = back_ns - sent_ns
        if trip_ns < 0:
            return  # nothing that our clock could have seen
        self._exchanges.append((trip_ns, there_ns - (sent_ns + back_ns) // 2))
        trip_ns, self.offset_ns = min(self._exchanges)
        self.error_ns = trip_ns // 2
