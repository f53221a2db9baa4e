"""CUDA for `executor/devices/cuda.py`: cuda-bindings for virtual memory, torch for the rest.

Torch has streams, events, page-locked memory and graphs, so cupy would add nothing but a second
allocator. What torch lacks is memory that can change under a fixed address: that is the driver's
cuMemCreate, cuMemAddressReserve, cuMemMap and cuMemSetAccess (CUDA driver API, "Virtual Memory
Management"), called one by one, because cuda.core's own resource keeps address and memory together.
Not yet run on a GPU.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from executor.device import DeviceError, DeviceState, Tensors
from executor.devices.cuda import CudaDevice, CudaError, Program, check_paged
from executor.devices.nvml import Nvml
from executor.models import SPIN, Built, ModelError, Sources, batch_of, build, call, import_torch
from executor.packing import Packed
from executor.wire import Setup

WARM_RUNS = 3
"""Before a capture: torch asks for some, so that what is set up once is not in the graph."""


def open_cuda(setup: Setup, sources: Sources, gpu: int) -> CudaDevice:
    """The device of a worker, with the kind of memory that this GPU stands.

    gpu: which one of this machine. Raises DeviceError or ModelError, in one line.
    """
    driver = TorchDriver(gpu)
    programs = _programs(driver, setup, sources)
    real = [
        (program, min(bill.exec))
        for program, bill in zip(programs, setup.bills, strict=True)
        if program is not None
    ]
    why = ""
    if real and not setup.contiguous:
        smallest, batch = min(real, key=lambda one: one[0].size)
        why = check_paged(driver, smallest, batch, setup.page_bytes)
    paged = not setup.contiguous and not why
    device = CudaDevice(
        driver, setup.bills, programs, setup.pages, setup.page_bytes, setup.seed, paged=paged
    )
    if why:
        device.kind = f"contiguous memory, no graphs: paged memory failed its check: {why}"
    return device


def cuda_torch(gpu: int) -> Any:
    """Torch, which sees that GPU. Raises DeviceError or ModelError where there is none."""
    torch = import_torch("the cuda device")
    if not torch.cuda.is_available():
        raise DeviceError("there is no CUDA GPU that torch can use here; take --device cpu")
    there = torch.cuda.device_count()
    if gpu >= there:
        raise DeviceError(
            f"there is no GPU {gpu} here, the last one is {there - 1}; "
            f"set cluster.gpus to {there} at most, or take --device cuda:{there - 1}"
        )
    return torch


class TorchDriver:
    """See `executor.devices.cuda.Driver`. gpu: which one. Raises DeviceError where it is not."""

    def __init__(self, gpu: int) -> None:
        torch = self.torch = cuda_torch(gpu)
        try:
            from cuda.bindings import driver as cuda
        except ImportError:
            raise DeviceError(
                "the cuda device needs cuda-bindings; pip install 'mainspring[cuda13]'"
            ) from None
        self._cuda = cuda
        self.device = torch.device("cuda", gpu)
        torch.cuda.set_device(self.device)
        torch.cuda.init()
        torch.zeros(1, device=self.device)  # makes the context that the driver API works in
        about = torch.cuda.get_device_properties(self.device)
        self._name = about.name
        self._nvml = Nvml(f"GPU-{about.uuid}")
        self._memory = cuda.CUmemAllocationProp()
        self._memory.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._memory.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self._memory.location.id = gpu
        self._access = cuda.CUmemAccessDesc()
        self._access.location = self._memory.location
        self._access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self.pool = torch.cuda.graph_pool_handle()
        """All graphs share it: one runs at a time, and their outputs are kept."""

    def reserve(self, size: int) -> int:
        """Addresses without memory."""
        return int(self._ok(self._cuda.cuMemAddressReserve(size, 0, 0, 0)))

    def create(self, size: int) -> int:
        """Physical memory; size: a multiple of the granularity, 2 MiB on current GPUs."""
        return int(self._ok(self._cuda.cuMemCreate(size, self._memory, 0)))

    def map(self, address: int, size: int, handle: int) -> None:
        """Put memory there."""
        self._ok(self._cuda.cuMemMap(address, size, 0, handle, 0))

    def allow(self, address: int, size: int) -> None:
        """Reading and writing."""
        self._ok(self._cuda.cuMemSetAccess(address, size, [self._access], 1))

    def unmap(self, address: int, size: int) -> None:
        """Take it away."""
        self._ok(self._cuda.cuMemUnmap(address, size))

    def release(self, handle: int) -> None:
        """Give physical memory back."""
        self._ok(self._cuda.cuMemRelease(handle))

    def free(self, address: int, size: int) -> None:
        """Give addresses back."""
        self._ok(self._cuda.cuMemAddressFree(address, size))

    def stream(self) -> Any:
        """One of torch's."""
        return self.torch.cuda.Stream(self.device)

    def event(self) -> Any:
        """One that keeps the time."""
        return self.torch.cuda.Event(enable_timing=True)

    def record(self, event: Any, stream: Any) -> None:
        """Behind what is there."""
        with _told():
            event.record(stream)

    def is_done(self, event: Any) -> bool:
        """Without waiting."""
        with _told():
            return bool(event.query())

    def wait(self, event: Any) -> None:
        """With waiting."""
        with _told():
            event.synchronize()

    def elapsed_ns(self, start: Any, end: Any) -> int:
        """CUDA's clock has a grain of half a microsecond."""
        with _told():
            ms = float(start.elapsed_time(end))
        return max(1, round(ms * 1e6))

    def copy(self, address: int, host: Any, size: int, stream: Any) -> None:
        """From page-locked memory."""
        with _told(), self.torch.cuda.stream(stream):
            self.tensor(address, size).copy_(host[:size], non_blocking=True)

    def launch(self, graph: Any, stream: Any) -> None:
        """A replay."""
        with _told(), self.torch.cuda.stream(stream):
            graph.replay()

    def tensor(self, address: int, size: int) -> Any:
        """What is at an address, as a uint8 tensor, shape (size,). It has to be mapped now."""
        return self.torch.as_tensor(_At(address, size), device=self.device)

    def state(self) -> DeviceState:
        """From NVML."""
        return self._nvml.state(self._name)

    def close(self) -> None:
        """NVML only: torch keeps the context."""
        self._nvml.close()

    def _ok(self, answer: Any) -> Any:
        """The value of an answer (code, value), or CudaError."""
        code, *value = answer
        if int(code) != 0:
            raise CudaError(str(code).rpartition(".")[2])
        return value[0] if value else None


class TorchProgram:
    """See `executor.devices.cuda.Program`. weights: shared by a model's copies, page-locked."""

    def __init__(
        self, driver: TorchDriver, built: Built, packed: Packed, module: Any, weights: Any
    ) -> None:
        self.weights = weights
        self.size = packed.weights.numel()
        self._driver = driver
        self._torch = driver.torch
        self._built = built
        self._packed = packed
        self._module = module
        self._inputs: dict[int, dict[str, Any]] = {}  # on the GPU, by batch
        self._staged: dict[int, dict[str, Any]] = {}  # page-locked
        self._outputs: dict[int, dict[str, Any]] = {}  # on the GPU
        self._fetched: dict[int, dict[str, Any]] = {}  # page-locked

    def bind(self, address: int) -> None:
        """Point the module's tensors there."""
        self._packed.bind(self._module, self._driver.tensor(address, self.size))

    def prepare(self, batch: int, stream: Any) -> None:
        """The inputs are the example until `fill` brings others."""
        example = batch_of(self._built, batch)
        with _told(), self._torch.cuda.stream(stream):
            self._staged[batch] = {name: x.pin_memory() for name, x in example.items()}
            self._inputs[batch] = {name: x.to(self._driver.device) for name, x in example.items()}
        for _ in range(WARM_RUNS):
            self.run(batch, stream)
        self._fetched[batch] = {
            name: self._torch.empty(x.shape, dtype=x.dtype).pin_memory()
            for name, x in self._outputs[batch].items()
        }

    def capture(self, batch: int, stream: Any) -> Any:
        """With the outputs where they stay."""
        torch = self._torch
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        captured = torch.cuda.graph(graph, pool=self._driver.pool, stream=stream)
        with _told(), torch.inference_mode(), captured:
            outputs = call(self._built, self._module, self._inputs[batch])
        self._outputs[batch] = outputs
        return graph

    def fill(self, batch: int, inputs: Sequence[Tensors], stream: Any) -> None:
        """The staging memory is free: a batch begins when the one before it is done."""
        with _told(), self._torch.cuda.stream(stream):
            for name, staged in self._staged[batch].items():
                padded = [*inputs, *[inputs[-1]] * (batch - len(inputs))]
                np.stack([one[name] for one in padded], out=staged.numpy(), casting="same_kind")
                self._inputs[batch][name].copy_(staged, non_blocking=True)

    def run(self, batch: int, stream: Any) -> None:
        """Eagerly."""
        torch = self._torch
        with _told(), torch.cuda.stream(stream), torch.inference_mode():
            self._outputs[batch] = call(self._built, self._module, self._inputs[batch])

    def fetch(self, batch: int, stream: Any) -> None:
        """Into page-locked memory."""
        with _told(), self._torch.cuda.stream(stream):
            for name, x in self._outputs[batch].items():
                self._fetched[batch][name].copy_(x, non_blocking=True)

    def rows(self, batch: int, tasks: int) -> list[Tensors]:
        """Copies, for the memory is used again."""
        arrays = {name: x[:tasks].numpy() for name, x in self._fetched[batch].items()}
        return [{name: x[i].copy() for name, x in arrays.items()} for i in range(tasks)]

    def clear(self, batch: int, stream: Any) -> None:
        """With zeros."""
        torch = self._torch
        with _told(), torch.cuda.stream(stream), torch.inference_mode():
            for x in self._outputs[batch].values():
                x.zero_()

    def output_bytes(self, batch: int) -> bytes:
        """In the order of the model."""
        return b"".join(x.cpu().numpy().tobytes() for x in self._outputs[batch].values())


class _At:
    """Memory at an address, for torch (the CUDA array interface, version 3)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "strides": None,
            "version": 3,
        }  # fmt: skip


def _programs(driver: TorchDriver, setup: Setup, sources: Sources) -> list[Program | None]:
    made: dict[str, tuple[Built, Packed, Any]] = {}
    programs: list[Program | None] = []
    for bill in setup.bills:
        if bill.model == SPIN:
            programs.append(None)
            continue
        if bill.model not in made:
            built = build(bill.model, sources)
            try:
                packed = Packed(built.module)
            except ValueError as error:
                raise ModelError(f"{bill.model}: {error}") from None
            made[bill.model] = (built, packed, packed.weights.pin_memory())
        built, packed, weights = made[bill.model]
        if packed.weights.numel() > bill.pages * setup.page_bytes:
            raise DeviceError(
                f"{bill.model} has {packed.weights.numel():,} bytes of weights, but its profile "
                f"says {bill.pages} pages of {setup.page_bytes:,}; profile it again"
            )
        programs.append(TorchProgram(driver, built, packed, packed.another(), weights))
    return programs


@contextmanager
def _told() -> Iterator[None]:
    """What torch raises for CUDA, as CudaError in one line."""
    try:
        yield
    except RuntimeError as error:
        raise CudaError(" ".join(str(error).split())[:300]) from error
