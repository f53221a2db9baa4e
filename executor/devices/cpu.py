"""A CPU slot as a device: one buffer for all weights, models that run in torch.

A model's parameters and buffers are views on the arena. A load copies its packed weights from the
host's memory to the place that the worker's brain names and makes the views point there; so a
place must be one piece. One thread copies and computes, in turn (`cluster.engines = 1`), and torch
does both without Python's lock: the worker's loop hears messages meanwhile. What is done makes a
pipe readable, so that the loop need not spin, which would hold the lock.
Models called `spin` only take their profile's time; their place in the arena stays theirs.
"""

import ctypes
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from executor.device import DeviceError, DeviceState, Done, Tensors
from executor.devices.spin import SpinDevice
from executor.models import SPIN, Built, ModelError, Sources, batch_of, build, call, import_torch
from executor.packing import Packed
from executor.wire import Bill
from scheduler.worker import ENGINES, Engine

_MALLOPT: Final = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, -1), "M_ARENA_MAX": (-8, 1)}
"""Of glibc's malloc.h, with what they are set to."""

PAGE: Final = 4096
"""The arena begins at a multiple of it."""


class _Model(NamedTuple):
    """One model. module: its own; weights: shared with its copies."""

    built: Built
    packed: Packed
    module: Any


class CpuDevice:
    """See the module's text.

    bills: the models, their pages and batch sizes. pages, page_bytes: the arena. seed: of the
    durations of `spin`. sources: the operator's models. threads: that torch may use.
    Raises ModelError, and DeviceError where a model's weights are larger than its pages or there
    is no memory for the arena.
    """

    contiguous = True

    def __init__(
        self,
        bills: Sequence[Bill],
        pages: int,
        page_bytes: int,
        seed: int,
        sources: Sources = Sources(),  # noqa: B008, it is immutable
        threads: int = 1,
    ) -> None:
        _keep_memory()
        torch = self._torch = import_torch("the cpu device")
        torch.set_num_threads(threads)
        self._threads = threads
        # A thread that is done waits for this long before Python lets it say so.
        sys.setswitchinterval(1e-4)
        self._page_bytes = page_bytes
        self._bytes = pages * page_bytes
        self._models = _models(bills, page_bytes, sources)
        self._made_up: dict[tuple[int, int], Mapping[str, Any]] = {}
        free_bytes = _free_bytes()
        if free_bytes is not None and self._bytes > free_bytes:  # Linux would kill us for it later
            raise DeviceError(
                f"{pages:,} pages of {page_bytes:,} bytes are more than the {free_bytes:,} bytes "
                "that are free here; set cluster.pages to less"
            )
        self._thread = ThreadPoolExecutor(1, "core")
        self._work: list[Future[Done] | None] = [None for _ in ENGINES]
        self.wakes, self._wake = os.pipe()
        try:
            self._thread.submit(self._warm, bills).result()
            buffer = torch.zeros(self._bytes + PAGE, dtype=torch.uint8)
        except RuntimeError as error:
            self.close()
            raise DeviceError(f"no memory for an arena of {pages} pages: {error}") from None
        except DeviceError:
            self.close()
            raise
        first = -buffer.data_ptr() % PAGE
        self._arena = buffer[first : first + self._bytes]
        self._throttled_times = _throttled_times()
        self._spin = SpinDevice(bills, seed)
        self._places: dict[int, Any] = {}
        """The part of the arena that each model has, from the begin of its load on."""

    def begin_load(self, model: int, place: Sequence[int]) -> None:
        """Point the model's tensors to the place, and have its weights copied there."""
        assert place[-1] - place[0] == len(place) - 1, f"{place} is not one piece"
        here = self._models[model]
        first = place[0] * self._page_bytes
        piece = self._places[model] = self._arena[first : first + len(place) * self._page_bytes]
        if here is None:
            self._spin.begin_load(model, place)
            return
        start_ns = time.monotonic_ns()
        here.packed.bind(here.module, piece)
        self._begin(Engine.COPY, lambda: _copied(piece, here.packed.weights, start_ns))

    def begin_infer(self, model: int, batch: int, inputs: Sequence[Tensors]) -> None:
        """Run the batch. inputs: at most `batch`; the rest is padding."""
        here = self._models[model]
        if here is None:
            self._spin.begin_infer(model, batch, inputs)
            return
        start_ns = time.monotonic_ns()
        self._begin(Engine.EXEC, lambda: self._executed(model, here, batch, inputs, start_ns))

    def poll(self, engine: Engine) -> Done | None:
        """The end of what was begun."""
        work = self._work[engine]
        if work is None:
            return self._spin.poll(engine)
        if not work.done():
            return None
        os.read(self.wakes, 1)  # there is one, from before it was done
        self._work[engine] = None
        return work.result()

    def due_ns(self, engine: Engine) -> int | None:
        """Of models that only spin; the others make `wakes` readable."""
        return self._spin.due_ns(engine)

    def unload(self, model: int) -> None:
        """Forget where it lies. Its tensors still point there: it runs no more without a load."""
        self._places.pop(model, None)

    def state(self) -> DeviceState:
        """The arena, and what the system tells of the CPU. Throttled: since the last time."""
        before, self._throttled_times = self._throttled_times, _throttled_times()
        return DeviceState(
            name=f"{_cpu_name()}, {self._threads} thread{'s' * (self._threads > 1)}",
            memory_bytes=self._bytes,
            memory_used_bytes=sum(piece.numel() for piece in self._places.values()),
            clock_mhz=_clock_mhz(),
            throttled="too hot" if self._throttled_times > before else "",
        )

    def close(self) -> None:
        """Let the thread end; the arena goes with the object."""
        self._thread.shutdown()
        os.close(self.wakes)
        os.close(self._wake)

    def _begin(self, engine: Engine, work: Callable[[], Done]) -> None:
        """Have the thread do it. start_ns of what is done is from before, so that what the way to
        the thread takes counts."""

        def and_tell() -> Done:
            try:
                return work()
            finally:
                os.write(self._wake, b".")

        self._work[engine] = self._thread.submit(and_tell)

    def _executed(
        self, model: int, here: _Model, batch: int, inputs: Sequence[Tensors], start_ns: int
    ) -> Done:
        """Run a batch, in the thread."""
        outputs: Sequence[Tensors] = ()
        error = ""
        try:
            assert model in self._places, f"model {model} is not loaded"
            given = self._batch(model, here.built, batch, inputs)
            with self._torch.inference_mode():
                out = call(here.built, here.module, given)
            if inputs:
                outputs = rows(out, len(inputs))
        except Exception as wrong:  # whatever a model's code raises ends its batch, not the worker
            error = f"{type(wrong).__name__}: {wrong}"
        end_ns = time.monotonic_ns()
        return Done(start_ns, end_ns, end_ns - start_ns, error, outputs)

    def _batch(
        self, model: int, built: Built, batch: int, inputs: Sequence[Tensors]
    ) -> Mapping[str, Any]:
        """The tensors of a batch: the requests' own and padding, or the example."""
        if not inputs:
            made_up = self._made_up.get((model, batch))
            if made_up is None:
                made_up = self._made_up[model, batch] = batch_of(built, batch)
            return made_up
        padded = [*inputs, *[inputs[-1]] * (batch - len(inputs))]
        return {
            name: self._torch.from_numpy(np.stack([one[name] for one in padded]))
            for name in built.example
        }

    def _warm(self, bills: Sequence[Bill]) -> None:
        """Run every batch size once: the first run of a shape chooses its kernels."""
        warmed = set()
        for index, (model, bill) in enumerate(zip(self._models, bills, strict=True)):
            if model is None:
                continue
            for batch in bill.exec:
                made_up = self._batch(index, model.built, batch, ())
                if (bill.model, batch) in warmed:
                    continue
                warmed.add((bill.model, batch))
                model.packed.bind(model.module, model.packed.weights)
                try:
                    with self._torch.inference_mode():
                        call(model.built, model.module, made_up)
                except Exception as error:
                    raise DeviceError(
                        f"{bill.model} at batch {batch}: {type(error).__name__}: {error}"
                    ) from None


def rows(outputs: Mapping[str, Any], tasks: int) -> list[Tensors]:
    """Each task's row of every output. Padding stays here."""
    arrays = {name: tensor[:tasks].numpy(force=True) for name, tensor in outputs.items()}
    return [{name: array[i].copy() for name, array in arrays.items()} for i in range(tasks)]


def _models(bills: Sequence[Bill], page_bytes: int, sources: Sources) -> list[_Model | None]:
    """One per bill; copies of a model share its packed weights."""
    made: dict[str, tuple[Built, Packed]] = {}
    models: list[_Model | None] = []
    for bill in bills:
        if bill.model == SPIN:
            models.append(None)
            continue
        if bill.model not in made:
            built = build(bill.model, sources)
            try:
                made[bill.model] = (built, Packed(built.module))
            except ValueError as error:
                raise ModelError(f"{bill.model}: {error}") from None
        built, packed = made[bill.model]
        if packed.weights.numel() > bill.pages * page_bytes:
            raise DeviceError(
                f"{bill.model} has {packed.weights.numel():,} bytes of weights, but its profile "
                f"says {bill.pages} pages of {page_bytes:,}; profile it again"
            )
        models.append(_Model(built, packed, packed.another()))
    return models


def _keep_memory() -> None:
    """Have what a batch has used stay with the process: by default a large tensor's pages go back
    to the system with it, and the next batch faults them in one by one (2,200 times for a small
    ResNet at batch 8, a tenth of its time, more on a busy machine)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in _MALLOPT.values():
            mallopt(name, value)


def _copied(piece: Any, weights: Any, start_ns: int) -> Done:
    """Copy, in the thread. start_ns: when the load began."""
    try:
        piece[: weights.numel()].copy_(weights)
    except RuntimeError as error:
        return Done(start_ns, end_ns := time.monotonic_ns(), end_ns - start_ns, str(error))
    return Done(start_ns, end_ns := time.monotonic_ns(), end_ns - start_ns)


def _cpu_name() -> str:
    return _line("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _clock_mhz() -> int | None:
    """Of the first core, for all."""
    mhz = _line("/proc/cpuinfo", "cpu MHz")
    return round(float(mhz)) if mhz else None


def _free_bytes() -> int | None:
    """What Linux would give, of the machine's memory; None elsewhere. A container may have less."""
    kib = _line("/proc/meminfo", "MemAvailable").removesuffix(" kB")
    return int(kib) << 10 if kib else None


def _line(file: str, key: str) -> str:
    """The first such line of a file of Linux'; nothing elsewhere."""
    try:
        with Path(file).open() as lines:
            line = next((line for line in lines if line.startswith(key)), "")
    except OSError:
        return ""
    return line.partition(":")[2].strip()


def _throttled_times() -> int:
    """How often Linux has slowed this core down for its temperature since it was started."""
    try:
        return int(
            Path("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count").read_text()
        )
    except (OSError, ValueError):
        return 0
