"""First come, first served: one request at a time, models loaded on demand.

The plain server to compare with. Each GPU has one request in hand; the oldest waiting request
goes to a free GPU, one that holds its model if there is one. If none does, the model is loaded
first, in place of the least recently used. It knows no deadlines, forms no batches and rejects
nothing, so under overload its queue grows without bound and every answer is late.
"""

from collections import deque
from collections.abc import Hashable

import msgspec
import numpy as np

from scheduler.ledger import Actions
from scheduler.records import (
    FOREVER,
    REASON_OF,
    Change,
    GpuInfo,
    Infer,
    ModelInfo,
    Request,
    Result,
    Status,
    Unload,
    Why,
    WorkerChange,
)
from scheduler.view import GpuView


class FifoParams(msgspec.Struct, forbid_unknown_fields=True):
    """A plain server has nothing to set."""


class Fifo:
    """First come, first served."""

    Params = FifoParams

    def __init__(self, params: FifoParams) -> None:
        self._queue: deque[Request] = deque()
        self._gpus: list[GpuView] = []
        self._models: tuple[ModelInfo, ...] = ()
        self._free: dict[int, GpuView] = {}  # by GPU id, longest idle first
        self._in_hand: dict[int, Request] = {}  # by GPU id

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        self._models = models
        self._gpus = [GpuView(gpu, future_ns=0, lag_ns=FOREVER) for gpu in gpus]
        self._free = {gpu.id: gpu for gpu in self._gpus}

    def on_request(self, now_ns: int, request: Request, out: Actions) -> None:
        self._queue.append(request)
        self._serve(now_ns, out)

    def on_result(self, now_ns: int, result: Result, out: Actions) -> None:
        action = result.action
        gpu = self._gpus[out.gpu_of_lane[action.lane]]
        gone = result.why is Why.WORKER_LOST
        if type(action) is Unload:
            if result.status is not Status.DONE and not gone:
                gpu.unload_failed(action.model, self._models[action.model].pages)
            return
        if gone:
            request = self._in_hand.pop(gpu.id)
            if type(action) is Infer:
                out.reject(request.id, REASON_OF[result.status])
            else:
                self._queue.appendleft(request)  # it has not run yet
            self._serve(now_ns, out)
            return
        request = self._in_hand[gpu.id]
        done = result.status is Status.DONE
        if type(action) is Infer:
            gpu.used(action.model)
            if done:
                out.answer(request.id)
            self._release(gpu)
        else:
            gpu.loaded(action.model, self._models[action.model].pages, result.why)
            if done:
                self._infer(now_ns, gpu, request, out)
            elif result.why is Why.NO_SPACE and gpu.ready:
                self._load(now_ns, gpu, action.model, out)
                return
        if not done:
            out.reject(request.id, REASON_OF[result.status])
            if gpu.id not in self._free:
                self._release(gpu)
        self._serve(now_ns, out)

    def on_wake(self, now_ns: int, key: Hashable, out: Actions) -> None:
        """Nothing here waits for a time."""

    def on_worker(self, now_ns: int, change: WorkerChange, out: Actions) -> None:
        gpu = self._gpus[change.gpu]
        gpu.clear()
        if change.change is Change.LOST:
            self._free.pop(gpu.id, None)
        else:
            self._free[gpu.id] = gpu
            self._serve(now_ns, out)

    def _serve(self, now_ns: int, out: Actions) -> None:
        while self._queue and self._free:
            request = self._queue.popleft()
            model = request.model
            holders = (gpu for gpu in self._free.values() if model in gpu.ready)
            gpu = next(holders, None) or next(iter(self._free.values()))
            del self._free[gpu.id]
            self._in_hand[gpu.id] = request
            if model in gpu.ready:
                self._infer(now_ns, gpu, request, out)
            else:
                self._load(now_ns, gpu, model, out)

    def _infer(self, now_ns: int, gpu: GpuView, request: Request, out: Actions) -> None:
        model = self._models[request.model]
        gpu.use(model.id)
        expected_ns = model.exec_ns[0]
        batch = model.batch_sizes[0]
        out.infer(gpu.lane, model.id, batch, (request.id,), now_ns, FOREVER, expected_ns)

    def _load(self, now_ns: int, gpu: GpuView, model: int, out: Actions) -> None:
        info = self._models[model]
        while not gpu.fits(info.pages):
            victim = next(iter(gpu.ready))
            gpu.unload(victim, self._models[victim].pages)
            out.unload(gpu.lane, victim, now_ns, FOREVER)
        gpu.load(model, info.pages)
        out.load(gpu.lane, model, now_ns, FOREVER, info.load_ns)

    def _release(self, gpu: GpuView) -> None:
        del self._in_hand[gpu.id]
        self._free[gpu.id] = gpu
