"""What went into the brains and what came out, in order, so that it can be fed back.

A journal is a stream of records: a `Header`, then a `Step` for each event that the controller
handled, then a `Footer`. `Recorder` makes them, `Replay` gives them to a fresh policy and compares
what comes out, bit for bit. It does not matter which world recorded them.
Not here: files (`mainspring/journal.py`), and times between events, which no brain can see.
"""

from collections.abc import Callable, Hashable
from typing import Any

import msgspec
import numpy as np

from scheduler.ledger import Controller
from scheduler.policy import Policy
from scheduler.records import (
    Action,
    Change,
    Feedback,
    GpuInfo,
    ModelInfo,
    Request,
    Result,
    Status,
    Why,
    WorkerChange,
)


class Header(msgspec.Struct, tag=True, array_like=True):
    """What a replay needs to build the same brain.

    policy: as `mainspring run --policy` takes it; params: its parameters. seed: of the run.
    inputs: sha256 of profiles, traces and policy files, by name.
    """

    format: int
    mainspring: str
    policy: str
    params: dict[str, Any]
    seed: int
    gpus: tuple[GpuInfo, ...]
    models: tuple[ModelInfo, ...]
    inputs: dict[str, str]


class Started(msgspec.Struct, tag=True, array_like=True):
    """The policy's `on_start`."""


class Admitted(msgspec.Struct, tag=True, array_like=True):
    """A request, as it came."""

    request: Request


class Reported(msgspec.Struct, tag=True, array_like=True):
    """A result; the action is known by its id."""

    action_id: int
    status: Status
    why: Why
    start_ns: int
    end_ns: int
    duration_ns: int
    clock_mhz: int
    values: tuple[int, ...] = ()


class Woken(msgspec.Struct, tag=True, array_like=True):
    """A wake. key: as `repr` writes it, since a policy may use what it likes."""

    key: str


class Learned(msgspec.Struct, tag=True, array_like=True):
    """Feedback on an answer."""

    feedback: Feedback


class Changed(msgspec.Struct, tag=True, array_like=True):
    """A worker has gone, or come back."""

    gpu: int
    change: Change


Event = Started | Admitted | Reported | Woken | Learned | Changed

Emitted = tuple[
    list[tuple[int, Action]], list[tuple[int, int, int, int, int]], list[tuple[int, str]]
]
"""Actions by GPU; ended requests (id, answer's kind, reason, GPU, batch); wakes (time, key)."""


class Step(msgspec.Struct, tag=True, array_like=True):
    """One event, when the controller handled it, and what the policy emitted."""

    now_ns: int
    event: Event
    emitted: Emitted


class Footer(msgspec.Struct, tag=True, array_like=True):
    """The journal is whole. refusals: by kind, over the run."""

    steps: int
    refusals: list[int]


Record = Header | Step | Footer

FORMAT = 2


class Recorder(Controller):
    """A controller that tells `write` of every step. Records are to be encoded at once: what is
    in them changes later."""

    def __init__(
        self,
        policy: Policy,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        write: Callable[[Record], None],
    ) -> None:
        super().__init__(policy, gpus, models, rng)
        self.steps = 0
        self._write = write

    def start(self, now_ns: int) -> None:
        super().start(now_ns)
        self._record(now_ns, Started())

    def request(self, now_ns: int, request: Request) -> None:
        super().request(now_ns, request)
        self._record(now_ns, Admitted(request))

    def result(self, now_ns: int, result: Result) -> None:
        super().result(now_ns, result)
        event = Reported(
            result.action.id,
            result.status,
            result.why,
            result.start_ns,
            result.end_ns,
            result.duration_ns,
            result.clock_mhz,
            result.values,
        )
        self._record(now_ns, event)

    def wake(self, now_ns: int, key: Hashable) -> None:
        super().wake(now_ns, key)
        self._record(now_ns, Woken(repr(key)))

    def feedback(self, now_ns: int, feedback: Feedback) -> None:
        super().feedback(now_ns, feedback)
        self._record(now_ns, Learned(feedback))

    def worker(self, now_ns: int, change: WorkerChange) -> None:
        super().worker(now_ns, change)
        self._record(now_ns, Changed(change.gpu, change.change))

    def footer(self) -> Footer:
        """The last record."""
        return Footer(self.steps, list(self.out.refusals))

    def _record(self, now_ns: int, event: Event) -> None:
        self.steps += 1
        self._write(Step(now_ns, event, emitted_by(self)))


def emitted_by(controller: Controller) -> Emitted:
    """What the policy has emitted since the world last took it."""
    out = controller.out
    ended = [
        (request.id, int(kind), int(reason), gpu, batch)
        for request, kind, reason, gpu, batch, _ in out.ended
    ]
    return list(out.sent), ended, [(at_ns, repr(key)) for at_ns, key in out.wakes]


class Replay:
    """A fresh policy that is given a journal's events."""

    def __init__(self, header: Header, policy: Policy, rng: np.random.Generator) -> None:
        self._controller = Controller(policy, header.gpus, header.models, rng)
        self._actions: dict[int, Action] = {}
        self._keys: dict[str, Hashable] = {}
        self.steps = 0
        self.actions = 0

    def step(self, step: Step) -> tuple[Emitted, Emitted] | None:
        """Feed one event. None if the same came out, else (recorded, obtained)."""
        controller = self._controller
        now_ns, event = step.now_ns, step.event
        if isinstance(event, Started):
            controller.start(now_ns)
        elif isinstance(event, Admitted):
            controller.request(now_ns, event.request)
        elif isinstance(event, Reported):
            action = self._actions.pop(event.action_id)
            result = Result(
                action, event.status, event.why, event.start_ns, event.end_ns, event.duration_ns,
                event.clock_mhz, event.values,
            )  # fmt: skip
            controller.result(now_ns, result)
        elif isinstance(event, Learned):
            controller.feedback(now_ns, event.feedback)
        elif isinstance(event, Changed):
            controller.worker(now_ns, WorkerChange(event.gpu, event.change))
        else:
            controller.wake(now_ns, self._keys[event.key])
        self.steps += 1
        obtained = emitted_by(controller)
        out = controller.out
        for _, action in out.sent:
            self._actions[action.id] = action
        for _, key in out.wakes:
            self._keys[repr(key)] = key
        self.actions += len(out.sent)
        out.sent.clear()
        out.ended.clear()
        out.wakes.clear()
        return None if obtained == step.emitted else (step.emitted, obtained)

    def refusals(self) -> list[int]:
        """What was refused so far, by kind."""
        return list(self._controller.out.refusals)
