"""What may go wrong in a run, in words that both worlds understand.

A scenario has a table `[[faults]]` for each; `sim/faults.py` makes it happen to simulated GPUs,
`executor/faults.py` and `mainspring/live.py` to real processes. What follows is left to the same
books and policies as ever.
Not here: how anybody notices (heartbeats live; at once, plus the link's delay, in simulation).
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

HEARTBEAT_NS: Final = 100_000_000
"""Controller and workers compare this often what was sent and what came. So a message that was
lost is missed at the second heartbeat after it: at the first it might still be on its way."""

Seconds = Annotated[float, Meta(gt=0, le=1e6)]
Moment = Annotated[float, Meta(ge=0, le=1e6)]
Index = Annotated[int, Meta(ge=0, le=10**6)]
Few = Annotated[int, Meta(ge=1, le=10**6)]


class _Fault(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"
):
    """at_s: when it happens, since the start of the run."""

    at_s: Moment

    @property
    def at_ns(self) -> int:
        """The same in ns."""
        return round(self.at_s * 1e9)


class WorkerKilled(_Fault, frozen=True, kw_only=True, tag="worker_killed"):
    """A worker dies, without a word. Live it is `kill -9`.

    back_after_s: a new one is started so long after; without it there is none. A live process
    takes some tenths of a second to come up, a simulated one is there.
    A worker that is gone already cannot be killed: then nothing happens.
    """

    gpu: Index
    back_after_s: Seconds | None = None


class DeviceError(_Fault, frozen=True, kw_only=True, tag="device_error"):
    """Batches go wrong on the device. batches: so many, the first that end from then on."""

    gpu: Index
    batches: Few = 1


class StalledCopy(_Fault, frozen=True, kw_only=True, tag="stalled_copy"):
    """Loads that would end within for_s end when it is over."""

    gpu: Index
    for_s: Seconds


class SlowGpu(_Fault, frozen=True, kw_only=True, tag="slow_gpu"):
    """Batches that begin within for_s take `factor` times as long."""

    gpu: Index
    for_s: Seconds
    factor: Annotated[float, Meta(ge=1, le=1e3)]


class DelayedMessages(_Fault, frozen=True, kw_only=True, tag="delayed_messages"):
    """What controller and worker send each other within for_s takes delay_ms longer.

    Later messages do not overtake.
    """

    gpu: Index
    for_s: Seconds
    delay_ms: Annotated[float, Meta(gt=0, le=1e6)]


class LostMessages(_Fault, frozen=True, kw_only=True, tag="lost_messages"):
    """The next actions do not come to the worker, or the next results not to the controller.

    count: so many. A lost action comes back as lost (`Why.MESSAGE_LOST`), a lost result is sent
    again; both at the second heartbeat (HEARTBEAT_NS).
    """

    gpu: Index
    lose: Literal["actions", "results"] = "actions"
    count: Few = 1


class PausedController(_Fault, frozen=True, kw_only=True, tag="paused_controller"):
    """The controller does nothing for for_s; what comes meanwhile waits."""

    for_s: Seconds


Fault = (
    WorkerKilled
    | DeviceError
    | StalledCopy
    | SlowGpu
    | DelayedMessages
    | LostMessages
    | PausedController
)
