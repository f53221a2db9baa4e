"""What the devices of a run have told of themselves: clocks, temperature, throttling, memory.

Workers tell it now and then (executor/job.py); of each number the least, the most and the last are
kept. A device that was slowed down, or changed its clock, does not take the times of its profile,
so such a run says so.
Not here: asking a device (executor/devices/).
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from executor.wire import Condition

CLOCK_CHANGED: Final = 0.05
"""A clock that has changed by more is worth a complaint: durations change with it."""


class Span(msgspec.Struct):
    """A number over time."""

    least: int
    most: int
    last: int

    def add(self, value: int) -> None:
        """It is this now."""
        self.least, self.most, self.last = min(self.least, value), max(self.most, value), value


class Watched(msgspec.Struct):
    """One GPU's device during a run; what it never told is None.

    told: how often it told anything. throttled: how often it was slowed down, by why.
    """

    told: int = 0
    clock_mhz: Span | None = None
    temperature_c: Span | None = None
    memory_used_bytes: Span | None = None
    throttled: dict[str, int] = {}

    def add(self, condition: Condition) -> None:
        """It has told how it is."""
        self.told += 1
        for name in ("clock_mhz", "temperature_c", "memory_used_bytes"):
            value, span = getattr(condition, name), getattr(self, name)
            if value is None:
                continue
            if span is None:
                setattr(self, name, Span(value, value, value))
            else:
                span.add(value)
        if why := condition.throttled:
            self.throttled[why] = self.throttled.get(why, 0) + 1

    @property
    def clock_change(self) -> float | None:
        """By how much of its highest value the clock was lower at its lowest. None where a single
        look tells of no change."""
        span = self.clock_mhz
        return 1 - span.least / span.most if span and span.most and self.told > 1 else None


def together(devices: Sequence[Watched]) -> Watched:
    """One GPU's clock over several runs."""
    spans = [device.clock_mhz for device in devices if device.clock_mhz is not None]
    clock = None
    if spans:
        least, most = min(span.least for span in spans), max(span.most for span in spans)
        clock = Span(least, most, spans[-1].last)
    return Watched(sum(device.told for device in devices), clock)


def not_representative(devices: Sequence[Watched]) -> Iterator[str]:
    """Why a run is none of the device as it should be, a line each; nothing where all was well."""
    for gpu, watched in enumerate(devices):
        for why, times in watched.throttled.items():
            yield (
                f"GPU {gpu} was slowed down ({why}) at {times} of {watched.told} looks: the run is "
                "not representative"
            )
        span, change = watched.clock_mhz, watched.clock_change
        if span is not None and change is not None and change > CLOCK_CHANGED:
            yield (
                f"GPU {gpu}'s clock was between {span.least:,} and {span.most:,} MHz: the run is "
                "not representative"
            )
