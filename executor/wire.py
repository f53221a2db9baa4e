"""What the controller and its workers say to each other.

MessagePack, typed and checked on both sides: what does not decode is dropped and counted, never
believed. There is no pickle on any wire. Times of actions and reports are nanoseconds since the
start of the run; the worker translates, with the offset that comes along (`executor/offset.py`).

A worker says Hello until it gets a Setup, and is Ready. Pings compare what was sent with what came:
the controller asks for actions without a result, the worker reports again what it has reported, and
says which ones it never saw. Ids of actions are never used twice, so what a worker says of the time
before it was lost names nothing that is open.
Not here: sockets (`executor/worker.py`, `executor/controller.py`).
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from profiles.durations import Durations
from scheduler.faults import DeviceError, SlowGpu, StalledCopy
from scheduler.records import Action, Status, Why

VERSION: Final = 6
"""Of these messages; a worker of another version is refused."""

MAX_MESSAGE_BYTES: Final = 1 << 26
"""Longer messages are dropped by the socket, before anything reads them."""

Clock = Annotated[int, Meta(ge=-(2**62), le=2**62)]
"""Nanoseconds as the other side tells them. What is computed from two of them still fits into a
message and into a column of the results: who lies ends neither a run nor a worker."""

MAX_PAGES: Final = 1 << 22
"""64 TiB of 16 MiB each; a worker keeps a list of them."""

Pages = Annotated[int, Meta(ge=1, le=MAX_PAGES)]

BatchSize = Annotated[int, Meta(ge=1, le=2**20)]

Extent = Annotated[int, Meta(ge=0, le=2**32)]
"""Of a tensor in one dimension."""

ASKED: Final = 1_000
"""Actions that a ping asks for, at most."""


class Hello(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """A worker offers itself. in_force: what holds for its process, such as its scheduling."""

    version: int
    gpu: int
    pid: int
    in_force: dict[str, str]


class Bill(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a model costs, and what runs it. model: a name that the worker knows
    (`executor/models.py`); `spin` keeps its engine busy for the durations."""

    pages: Pages
    load: Durations
    exec: dict[BatchSize, Durations]
    model: str = "spin"


class Setup(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """The controller takes a worker on.

    seed: of its durations. device: what it runs on, where a model does not just spin. contiguous:
    a model has to lie in one piece, even where the device would not ask for it. engines: 1 where
    loads and batches take turns.
    """

    pages: Pages
    seed: Annotated[int, Meta(ge=0)]
    bills: list[Bill]
    device: Literal["cpu", "cuda"] = "cpu"
    page_bytes: Annotated[int, Meta(ge=1, le=2**50)] = 1 << 24
    contiguous: bool = False
    engines: Literal[1, 2] = 2


class Ready(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """The worker has what it needs. in_force: what holds for its device."""

    in_force: dict[str, str] = {}


class Unable(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """The worker cannot have what it needs. reason: one line, with the way out."""

    reason: str


class Ping(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """The controller asks for the time. sent_ns: by its own clock.

    asked: actions, sent before the last ping, of which it has no result.
    """

    sent_ns: Clock
    asked: Annotated[list[int], Meta(max_length=ASKED)] = []


class Condition(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """How a device is; None where it can't say. As in executor.device.DeviceState."""

    clock_mhz: Annotated[int, Meta(ge=0, le=10**6)] | None
    temperature_c: Annotated[int, Meta(ge=-273, le=10**4)] | None
    memory_used_bytes: Annotated[int, Meta(ge=0, le=2**62)]
    throttled: Annotated[str, Meta(max_length=200)] = ""


class Pong(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """The time, by the worker's clock. unknown: actions that were asked for and never came.
    condition: of the device, where the worker has looked since the last one."""

    sent_ns: Clock
    at_ns: Clock
    unknown: list[int] = []
    condition: Condition | None = None


class Tensor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One item's input or output, without the batch dimension (`executor/tensors.py`)."""

    datatype: str
    shape: Annotated[list[Extent], Meta(max_length=32)]
    data: bytes


class Do(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """Actions. offset_ns: the worker's clock at the start of the run.

    inputs: of the actions' tasks, in order; none where the worker makes them up. A message that
    has any has one action.
    """

    offset_ns: Clock
    actions: list[Action]
    inputs: list[dict[str, Tensor]] = []


class Happens(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """The device is to misbehave, as the scenario says."""

    fault: DeviceError | StalledCopy | SlowGpu


class Report(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What became of an action. received_ns: when it came; ready_ns: when its engine could have
    begun it, at the earliest. error: what went wrong on the device, in one line. outputs: of the
    action's tasks, in order, where they brought inputs."""

    id: int
    status: Status
    why: Why
    received_ns: Clock
    ready_ns: Clock
    start_ns: Clock
    end_ns: Clock
    duration_ns: Clock
    error: str = ""
    outputs: list[dict[str, Tensor]] = []


class Reports(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """Several of them; one that has outputs comes alone."""

    reports: list[Report]


class Stop(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    """The run is over. reason: why it never began for this worker, in one line."""

    reason: str = ""


FromWorker = Hello | Ready | Unable | Pong | Reports
ToWorker = Setup | Ping | Do | Happens | Stop

encode = msgspec.msgpack.Encoder().encode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
