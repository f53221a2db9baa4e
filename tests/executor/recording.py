"""A CUDA that is not there: it enforces the rules, and does the work late, as a GPU does.

Work put on a stream waits until somebody waits for a mark behind it, or `advance` is called; only
then is memory read and written. So whoever reuses host memory too early, or unmaps what is still in
use, gets wrong bytes or a `RuleBroken`, never luck.

The rules, from the CUDA driver API ("Virtual Memory Management", "Stream Management", "Graphs"):
reserve, create, map, allow (set access), then use; unmap whole mappings that nothing in flight
uses; release what is not mapped and free what has nothing mapped, once each. In a capture: no
waiting, asking, mapping or unmapping, and no copy from memory that is not page-locked. A time
between marks can be asked only when both are done. One rule is ours: a handle is mapped once at a
time, for two models on one page would overwrite each other.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from executor.device import DeviceState, Tensors
from executor.devices.cuda import CudaError

GRANULARITY = 64


class RuleBroken(AssertionError):
    """CUDA would have failed, or worse, not have failed."""


@dataclass
class Pinned:
    """Page-locked host memory; or not, where a test wants that."""

    data: bytearray
    locked: bool = True


@dataclass
class _Op:
    do: Callable[[], None]
    touches: list[tuple[int, int]]  # addresses and sizes
    takes_ns: int = 0


@dataclass
class _Stream:
    waiting: list[Any] = field(default_factory=list)
    now_ns: int = 0


@dataclass
class _Event:
    at_ns: int | None = None
    stream: Any = None


@dataclass
class _Graph:
    ops: list[_Op]
    dead: bool = False


class RecordingDriver:
    """See the module's text. fail: methods of which the next call fails, with CudaError."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail: list[str] = []
        self.ranges: dict[int, int] = {}
        self.handles: dict[int, bytearray] = {}
        self.mapped: dict[int, tuple[int, int]] = {}  # address -> size, handle
        self.allowed: set[int] = set()  # addresses of mappings
        self.streams: list[_Stream] = []
        self.capturing: _Graph | None = None
        self.closed = False
        self.forget_on_unmap = True
        self._next = 1 << 20

    # ---- Driver

    def reserve(self, size: int) -> int:
        self._called("reserve")
        self._multiple(size)
        address = self._next
        self._next += size + GRANULARITY  # a gap, so that an overrun is noticed
        self.ranges[address] = size
        return address

    def create(self, size: int) -> int:
        self._called("create")
        self._multiple(size)
        handle = len(self.calls) + 7_000_000
        self.handles[handle] = bytearray(b"\xee" * size)
        return handle

    def map(self, address: int, size: int, handle: int) -> None:
        self._called("map")
        if handle not in self.handles:
            raise RuleBroken(f"map: handle {handle} was not created, or was released")
        if size != len(self.handles[handle]):
            raise RuleBroken(f"map: {size} bytes of a handle of {len(self.handles[handle])}")
        if not any(a <= address and address + size <= a + n for a, n in self.ranges.items()):
            raise RuleBroken(f"map: {address} is not in one reserved range")
        if self._overlaps(address, size):
            raise RuleBroken(f"map: something is mapped at {address} already")
        if any(handle == other for _, other in self.mapped.values()):
            raise RuleBroken(f"map: handle {handle} is mapped elsewhere")
        self.mapped[address] = (size, handle)

    def allow(self, address: int, size: int) -> None:
        self._called("allow")
        self.allowed.update(self._whole(address, size, "allow"))

    def unmap(self, address: int, size: int) -> None:
        self._called("unmap")
        whole = self._whole(address, size, "unmap")
        for stream in self.streams:
            for op in stream.waiting:
                if isinstance(op, _Op) and any(
                    a < address + size and address < a + n for a, n in op.touches
                ):
                    raise RuleBroken("unmap: work in flight uses that memory")
        for at in whole:
            size, handle = self.mapped.pop(at)
            self.allowed.discard(at)
            if self.forget_on_unmap:  # another model may have the page now
                self.handles[handle][:] = b"\xdd" * size

    def release(self, handle: int) -> None:
        self._called("release")
        if handle not in self.handles:
            raise RuleBroken(f"release: handle {handle} was not created, or was released")
        if any(handle == other for _, other in self.mapped.values()):
            raise RuleBroken(f"release: handle {handle} is still mapped")
        del self.handles[handle]

    def free(self, address: int, size: int) -> None:
        self._called("free")
        if self.ranges.get(address) != size:
            raise RuleBroken(f"free: {size} bytes at {address} are not a reserved range")
        if self._overlaps(address, size):
            raise RuleBroken(f"free: something is still mapped at {address}")
        del self.ranges[address]

    def stream(self) -> _Stream:
        self._called("stream")
        self.streams.append(_Stream())
        return self.streams[-1]

    def event(self) -> _Event:
        return _Event()

    def record(self, event: _Event, stream: _Stream) -> None:
        self._called("record", in_capture=True)
        event.at_ns, event.stream = None, stream
        stream.waiting.append(event)

    def is_done(self, event: _Event) -> bool:
        self._called("is_done")
        self._recorded(event)
        return event.at_ns is not None

    def wait(self, event: _Event) -> None:
        self._called("wait")
        self._recorded(event)
        if event.at_ns is None:
            self.advance(event.stream, event)

    def elapsed_ns(self, start: _Event, end: _Event) -> int:
        self._called("elapsed_ns")
        if start.at_ns is None or end.at_ns is None:
            raise RuleBroken("elapsed: a mark is not done, or was never recorded")
        return end.at_ns - start.at_ns

    def copy(self, address: int, host: Pinned, size: int, stream: _Stream) -> None:
        self._called("copy", in_capture=True)
        if self.capturing is not None and not host.locked:
            raise RuleBroken("copy: from memory that is not page-locked, in a capture")

        def do() -> None:
            self.write(address, bytes(host.data[:size]))  # read now, not when it was put there

        self.put(stream, do, [(address, size)], takes_ns=10 * size)

    def launch(self, graph: _Graph, stream: _Stream) -> None:
        self._called("launch")
        for op in graph.ops:
            self.put(stream, op.do, op.touches, op.takes_ns)

    def state(self) -> DeviceState:
        return DeviceState("recorded", 0, 0, 1_000, 40)

    def close(self) -> None:
        self.closed = True

    # ---- what programs and tests need

    def begin_capture(self) -> None:
        self._called("begin_capture")
        self.capturing = _Graph([])

    def end_capture(self) -> _Graph:
        graph, self.capturing = self.capturing, None
        assert graph is not None
        return graph

    def put(
        self, stream: _Stream, do: Callable[[], None], touches: list[tuple[int, int]], takes_ns: int
    ) -> None:
        """Put work on a stream, or into the graph that is captured."""
        for address, size in touches:
            self._usable(address, size)
        op = _Op(do, touches, takes_ns)
        if self.capturing is not None:
            self.capturing.ops.append(op)
        else:
            stream.waiting.append(op)

    def advance(self, stream: _Stream, until: _Event | None = None) -> None:
        """Do what waits on a stream, up to a mark."""
        while stream.waiting:
            item = stream.waiting.pop(0)
            if isinstance(item, _Op):
                for address, size in item.touches:
                    self._usable(address, size)
                item.do()
                stream.now_ns += item.takes_ns
            else:
                item.at_ns = stream.now_ns
                if item is until:
                    return

    def advance_all(self) -> None:
        for stream in self.streams:
            self.advance(stream)

    def read(self, address: int, size: int) -> bytes:
        self._usable(address, size)
        out = bytearray()
        while size:
            at = next(a for a, (n, _) in self.mapped.items() if a <= address < a + n)
            n, handle = self.mapped[at]
            part = self.handles[handle][address - at : min(n, address - at + size)]
            out += part
            address += len(part)
            size -= len(part)
        return bytes(out)

    def write(self, address: int, data: bytes) -> None:
        self._usable(address, len(data))
        while data:
            at = next(a for a, (n, _) in self.mapped.items() if a <= address < a + n)
            n, handle = self.mapped[at]
            part = data[: n - (address - at)]
            self.handles[handle][address - at : address - at + len(part)] = part
            address += len(part)
            data = data[len(part) :]

    def leaks(self) -> list[str]:
        """What was not given back."""
        return [
            f"{len(kind)} {name}"
            for name, kind in (
                ("ranges", self.ranges), ("handles", self.handles), ("mappings", self.mapped),
            )
            if kind
        ]  # fmt: skip

    # ---- the rules

    def _called(self, name: str, *, in_capture: bool = False) -> None:
        if self.capturing is not None and not in_capture:
            raise RuleBroken(f"{name}: not allowed in a capture")
        if self.closed:
            raise RuleBroken(f"{name}: after close")
        self.calls.append(name)
        if name in self.fail:
            self.fail.remove(name)
            raise CudaError(f"CUDA_ERROR_IN_{name.upper()}")

    def _multiple(self, size: int) -> None:
        if size <= 0 or size % GRANULARITY:
            raise RuleBroken(f"{size} bytes are no multiple of the granularity, {GRANULARITY}")

    def _overlaps(self, address: int, size: int) -> bool:
        return any(a < address + size and address < a + n for a, (n, _) in self.mapped.items())

    def _whole(self, address: int, size: int, what: str) -> list[int]:
        """The mappings that lie there, which must fill the range exactly."""
        inside = {a: n for a, (n, _) in self.mapped.items() if address <= a < address + size}
        at = address
        for start in sorted(inside):
            if start == at:
                at += inside[start]
        if at != address + size:
            raise RuleBroken(f"{what}: not everything there is mapped, or more is")
        return list(inside)

    def _usable(self, address: int, size: int) -> None:
        at = address
        while at < address + size:
            hit = next((a for a, (n, _) in self.mapped.items() if a <= at < a + n), None)
            if hit is None:
                raise RuleBroken(f"use of {at}, where nothing is mapped")
            if hit not in self.allowed:
                raise RuleBroken(f"use of {at}, where access was not set")
            at = hit + self.mapped[hit][0]

    def _recorded(self, event: _Event) -> None:
        if event.stream is None:
            raise RuleBroken("a mark was asked that was never recorded")


class FakeProgram:
    """A model whose output is a digest of its weights and its input: anything wrong shows."""

    def __init__(self, driver: RecordingDriver, name: str, size: int) -> None:
        self.driver = driver
        self.name = name
        self.size = size
        rng = np.random.default_rng(abs(hash_of(name.encode())))
        self.weights = Pinned(bytearray(rng.bytes(size)))
        self.address = 0
        self.capturable = True
        self.broken = False
        self.staging: dict[int, Pinned] = {}
        self.input: dict[int, bytearray] = {}
        self.output: dict[int, list[int]] = {}
        self.host: dict[int, list[int]] = {}

    def bind(self, address: int) -> None:
        self.driver._usable(address, 1)
        self.address = address

    def prepare(self, batch: int, stream: Any) -> None:
        self.staging[batch] = Pinned(bytearray(batch))
        self.input[batch] = bytearray(batch)
        self.output[batch] = [0] * batch
        self.host[batch] = [0] * batch
        self.run(batch, stream)

    def capture(self, batch: int, stream: Any) -> Any:
        if not self.capturable:
            raise CudaError("the model asks the host in the middle")
        self.driver.begin_capture()
        self._kernels(batch, stream)
        return self.driver.end_capture()

    def fill(self, batch: int, inputs: Sequence[Tensors], stream: Any) -> None:
        staging = self.staging[batch]
        padded = [*inputs, *[inputs[-1]] * (batch - len(inputs))]
        staging.data[:] = bytes(int(one["x"]) for one in padded)

        def do() -> None:
            self.input[batch][:] = staging.data

        self.driver.put(stream, do, [], 1)

    def run(self, batch: int, stream: Any) -> None:
        if self.broken:
            raise ValueError("broken")
        self._kernels(batch, stream)

    def _kernels(self, batch: int, stream: Any) -> None:
        address = self.address  # a graph keeps the address that it was captured with

        def do() -> None:
            seen = self.driver.read(address, self.size)
            self.output[batch][:] = [hash_of(seen + bytes([x])) for x in self.input[batch]]

        self.driver.put(stream, do, [(address, self.size)], 1_000 * batch)

    def fetch(self, batch: int, stream: Any) -> None:
        def do() -> None:
            self.host[batch][:] = self.output[batch]

        self.driver.put(stream, do, [], 1)

    def rows(self, batch: int, tasks: int) -> list[Tensors]:
        return [{"y": np.int64(y)} for y in self.host[batch][:tasks]]

    def clear(self, batch: int, stream: Any) -> None:
        def do() -> None:
            self.output[batch][:] = [0] * batch

        self.driver.put(stream, do, [], 1)

    def output_bytes(self, batch: int) -> bytes:
        return str(self.output[batch]).encode()

    def expected(self, x: int) -> int:
        return hash_of(bytes(self.weights.data) + bytes([x]))


def hash_of(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=7).digest())
