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
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from executor.device import DeviceError
from executor.job import Job
from executor.models import ModelError, Sources
from executor.tensors import unpacked
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
    Unable,
    decode_to_worker,
    encode,
)

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

_SETUP: Final = b"\xa5Setup"
"""How the one message begins that must be answered even where it does not decode."""


class WorkerError(Exception):
    """This worker cannot take part, in one line."""


class Dropped:
    """Tells on stderr what of a controller's messages could not be meant, as long as it is not too
    much. gpu: whose worker."""

    TOLD = 10

    def __init__(self, gpu: int) -> None:
        self._gpu = gpu
        self.n = 0

    def __call__(self, why: str) -> None:
        """Something was dropped."""
        self.n += 1
        if self.n <= self.TOLD:
            more = "; what else is dropped is not told" if self.n == self.TOLD else ""
            text = f"worker {self._gpu}: what the controller said was dropped: {why[:200]}{more}"
            print(text, file=sys.stderr, flush=True)


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
    socket.setsockopt(zmq.SNDTIMEO, round(SILENCE_S * 1e3))
    socket.setsockopt(zmq.IPV6, "[" in address)
    handshake: Handshake | None = None
    linger_ms = 0
    job: Job | None = None
    dropped = Dropped(gpu)

    def unable(reason: str) -> None:
        nonlocal linger_ms
        socket.send(encode(Unable(reason)))
        if operator is not None:
            linger_ms = LINGER_MS
            raise WorkerError(reason)

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
                if job is not None:
                    wait_ns -= job.look(wait_ns)
                select.select(watched, [], [], max(0, wait_ns) / 1e9)
            while True:
                try:
                    frame = socket.recv(zmq.NOBLOCK)
                except zmq.Again:
                    break
                heard_ns = time.monotonic_ns()
                try:
                    message = decode_to_worker(frame)
                except msgspec.DecodeError as error:
                    dropped(str(error))
                    if job is None and frame[1:7] == _SETUP:  # else nobody would know what it is
                        unable(f"a worker cannot be set up so: {error}")
                    continue
                if isinstance(message, Do) and job is not None:
                    try:
                        inputs = [unpacked(one) for one in message.inputs]
                    except ValueError as error:
                        dropped(str(error))
                        continue
                    job.take(message.actions, message.offset_ns, inputs)
                elif isinstance(message, Ping):
                    pong = Pong(message.sent_ns, time.monotonic_ns(), message.asked)
                    if job is not None:
                        pong.unknown = job.asked(message.asked)
                        pong.condition, job.condition = job.condition, None
                    socket.send(encode(pong))
                elif isinstance(message, Happens) and job is not None:
                    job.happens(message.fault)
                elif isinstance(message, Setup):
                    if job is not None:  # the controller had given us up, and takes us on anew
                        job.close()
                        job = None
                        del watched[1:]
                    try:
                        _permit(message, operator)
                        card = gpu if operator is None else operator.card
                        job = Job(message, sources, card, dropped)
                    except (DeviceError, ModelError) as error:
                        unable(str(error))
                        continue
                    except Exception as error:  # a fault of ours, or of a model's code
                        traceback.print_exc()
                        unable(f"{type(error).__name__}: {error}")
                        continue
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
    except zmq.Again:
        return End.SILENT  # nobody took what we had to say
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
