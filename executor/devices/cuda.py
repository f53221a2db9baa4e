"""A CUDA GPU as a device: what is loaded where, and in which order CUDA is asked for it.

Two kinds of memory, and the second where the first does not prove itself on this GPU:

    paged       A pool of physical pages is made at the start. Each model has addresses of its own
                for good; a load maps pages there, an unload unmaps them. So a CUDA graph, which
                has the addresses of the weights in it, survives an unload and a reload.
    contiguous  One arena; a load copies to where the brain says and points the model's tensors
                there. Graphs would go stale, so models run eagerly.

Weights come from page-locked host memory on a stream of their own; both engines are timed by events
of the GPU. `check_paged` decides: the same graph, replayed after a reload on other pages, must give
the same bytes.
Not here: CUDA itself (`executor/devices/cuda_driver.py`; the tests have one that enforces CUDA's
rules), so this module needs no GPU.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from executor.device import DeviceError, DeviceState, Done, Tensors
from executor.devices.spin import SpinDevice
from executor.wire import Bill
from scheduler.worker import ENGINES, Engine

Stream = Any
Event = Any
Graph = Any
Host = Any
"""Page-locked memory of the host."""


class CudaError(Exception):
    """CUDA refused, or a model failed on the GPU."""


class Driver(Protocol):
    """What is needed of CUDA. Addresses and handles are numbers, sizes bytes.

    Every method raises CudaError. What takes a stream only puts work there.
    """

    def reserve(self, size: int) -> int:
        """Addresses without memory."""

    def create(self, size: int) -> int:
        """Physical memory without addresses; a handle."""

    def map(self, address: int, size: int, handle: int) -> None:
        """Put the memory of a handle at addresses that have none."""

    def allow(self, address: int, size: int) -> None:
        """Let kernels and copies use what is mapped there."""

    def unmap(self, address: int, size: int) -> None:
        """Take memory from addresses that nothing in flight uses."""

    def release(self, handle: int) -> None:
        """Give physical memory back that is not mapped."""

    def free(self, address: int, size: int) -> None:
        """Give addresses back that have no memory."""

    def stream(self) -> Stream:
        """A queue of work."""

    def event(self) -> Event:
        """A mark in a queue."""

    def record(self, event: Event, stream: Stream) -> None:
        """Put the mark behind the work that is there now."""

    def is_done(self, event: Event) -> bool:
        """Whether all before the mark is done. Raises what went wrong there."""

    def wait(self, event: Event) -> None:
        """Come back when it is."""

    def elapsed_ns(self, start: Event, end: Event) -> int:
        """By the GPU's clock, between two marks that are done."""

    def copy(self, address: int, host: Host, size: int, stream: Stream) -> None:
        """From page-locked memory to the GPU."""

    def launch(self, graph: Graph, stream: Stream) -> None:
        """Run what was captured."""

    def state(self) -> DeviceState:
        """The GPU's name, memory, clocks, temperature and throttling."""

    def close(self) -> None:
        """Nothing will be asked any more."""


class Program(Protocol):
    """One model's code. It runs where its weights were bound last."""

    weights: Host
    size: int
    """Of the weights, in bytes."""

    def bind(self, address: int) -> None:
        """The weights are, or will be, at this address, which has memory now."""

    def prepare(self, batch: int, stream: Stream) -> None:
        """Make what a batch size needs, and run it until it is warm."""

    def capture(self, batch: int, stream: Stream) -> Graph:
        """Its kernels as a graph. Raises CudaError where the model can't be captured."""

    def fill(self, batch: int, inputs: Sequence[Tensors], stream: Stream) -> None:
        """Copy inputs, at most `batch`, to where `run` and the graph read them."""

    def run(self, batch: int, stream: Stream) -> None:
        """Put the kernels on the stream."""

    def fetch(self, batch: int, stream: Stream) -> None:
        """Copy outputs to the host."""

    def rows(self, batch: int, tasks: int) -> list[Tensors]:
        """What `fetch` has brought, a task each, without padding. Done work only."""

    def clear(self, batch: int, stream: Stream) -> None:
        """Overwrite the outputs, so that what is there afterwards is new."""

    def output_bytes(self, batch: int) -> bytes:
        """All outputs of a batch that is done, for a comparison."""


@dataclass
class _Work:
    """What an engine is busy with."""

    model: int
    batch: int
    start_ns: int
    start: Event
    end: Event
    finished: Event
    tasks: int = 0
    error: str = ""


class CudaDevice:
    """See the module's text.

    bills: the models, by index; programs: their code, None where one only spins. pages,
    page_bytes: the memory for weights. paged: which kind it is. seed: of durations of `spin`.
    Raises DeviceError where the memory or a model cannot be had.
    """

    def __init__(
        self,
        driver: Driver,
        bills: Sequence[Bill],
        programs: Sequence[Program | None],
        pages: int,
        page_bytes: int,
        seed: int,
        *,
        paged: bool,
    ) -> None:
        self.contiguous = not paged
        self.wakes = None
        self.kind = "paged memory, graphs" if paged else "contiguous memory, no graphs"
        self.eager: dict[int, str] = {}
        """Models that run without a graph, and why."""
        self._driver = driver
        self._bills = bills
        self._programs = programs
        self._page_bytes = page_bytes
        self._spin = SpinDevice(bills, seed)
        self._graphs: dict[tuple[int, int], Graph] = {}
        self._mapped: dict[int, list[int]] = {}  # by model: the handles at its addresses
        self._address: dict[int, int] = {}  # by model, paged only
        self._used: dict[int, int] = {}  # pages by model
        self._work: list[_Work | None] = [None for _ in ENGINES]
        self._took_ns: dict[tuple[int, int], int] = {}  # the last time, by model and batch; 0: load
        self._streams = [driver.stream() for _ in ENGINES]
        self._handles: list[int] = []
        self._arena = self._arena_bytes = 0  # address; bytes that are mapped there
        try:
            for _ in range(pages):
                self._handles.append(driver.create(page_bytes))
            if paged:
                for model, bill in enumerate(bills):
                    if programs[model] is not None:
                        self._address[model] = driver.reserve(bill.pages * page_bytes)
            else:
                self._arena = driver.reserve(pages * page_bytes)
                self._map(self._arena, self._handles)
                self._arena_bytes = pages * page_bytes
            self._warm()
        except CudaError as error:
            self.close()
            raise DeviceError(f"{pages} pages of {page_bytes:,} bytes: {error}") from None

    def begin_load(self, model: int, place: Sequence[int]) -> None:
        """Map the pages, or go to the place in the arena, and start the copy."""
        program = self._programs[model]
        if program is None:
            self._used[model] = len(place)
            self._spin.begin_load(model, place)
            return
        work = self._begin(Engine.COPY, model, 0)
        stream = self._streams[Engine.COPY]
        try:
            address = self._settle(model, place)
            self._driver.record(work.start, stream)
            self._driver.copy(address, program.weights, program.size, stream)
        except CudaError as error:
            work.error = str(error)
        self._end(work, stream)

    def begin_infer(self, model: int, batch: int, inputs: Sequence[Tensors]) -> None:
        """Copy the inputs, run the graph or the model, and copy the outputs, all on one stream."""
        program = self._programs[model]
        if program is None:
            self._spin.begin_infer(model, batch, inputs)
            return
        work = self._begin(Engine.EXEC, model, batch, len(inputs))
        stream = self._streams[Engine.EXEC]
        try:
            if model not in self._used:
                raise CudaError(f"model {model} is not loaded")
            if inputs:
                program.fill(batch, inputs, stream)
            self._driver.record(work.start, stream)
            graph = self._graphs.get((model, batch))
            if graph is None:
                program.run(batch, stream)
            else:
                self._driver.launch(graph, stream)
            self._driver.record(work.end, stream)
            if inputs:
                program.fetch(batch, stream)
        except Exception as error:  # what a model's code raises ends its batch, not the worker
            work.error = f"{type(error).__name__}: {error}"
        self._end(work, stream)

    def poll(self, engine: Engine) -> Done | None:
        """The end of what was begun."""
        work = self._work[engine]
        if work is None:
            return self._spin.poll(engine)
        try:
            if not self._driver.is_done(work.finished):
                return None
        except CudaError as error:
            work.error = work.error or str(error)
        self._work[engine] = None
        end_ns = time.monotonic_ns()
        outputs: Sequence[Tensors] = ()
        duration_ns = end_ns - work.start_ns
        if not work.error:
            duration_ns = self._driver.elapsed_ns(work.start, work.end)
            self._took_ns[work.model, work.batch] = duration_ns
            program = self._programs[work.model]
            if work.tasks and program is not None:
                outputs = program.rows(work.batch, work.tasks)
        elif engine is Engine.COPY:
            self.unload(work.model)
        return Done(work.start_ns, end_ns, duration_ns, work.error, outputs)

    def due_ns(self, engine: Engine) -> int | None:
        """As long as it took the last time."""
        work = self._work[engine]
        if work is None:
            return self._spin.due_ns(engine)
        return work.start_ns + self._took_ns.get((work.model, work.batch), 0)

    def unload(self, model: int) -> None:
        """Unmap its pages, once nothing uses them; in the arena there is nothing to do."""
        self._used.pop(model, None)
        handles = self._mapped.pop(model, None)
        if handles:
            for work in self._work:
                if work is not None and work.model == model:
                    self._driver.wait(work.finished)
            self._driver.unmap(self._address[model], len(handles) * self._page_bytes)

    def state(self) -> DeviceState:
        """The GPU, with our share of its memory."""
        eager = ", ".join(f"{self._bills[i].model} without: {why}" for i, why in self.eager.items())
        return self._driver.state()._replace(
            kind=f"{self.kind}; {eager}" if eager else self.kind,
            memory_bytes=len(self._handles) * self._page_bytes,
            memory_used_bytes=sum(self._used.values()) * self._page_bytes,
        )

    def close(self) -> None:
        """Wait for what runs, then give everything back in CUDA's order."""
        for work in self._work:
            if work is not None:
                self._driver.wait(work.finished)
        self._work = [None for _ in ENGINES]
        self._graphs.clear()
        for model in list(self._mapped):
            self.unload(model)
        if self._arena_bytes:
            self._driver.unmap(self._arena, self._arena_bytes)
        if self._arena:
            self._driver.free(self._arena, len(self._handles) * self._page_bytes)
        self._arena = self._arena_bytes = 0
        for model, address in self._address.items():
            self._driver.free(address, self._bills[model].pages * self._page_bytes)
        self._address.clear()
        for handle in self._handles:
            self._driver.release(handle)
        self._handles = []
        self._driver.close()

    # ---- the order in which CUDA is asked

    def _settle(self, model: int, place: Sequence[int]) -> int:
        """Have memory for a model at an address, which is returned."""
        self._used[model] = len(place)
        if not self.contiguous:
            self._map(self._address[model], [self._handles[page] for page in place])
            self._mapped[model] = [self._handles[page] for page in place]
            return self._address[model]
        program = self._programs[model]
        assert program is not None
        address = self._arena + place[0] * self._page_bytes
        program.bind(address)
        return address

    def _map(self, address: int, handles: Sequence[int]) -> None:
        """All of them, or none."""
        done = 0
        try:
            for handle in handles:
                self._driver.map(address + done, self._page_bytes, handle)
                done += self._page_bytes
            self._driver.allow(address, done)
        except CudaError:
            if done:
                self._driver.unmap(address, done)
            raise

    def _begin(self, engine: Engine, model: int, batch: int, tasks: int = 0) -> _Work:
        assert self._work[engine] is None, f"{engine.name} is busy"
        driver = self._driver
        work = _Work(
            model, batch, time.monotonic_ns(),
            driver.event(), driver.event(), driver.event(), tasks,
        )  # fmt: skip
        self._work[engine] = work
        return work

    def _end(self, work: _Work, stream: Stream) -> None:
        try:
            if not work.batch and not work.error:
                self._driver.record(work.end, stream)
            self._driver.record(work.finished, stream)
        except CudaError as error:
            work.error = work.error or str(error)

    def _warm(self) -> None:
        """Run every batch size of every model until it is warm, and capture it where that is of
        use. Each model is loaded for it, and unloaded afterwards."""
        for model, program in enumerate(self._programs):
            if program is None:
                continue
            bill = self._bills[model]
            self.begin_load(model, range(bill.pages))
            self._finish(Engine.COPY)
            if not self.contiguous:
                program.bind(self._address[model])
            stream = self._streams[Engine.EXEC]
            for batch in bill.exec:
                program.prepare(batch, stream)
                if self.contiguous or model in self.eager:
                    continue
                try:
                    self._graphs[model, batch] = program.capture(batch, stream)
                except CudaError as error:
                    self.eager[model] = str(error)
            self._wait_for(stream)
            self.unload(model)

    def _finish(self, engine: Engine) -> None:
        work = self._work[engine]
        assert work is not None
        self._driver.wait(work.finished)
        done = self.poll(engine)
        if done is not None and done.error:
            raise CudaError(done.error)

    def _wait_for(self, stream: Stream) -> None:
        event = self._driver.event()
        self._driver.record(event, stream)
        self._driver.wait(event)


def check_paged(driver: Driver, program: Program, batch: int, page_bytes: int) -> str:
    """Whether a graph survives an unload and a reload on other pages; if not, why.

    Uses two sets of pages for one model, and gives all of it back.
    """
    pages = -(-program.size // page_bytes)
    size = pages * page_bytes
    stream = driver.stream()
    handles: list[int] = []
    address = mapped = 0
    try:
        for _ in range(2 * pages):
            handles.append(driver.create(page_bytes))
        address = driver.reserve(size)
        graph: Graph = None
        seen: list[bytes] = []
        for some in (handles[:pages], handles[pages:]):
            for i, handle in enumerate(some):
                driver.map(address + i * page_bytes, page_bytes, handle)
                mapped += page_bytes
            driver.allow(address, size)
            driver.copy(address, program.weights, program.size, stream)
            if graph is None:
                program.bind(address)
                program.prepare(batch, stream)
                program.run(batch, stream)
                _wait(driver, stream)
                seen.append(program.output_bytes(batch))
                graph = program.capture(batch, stream)
            program.clear(batch, stream)
            driver.launch(graph, stream)
            _wait(driver, stream)
            seen.append(program.output_bytes(batch))
            driver.unmap(address, size)
            mapped = 0
        eager, first, second = seen
        if first != second:
            return "a graph gave other bytes after a reload on other pages"
        if eager != first:
            return "a graph gave other bytes than the model itself"
        return ""
    except CudaError as error:
        return str(error)
    finally:
        if mapped:
            _wait(driver, stream)
            driver.unmap(address, mapped)
        if address:
            driver.free(address, size)
        for handle in handles:
            driver.release(handle)


def _wait(driver: Driver, stream: Stream) -> None:
    event = driver.event()
    driver.record(event, stream)
    driver.wait(event)
