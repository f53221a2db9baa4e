"""SimPy's environment, with time in integer nanoseconds and callbacks in place of processes.

A process costs a generator and an event more than a callback, and the simulation makes several
events per request (`benchmarks/`).
"""

from collections.abc import Callable
from typing import Final

import simpy

_LAST: Final = simpy.events.EventPriority(simpy.events.NORMAL + 1)


class _Call(simpy.Event):
    """An event that has happened as soon as it is made, and calls back after a delay."""

    def __init__(
        self,
        clock: "Clock",
        delay_ns: int,
        callback: Callable[[simpy.Event], None],
        priority: simpy.events.EventPriority,
    ) -> None:
        # A Timeout, without what only processes need.
        self.env = clock
        self.callbacks = [callback]
        self._ok = True
        self._value = None
        clock.schedule(self, priority, delay_ns)


class Clock(simpy.Environment):
    """Simulated time, in ns since the start of the run."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)

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

    def call_in(self, delay_ns: int, callback: Callable[[simpy.Event], None]) -> None:
        """Call back after delay_ns. Calls for the same moment come in the order of asking."""
        _Call(self, delay_ns, callback, simpy.events.NORMAL)

    def call_last_in(self, delay_ns: int, callback: Callable[[simpy.Event], None]) -> None:
        """The same, but after everything else that happens at that moment."""
        _Call(self, delay_ns, callback, _LAST)
