"""Measure what one model costs on a device, through the interface that a live worker uses.

After a warm-up that does not count, loads and batches alternate in a random order, so that a drift
of the device spreads over all batch sizes alike. Several copies take turns, so that weights come
from memory and not from a cache, as where many models share a device. Nothing is left out
afterwards: an outlier is what a scheduler has to live with. The collector is off, as in a worker.
Not here: which device (`executor/devices/`), and what becomes of the numbers (mainspring.profile).
"""

import gc
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from executor.device import Device, DeviceError, DeviceState, Done
from scheduler.worker import Engine

WARM_UP: Final = 10
"""Runs of each batch size, and loads, that do not count."""

LONGEST_S: Final = 60.0
"""A load or a batch that takes longer is taken for stuck."""


class Measured(NamedTuple):
    """What the device measured itself, in ns, in the order in which it was done.

    exec_ns: by batch size, ascending. before, after: what the device said of itself.
    """

    load_ns: list[int]
    exec_ns: dict[int, list[int]]
    before: DeviceState
    after: DeviceState


def measure(
    device: Device,
    copies: int,
    pages: int,
    batches: Sequence[int],
    runs: int,
    loads: int,
    stop: Callable[[float], bool] = lambda share: False,
    rest_s: float = 0.0,
) -> Measured:
    """Measure a model of which the device knows `copies`, each with weights of its own.

    pages: of one copy; the device has room for one more than there are, so that every load goes to
    a new place. runs: of each batch size. loads: how many. stop: is told the share that is done, 0
    to 1, and may end it: what there is by then is whole, if shorter. rest_s: the device idles for
    so long before each batch, on average, as it does between requests: it is slower after a rest.
    Raises DeviceError where the model fails.
    """
    rng = np.random.default_rng(0)
    load_ns: list[int] = []
    exec_ns: dict[int, list[int]] = {batch: [] for batch in sorted(batches)}
    places = [range(i * pages, (i + 1) * pages) for i in range(copies + 1)]  # the last is free
    turn = 0

    def load() -> int:
        nonlocal turn
        copy, turn = turn % copies, turn + 1
        device.unload(copy)
        places[copy], places[copies] = places[copies], places[copy]
        device.begin_load(copy, places[copy])
        return _wait(device, Engine.COPY, "its load").duration_ns

    def execute(batch: int) -> int:
        if rest_s:
            time.sleep(rng.exponential(rest_s))
        device.begin_infer(int(rng.integers(copies)), batch, ())
        return _wait(device, Engine.EXEC, f"batch {batch}").duration_ns

    with no_collector():
        for _ in range(max(WARM_UP, copies)):
            load()
        for _ in range(WARM_UP):
            for batch in exec_ns:
                execute(batch)
        before = device.state()
        every = max(1, runs // loads)
        steps = max(runs, loads * every)
        for i in range(steps):
            if stop(i / steps):
                break
            if i % every == 0:
                load_ns.append(load())
            if i < runs:
                for batch in rng.permutation(list(exec_ns)).tolist():
                    exec_ns[batch].append(execute(batch))
        return Measured(load_ns, exec_ns, before, device.state())


def _wait(device: Device, engine: Engine, what: str) -> Done:
    end_ns = time.monotonic_ns() + LONGEST_S * 1e9
    while (done := device.poll(engine)) is None:
        if device.wakes is not None:  # a loop that spins would keep its threads from Python's lock
            select.select([device.wakes], [], [], LONGEST_S)
        if time.monotonic_ns() > end_ns:
            raise DeviceError(f"{what} did not end within {LONGEST_S:g} s")
    if done.error:
        raise DeviceError(f"{what}: {done.error}")
    return done


@contextmanager
def no_collector() -> Iterator[None]:
    """What is garbage goes now, and nothing else does until the end."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
