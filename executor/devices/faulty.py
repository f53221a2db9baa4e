"""A device that misbehaves, as a scenario's faults say (`scheduler/faults.py`).

It stands before another one, and holds back or spoils what that one has done. An engine whose work
is held back counts as busy, so the worker's brain starts nothing else on it.
"""

import time
from collections.abc import Sequence

from executor.device import Device, DeviceState, Done, Tensors
from scheduler.faults import DeviceError, SlowGpu, StalledCopy
from scheduler.worker import ENGINES, Engine

INJECTED = "a fault of the scenario's"


class FaultyDevice:
    """See the module's text. device: what does the work."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._errors = 0
        self._slow_ns = (0, 0)  # from, until
        self._factor = 1.0
        self._stalled_until_ns = 0
        self._held: list[Done | None] = [None] * len(ENGINES)
        self._until_ns = [0] * len(ENGINES)

    @property
    def contiguous(self) -> bool:
        """As the device has it."""
        return self._device.contiguous

    @property
    def wakes(self) -> int | None:
        """As the device has it."""
        return self._device.wakes

    def happens(self, fault: DeviceError | StalledCopy | SlowGpu) -> None:
        """This goes wrong from now on."""
        now_ns = time.monotonic_ns()
        if isinstance(fault, DeviceError):
            self._errors += fault.batches
            return
        until_ns = now_ns + round(fault.for_s * 1e9)
        if isinstance(fault, StalledCopy):
            self._stalled_until_ns = until_ns
        else:
            self._slow_ns, self._factor = (now_ns, until_ns), fault.factor

    def begin_load(self, model: int, place: Sequence[int]) -> None:
        """Copy, for all we know."""
        self._device.begin_load(model, place)

    def begin_infer(self, model: int, batch: int, inputs: Sequence[Tensors]) -> None:
        """Run the batch."""
        self._device.begin_infer(model, batch, inputs)

    def poll(self, engine: Engine) -> Done | None:
        """The end of what was begun, once it may be told."""
        held = self._held[engine]
        if held is None:
            held = self._device.poll(engine)
            if held is None:
                return None
            self._held[engine] = held
            self._until_ns[engine] = self._ends_ns(engine, held)
        if time.monotonic_ns() < self._until_ns[engine]:
            return None
        self._held[engine] = None
        end_ns = max(held.end_ns, self._until_ns[engine])
        done = held._replace(end_ns=end_ns, duration_ns=held.duration_ns + end_ns - held.end_ns)
        if engine is Engine.EXEC and self._errors:
            self._errors -= 1
            return done._replace(error=INJECTED, outputs=())
        return done

    def due_ns(self, engine: Engine) -> int | None:
        """When to ask again."""
        return self._device.due_ns(engine) if self._held[engine] is None else self._until_ns[engine]

    def unload(self, model: int) -> None:
        """Forget a model's weights."""
        self._device.unload(model)

    def state(self) -> DeviceState:
        """What the device says of itself."""
        return self._device.state()

    def close(self) -> None:
        """Give everything back."""
        self._device.close()

    def _ends_ns(self, engine: Engine, done: Done) -> int:
        """When it may be told that this work is done."""
        if engine is Engine.COPY:
            return self._stalled_until_ns
        from_ns, until_ns = self._slow_ns
        if from_ns <= done.start_ns < until_ns:
            return done.start_ns + round((done.end_ns - done.start_ns) * self._factor)
        return done.end_ns
