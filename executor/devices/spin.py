"""A device that keeps its engines busy for a profile's time, and computes nothing.

So a box without a GPU, and without a zoo of models, runs thousands of models' schedules for real:
real processes, real messages, real clocks.
"""

import time
from collections.abc import Sequence

import numpy as np

from executor.device import DeviceState, Done, Tensors
from executor.wire import Bill
from profiles.durations import Durations
from scheduler.worker import ENGINES, Engine


class SpinDevice:
    """See the module's text. bills: what each model costs. seed: of durations that vary."""

    contiguous = False
    wakes = None

    def __init__(self, bills: Sequence[Bill], seed: int) -> None:
        self._bills = bills
        self._rng = np.random.default_rng(seed)
        self._begun: list[tuple[int, int] | None] = [None] * len(ENGINES)  # start, duration

    def begin_load(self, model: int, place: Sequence[int]) -> None:
        """Keep the copy engine busy."""
        self._begin(Engine.COPY, self._bills[model].load)

    def begin_infer(self, model: int, batch: int, inputs: Sequence[Tensors]) -> None:
        """Keep the execution engine busy."""
        self._begin(Engine.EXEC, self._bills[model].exec[batch])

    def poll(self, engine: Engine) -> Done | None:
        """Whether the time is over."""
        begun = self._begun[engine]
        if begun is None:
            return None
        start_ns, duration_ns = begun
        now_ns = time.monotonic_ns()
        if now_ns < start_ns + duration_ns:
            return None
        self._begun[engine] = None
        return Done(start_ns, now_ns, now_ns - start_ns)

    def due_ns(self, engine: Engine) -> int | None:
        """When what was begun on `engine` will end; None if nothing was."""
        begun = self._begun[engine]
        return None if begun is None else sum(begun)

    def unload(self, model: int) -> None:
        """There is nothing to forget."""

    def state(self) -> DeviceState:
        """It has no memory and no clocks."""
        return DeviceState("spin", 0, 0)

    def close(self) -> None:
        """There is nothing to give back."""

    def _begin(self, engine: Engine, durations: Durations) -> None:
        constant_ns = durations.constant_ns
        if constant_ns is None:
            constant_ns = int(durations.draw_ns(self._rng, 1)[0])
        self._begun[engine] = (time.monotonic_ns(), constant_ns)
