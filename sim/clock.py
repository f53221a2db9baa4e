"""SimPy's environment, with time in integer nanoseconds and callbacks in place of processes.

A process costs a generator and an event more than a callback, and the simulation makes several
events per request (`benchmarks/`).
"""

from collections.abc import Callable

import simpy


class _Call(simpy.Event):
    """An event that has happened as soon as it is made, and calls back after a delay."""

    def __init__(self, clock: "Clock", delay_ns: int, callback: Callable[[simpy.Event], None]):
        # A Timeout, without what only processes need.
        self.env = clock
        self.callbacks = [callback]
        self._ok = True
        self._value = None
        clock.schedule(self, delay=delay_ns)


class Clock(simpy.Environment):
    """Simulated time, in ns since the start of the run."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)

    @property
    def now(self) -> int:
        """The time in ns."""
        return self._now  # type: ignore[return-value]  # an int, since all delays are

    def call_in(self, delay_ns: int, callback: Callable[[simpy.Event], None]) -> None:
        """Call back after delay_ns. Calls for the same moment come in the order of asking."""
        _Call(self, delay_ns, callback)
