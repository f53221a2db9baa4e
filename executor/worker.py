"""A worker process: one GPU, one loop.

The loop waits for messages until shortly before the next thing to do, spins the rest, and starts
what the worker's brain (`scheduler/worker.py`, the same object as in the simulation) says. There
is no asyncio and no second thread in it: both add milliseconds of jitter.

    python -m executor.worker ADDRESS GPU [--model NAME=CODE]... [--weights NAME=FILE]...
        [--keys DIR]

It ends when the controller says so, when its parent is gone, or when the controller has been
silent for SILENCE_S. One that a person starts, on another machine perhaps, is `mainspring worker`
(mainspring/worker_cli.py).
"""

import argparse
import ctypes
import gc
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from executor.device import DeviceError, Tensors
from executor.devices import open_device
from executor.devices.faulty import FaultyDevice
from executor.models import ModelError, Sources
from executor.tensors import packed, unpacked
from executor.wire import (
    MAX_MESSAGE_BYTES,
    VERSION,
    Do,
    Happens,
    Hello,
    Ping,
    Pong,
    Ready,
    Report,
    Reports,
    Setup,
    Stop,
    ToWorker,
    Unable,
    decode_to_worker,
    encode,
)
from scheduler.faults import DeviceError as DeviceErrorFault
from scheduler.faults import SlowGpu, StalledCopy
from scheduler.memory import Contiguous, Paged
from scheduler.records import FOREVER, Action, Infer, Load, Result, Status, Unload, Why
from scheduler.worker import ENGINES, Engine, Worker

GUARD_NS: Final = 300_000
"""Waiting for messages ends this long before there is something to do; from then on it spins. The
kernel wakes a process up to 0.2 ms late (99th percentile), seldom later."""

SILENCE_S: Final = 5.0
"""A controller that says nothing for so long is gone: it pings several times a second."""

HELLO_NS: Final = 200_000_000
"""Hello is said this often, until the controller takes the worker on."""

LINGER_MS: Final = 500
"""The last reports have this long to leave once the controller has said stop."""

HANDSHAKE_MS: Final = 5_000
"""What has not become a connection by then is none, and is tried again."""

_NEVER: Final = 2**63 - 1


class WorkerError(Exception):
    """This worker cannot take part, in one line."""


class End(Enum):
    """Why a worker's part in a run is over."""

    STOPPED = "the run is over"
    SILENT = f"the controller has said nothing for {SILENCE_S:g} s"
    ORPHANED = "the parent is gone"


class Operator(NamedTuple):
    """What a person who starts a worker says, beside what a controller's child is told.

    device: the only one that models may run on; None leaves it to the controller. card: which one
    of this machine. say: is told when the controller takes the worker on.
    """

    device: str | None
    card: int
    say: Callable[[str], None]


class Job:
    """The brain and the device together. What came of actions collects in `reports`."""

    def __init__(self, setup: Setup, sources: Sources = Sources(), gpu: int = 0) -> None:  # noqa: B008
        self.reports: list[Report] = []
        self.next_ns = _NEVER
        """When `step` should be called again at the latest."""
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

    def take(
        self, actions: list[Action], offset_ns: int = 0, inputs: Sequence[Tensors] = ()
    ) -> None:
        """Actions have come. One that came before is not taken again: ids only rise.

        offset_ns: our clock at the time that is 0 to them; their windows are put right.
        inputs: of the tasks of the one action, where it brings any.
        """
        now_ns = time.monotonic_ns()
        self._offset_ns = offset_ns
        for action in actions:
            if action.id <= self._last_id:
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

    def happens(self, fault: DeviceErrorFault | StalledCopy | SlowGpu) -> None:
        """The device is to misbehave from now on."""
        if not isinstance(self._device, FaultyDevice):
            self._device = FaultyDevice(self._device)
        self._device.happens(fault)

    def step(self) -> None:
        """End what is done, start what may start."""
        self.next_ns = _NEVER
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
        state = self._device.state()
        about = {
            "device": state.name,
            "clock_mhz": state.clock_mhz,
            "throttled": state.throttled,
            "kind": state.kind,
        }
        return {key: str(value) for key, value in about.items() if value}

    def close(self) -> None:
        """Give the device back."""
        self._device.close()

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


def serve(
    address: str,
    gpu: int,
    sources: Sources,
    keys: Path | None = None,
    operator: Operator | None = None,
) -> End:
    """Work for the controller at `address` until the run is over. sources: the operator's models.

    keys: what to prove ourselves with (`executor/keys.py`); None where the controller asks nobody.
    operator: None for a child of the controller's; another worker waits for the controller as long
    as it takes. Raises KeysError, and WorkerError where an operator has to do something.
    """
    import zmq

    from executor.handshake import Handshake

    in_force = _steady()
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.IMMEDIATE, 1)  # where nobody listens no hello is kept
    socket.setsockopt(zmq.IPV6, "[" in address)
    handshake: Handshake | None = None
    linger_ms = 0
    job: Job | None = None
    try:
        if keys is not None:
            from executor.keys import unlock

            unlock(socket, keys, gpu)
        if operator is not None:
            handshake = Handshake(socket, address, keys)
        socket.connect(address)
        hello = encode(Hello(VERSION, gpu, os.getpid(), in_force))
        hello_ns = 0
        watched = [int(socket.getsockopt(zmq.FD))]
        parent = os.getppid()
        heard_ns = time.monotonic_ns()
        while True:
            wait_ns = 200_000_000
            if job is not None:
                job.step()
                if job.reports:
                    for reports in _messages(job.reports):
                        socket.send(encode(Reports(reports)))
                    job.reports = []
                    job.step()  # what was reported may have made room for the next
                wait_ns = min(wait_ns, job.next_ns - time.monotonic_ns() - GUARD_NS)
                if job.reports:
                    wait_ns = 0
            elif time.monotonic_ns() >= hello_ns:
                if handshake is not None and (problem := handshake.problem()):
                    raise WorkerError(problem)
                with suppress(zmq.Again):  # nobody is there yet
                    socket.send(hello, zmq.NOBLOCK)
                hello_ns = time.monotonic_ns() + HELLO_NS
            # The descriptor tells of changes only, so the socket is asked first (zmq_getsockopt).
            if wait_ns > 0 and not int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                select.select(watched, [], [], wait_ns / 1e9)
            while True:
                try:
                    frame = socket.recv(zmq.NOBLOCK)
                except zmq.Again:
                    break
                heard_ns = time.monotonic_ns()
                message = _decoded(frame)
                if isinstance(message, Do) and job is not None:
                    with suppress(
                        ValueError
                    ):  # tensors that are none: never sent by our controller
                        inputs = [unpacked(one) for one in message.inputs]
                        job.take(message.actions, message.offset_ns, inputs)
                elif isinstance(message, Ping):
                    unknown = job.asked(message.asked) if job is not None else message.asked
                    socket.send(encode(Pong(message.sent_ns, time.monotonic_ns(), unknown)))
                elif isinstance(message, Happens) and job is not None:
                    job.happens(message.fault)
                elif isinstance(message, Setup):
                    try:
                        if job is not None:  # the controller had given us up, and takes us on anew
                            job.close()
                            job = None
                            del watched[1:]
                        _permit(message, operator)
                        job = Job(message, sources, gpu if operator is None else operator.card)
                    except (DeviceError, ModelError) as error:
                        socket.send(encode(Unable(str(error))))
                        if operator is not None:
                            linger_ms = LINGER_MS
                            raise WorkerError(str(error)) from None
                        continue
                    except Exception as error:  # a fault of ours: say so, rather than be silent
                        socket.send(encode(Unable(f"{type(error).__name__}: {error}")))
                        raise
                    if job.wakes is not None:
                        watched.append(job.wakes)
                    gc.collect()
                    gc.freeze()
                    gc.disable()  # what a loop makes has no cycles
                    # Only now: a clock that is asked while this still goes on is misjudged.
                    socket.send(encode(Ready(job.in_force())))
                    heard_ns = time.monotonic_ns()  # models take longer to make than SILENCE_S
                    if operator is not None:
                        operator.say("taken on")
                elif isinstance(message, Stop):
                    if message.reason and operator is not None:
                        raise WorkerError(message.reason)
                    linger_ms = LINGER_MS
                    return End.STOPPED
            if operator is None and os.getppid() != parent:
                return End.ORPHANED
            awaited = operator is not None and job is None  # it need not be there yet
            if not awaited and time.monotonic_ns() - heard_ns > SILENCE_S * 1e9:
                return End.SILENT
    finally:
        if job is not None:
            job.close()
        gc.enable()
        gc.unfreeze()
        if handshake is not None:
            handshake.close()
        socket.close(linger_ms)
        context.term()


def _permit(setup: Setup, operator: Operator | None) -> None:
    """Raise DeviceError where the operator has another device in mind than the controller."""
    if operator is not None and operator.device not in (None, setup.device):
        raise DeviceError(
            f"the run is for {setup.device}, and this worker was started with "
            f"--device {operator.device}; give both the same"
        )


def _messages(reports: list[Report]) -> list[list[Report]]:
    """Outputs are large: together they might be more than a message may hold."""
    if any(report.outputs for report in reports):
        return [[report] for report in reports]
    return [reports]


def _decoded(frame: bytes) -> ToWorker | None:
    try:
        return decode_to_worker(frame)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None  # not from our controller; nothing of it is used


def _steady() -> dict[str, str]:
    """Ask the system for punctual wake-ups, as far as it grants them; say what it granted."""
    in_force = {"scheduling": "normal", "timer_slack_ns": "default"}
    # A loop that spins with priority starves what shares its core: not on small machines.
    if hasattr(os, "sched_setscheduler") and (os.cpu_count() or 1) > 2:
        with suppress(OSError):  # a privilege
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
            in_force["scheduling"] = "fifo 10"
    if sys.platform == "linux":
        set_timer_slack = 29  # PR_SET_TIMERSLACK, linux/prctl.h
        if ctypes.CDLL(None).prctl(set_timer_slack, 1, 0, 0, 0) == 0:
            in_force["timer_slack_ns"] = "1"
    return in_force


def _arguments() -> tuple[str, int, Sources, Path | None]:
    parser = argparse.ArgumentParser(prog="executor.worker")
    parser.add_argument("address")
    parser.add_argument("gpu", type=int)
    for option in ("--model", "--weights"):
        parser.add_argument(option, action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--keys", type=Path)
    given = parser.parse_args()
    code, weights = (
        dict(pair.split("=", 1) for pair in pairs) for pairs in (given.model, given.weights)
    )
    return given.address, given.gpu, Sources(code, weights), given.keys


if __name__ == "__main__":
    from executor.keys import KeysError

    try:
        serve(*_arguments())
    except KeysError as error:
        print(f"executor.worker: {error}", file=sys.stderr)
        raise SystemExit(2) from None
