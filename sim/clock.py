"""SimPy's environment, with time in integer nanoseconds and callbacks in place of processes.

A process costs a generator and an event more than a callback, and the simulation makes several
events per request (`benchmarks/`).
"""

from collections.abc import Callable
from heapq import heappush
from typing import Any, Final

import simpy

_NORMAL: Final = simpy.events.NORMAL
_LAST: Final = simpy.events.EventPriority(simpy.events.NORMAL + 1)


class _Call:
    """What SimPy's loop looks at in an event that has happened as soon as it is made."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self.callbacks: tuple[Callable[[Any], None]] | None = (callback,)


class Clock(simpy.Environment):
    """Simulated time, in ns since the start of the run."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self._calls: list[Any] = self._queue  # SimPy's own, which takes whatever has callbacks

    @property
    def now(self) -> int:
        """The time in ns."""
        return self._now  # type: ignore[return-value]  # an int, since all delays are

    def skip_to(self, at_ns: int) -> bool:
        """Move to a later moment at once, if nothing is to happen until then, nor at it.

        Saves a busy source of events to queue the next one where it would come first anyway.
        """
        queue = self._queue
        if queue and queue[0][0] <= at_ns:
            return False
        self._now = at_ns
        return True

    def call_in(self, delay_ns: int, callback: Callable[[Any], None]) -> None:
        """Call back after delay_ns. Calls for the same moment come in the order of asking."""
        heappush(self._calls, (self._now + delay_ns, _NORMAL, next(self._eid), _Call(callback)))

    def call_last_in(self, delay_ns: int, callback: Callable[[Any], None]) -> None:
        """The same, but after everything else that happens at that moment."""
        heappush(self._calls, (self._now + delay_ns, _LAST, next(self._eid), _Call(callback)))
