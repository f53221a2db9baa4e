"""A service and a worker that say how much they hold when they get SIGUSR1. Run by test_leaks.

    python -m tests.executor.weighed serve [leaking]
    python -m tests.executor.weighed worker ADDRESS [leaking]

leaking: with LEAKS, so that the test can be seen to notice them.
"""

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

import executor.connections
import executor.controller
import executor.front
import executor.lateness
import executor.worker
from executor.counts import Counts
from executor.front import Limits
from executor.models import Sources
from executor.oip import ServedModel, TensorSpec
from executor.service import Service
from executor.wire import Bill, Setup
from profiles.durations import Constant
from scheduler.policies import POLICIES
from scheduler.records import GpuInfo, ModelInfo


class Weight(NamedTuple):
    """What a process holds.

    objects: Python's small ones (sys.getallocatedblocks); bytes: of what libraries hold, and of
    large objects; both are exact, where resident memory is a matter of pages and luck. files: open
    ones.
    """

    objects: int
    bytes: int
    files: int


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]  # fmt: skip


def weight() -> Weight:
    """Of this process. Linux with glibc 2.33 or newer only."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo2
    info = libc.mallinfo2()
    files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return Weight(sys.getallocatedblocks(), info.uordblks + info.hblkhd, files)


def _tell_when_asked(collect: bool) -> None:
    def tell(number: int, frame: Any) -> None:
        if collect:
            gc.collect()
        print(msgspec.json.encode(weight()).decode(), flush=True)

    signal.signal(signal.SIGUSR1, tell)


_kept: list[object] = []


def _then(function: Any, leak: Callable[[], object]) -> Any:
    def leaking(*given: Any, **named: Any) -> Any:
        leak()
        return function(*given, **named)

    return leaking


def _keep() -> None:
    _kept.append(object())


def _malloc() -> None:
    ctypes.CDLL(None).malloc(64)


LEAKS = [
    (executor.front, "parse", _keep),
    (executor.front, "parse", _malloc),
    (executor.controller, "decode_from_worker", _keep),
    (executor.connections.Connection, "connection_lost", _keep),
    (executor.connections.Connection, "connection_lost", partial(os.dup, 0)),
    (executor.worker, "decode_to_worker", _keep),
]
"""One small thing a message, or a connection."""

SHORT = Constant(100_000)
MODEL = ServedModel(
    "double", (TensorSpec("x", "FP32", (2,)),), (TensorSpec("output", "UINT8", (0,)),), max_batch=4
)


class _Nobody:
    """A sink that keeps nothing, for what a run writes down grows by right."""

    def request(self, row: tuple[Any, ...]) -> None:
        """A request ended."""

    def action(self, row: tuple[Any, ...]) -> None:
        """An action ended."""

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        """The worker is gone."""


def serve() -> None:
    """Serve one model that spins, with Clockwork; first says where workers find it, then where
    clients do."""
    kind = POLICIES["clockwork"]
    sizes = (1, 2, 4)

    def tell(address: str) -> None:
        print(address, flush=True)

    service = Service(
        served=[MODEL], real=[False], counts=Counts(["double"], [1], [4]),
        limits=Limits(idle_seconds=3_600),  # the one who asks has long pauses
        host="127.0.0.1", port=0, on_start=tell,
        policy=kind(kind.Params()), gpus=(GpuInfo(0, (0,), 4),),
        models=(ModelInfo(0, "double", 1, 100_000, sizes, (100_000,) * 3),),
        setups=[Setup(4, 1, [Bill(1, SHORT, dict.fromkeys(sizes, SHORT))])], sink=_Nobody(),
        listen="tcp://127.0.0.1:*",  # where strangers can shout
        policy_rng=np.random.default_rng(1),
    )  # fmt: skip
    tell(service.address)
    try:
        service.serve(10**9)
    finally:
        service.close()


if __name__ == "__main__":
    executor.lateness._BLOCK = 64  # it collects so many values, usually 4,096, and by right
    role, *given = sys.argv[1:]
    for place, name, leak in LEAKS if "leaking" in given else ():
        setattr(place, name, _then(getattr(place, name), leak))
    # A worker collects no garbage, so it must make none.
    _tell_when_asked(collect=role == "serve")
    if role == "serve":
        serve()
    else:
        executor.worker.serve(given[0], 0, Sources())
