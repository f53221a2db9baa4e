"""Clipper: models in containers, batches as large as the last ones allow, answers by the deadline.

The reactive opposite of Clockwork. Every container works for itself and knows one model; the GPU
is left to sort out what they do at once. Three Clippers are kept apart (the facts, section 1):

    clipper-nsdi-aimd        the prototype behind the NSDI'17 figures: AIMD, FIFO, random replica
    clipper-nsdi-quantile    the same; a p99 line once it has seen enough batches
    clipper-0.3              releases 0.3 to 0.4.1: explore and estimate, earliest deadline first,
                             replicas pull from one queue
    clipper-0.1              releases 0.1 and 0.2: average throughput, earliest deadline first

Containers are spread over the GPUs and their lanes when the run starts, and stay. A request whose
time runs out is answered with the default, which counts as timed out and not as served; its task
still runs.
Left out: model selection and ensembles (clipper_selection.py), and HTTP.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Annotated, ClassVar, Protocol

import msgspec
import numpy as np
from msgspec import Meta

from scheduler.batching import Aimd, Average, Explore, Quantile
from scheduler.cache import ClockCache, Key, Lookup
from scheduler.ledger import Actions
from scheduler.records import (
    FOREVER,
    REASON_OF,
    AnswerKind,
    Change,
    GpuInfo,
    Infer,
    Load,
    ModelInfo,
    Reason,
    Request,
    Result,
    Status,
    WorkerChange,
)


class Batching(Protocol):
    """See scheduler/batching.py."""

    def limit(self, budget_ns: int) -> int:
        """The most that the next batch may hold."""

    def done(self, batch: int, latency_ns: int) -> None:
        """A batch came back."""


_PROTOTYPE = "Clipper's prototype, branch nsdi-master at f3cd91d"
_RELEASES = "Clipper, release 0.3"


class ClipperParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator of any Clipper sets."""

    replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=65536,
            description="containers of each model",
            extra={"unit": "containers", "source": _RELEASES + ", deploy_model"},
        ),
    ] = 1
    max_batch: Annotated[
        int,
        Meta(
            ge=0,
            le=65536,
            description="larger batches are not formed; 0 is the largest that was measured",
            extra={"unit": "requests", "source": _RELEASES + ", batch_size"},
        ),
    ] = 0
    defaults: Annotated[
        bool,
        Meta(
            description="whether a request whose time runs out is answered with the default, or "
            "late with its prediction",
            extra={"source": _RELEASES + ", query_processor.cpp"},
        ),
    ] = True
    cache_mib: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="room of the prediction cache, where requests say which input they bring "
            "(asks); an answer takes its model's output, or a byte where that is not known",
            extra={"unit": "MiB", "source": _RELEASES + ", default of 32 MiB"},
        ),
    ] = 32.0


class PrototypeParams(ClipperParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the prototype has besides."""

    slo_ms: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="what a batch may take, without its wait in the queue",
            extra={"unit": "ms", "source": _PROTOTYPE + ", default of 20 ms"},
        ),
    ] = 20.0
    wait_ms: Annotated[
        float,
        Meta(
            ge=0,
            le=1e6,
            description="how long the first request of a batch waits for company",
            extra={"unit": "ms", "source": _PROTOTYPE + ", DEFAULT_WAIT_TIME_NANOS"},
        ),
    ] = 1.0


class QuantileParams(PrototypeParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What quantile regression has besides."""

    samples: Annotated[
        int,
        Meta(
            ge=3,
            le=100_000,
            description="how many batches are seen before the line is drawn",
            extra={"unit": "batches", "source": _PROTOTYPE + ", its experiments' configuration"},
        ),
    ] = 500


class Replica:
    """One container. size: of its batch in flight; 0 while it is free. lost: with its worker."""

    __slots__ = ("batching", "lane", "lost", "model", "number", "queue", "ready", "size")

    def __init__(
        self, number: int, model: int, lane: int, batching: Batching, queue: "Queue"
    ) -> None:
        self.number = number
        self.model = model
        self.lane = lane
        self.batching = batching
        self.queue = queue
        self.ready = False
        self.lost = False
        self.size = 0


class Queue:
    """Requests of one model, with the time each came: first in first out, or by deadline."""

    def __init__(self, *, by_deadline: bool) -> None:
        self._by_deadline = by_deadline
        self._heap: list[tuple[int, int, Request]] = []
        self._fifo: deque[tuple[int, Request]] = deque()

    def __len__(self) -> int:
        return len(self._heap) if self._by_deadline else len(self._fifo)

    def push(self, now_ns: int, request: Request) -> None:
        """A request came."""
        if self._by_deadline:
            heappush(self._heap, (request.deadline_ns, request.id, request))
        else:
            self._fifo.append((now_ns, request))

    def pop(self) -> Request:
        """Take the first."""
        return heappop(self._heap)[2] if self._by_deadline else self._fifo.popleft()[1]

    def first(self) -> Request:
        """The first one."""
        return self._heap[0][2] if self._by_deadline else self._fifo[0][1]

    def since_ns(self) -> int:
        """When the first one came; a queue by deadline does not ask."""
        return self._fifo[0][0]


class _Clipper:
    """What all three share."""

    BY_DEADLINE: ClassVar[bool]
    """Whether the replicas of a model pull from one queue by deadline; else each has its own, in
    order of arrival, and a request goes to one at random."""

    CHOOSES: ClassVar[bool] = False
    """Whether the policy chooses the models that a request is put to, so that its tasks are not
    the request itself."""

    def __init__(self, params: ClipperParams) -> None:
        self.params = params
        self.replicas: list[list[Replica]] = []
        self.cache = ClockCache(int(params.cache_mib * 2**20)) if params.cache_mib else None
        self._models: tuple[ModelInfo, ...] = ()
        self._replica_of: dict[int, Replica] = {}  # by action id
        self._open: dict[int, Request] = {}
        self._key_of: dict[int, Key] = {}  # by the task that runs for it
        self._deadlines: list[tuple[int, int]] = []
        self._alarm_ns = FOREVER
        self._wait_ns = 0
        self._any_lost = False  # ever
        self._gpu_of: dict[int, int] = {}  # by lane

    def batching(self, cap: int, rng: np.random.Generator) -> Batching:
        """A fresh controller for one container."""
        raise NotImplementedError

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        self._rng = rng
        self._models = models
        self._gpu_of = out.gpu_of_lane
        placed = 0
        for model in models:
            shared = Queue(by_deadline=self.BY_DEADLINE)
            replicas = []
            for _ in range(self.params.replicas):
                gpu = gpus[placed % len(gpus)]
                lane = gpu.lanes[placed // len(gpus) % len(gpu.lanes)]
                placed += 1
                cap = min(self.params.max_batch or model.batch_sizes[-1], model.batch_sizes[-1])
                queue = shared if self.BY_DEADLINE else Queue(by_deadline=False)
                replica = Replica(placed, model.id, lane, self.batching(cap, rng), queue)
                replicas.append(replica)
                self._start(now_ns, replica, out)
            self.replicas.append(replicas)

    def on_request(self, now_ns: int, request: Request, out: Actions) -> None:
        self._open[request.id] = request
        if self.params.defaults and request.deadline_ns < FOREVER:
            if request.deadline_ns <= now_ns:
                self._default(request, out)
                return
            heappush(self._deadlines, (request.deadline_ns, request.id))
            self._set_alarm(out)
        if self.cache is None or request.key < 0 or self._ask_cache(request, out):
            self._push(now_ns, request, out)

    def on_result(self, now_ns: int, result: Result, out: Actions) -> None:
        action = result.action
        replica = self._replica_of.pop(action.id)
        if result.status is Status.LOST and type(action) is Load:
            if self._gpu_of[replica.lane] not in out.lost:  # it never came to its worker
                self._start(now_ns, replica, out)
            return
        if type(action) is Load:
            replica.ready = result.status is Status.DONE
            if not replica.ready:
                self._bury(now_ns, replica, out)
                return
        elif type(action) is Infer:
            size, replica.size = replica.size, 0
            if result.status is Status.DONE:
                replica.batching.done(size, result.end_ns - result.start_ns)
                self._take(result, action.tasks, out)
            else:
                for task in action.tasks:
                    self._give_up(task, out, REASON_OF[result.status])
        self._serve(now_ns, replica, out)

    def on_wake(self, now_ns: int, key: Hashable, out: Actions) -> None:
        if isinstance(key, tuple):
            model, number = key
            for replica in self.replicas[model]:
                if replica.number == number and not replica.size:
                    self._serve(now_ns, replica, out)
            return
        self._alarm_ns = FOREVER
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now_ns:
            request = self._open.get(heappop(deadlines)[1])
            if request is not None:
                self._default(request, out)
        self._set_alarm(out)

    def on_worker(self, now_ns: int, change: WorkerChange, out: Actions) -> None:
        """Its containers are gone, and their requests go to others, if any; or they start anew,
        with what was learnt of batches."""
        back = change.change is Change.BACK
        for replicas in self.replicas:
            for replica in replicas:
                if self._gpu_of[replica.lane] == change.gpu:
                    replica.ready, replica.lost = False, not back
                    if back:
                        self._start(now_ns, replica, out)
        if back:
            return
        self._any_lost = True
        for replicas in self.replicas:
            others = [replica for replica in replicas if not replica.lost]
            for replica in replicas:
                if replica.lost and others and not self.BY_DEADLINE:
                    while replica.queue:
                        self._push_to(now_ns, replica.queue.pop(), replica.model, out)

    def _start(self, now_ns: int, replica: Replica, out: Actions) -> None:
        """Start a container."""
        info = self._models[replica.model]
        action = out.load(replica.lane, info.id, now_ns, FOREVER, info.load_ns)
        assert action is not None, "a container was refused"
        self._replica_of[action] = replica

    def _ask_cache(self, request: Request, out: Actions) -> bool:
        """Whether the request has to run, as nobody has asked the same before."""
        assert self.cache is not None
        key = (request.model, request.key)
        found, _ = self.cache.look_up(key, request.id)
        if found is Lookup.HIT:
            del self._open[request.id]
            out.answer_without(request.id, AnswerKind.CACHED)
        elif found is Lookup.MISS:
            self._key_of[request.id] = key
        return found is Lookup.MISS

    def _push(self, now_ns: int, request: Request, out: Actions) -> None:
        self._push_to(now_ns, request, request.model, out)

    def _push_to(self, now_ns: int, request: Request, model: int, out: Actions) -> None:
        replicas = self.replicas[model]
        if not replicas:
            task = out.task_of(request.id, model) if self.CHOOSES else request.id
            self._give_up(task, out)
            return
        if self._any_lost:
            replicas = [replica for replica in replicas if not replica.lost] or replicas
        if self.BY_DEADLINE:
            replica = next((each for each in replicas if each.ready and not each.size), replicas[0])
        elif len(replicas) == 1:
            replica = replicas[0]
        else:
            replica = replicas[int(self._rng.integers(len(replicas)))]
        replica.queue.push(now_ns, request)
        if not replica.size:
            self._serve(now_ns, replica, out)

    def _bury(self, now_ns: int, replica: Replica, out: Actions) -> None:
        """A container did not start, for lack of room: its requests go to the others, if any."""
        replicas = self.replicas[replica.model]
        replicas.remove(replica)
        if replicas and self.BY_DEADLINE:
            return  # they pull from the same queue
        while replica.queue:
            self._push_to(now_ns, replica.queue.pop(), replica.model, out)

    def _serve(self, now_ns: int, replica: Replica, out: Actions) -> None:
        """Start a batch on a free container, if there is one to start."""
        queue = replica.queue
        if not replica.ready:
            return
        while queue and self._expired(now_ns, queue):
            self._drop(now_ns, queue.pop(), out)
        if not queue:
            return
        first = queue.first()
        batching = replica.batching
        limit = batching.limit(first.deadline_ns - now_ns)
        if self._wait_ns and len(queue) < limit:
            at_ns = queue.since_ns() + self._wait_ns
            if now_ns < at_ns:
                out.wake_at(at_ns, (replica.model, replica.number))
                return
        taken = [queue.pop() for _ in range(min(limit, len(queue)))]
        opened = self._open
        tasks = tuple([request.id for request in taken if request.id in opened])
        if self.CHOOSES:
            tasks = tuple([out.task_of(request_id, replica.model) for request_id in tasks])
        size = len(taken)
        if isinstance(batching, Explore) and batching.exploring:
            size = limit  # padded with copies of the last one, to learn what that size takes
        info = self._models[replica.model]
        sizes = info.batch_sizes
        which = size - 1 if sizes[-1] == len(sizes) else bisect_left(sizes, size)
        expected_ns = info.exec_ns[which]
        action = out.infer(replica.lane, info.id, sizes[which], tasks, now_ns, FOREVER, expected_ns)
        assert action is not None, "a batch of Clipper's was refused"
        self._replica_of[action] = replica
        replica.size = size

    def _expired(self, now_ns: int, queue: Queue) -> bool:
        """Whether the first request has had its default."""
        return self.params.defaults and queue.first().deadline_ns <= now_ns

    def _drop(self, now_ns: int, request: Request, out: Actions) -> None:
        """A request left the queue without running; one that joined it runs in its place."""
        key = self._key_of.pop(request.id, None)
        if key is None:
            return
        assert self.cache is not None
        joined = [self._open[task] for task in self.cache.fail(key) if task in self._open]
        for i, other in enumerate(joined):
            if self._ask_cache(other, out):
                assert i == 0, "the first one opens the entry again"
                self.replicas[other.model][0].queue.push(now_ns, other)

    def _take(self, result: Result, tasks: tuple[int, ...], out: Actions) -> None:
        """A batch is done."""
        for task in tasks:
            self._answer(task, out)

    def _answer(self, task: int, out: Actions) -> None:
        """A prediction is there. Its request may have had the default meanwhile."""
        if self._open.pop(task, None) is not None:
            out.answer(task)
        key = self._key_of.pop(task, None)
        if key is None:
            return
        assert self.cache is not None
        size = max(1, self._models[key[0]].output_bytes)
        for joined in self.cache.put(key, task, size):
            if self._open.pop(joined, None) is not None:
                out.answer_without(joined, AnswerKind.CACHED)

    def _give_up(self, task: int, out: Actions, reason: Reason = Reason.WORKER_FAILED) -> None:
        tasks = [task]
        key = self._key_of.pop(task, None)
        if key is not None:
            assert self.cache is not None
            tasks += self.cache.fail(key)
        for each in tasks:
            if self._open.pop(each, None) is not None:
                out.reject(each, reason)

    def _default(self, request: Request, out: Actions) -> None:
        del self._open[request.id]
        out.answer_without(request.id, AnswerKind.DEFAULT, Reason.DEADLINE)

    def _set_alarm(self, out: Actions) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._open:
            heappop(deadlines)
        if deadlines and deadlines[0][0] < self._alarm_ns:
            self._alarm_ns = deadlines[0][0]
            out.wake_at(self._alarm_ns, "deadline")


class ClipperAimd(_Clipper):
    """The prototype behind the NSDI'17 figures."""

    BY_DEADLINE = False
    Params = PrototypeParams

    def __init__(self, params: PrototypeParams) -> None:
        super().__init__(params)
        self._slo_ns = round(params.slo_ms * 1e6) - 2_000  # the prototype hands over 2 us less
        self._wait_ns = round(params.wait_ms * 1e6)

    def batching(self, cap: int, rng: np.random.Generator) -> Batching:
        return Aimd(self._slo_ns, cap)


class ClipperQuantile(ClipperAimd):
    """The prototype, with a line through the 99th percentile once it has seen enough."""

    Params = QuantileParams

    def __init__(self, params: QuantileParams) -> None:
        super().__init__(params)
        self._samples = params.samples

    def batching(self, cap: int, rng: np.random.Generator) -> Batching:
        return Quantile(self._slo_ns, cap, self._samples)


class Clipper03(_Clipper):
    """Releases 0.3 to 0.4.1."""

    BY_DEADLINE = True
    Params = ClipperParams

    def batching(self, cap: int, rng: np.random.Generator) -> Batching:
        return Explore(cap, rng)


class Clipper01(_Clipper):
    """Releases 0.1 and 0.2."""

    BY_DEADLINE = True
    Params = ClipperParams

    def batching(self, cap: int, rng: np.random.Generator) -> Batching:
        return Average(cap)
