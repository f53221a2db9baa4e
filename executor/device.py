"""What a device is to the worker's loop: memory for weights, a copy engine, an execution engine.

The worker's brain (`scheduler/worker.py`) says what starts when and where it lies in memory; a
device does it. Work is begun and then asked after, so that one loop serves both engines and hears
messages meanwhile. Times are the worker's own clock, `time.monotonic_ns`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from scheduler.worker import Engine

Tensors = Mapping[str, np.ndarray]
"""One request's named inputs or outputs, without the batch dimension."""


class Done(NamedTuple):
    """One finished piece of work.

    start_ns, end_ns: by the worker's clock. duration_ns: what the device itself measured.
    error: what went wrong, in one line; nothing where all went well.
    outputs: of a batch that had inputs, one a task.
    """

    start_ns: int
    end_ns: int
    duration_ns: int
    error: str = ""
    outputs: Sequence[Tensors] = ()


class DeviceState(NamedTuple):
    """What a device says of itself; None where it can't say.

    clock_mhz: of the cores. throttled: why it is slower than it could be, in words; or nothing.
    kind: how models lie and run there, where that may differ.
    """

    name: str
    memory_bytes: int
    memory_used_bytes: int
    clock_mhz: int | None = None
    temperature_c: int | None = None
    throttled: str = ""
    kind: str = ""


class DeviceError(Exception):
    """A device cannot be had, in one line: what, and the way out."""


class Device(Protocol):
    """One GPU, or one CPU slot. Models are indices into the list that it was made with.

    What goes wrong with a model, in its code or for want of memory, is no exception: `poll` hands
    it out as `Done.error`, and the device goes on.
    """

    @property
    def contiguous(self) -> bool:
        """Whether a model has to lie in one piece here; otherwise any pages will do."""

    @property
    def wakes(self) -> int | None:
        """A descriptor that is readable from when work is done until `poll` has handed it out; None
        where `due_ns` alone tells when to ask."""

    def begin_load(self, model: int, place: Sequence[int]) -> None:
        """Copy a model's weights to `place`: the pages' numbers, ascending where contiguous."""

    def begin_infer(self, model: int, batch: int, inputs: Sequence[Tensors]) -> None:
        """Run a batch of a loaded model. No inputs: the device makes them up."""

    def poll(self, engine: Engine) -> Done | None:
        """The end of what was begun on `engine`, once; None while it runs or nothing does."""

    def due_ns(self, engine: Engine) -> int | None:
        """When that end is expected; None if nothing runs, or if `wakes` tells. A time in the past
        says: ask again."""

    def unload(self, model: int) -> None:
        """Forget a model's weights; its place is free when this returns."""

    def state(self) -> DeviceState:
        """Memory, clocks, temperature, throttling."""

    def close(self) -> None:
        """Give everything back."""
