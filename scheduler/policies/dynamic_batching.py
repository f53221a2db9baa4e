"""Dynamic batching: requests wait a little for company, and a server knows no deadlines.

What most servers do today. Two are its models, and with requests of one item they follow one rule:
NVIDIA Triton's dynamic batcher (dynamic_batch_scheduler.cc, scheduler_utils.cc) and TensorFlow
Serving's batching (shared_batch_scheduler.h). Each model has a queue and, on each GPU that holds
it, instances that run one batch at a time. When an instance is free, its next batch is

    the largest preferred size     that no more requests than wait would fill, at once;
    all that wait                  if that is more than any preferred size, if there is no delay,
                                   or if the oldest has waited for the delay;
    none yet                       otherwise: company may come until the oldest has waited so long.

Without preferred sizes the only one is the largest batch, so that a full batch goes at once. A
batch is not formed before an instance is free: the longer that takes, the larger it is. Sizes that
were not measured are padded.

What is told apart: the clock of the delay starts when the oldest waiting request came, not when
the last batch ended. A limit on the queue counts requests (Triton) or batches (TF Serving), and
not those that are executing. A request whose timeout is over is noticed when a batch is formed,
as in Triton, not before; it is given up, or goes behind those of its level. Levels are strict:
1 goes first, whatever the others wait.

Where models do not fit, the one whose request is oldest is loaded in place of the least recently
used that is idle; neither server does that by itself, and without it there is nothing to compare.
A GPU with nothing to do loads a model whose instances are all busy.
Left out: TF Serving looks for batches once a millisecond, so that its delays are up to that much
longer; requests of several items, ragged ones, responses in order, and Triton's rate limiter.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable
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

_TRITON: Final = "Triton, model configuration"
_TF: Final = "TF Serving, session_bundle_config.proto"

Size = Annotated[int, Meta(ge=1, le=65536)]
Level = Annotated[int, Meta(ge=1, le=64)]


class DynamicBatchingParams(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What an operator sets; the same for all models."""

    max_batch: Annotated[
        int,
        Meta(
            ge=0,
            le=65536,
            description="larger batches are not formed; 0 is the largest that was measured",
            extra={"unit": "requests", "source": _TRITON + ", max_batch_size"},
        ),
    ] = 0
    preferred_batch_sizes: Annotated[
        list[Size],
        Meta(
            description="sizes that go at once, the largest that can be filled; none is max_batch",
            extra={"unit": "requests", "source": _TRITON + ", preferred_batch_size"},
        ),
    ] = []
    max_queue_delay_us: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="how long the oldest request waits for company while an instance is free",
            extra={
                "unit": "us",
                "source": _TRITON + ", max_queue_delay_microseconds; " + _TF + ", "
                "batch_timeout_micros",
            },
        ),
    ] = 0.0
    instances: Annotated[
        int,
        Meta(
            ge=1,
            le=65536,
            description="batches of one model that a GPU may have in hand; they take its lanes in "
            "turn, and where it has one they wait for each other",
            extra={"unit": "batches a GPU", "source": _TRITON + ", instance_group count"},
        ),
    ] = 1
    threads: Annotated[
        int,
        Meta(
            ge=0,
            le=65536,
            description="batches of all models together that a GPU may have in hand; models take "
            "turns. 0 is no limit but the instances",
            extra={
                "unit": "batches a GPU",
                "source": "Triton, without a rate limiter; " + _TF + ", num_batch_threads, for "
                "each accelerator",
            },
        ),
    ] = 0
    max_queue_size: Annotated[
        int,
        Meta(
            ge=0,
            le=10**9,
            description="requests of a model and level that may wait; one more is rejected. 0 is "
            "no limit",
            extra={"unit": "requests", "source": _TRITON + ", max_queue_size"},
        ),
    ] = 0
    staging_slots: Annotated[
        int,
        Meta(
            ge=0,
            le=2,
            description="batches for each busy instance that max_queue_size does not count, for "
            "they have left the queue",
            extra={
                "unit": "batches",
                "source": "Triton, where a model has a max_queue_size; older releases had up to 2",
            },
        ),
    ] = 0
    max_enqueued_batches: Annotated[
        int,
        Meta(
            ge=0,
            le=10**6,
            description="batches of a model, as full as may be, that may wait; one request more is "
            "rejected. 0 is no limit",
            extra={
                "unit": "batches",
                "source": "Triton, which has no such limit; " + _TF + " has 10",
            },
        ),
    ] = 0
    default_timeout_us: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="how long a request may wait before timeout_action is taken; 0 is for ever",
            extra={"unit": "us", "source": _TRITON + ", default_timeout_microseconds"},
        ),
    ] = 0.0
    timeout_action: Annotated[
        Literal["reject", "delay"],
        Meta(
            description="what becomes of a request that has waited for its timeout: it is given "
            "up, or it goes behind the others of its level",
            extra={"source": _TRITON + ", timeout_action"},
        ),
    ] = "reject"
    priorities: Annotated[
        list[Level],
        Meta(
            description="priority level of each client's requests, by the number that the client "
            "has in a run's files; 1 is the most urgent, and that of all others",
            extra={"source": _TRITON + ", priority_levels, and a request's priority"},
        ),
    ] = []

    def __post_init__(self) -> None:
        largest = max(self.preferred_batch_sizes, default=0)
        if self.max_batch and largest > self.max_batch:
            raise ValueError(
                f"preferred_batch_sizes has {largest}; expected at most max_batch, {self.max_batch}"
            )


class _Waiting(NamedTuple):
    """A request in a queue. since_ns: when it came there."""

    since_ns: int
    id: int


class _Instance(NamedTuple):
    """What runs one batch of a model at a time."""

    gpu: GpuView
    lane: int


class _Model:
    """A model, what waits for it, and its instances.

    queues: two a level, the most urgent level first: those in time, and those delayed.
    free: instances that have nothing to do, longest idle first. busy: how many have.
    copies: GPUs that hold or load it. alarm_ns: when it will be looked at again.
    """

    def __init__(self, info: ModelInfo, params: DynamicBatchingParams, levels: int) -> None:
        self.info = info
        self.id = info.id
        self.pages = info.pages
        most = min(params.max_batch or info.batch_sizes[-1], info.batch_sizes[-1])
        self.max_batch = most
        self.preferred = sorted(
            {size for size in params.preferred_batch_sizes if size <= most} or {most}
        )
        self.queues: list[deque[_Waiting]] = [deque() for _ in range(2 * levels)]
        self.waiting = 0
        self.free: deque[_Instance] = deque()
        self.busy = 0
        self.copies = 0
        self.alarm_ns = FOREVER

    def oldest_ns(self) -> int:
        """Since when the first of some queue has waited the longest."""
        return min([queue[0].since_ns for queue in self.queues if queue], default=FOREVER)

    def pending_ns(self) -> int:
        """The same, of those that the next batch could take."""
        left, oldest_ns = self.max_batch, FOREVER
        for queue in self.queues:
            if queue and left > 0:
                oldest_ns = min(oldest_ns, queue[0].since_ns)
                left -= len(queue)
        return oldest_ns

    def take(self, n: int) -> tuple[int, ...]:
        """Take the first n out of the queues."""
        self.waiting -= n
        taken: list[int] = []
        for queue in self.queues:
            while queue and len(taken) < n:
                taken.append(queue.popleft().id)
        return tuple(taken)


class DynamicBatching:
    """Dynamic batching."""

    Params = DynamicBatchingParams

    def __init__(self, params: DynamicBatchingParams) -> None:
        self._params = params
        self._delay_ns = round(params.max_queue_delay_us * 1e3)
        self._timeout_ns = round(params.default_timeout_us * 1e3) or FOREVER
        self._levels = max(params.priorities, default=1)
        self._models: list[_Model] = []
        self._gpus: list[GpuView] = []
        self._lanes: list[tuple[int, ...]] = []  # by GPU
        self._in_hand: list[int] = []  # batches, by GPU
        self._loaders: dict[int, GpuView] = {}  # by GPU id, longest without a load first
        self._waiting: dict[int, _Model] = {}  # models with requests that wait
        self._cold: dict[int, _Model] = {}  # those of them that no GPU holds or loads
        self._loading: set[int] = set()  # models on their way to some GPU
        self._instance_of: dict[int, _Instance] = {}  # by action id
        self._turn = 0  # the model whose turn it is on a GPU with threads

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        self._models = [_Model(info, self._params, self._levels) for info in models]
        self._gpus = [GpuView(info, future_ns=0, lag_ns=FOREVER) for info in gpus]
        self._lanes = [info.lanes for info in gpus]
        self._in_hand = [0] * len(gpus)
        self._loaders = {gpu.id: gpu for gpu in self._gpus}

    def on_request(self, now_ns: int, request: Request, out: Actions) -> None:
        model = self._models[request.model]
        priorities = self._params.priorities
        level = priorities[request.client] - 1 if request.client < len(priorities) else 0
        if self._is_full(model, level):
            out.reject(request.id, Reason.QUEUE_FULL)
            return
        model.queues[2 * level].append(_Waiting(now_ns, request.id))
        model.waiting += 1
        self._waiting[model.id] = model
        if model.free:
            self._run(now_ns, model, out)
        elif not model.copies:
            self._cold[model.id] = model
            self._load_some(now_ns, out)
        elif 0 in self._in_hand:
            self._load_some(now_ns, out)

    def on_result(self, now_ns: int, result: Result, out: Actions) -> None:
        action = result.action
        gpu = self._gpus[out.gpu_of_lane[action.lane]]
        model = self._models[action.model]
        done = result.status is Status.DONE
        gone = result.why is Why.WORKER_LOST  # and forgotten, in `on_worker`
        if type(action) is Infer:
            instance = self._instance_of.pop(action.id)
            model.busy -= 1
            if not gone:
                gpu.used(model.id)
                self._in_hand[gpu.id] -= 1
                model.free.append(instance)
            for task in action.tasks:
                if done:
                    out.answer(task)
                else:
                    out.reject(task, REASON_OF[result.status])
        elif gone:
            return
        elif type(action) is Load:
            self._loading.discard(model.id)
            gpu.loaded(model.id, model.pages, result.why)
            if done:
                self._open(model, gpu)
            else:
                self._count(model, -1)
        elif not done:
            gpu.unload_failed(model.id, model.pages)
            self._count(model, 1)
            self._open(model, gpu)
        if self._waiting:
            if self._params.threads:
                self._in_turn(now_ns, gpu, out)
            elif model.waiting:
                self._run(now_ns, model, out)
            self._load_some(now_ns, out)

    def on_wake(self, now_ns: int, key: Hashable, out: Actions) -> None:
        assert isinstance(key, int)
        model = self._models[key]
        model.alarm_ns = FOREVER
        self._run(now_ns, model, out)

    def on_worker(self, now_ns: int, change: WorkerChange, out: Actions) -> None:
        gpu = self._gpus[change.gpu]
        if change.change is Change.LOST:
            for id in (*gpu.ready, *gpu.loading):
                self._close(self._models[id], gpu)
            self._loading -= gpu.loading
            self._loaders.pop(gpu.id, None)
        else:
            self._loaders[gpu.id] = gpu
        self._in_hand[gpu.id] = 0
        gpu.clear()
        self._load_some(now_ns, out)

    def _is_full(self, model: _Model, level: int) -> bool:
        """Whether one more request of this level would be one too many."""
        params = self._params
        batches = params.max_enqueued_batches
        if batches and model.waiting >= batches * model.max_batch:
            return True
        if not params.max_queue_size:
            return False
        queues = model.queues
        here = len(queues[2 * level]) + len(queues[2 * level + 1])
        if params.staging_slots:
            staged = params.staging_slots * model.busy * model.preferred[-1]
            staged -= sum([len(queue) for queue in queues[: 2 * level]])
            here -= min(here, max(0, staged))
        return here >= params.max_queue_size

    # ---- batches

    def _in_turn(self, now_ns: int, gpu: GpuView, out: Actions) -> None:
        """A thread may be free: the next model that has work for it is served."""
        n = len(self._models)
        ready = [model for model in self._waiting.values() if model.id in gpu.ready]
        for model in sorted(ready, key=lambda model: (model.id - self._turn) % n):
            if self._in_hand[gpu.id] == self._params.threads:
                return
            self._run(now_ns, model, out)

    def _run(self, now_ns: int, model: _Model, out: Actions) -> None:
        """Start batches on instances that are free, as many as the rule has."""
        while model.free and model.waiting:
            instance = self._next_free(model)
            if instance is None:
                return
            if self._timeout_ns < FOREVER:
                self._time_out(now_ns, model, out)
            n = self._batch(now_ns, model)
            if not n:
                self._look_again(now_ns, model, out)
                return
            tasks = model.take(n)
            self._tidy(model)
            model.free.remove(instance)
            model.busy += 1
            gpu = instance.gpu
            gpu.use(model.id)
            self._in_hand[gpu.id] += 1
            self._turn = model.id + 1
            info = model.info
            which = bisect_left(info.batch_sizes, n)
            size, expected_ns = info.batch_sizes[which], info.exec_ns[which]
            id = out.infer(instance.lane, model.id, size, tasks, now_ns, FOREVER, expected_ns)
            assert id is not None, "a batch was refused"
            self._instance_of[id] = instance

    def _next_free(self, model: _Model) -> _Instance | None:
        """The instance that has been idle the longest, on a GPU that has a thread for it."""
        threads = self._params.threads
        if not threads:
            return model.free[0]
        in_hand = self._in_hand
        return next((each for each in model.free if in_hand[each.gpu.id] < threads), None)

    def _batch(self, now_ns: int, model: _Model) -> int:
        """How many requests go now; 0 if they wait for company."""
        waiting, preferred = model.waiting, model.preferred
        n = min(waiting, model.max_batch)
        expired = self._delay_ns and now_ns - model.pending_ns() >= self._delay_ns
        if n >= preferred[0] and not expired:
            return preferred[bisect_left(preferred, n + 1) - 1]
        return 0 if self._delay_ns and not expired else n

    def _look_again(self, now_ns: int, model: _Model, out: Actions) -> None:
        """When the oldest will have waited for the delay, or the first of a queue for its
        timeout."""
        if not model.waiting:
            return
        at_ns = model.pending_ns() + self._delay_ns
        if self._timeout_ns < FOREVER:
            heads = [queue[0].since_ns for queue in model.queues[::2] if queue]
            at_ns = min([at_ns, *(since_ns + self._timeout_ns + 1 for since_ns in heads)])
        if at_ns != model.alarm_ns:
            model.alarm_ns = at_ns
            out.wake_at(at_ns, model.id)

    def _time_out(self, now_ns: int, model: _Model, out: Actions) -> None:
        """Find those whose timeout is over. Each has the same, so they are the first."""
        before_ns = now_ns - self._timeout_ns
        for level in range(self._levels):
            queue, delayed = model.queues[2 * level], model.queues[2 * level + 1]
            while queue and queue[0].since_ns < before_ns:
                late = queue.popleft()
                if self._params.timeout_action == "delay":
                    delayed.append(late)
                else:
                    model.waiting -= 1
                    out.reject(late.id, Reason.DEADLINE)
        self._tidy(model)

    def _tidy(self, model: _Model) -> None:
        if not model.waiting:
            del self._waiting[model.id]
            self._cold.pop(model.id, None)

    # ---- loads

    def _open(self, model: _Model, gpu: GpuView) -> None:
        """A model is on a GPU, and so are its instances."""
        lanes = self._lanes[gpu.id]
        for i in range(self._params.instances):
            model.free.append(_Instance(gpu, lanes[i % len(lanes)]))

    def _close(self, model: _Model, gpu: GpuView) -> None:
        """A model is not on a GPU any more."""
        model.free = deque([each for each in model.free if each.gpu is not gpu])
        self._count(model, -1)

    def _count(self, model: _Model, change: int) -> None:
        """A model has a copy more, or fewer."""
        model.copies += change
        if model.waiting and not model.copies:
            self._cold[model.id] = model
        else:
            self._cold.pop(model.id, None)

    def _load_some(self, now_ns: int, out: Actions) -> None:
        """Load what is on no GPU, the oldest first, and on idle GPUs what has no free instance."""
        for gpu in list(self._loaders.values()):
            if gpu.loading:
                continue
            if self._timeout_ns < FOREVER:
                for model in list(self._cold.values()):
                    self._time_out(now_ns, model, out)
            wanted = list(self._cold.values())
            if not wanted and not gpu.in_use:
                wanted = [
                    model
                    for model in self._waiting.values()
                    if not (model.free or gpu.holds(model.id) or model.id in self._loading)
                ]
            if wanted:
                self._load(now_ns, gpu, min(wanted, key=_Model.oldest_ns), out)

    def _load(self, now_ns: int, gpu: GpuView, model: _Model, out: Actions) -> None:
        """Load a model, if idle ones whose requests are not older can make room for it."""
        models, oldest_ns = self._models, model.oldest_ns()
        victims = gpu.victims(
            model.pages,
            lambda id: models[id].pages,
            lambda id: models[id].oldest_ns() > oldest_ns,
        )
        if victims is None:
            return
        for victim in [models[id] for id in victims]:
            out.unload(gpu.lane, victim.id, now_ns, FOREVER)
            gpu.unload(victim.id, victim.pages)
            self._close(victim, gpu)
        out.load(gpu.lane, model.id, now_ns, FOREVER, model.info.load_ns)
        gpu.load(model.id, model.pages)
        self._count(model, 1)
        self._loading.add(model.id)
        self._loaders[gpu.id] = self._loaders.pop(gpu.id)  # to the end of the line
