"""Earliest deadline first, with batches: the rule for batches and the rule for drops are yours.

While there is time for everything, serving the earliest deadline first is hard to beat. Under
overload it is the worst of orders: it always works on what is nearly too late. Batches make that
a trap. A request that is nearly too late has no time for a large batch, small batches do less
work in the same time, so the next request is nearly too late as well; throughput falls to that of
single requests and stays there until the load does. To drop only what cannot be in time at all
(*lazy*) keeps a server in the trap. The way out is to sacrifice the first few, so that the rest
can go in a batch of a worthwhile size (*window*, Nexus's early drop).

Each GPU has one batch in hand. When it is free, it takes the model with the most urgent request
of those that it holds; within a model requests go in order of deadline. A model that is on no GPU
is loaded when its request is more urgent than what must make room for it, least recently used
first; a GPU with nothing to do loads a model that others cannot keep up with. Batches of sizes
that were not measured are padded. Durations are believed as the profile states them.

Sources: Nexus (SOSP '19), backend's Execute for the window, scheduler for the target batch.
Not here: planning where models go (Nexus's epochs and duty cycles), and batches that wait to grow.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from scheduler.ledger import Actions
from scheduler.records import (
    FOREVER,
    REASON_OF,
    Change,
    GpuInfo,
    Infer,
    Load,
    ModelInfo,
    Reason,
    Request,
    Result,
    Status,
    Why,
    WorkerChange,
)
from scheduler.view import GpuView

_NEXUS: Final = "Nexus (SOSP '19)"


class EdfParams(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The two rules, and what they need."""

    batch: Annotated[
        Literal["one", "greedy", "largest_in_time"],
        Meta(
            description="how many requests go together: one, all that wait, or as many as leave "
            "the most urgent one in time (at least one)",
            extra={"source": _NEXUS + ", batches that meet the deadline of the first"},
        ),
    ] = "largest_in_time"
    drop: Annotated[
        Literal["none", "lazy", "window"],
        Meta(
            description="which requests are given up: none, those that cannot be in time even "
            "alone, or also those that would keep the batch below its target",
            extra={"source": _NEXUS + ", early drop"},
        ),
    ] = "window"
    target_share: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="the target batch takes at most this share of the SLO; one half leaves "
            "time to wait for the batch before",
            extra={"unit": "share of the SLO", "source": _NEXUS + ", 2 l(b) <= SLO"},
        ),
    ] = 0.5
    network_ms: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="aim to be done this long before the deadline",
            extra={"unit": "ms", "source": _NEXUS + ", time set aside for the network"},
        ),
    ] = 2.0
    max_batch: Annotated[
        int,
        Meta(
            ge=1,
            le=65536,
            description="larger batches are not used",
            extra={"unit": "requests", "source": "as in Clockwork, to compare like with like"},
        ),
    ] = 16


class _Waiting(NamedTuple):
    """A request in the queue of its model; the most urgent one is the least.

    due_ns: when it should be done, which is before its deadline. slo_ns: from arrival to deadline.
    """

    due_ns: int
    id: int
    slo_ns: int


class _Model:
    """A model, what waits for it, and what a batch of it takes.

    size_of, exec_ns: by the number of requests, the size they run in and how long it takes: the
    shortest of the sizes that hold them, so more requests never take less time.
    copies: GPUs that hold or load it.
    """

    def __init__(self, info: ModelInfo, max_batch: int) -> None:
        self.id = info.id
        self.pages = info.pages
        self.load_ns = info.load_ns
        self.queue: list[_Waiting] = []
        self.copies = 0
        measured = list(zip(info.exec_ns, info.batch_sizes, strict=True))
        usable = [pair for pair in measured if pair[1] <= max_batch] or measured[:1]
        self.size_of, self.exec_ns = [0], [0]
        for n in range(1, usable[-1][1] + 1):
            exec_ns, size = min(pair for pair in usable if pair[1] >= n)
            self.size_of.append(size)
            self.exec_ns.append(exec_ns)

    def most_within(self, ns: float) -> int:
        """How many requests a batch may have that takes at most so long; at least one."""
        return max(1, bisect_right(self.exec_ns, ns) - 1)


def _urgency(model: _Model) -> _Waiting:
    return model.queue[0]


class Edf:
    """Earliest deadline first."""

    Params = EdfParams

    def __init__(self, params: EdfParams) -> None:
        self._params = params
        self._network_ns = round(params.network_ms * 1e6)
        self._models: list[_Model] = []
        self._gpus: list[GpuView] = []
        self._loaders: dict[int, GpuView] = {}  # by GPU id, longest without a load first
        self._waiting: dict[int, _Model] = {}  # models with requests that wait
        self._loading: set[int] = set()  # models on their way to some GPU

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        self._models = [_Model(info, self._params.max_batch) for info in models]
        self._gpus = [GpuView(info, future_ns=0, lag_ns=FOREVER) for info in gpus]
        self._loaders = {gpu.id: gpu for gpu in self._gpus}

    def on_request(self, now_ns: int, request: Request, out: Actions) -> None:
        model = self._models[request.model]
        slo_ns = due_ns = FOREVER
        if request.deadline_ns < FOREVER:
            slo_ns = request.deadline_ns - request.arrival_ns
            due_ns = request.deadline_ns - self._network_ns
        heappush(model.queue, _Waiting(due_ns, request.id, slo_ns))
        self._waiting[model.id] = model
        self._serve(now_ns, out)

    def on_result(self, now_ns: int, result: Result, out: Actions) -> None:
        action = result.action
        gpu = self._gpus[out.gpu_of_lane[action.lane]]
        model = self._models[action.model]
        done = result.status is Status.DONE
        gone = result.why is Why.WORKER_LOST  # and forgotten, in `on_worker`
        if type(action) is Infer:
            if not gone:
                gpu.used(model.id)
            for task in action.tasks:
                if done:
                    out.answer(task)
                else:
                    out.reject(task, REASON_OF[result.status])
        elif gone:
            pass
        elif type(action) is Load:
            gpu.loaded(model.id, model.pages, result.why)
            self._loading.discard(model.id)
            model.copies -= not done
        elif not done:
            gpu.unload_failed(model.id, model.pages)
            model.copies += 1
        self._serve(now_ns, out)

    def on_wake(self, now_ns: int, key: Hashable, out: Actions) -> None:
        """Nothing here waits for a time."""

    def on_worker(self, now_ns: int, change: WorkerChange, out: Actions) -> None:
        gpu = self._gpus[change.gpu]
        if change.change is Change.LOST:
            for id in (*gpu.ready, *gpu.loading):
                self._models[id].copies -= 1
            self._loading -= gpu.loading
            self._loaders.pop(gpu.id, None)
        else:
            self._loaders[gpu.id] = gpu
        gpu.clear()
        self._serve(now_ns, out)

    def _serve(self, now_ns: int, out: Actions) -> None:
        """Give work to every engine that is free."""
        if not self._waiting:
            return
        for gpu in list(self._loaders.values()):
            if not gpu.loading:
                self._load(now_ns, gpu, self._on_no_gpu(now_ns, out), out)
        for gpu in self._gpus:
            if not gpu.in_use:
                self._infer(now_ns, gpu, out)
        for gpu in list(self._loaders.values()):
            if not gpu.loading and not gpu.in_use:
                self._load(now_ns, gpu, self._wanted_on(gpu, now_ns), out)

    # ---- batches

    def _infer(self, now_ns: int, gpu: GpuView, out: Actions) -> None:
        """Run the most urgent of what the GPU holds."""
        while ready := [model for model in self._waiting.values() if model.id in gpu.ready]:
            model = min(ready, key=_urgency)
            first = model.queue[0]
            self._drop(now_ns, model, out)
            if model.queue and model.queue[0] is first:
                break
        else:
            return
        n = self._batch(now_ns, model)
        tasks = tuple([heappop(model.queue).id for _ in range(n)])
        self._tidy(model)
        gpu.use(model.id)
        out.infer(gpu.lane, model.id, model.size_of[n], tasks, now_ns, FOREVER, model.exec_ns[n])

    def _batch(self, now_ns: int, model: _Model) -> int:
        """How many of the waiting requests go together."""
        if self._params.batch == "one":
            return 1
        most = len(model.exec_ns) - 1
        if self._params.batch == "largest_in_time":
            most = model.most_within(model.queue[0].due_ns - now_ns)
        return min(most, len(model.queue))

    def _drop(self, now_ns: int, model: _Model, out: Actions) -> None:
        """Give up those at the head of the queue that the rule does not want served."""
        queue = model.queue
        if self._params.drop == "none":
            return
        n = self._target(model) if self._params.drop == "window" else 1
        n = min(n, len(queue))
        while queue and queue[0].due_ns < now_ns + model.exec_ns[n]:
            head = heappop(queue)
            alone_ns = now_ns + model.exec_ns[1]
            late = Reason.DEADLINE if head.due_ns < now_ns else Reason.CANNOT_START_IN_TIME
            out.reject(head.id, Reason.SKIPPED if head.due_ns >= alone_ns else late)
            n = min(n, len(queue))
        self._tidy(model)

    def _target(self, model: _Model) -> int:
        """The size of batch for which it is right to give up requests."""
        if self._params.batch == "one":
            return 1
        return model.most_within(model.queue[0].slo_ns * self._params.target_share)

    def _tidy(self, model: _Model) -> None:
        if not model.queue:
            del self._waiting[model.id]

    # ---- loads

    def _on_no_gpu(self, now_ns: int, out: Actions) -> list[_Model]:
        """Models that must be loaded, without the requests that a load cannot help in time."""
        cold = [model for model in self._waiting.values() if not model.copies]
        if self._params.drop != "none":
            for model in cold:
                helped_ns = now_ns + model.load_ns + model.exec_ns[1]
                while model.queue and model.queue[0].due_ns < helped_ns:
                    out.reject(heappop(model.queue).id, Reason.CANNOT_LOAD_IN_TIME)
                self._tidy(model)
        return [model for model in cold if model.queue]

    def _wanted_on(self, gpu: GpuView, now_ns: int) -> list[_Model]:
        """Models that another GPU has and this one could help with, in time if that counts."""
        any_time = self._params.drop == "none"
        return [
            model
            for model in self._waiting.values()
            if not (gpu.holds(model.id) or model.id in self._loading)
            and (any_time or model.queue[0].due_ns >= now_ns + model.load_ns + model.exec_ns[1])
        ]

    def _load(self, now_ns: int, gpu: GpuView, wanted: Iterable[_Model], out: Actions) -> None:
        """Load the most urgent of these models, if less urgent ones can make room for it."""
        model = min(wanted, key=_urgency, default=None)
        if model is None or not self._make_room(now_ns, gpu, model, out):
            return
        out.load(gpu.lane, model.id, now_ns, FOREVER, model.load_ns)
        gpu.load(model.id, model.pages)
        model.copies += 1
        self._loading.add(model.id)
        self._loaders[gpu.id] = self._loaders.pop(gpu.id)  # to the end of the line

    def _make_room(self, now_ns: int, gpu: GpuView, model: _Model, out: Actions) -> bool:
        """Evict idle models, least recently used first; none if they would not be enough."""
        models = self._models

        def may_go(id: int) -> bool:
            other = models[id]
            return not (other.queue and _urgency(other) < _urgency(model))

        victims = gpu.victims(model.pages, lambda id: models[id].pages, may_go)
        if victims is None:
            return False
        for victim in [models[id] for id in victims]:
            out.unload(gpu.lane, victim.id, now_ns, FOREVER)
            gpu.unload(victim.id, victim.pages)
            victim.copies -= 1
        return True
