"""A worker's brain and its device together: actions in, reports out.

The brain (`scheduler/worker.py`, the same object as in the simulation) says what starts; the device
does it. A controller's actions are checked before the brain sees them: what depends on no more than
the message itself where it is decoded (executor/wire.py), the rest here. Nothing is done of what
cannot be meant.
Not here: messages, and when to look again (`executor/worker.py`).
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from executor.device import DeviceState, Tensors
from executor.devices import open_device
from executor.devices.faulty import FaultyDevice
from executor.models import Sources
from executor.tensors import packed
from executor.wire import Condition, Report, Setup
from scheduler.faults import DeviceError, SlowGpu, StalledCopy
from scheduler.memory import Contiguous, Paged
from scheduler.records import FOREVER, Action, Infer, Load, Result, Status, Unload, Why
from scheduler.worker import ENGINES, Engine, Worker

NEVER: Final = 2**63 - 1

LOOK_NS: Final = 1_000_000_000
"""The device is looked at this often, at most."""

LONGEST_LOOK_NS: Final = 20_000_000
"""A look that took longer was held up by something else."""


class Job:
    """See the module's text. What came of actions collects in `reports`.

    dropped: is told of what cannot be meant, a line each.
    """

    def __init__(
        self,
        setup: Setup,
        sources: Sources = Sources(),  # noqa: B008, it is immutable
        gpu: int = 0,
        dropped: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.reports: list[Report] = []
        self.next_ns = NEVER
        """When `step` should be called again at the latest."""
        self.condition: Condition | None = None
        """What the last look at the device has shown, for who tells it to take away."""
        self._dropped = dropped
        self._bills = setup.bills
        self._device = open_device(setup, sources, gpu)
        one_piece = setup.contiguous or self._device.contiguous
        memory = Contiguous(setup.pages) if one_piece else Paged(setup.pages)
        self._brain = Worker(tuple(bill.pages for bill in setup.bills), setup.pages, memory)
        self._received_ns: dict[int, int] = {}  # by action id
        self._inputs: dict[int, Sequence[Tensors]] = {}  # of those that bring any
        self._turns = setup.engines == 1
        self._order = ENGINES
        """Of two that take turns, the one that has waited begins first."""
        self._core = [0 if self._turns else engine for engine in ENGINES]
        self._free_ns = [0] * len(ENGINES)  # of an engine's core
        self._ready_ns = [0] * len(ENGINES)  # when what runs could have begun
        self._begun_ns = [0] * len(ENGINES)  # when the brain let it begin: what its window is for
        self._last_id = -1
        self._offset_ns = 0
        self._reported: dict[int, Report] = {}  # since the last ping
        self._unconfirmed: dict[int, Report] = {}  # before it
        self._look_ns = 0  # the next one
        self._look_takes_ns = LONGEST_LOOK_NS

    def take(
        self, actions: list[Action], offset_ns: int = 0, inputs: Sequence[Tensors] = ()
    ) -> None:
        """Actions have come. One that came before is not taken again: ids only rise. One that
        cannot be meant is dropped, and is unknown when it is asked for.

        offset_ns: our clock at the time that is 0 to them; their windows are put right.
        inputs: of the tasks of the one action, where it brings any.
        """
        if inputs and (len(actions) != 1 or len(inputs) != len(getattr(actions[0], "tasks", ()))):
            self._dropped(f"{len(inputs)} inputs that are none of a batch of so many tasks")
            return
        now_ns = time.monotonic_ns()
        self._offset_ns = offset_ns
        for action in actions:
            if action.id <= self._last_id:
                continue
            if why := self._why_not(action):
                self._dropped(why)
                continue
            self._last_id = action.id
            action.earliest_ns += offset_ns
            if action.latest_ns < FOREVER:
                action.latest_ns += offset_ns
            self._received_ns[action.id] = now_ns
            if inputs:
                self._inputs[action.id] = inputs
            result = self._brain.submit(now_ns, action)
            if result is not None:
                if result.status is Status.DONE:
                    self._device.unload(action.model)
                self._report(result)

    def asked(self, ids: list[int]) -> list[int]:
        """The controller misses results: report again what was reported. Returns what never came.

        An action without a result is asked for from the second ping after it was sent. So what is
        not asked for by then has been heard, and is forgotten.
        """
        unknown = []
        for id in ids:
            report = self._reported.get(id) or self._unconfirmed.get(id)
            if report is not None:
                self.reports.append(report)
            elif id not in self._received_ns:
                unknown.append(id)
                self._last_id = max(self._last_id, id)  # should it come yet, it is too late
        kept = {id: self._unconfirmed[id] for id in ids if id in self._unconfirmed}
        self._unconfirmed = kept | self._reported
        self._reported = {}
        return unknown

    def happens(self, fault: DeviceError | StalledCopy | SlowGpu) -> None:
        """The device is to misbehave from now on."""
        if not isinstance(self._device, FaultyDevice):
            self._device = FaultyDevice(self._device)
        self._device.happens(fault)

    def step(self) -> None:
        """End what is done, start what may start."""
        self.next_ns = NEVER
        for engine in ENGINES:
            done = self._device.poll(engine)
            if done is not None:
                why = Why.DEVICE_ERROR if done.error else Why.NOTHING
                self._report(
                    self._brain.finish(
                        engine, self._begun_ns[engine], done.end_ns, done.duration_ns, why
                    ),
                    done.error,
                    done.outputs,
                )
                self._free_ns[self._core[engine]] = done.end_ns
                if self._turns:
                    self._order = (ENGINES[1 - engine], engine)
        for engine in self._order:
            if not self._turns or self._brain.is_idle(ENGINES[1 - engine]):
                self._start(engine)
        for engine in ENGINES:
            due_ns = self._device.due_ns(engine)
            if due_ns is not None and due_ns < self.next_ns:
                self.next_ns = due_ns

    @property
    def wakes(self) -> int | None:
        """A descriptor that is readable when `step` should be called, where the device has one."""
        return self._device.wakes

    def in_force(self) -> dict[str, str]:
        """What holds for the device, in words."""
        state = self._state()
        about = {
            "device": state.name,
            "clock_mhz": state.clock_mhz,
            "throttled": state.throttled,
            "kind": state.kind,
        }
        return {key: str(value) for key, value in about.items() if value}

    def look(self, spare_ns: int) -> int:
        """See how the device is, if a second has gone by since the last time and there is twice the
        time for it: asking a GPU's driver takes a millisecond at times. spare_ns: until something
        has to be done. Returns how long it took.
        """
        begun_ns = time.monotonic_ns()
        if begun_ns < self._look_ns or spare_ns < 2 * self._look_takes_ns:
            return 0
        self._look_ns = begun_ns + LOOK_NS
        state = self._state()
        self.condition = Condition(
            state.clock_mhz, state.temperature_c, state.memory_used_bytes, state.throttled[:200]
        )
        return time.monotonic_ns() - begun_ns

    def close(self) -> None:
        """Give the device back."""
        self._device.close()

    def _state(self) -> DeviceState:
        begun_ns = time.monotonic_ns()
        state = self._device.state()
        took_ns = time.monotonic_ns() - begun_ns
        self._look_takes_ns = min(max(took_ns, self._look_takes_ns // 2), LONGEST_LOOK_NS)
        return state

    def _why_not(self, action: Action) -> str:
        """Why this cannot be meant, in one line; nothing where it can."""
        if not 0 <= action.model < len(self._bills):
            return f"action {action.id}: there is no model {action.model} of {len(self._bills)}"
        if type(action) is Infer:
            if action.batch not in self._bills[action.model].exec:
                return f"action {action.id}: model {action.model} has no batch of {action.batch}"
            if not 1 <= len(action.tasks) <= action.batch:
                return f"action {action.id}: {len(action.tasks)} tasks in a batch of {action.batch}"
        return ""

    def _start(self, engine: Engine) -> None:
        while True:
            now_ns = time.monotonic_ns()
            step = self._brain.start(engine, now_ns)
            if isinstance(step, Result):
                self._ready_ns[engine] = self._could_begin_ns(engine, step.action)
                self._report(step)
                continue
            if isinstance(step, int):
                self.next_ns = min(self.next_ns, step)
            elif step is not None:
                self._ready_ns[engine] = self._could_begin_ns(engine, step)
                self._begun_ns[engine] = now_ns
                if isinstance(step, Load):
                    self._device.begin_load(step.model, self._brain.places[step.model])
                else:
                    assert isinstance(step, Infer)
                    inputs = self._inputs.get(step.id, ())
                    self._device.begin_infer(step.model, step.batch, inputs)
            return

    def _could_begin_ns(self, engine: Engine, action: Action) -> int:
        """When the action was here, its window open and its engine free."""
        return max(
            self._received_ns[action.id], action.earliest_ns, self._free_ns[self._core[engine]]
        )

    def _report(self, result: Result, error: str = "", outputs: Sequence[Tensors] = ()) -> None:
        action = result.action
        self._inputs.pop(action.id, None)
        received_ns = self._received_ns.pop(action.id)
        if type(action) is Unload:
            ready_ns = received_ns
        else:
            ready_ns = self._ready_ns[Engine.COPY if type(action) is Load else Engine.EXEC]
        offset_ns = self._offset_ns
        report = Report(
            action.id, result.status, result.why, received_ns - offset_ns, ready_ns - offset_ns,
            result.start_ns - offset_ns, result.end_ns - offset_ns, result.duration_ns, error,
            [packed(one) for one in outputs],
        )  # fmt: skip
        self.reports.append(report)
        self._reported[action.id] = report
