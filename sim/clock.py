"""SimPy's environment, with time in integer nanoseconds and plain calls beside its events.

A process costs a generator and an event more than a call, and the simulation makes several of
them per request (`benchmarks/`). Calls stand in SimPy's own queue: processes, timeouts and calls
may be mixed.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

import simpy

from scheduler.records import FOREVER

_NORMAL: Final = simpy.events.NORMAL
_LAST: Final = simpy.events.EventPriority(simpy.events.NORMAL + 1)


class Clock(simpy.Environment):
    """Simulated time, in ns since the start of the run."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self._calls: list[Any] = self._queue  # SimPy's own, which holds calls as well as events
        self._end_ns = FOREVER

    @property
    def now(self) -> int:
        """The time in ns."""
        return self._now  # type: ignore[return-value]  # an int, since all delays are

    def run_to(self, end_ns: int) -> None:
        """Let everything happen that is due before end_ns, and move there.

        The same as `run(until=end_ns)`, without a call of `step` for each event.
        """
        queue = self._calls
        self._end_ns = end_ns
        while queue and queue[0][0] < end_ns:
            call = queue[0][3]
            if isinstance(call, simpy.Event):
                super().step()
            else:
                self._now = heappop(queue)[0]
                call(self._now)
        self._now = end_ns

    def step(self) -> None:
        """Let the next thing happen, a call or an event."""
        if self._calls and not isinstance(call := self._calls[0][3], simpy.Event):
            self._now = heappop(self._calls)[0]
            call(self._now)
        else:
            super().step()

    def skip_to(self, at_ns: int) -> bool:
        """Move to a later moment at once, if nothing is to happen until then, nor at it.

        Saves a busy source of events to queue the next one where it would come first anyway.
        """
        queue = self._calls
        if at_ns >= self._end_ns or (queue and queue[0][0] <= at_ns):
            return False
        self._now = at_ns
        return True

    def call_in(self, delay_ns: int, callback: Callable[[int], None]) -> None:
        """Call back after delay_ns, with the time.

        Calls for the same moment come in the order of asking.
        """
        heappush(self._calls, (self._now + delay_ns, _NORMAL, next(self._eid), callback))

    def call_last_in(self, delay_ns: int, callback: Callable[[int], None]) -> None:
        """The same, but after everything else that happens at that moment."""
        heappush(self._calls, (self._now + delay_ns, _LAST, next(self._eid), callback))
