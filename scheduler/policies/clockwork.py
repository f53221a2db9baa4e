"""Clockwork's controller: choose what each GPU runs next, and when.

Workers do one thing at a time, so their timing is predictable and every choice can be made here.
For each request there is one *strategy* per batch size: run it in a batch of that size, by its
deadline less the time such a batch takes. A GPU looks at the strategies of the models that it
holds, latest possible start first, and is given work up to `schedule_ahead_ms` before it needs
it. A strategy that cannot be met, or has too few requests, is dropped; the next one gets its
chance. Models are loaded where demand is unmet (`scheduler/demand.py`), the least recently used
ones make room. Every action has a window; a late action is refused by the worker, not run late.

This is variant INFER4 of the published artifact (OSDI '20), as read in its source:
src/clockwork/controller/concurrent_infer_and_load_scheduler.cpp. `variant = "infer5"` keeps one
line of requests for each batch size instead (`scheduler/policies/clockwork_fifos.py`); all else is
the same. What differs from the original:
- The original's threads poll; here the policy acts on events and asks to be woken.
- A request's strategies come up one after the other, when the larger one has been dropped, and
  not all at once: the order in which they are looked at is the same.
- A model's strategies stand in one line for all GPUs that hold it, where the original gives each
  GPU its own copy. What one GPU drops no other one could use: whoever could start earlier has
  been asked before.
- Faults of the artifact are off unless `faithful_to = "osdi20-artifact"` (`Faults`, in
  `scheduler/policies/clockwork_params.py`).

Not here: networking, and how long a batch takes (see `profiles/`).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable
from functools import cache
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import ClassVar, Final

import numpy as np
from mypy_extensions import mypyc_attr

from scheduler.demand import Demand
from scheduler.estimator import Estimator
from scheduler.ledger import Actions
from scheduler.policies.clockwork_fifos import Fifos, Strategies
from scheduler.policies.clockwork_params import ClockworkParams, Faults
from scheduler.records import (
    FOREVER,
    NOMINAL_MHZ,
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


class _Model:
    """A model as this policy sees it."""

    __slots__ = (
        "chain", "copies", "estimators", "exec_ns", "exec_size", "exec_slo_ns", "fifos", "id",
        "largest", "lead_ns", "load_estimator", "load_ns", "load_size", "load_slo_ns", "look_ns",
        "need_ns", "needed", "next_seq", "pages", "planned_slo_ns", "queue", "ready_on", "sizes",
        "strategies",
    )  # fmt: skip

    def __init__(self, info: ModelInfo, params: ClockworkParams, *, in_order: bool) -> None:
        assert params.max_batch is not None, "filled in by __post_init__"
        usable = [
            (size, exec_ns)
            for size, exec_ns in zip(info.batch_sizes, info.exec_ns, strict=True)
            if size == info.batch_sizes[0]
            or (size <= params.max_batch and exec_ns <= params.max_exec_ms * 1e6)
        ]
        self.id = info.id
        self.pages = info.pages
        self.sizes = tuple(size for size, _ in usable)
        self.needed = (1, *self.sizes[1:])
        """Requests that make a batch of each size; the smallest is padded if need be."""
        self.exec_ns = tuple(exec_ns for _, exec_ns in usable)
        """Estimates, by `sizes`."""
        self.lead_ns = (0,) * len(usable) if params.order == "deadline" else self.exec_ns
        """So long before its deadline a strategy is due; replaced as a whole, so that a request
        can keep its own."""
        self.chain = tuple(sorted(range(len(usable)), key=lambda k: -self.exec_ns[k]))
        """The order in which a request's strategies are looked at: earliest start first."""
        self.largest = _largest_fitting(self.sizes)
        self.load_ns = info.load_ns
        self.queue: deque[_Waiting] = deque()
        self.fifos: Fifos[_Waiting] = Fifos(self.needed, heads_only=in_order)
        """What infer5 takes its batches from; `queue` says who waits, in both."""
        self.next_seq = 0
        self.look_ns = FOREVER
        """When a request in the queue may run out of time; FOREVER if nobody will look."""
        self.strategies: list[_Strategy] = []
        """A heap of what may be done next, if it is on any GPU."""
        self.ready_on: list[_Gpu] = []
        self.copies = 0
        """GPUs that hold the model or are loading it."""
        self.planned_slo_ns = -1
        """The SLO for which the six below hold; -1 once an estimate has changed."""
        self.exec_slo_ns = 0
        """A request is planned to be done this long after its arrival."""
        self.load_slo_ns = 0
        """A request speaks for a load of its model this long."""
        self.need_ns = 0
        """Before its deadline by less than this, a request is beyond help."""
        self.exec_size = 0
        self.load_size = 0
        """What a request adds to the demand (`scheduler/demand.py`)."""
        window, percentile = params.estimate_window, params.estimate_percentile
        self.estimators = [Estimator(ns, window, percentile) for ns in self.exec_ns]
        self.load_estimator = Estimator(info.load_ns, window, percentile)

    def insert(self, w: "_Waiting") -> None:
        """Put a request among those that are due before and after it. Numbers them anew."""
        self.queue.append(w)
        in_order = sorted(self.queue, key=lambda waiting: waiting.deadline_ns)
        self.queue = deque(in_order)
        for seq, waiting in enumerate(in_order, self.next_seq):
            waiting.seq = seq
        self.next_seq += len(in_order)


@cache
def _largest_fitting(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """For n = 0, 1, ... sizes[-1] requests: the index of the largest batch size <= n, or 0."""
    return tuple(bisect_right(sizes, max(n, sizes[0])) - 1 for n in range(sizes[-1] + 1))


class _Waiting:
    """A request that is not in a batch yet. seq: its number among its model's requests."""

    __slots__ = (
        "deadline_ns",
        "exec_size",
        "id",
        "lead_ns",
        "lines",
        "load_size",
        "model",
        "seq",
        "waits",
    )  # fmt: skip

    def __init__(self, id: int, deadline_ns: int, seq: int, model: _Model) -> None:
        self.id = id
        self.deadline_ns = deadline_ns
        self.seq = seq
        self.model = model
        self.lead_ns = model.lead_ns
        self.exec_size = model.exec_size
        self.load_size = model.load_size
        self.waits = True
        self.lines = 0


_Strategy = tuple[int, int, int, _Waiting]
"""Latest start in ns, sequence number, place in the model's chain, request."""


class _Gpu(GpuView):
    """A GPU with its strategies."""

    def __init__(self, info: GpuInfo, future_ns: int, lag_ns: int) -> None:
        super().__init__(info, future_ns, lag_ns)
        self.last_load_ns = -FOREVER

    def clear(self) -> None:
        super().clear()
        self.turns: list[tuple[int, int]] = []
        """A heap of (latest start, model): when the model's first strategy is due here, or
        earlier, for a strategy may have gone to another GPU meanwhile."""
        self.turn_of: dict[int, int] = {}
        """By model, the entry in `turns` that counts."""
        self.fifos = Strategies()
        """What infer5 has in place of `turns`."""
        self.exec_alarm_ns = FOREVER
        self.clock_mhz = NOMINAL_MHZ
        """As of its last batch."""

    def at_clock(self, exec_ns: tuple[int, ...]) -> tuple[int, ...]:
        """A model's estimates, at this GPU's clock.

        As in the original a measurement is kept as duration times clock, for all GPUs together,
        and divided by the clock of the GPU in question. When strategies are due is reckoned at the
        nominal clock, for they stand in line on all GPUs; loads know no clock.
        """
        return tuple([ns * NOMINAL_MHZ // self.clock_mhz for ns in exec_ns])

    def take_turn(self, start_ns: int, model: int) -> None:
        """Put a model in line."""
        self.turn_of[model] = start_ns
        heappush(self.turns, (start_ns, model))


_EXEC_END_NS: Final = attrgetter("exec.end_ns")
_DEADLINE_NS: Final = attrgetter("deadline_ns")
_ID: Final = attrgetter("id")

_SWEEP: Final = -1
"""Wake key: look for requests whose time has run out. GPU g wakes with key 2g for batches and
2g + 1 for loads."""

_SPARE_LOOKS: Final = 32
"""So many that have been replaced may stand in line, or as many as there are models."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Clockwork:
    """The policy. See the module's text."""

    Params: ClassVar[type[ClockworkParams]] = ClockworkParams

    def __init__(self, params: ClockworkParams) -> None:
        self._params = params
        self._infer5 = params.variant == "infer5"
        all_of_them = params.faithful_to == "osdi20-artifact"
        self._faults = Faults(*[all_of_them or name in params.faults for name in Faults._fields])
        self._by_deadline = params.order == "deadline"
        self._buffer_ns = int(params.buffer_ms * 1e6)
        self._ahead_ns = int(params.schedule_ahead_ms * 1e6)
        self._delta_ns = int(params.latest_delta_ms * 1e6)
        self._future_ns = int(params.future_ms * 1e6)
        self._lag_ns = int(params.lag_ms * 1e6)
        self._capacity_ns = int(params.default_slo_ms * 1e6)
        self._max_load_slo_ns = int(params.max_load_slo_ms * 1e6)
        assert params.load_interval_us is not None, "filled in by __post_init__"
        assert params.max_loads is not None, "filled in by __post_init__"
        self._load_interval_ns = int(params.load_interval_us * 1e3)
        self._max_loads = params.max_loads
        self._models: list[_Model] = []
        self._gpus: list[_Gpu] = []
        self._in_flight: dict[int, list[_Waiting]] = {}  # by action id
        self._seq = 0
        self._looks: list[tuple[int, int]] = []
        """A heap of (when, model): when a request of the model may run out of time. What counts is
        the model's `look_ns`."""
        self._silent: list[tuple[int, int, Reason]] = []  # given up, not told: (when, id, why)
        self._sweep_ns = FOREVER
        self._loaders: dict[int, _Gpu] = {}
        """GPUs that may begin a load, as far as we know; the one that loaded last comes last."""

    # ---- events

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        in_order = self._faults.in_order
        self._models = [_Model(model, self._params, in_order=in_order) for model in models]
        self._gpus = [_Gpu(gpu, self._future_ns, self._lag_ns) for gpu in gpus]
        self._demand = Demand(
            len(models),
            len(gpus),
            self._capacity_ns,
            load_satisfied=self._faults.load_satisfied,
            forget=self._faults.forget,
            by_arrival=self._params.loads == "arrival",
        )
        self._loaders = {gpu.id: gpu for gpu in self._gpus}

    def on_request(self, now_ns: int, request: Request, out: Actions) -> None:
        m = self._models[request.model]
        slo_ns = request.deadline_ns - request.arrival_ns
        if slo_ns != m.planned_slo_ns:
            self._plan(m, slo_ns)
        deadline_ns = request.arrival_ns + m.exec_slo_ns
        seq = m.next_seq
        w = _Waiting(request.id, deadline_ns, seq, m)
        last_chance_ns = deadline_ns - m.need_ns if m.copies else self._last_chance_ns(w)
        if last_chance_ns <= now_ns:
            cold = now_ns < deadline_ns - m.exec_ns[0] - self._future_ns
            out.reject(w.id, Reason.CANNOT_LOAD_IN_TIME if cold else Reason.CANNOT_START_IN_TIME)
            if cold and not m.copies:  # too late for this one, but not for those that follow
                self._demand.turn_away(m.id, w.load_size, now_ns, now_ns + m.load_slo_ns)
                if self._loaders and self._demand.wanted:
                    self._schedule_loads(now_ns, out)
            return
        m.next_seq = seq + 1
        queue = m.queue
        if self._infer5:
            queue.append(w)
            m.fifos.add(w)
        elif queue and deadline_ns < queue[-1].deadline_ns and not self._faults.in_order:
            m.insert(w)
        else:
            queue.append(w)
        if last_chance_ns < m.look_ns:
            self._look_at(m, last_chance_ns, out)
        demand = self._demand
        demand.add(m.id, w.exec_size, w.load_size, now_ns, now_ns + m.load_slo_ns)
        if m.ready_on:
            (self._offer_to_lines if self._infer5 else self._offer)(now_ns, w, out)
        if self._loaders and demand.wanted:
            self._schedule_loads(now_ns, out)

    def on_result(self, now_ns: int, result: Result, out: Actions) -> None:
        action = result.action
        gpu = self._gpus[out.gpu_of_lane[action.lane]]
        m = self._models[action.model]
        done = result.status is Status.DONE
        if type(action) is Infer:
            self._infer_ended(gpu, m, action, result, out)
            if gpu.turns or gpu.fifos:
                self._schedule_infer(now_ns, gpu, out)
        elif result.why is Why.WORKER_LOST:
            pass  # forgotten, in `on_worker`
        elif type(action) is Load:
            gpu.copy.remove(action.id, result.end_ns)
            self._loaders[gpu.id] = gpu
            gpu.loaded(m.id, m.pages, result.why)
            if done:
                m.load_ns = m.load_estimator.add(result.duration_ns)
                m.planned_slo_ns = -1
                m.ready_on.append(gpu)
                self._came_to(gpu, m)
                self._schedule_infer(now_ns, gpu, out)
            else:
                self._lose(now_ns, gpu, m, out)
        elif not done:
            gpu.unload_failed(m.id, m.pages)
            m.copies += 1
            m.ready_on.append(gpu)
            self._demand.hold(m.id, gpu.id, now_ns)
        if self._loaders and self._demand.wanted:
            self._schedule_loads(now_ns, out)

    def on_wake(self, now_ns: int, key: Hashable, out: Actions) -> None:
        assert isinstance(key, int)
        if key == _SWEEP:
            self._sweep(now_ns, out)
            return
        gpu = self._gpus[key >> 1]
        if gpu.id in out.lost:
            return
        if key & 1:
            self._loaders[gpu.id] = gpu
            self._schedule_loads(now_ns, out)
        else:
            gpu.exec_alarm_ns = FOREVER
            self._schedule_infer(now_ns, gpu, out)

    def on_worker(self, now_ns: int, change: WorkerChange, out: Actions) -> None:
        gpu = self._gpus[change.gpu]
        if change.change is Change.LOST:
            ready, loading = list(gpu.ready), sorted(gpu.loading)
            gpu.clear()
            self._loaders.pop(gpu.id, None)
            for model in ready:
                self._models[model].ready_on.remove(gpu)
            for model in (*ready, *loading):
                self._lose(now_ns, gpu, self._models[model], out)
        else:
            gpu.clear()
            self._loaders[gpu.id] = gpu
        if self._loaders and self._demand.wanted:
            self._schedule_loads(now_ns, out)

    # ---- how long a request has

    def _plan(self, m: _Model, slo_ns: int) -> None:
        """Work out what a request of this model with this SLO means; kept until either changes."""
        buffer_ns, ahead_ns, b1_ns = self._buffer_ns, self._ahead_ns, m.exec_ns[0]
        exec_slo_ns = slo_ns - buffer_ns if slo_ns > buffer_ns else slo_ns
        if self._faults.plan_floor:
            exec_slo_ns = max(exec_slo_ns, ahead_ns + buffer_ns)
        # Where the SLO is shorter than what is spent before and after a load, the original's
        # subtraction wraps around and leaves the SLO itself.
        spent_ns = m.load_ns + b1_ns + buffer_ns + ahead_ns
        left_ns = slo_ns - spent_ns if slo_ns > spent_ns else slo_ns
        load_slo_ns = max(min(self._max_load_slo_ns, left_ns), ahead_ns + buffer_ns, 1)
        m.planned_slo_ns = slo_ns
        m.need_ns = 0 if self._faults.silent_rejects else self._future_ns + b1_ns
        m.exec_slo_ns = max(exec_slo_ns, 1)
        m.load_slo_ns = load_slo_ns
        m.exec_size = max(b1_ns * self._capacity_ns // m.exec_slo_ns, 1)
        m.load_size = b1_ns * self._capacity_ns // load_slo_ns

    def _last_chance_ns(self, w: _Waiting) -> int:
        """When to look at a waiting request again: from then on it may be beyond help.

        An action sent now starts at now + future at the earliest and has to be done before the
        deadline; a model that is nowhere has to be loaded first.
        """
        if self._faults.silent_rejects:
            return w.deadline_ns
        m = w.model
        return w.deadline_ns - m.need_ns - (0 if m.copies else m.load_ns)

    # ---- batches

    def _offer(self, now_ns: int, w: _Waiting, out: Actions) -> None:
        """A new request: give it to a GPU that has time for it, or let it stand in line."""
        m = w.model
        strategies = m.strategies
        while strategies and not strategies[0][3].waits:
            heappop(strategies)
        start_ns = w.deadline_ns - w.lead_ns[m.chain[0]]
        in_line = bool(strategies)
        first = not in_line or start_ns < strategies[0][0]
        self._seq += 1
        heappush(strategies, (start_ns, self._seq, 0, w))
        if in_line:  # others wait for this model, so its GPUs are busy and will call
            if first:
                self._line_up(m, start_ns)
            return
        ready_on = m.ready_on
        # The GPU that is free first has the first choice; mostly it takes it.
        if len(ready_on) == 1:
            gpu = ready_on[0]
        elif self._faults.in_id_order:
            gpu = min(ready_on, key=_ID)
        else:
            gpu = min(ready_on, key=_EXEC_END_NS)
        if gpu.exec.end_ns < now_ns + self._ahead_ns:
            gpu.take_turn(start_ns, m.id)
            self._schedule_infer(now_ns, gpu, out)
            if not w.waits:
                return
        self._line_up(m, start_ns)
        for gpu in self._in_turn(ready_on):
            if gpu.exec.end_ns >= now_ns + self._ahead_ns:
                self._call_at(gpu, gpu.exec.end_ns - self._ahead_ns + 1, out)
                continue
            self._schedule_infer(now_ns, gpu, out)
            if not w.waits:
                return

    def _in_turn(self, gpus: list[_Gpu]) -> list[_Gpu]:
        """The order in which GPUs look at a new request: who is free first, first."""
        return sorted(gpus, key=_ID if self._faults.in_id_order else _EXEC_END_NS)

    def _line_up(self, m: _Model, start_ns: int) -> None:
        """Put the model in line on all its GPUs, with a strategy that is due at start_ns."""
        for gpu in m.ready_on:
            if start_ns < gpu.turn_of.get(m.id, FOREVER):
                gpu.take_turn(start_ns, m.id)

    def _schedule_infer(self, now_ns: int, gpu: _Gpu, out: Actions) -> None:
        """Give a GPU batches until it has work for `schedule_ahead_ms`."""
        if self._infer5:
            self._schedule_lines(now_ns, gpu, out)
            return
        turns, turn_of = gpu.turns, gpu.turn_of
        until_ns = now_ns + self._ahead_ns
        free_ns = gpu.exec.free_ns(now_ns)
        while turns:
            if free_ns >= until_ns:
                if free_ns < FOREVER:  # an engine that is stuck calls by its next result
                    self._call_at(gpu, free_ns - self._ahead_ns + 1, out)
                return
            start_ns, model = turns[0]
            m = self._models[model]
            strategies = m.strategies
            while strategies and not strategies[0][3].waits:
                heappop(strategies)
            if turn_of.get(model) != start_ns:
                heappop(turns)  # replaced by an earlier one
                continue
            if not strategies or model not in gpu.ready:
                heappop(turns)
                del turn_of[model]
                continue
            if strategies[0][0] > start_ns:  # what stood here has gone to another GPU, or is lost
                start_ns = strategies[0][0]
                turn_of[model] = start_ns
                heapreplace(turns, (start_ns, model))
                continue
            heappop(turns)
            del turn_of[model]
            limit_ns = turns[0][0] if turns else FOREVER
            exec_ns = m.exec_ns
            if gpu.clock_mhz != NOMINAL_MHZ:
                exec_ns = gpu.at_clock(exec_ns)
            while strategies:
                start_ns, seq, place, w = strategies[0]
                if not w.waits:
                    heappop(strategies)
                    continue
                if start_ns > limit_ns or free_ns >= until_ns:
                    gpu.take_turn(start_ns, model)
                    break
                k = m.chain[place]
                # Only requests behind w count. (The original then looks for earlier ones, but
                # with its comparison the wrong way round, so that it finds none. Finding them,
                # as tried, changes goodput by less than 0.3%; so it is left out.)
                if (
                    m.queue[-1].seq - w.seq >= m.needed[k] - 1
                    and w.deadline_ns > free_ns + exec_ns[k]
                    and self._try_batch(now_ns, gpu, free_ns, w, k, exec_ns, out)
                ):
                    free_ns = gpu.exec.free_ns(now_ns)  # not end_ns: what runs may be overdue
                    if w.waits and not self._faults.used_up:
                        continue  # the batch was those in front of it
                elif place + 1 < len(m.chain):  # on to the request's next strategy
                    start_ns = w.deadline_ns - w.lead_ns[m.chain[place + 1]]
                    heapreplace(strategies, (start_ns, seq, place + 1, w))
                    continue
                heappop(strategies)

    def _offer_to_lines(self, now_ns: int, w: _Waiting, out: Actions) -> None:
        """A new request, in infer5: its model stands in line on all its GPUs."""
        m = w.model
        for gpu in self._in_turn(m.ready_on):
            if m.id in gpu.fifos:
                continue  # what stands there keeps its place
            gpu.fifos.put(m.id, m.fifos.starts(m.exec_ns, len(m.sizes)))
            self._schedule_lines(now_ns, gpu, out)

    def _schedule_lines(self, now_ns: int, gpu: _Gpu, out: Actions) -> None:
        """Give a GPU batches, in infer5."""
        until_ns = now_ns + self._ahead_ns
        left: list[_Waiting] = []
        while gpu.fifos:
            free_ns = gpu.exec.free_ns(now_ns)
            if free_ns >= until_ns:
                if free_ns < FOREVER:  # an engine that is stuck calls by its next result
                    self._call_at(gpu, free_ns - self._ahead_ns + 1, out)
                break
            first = gpu.fifos.pop()
            assert first is not None, f"GPU {gpu.id} has strategies, but none comes first"
            model, least = first
            if model not in gpu.ready:
                continue
            m = self._models[model]
            exec_ns = m.exec_ns
            if gpu.clock_mhz != NOMINAL_MHZ:
                exec_ns = gpu.at_clock(exec_ns)
            taken = m.fifos.take(free_ns, exec_ns, least, left)
            if taken is None:
                gpu.fifos.put(model, m.fifos.starts(m.exec_ns, least))
            else:
                k, batch = taken
                for w in batch:
                    m.queue.remove(w)
                self._send(now_ns, gpu, m, batch, m.sizes[k], free_ns, exec_ns[k], out)
                gpu.fifos.put(model, m.fifos.starts(m.exec_ns, len(m.sizes)))
        # The original notes no reason: such a request times out.
        silent = self._faults.silent_rejects
        for w in left:
            w.model.queue.remove(w)
            self._give_up(w, Reason.DEADLINE if silent else Reason.CANNOT_START_IN_TIME, out)

    def _call_at(self, gpu: _Gpu, at_ns: int, out: Actions) -> None:
        """Come back to the GPU when it is about to run out of work."""
        if at_ns < gpu.exec_alarm_ns:
            gpu.exec_alarm_ns = at_ns
            out.wake_at(at_ns, 2 * gpu.id)

    def _try_batch(
        self,
        now_ns: int,
        gpu: _Gpu,
        free_ns: int,
        w: _Waiting,
        k: int,
        exec_ns: tuple[int, ...],
        out: Actions,
    ) -> bool:
        """Send a batch of at least sizes[k], which can be done in time for w. True if it was.

        exec_ns: what batches take on this GPU, by `sizes`.
        """
        m = w.model
        queue = m.queue
        while queue[0].deadline_ns < free_ns:  # w itself is in the queue, and in time
            self._give_up(queue.popleft(), Reason.CANNOT_START_IN_TIME, out)
        available = 1 + queue[-1].seq - w.seq
        size = m.sizes[k]
        takes_ns = exec_ns[k]
        done_ns = free_ns + takes_ns
        largest = m.largest
        best = largest[available] if available < len(largest) else largest[-1]
        if best > k:
            # A larger batch is possible. If it meets the deadline it is sent; if it does not, this
            # request stands back, for a later one will carry the larger batch.
            takes_ns = exec_ns[best]
            done_ns = free_ns + takes_ns
            if done_ns > w.deadline_ns:
                return False
            size = m.sizes[best]
        while queue[0] is not w and queue[0].deadline_ns < done_ns:
            self._give_up(queue.popleft(), Reason.SKIPPED, out)
        count = len(queue)
        if count < size and best:
            return False
        batch = [queue.popleft() for _ in range(min(count, size))]
        self._send(now_ns, gpu, m, batch, size, free_ns, takes_ns, out)
        return True

    def _send(
        self,
        now_ns: int,
        gpu: _Gpu,
        m: _Model,
        batch: list[_Waiting],
        size: int,
        free_ns: int,
        exec_ns: int,
        out: Actions,
    ) -> None:
        load_size = 0
        for w in batch:
            w.waits = False
            load_size += w.load_size
        # free_ns is at least now + future, so the window is the original's.
        latest_ns = free_ns + self._delta_ns
        tasks = tuple([w.id for w in batch])
        action_id = out.infer(
            gpu.lane, m.id, size, tasks, now_ns, latest_ns, exec_ns, free_ns + exec_ns
        )
        assert action_id is not None, f"the ledger refused a batch of model {m.id}"
        self._in_flight[action_id] = batch
        gpu.exec.add(now_ns, action_id, exec_ns)
        gpu.use(m.id)
        self._demand.meet(m.id, load_size)

    def _infer_ended(
        self, gpu: _Gpu, m: _Model, action: Infer, result: Result, out: Actions
    ) -> None:
        if result.why is not Why.WORKER_LOST:  # else forgotten, in `on_worker`
            gpu.exec.remove(action.id, result.end_ns)
            if result.clock_mhz != gpu.clock_mhz:
                gpu.exec.rescale(gpu.clock_mhz, result.clock_mhz)
                gpu.clock_mhz = result.clock_mhz
            gpu.used(m.id)
        batch = self._in_flight.pop(action.id)
        exec_size = 0
        for w in batch:
            exec_size += w.exec_size
        self._demand.complete(m.id, exec_size, out.now_ns)
        if result.status is Status.DONE:
            answer = out.answer
            for w in batch:
                answer(w.id)
            self._measured(m, m.largest[action.batch], result)
            return
        # As in the original, an error is final for the requests of the batch: no retry.
        for w in batch:
            out.reject(w.id, REASON_OF[result.status])

    def _measured(self, m: _Model, k: int, result: Result) -> None:
        duration_ns = result.duration_ns
        if result.clock_mhz != NOMINAL_MHZ:
            duration_ns = duration_ns * result.clock_mhz // NOMINAL_MHZ
        estimate_ns = m.estimators[k].add(duration_ns)
        if estimate_ns != m.exec_ns[k]:
            m.exec_ns = (*m.exec_ns[:k], estimate_ns, *m.exec_ns[k + 1 :])
            if not self._by_deadline:
                m.lead_ns = m.exec_ns
            m.planned_slo_ns = -1

    def _came_to(self, gpu: _Gpu, m: _Model) -> None:
        """The model has come to this GPU: what waits for it can be done here as well."""
        if self._infer5:
            if m.id not in gpu.fifos:
                gpu.fifos.put(m.id, m.fifos.starts(m.exec_ns, len(m.sizes)))
            return
        if len(m.ready_on) == 1:  # it was on no other, where strategies were looked at and dropped
            k = m.chain[0]
            m.strategies = []
            for w in m.queue:
                self._seq += 1
                m.strategies.append((w.deadline_ns - w.lead_ns[k], self._seq, 0, w))
            heapify(m.strategies)
        if m.strategies:
            gpu.take_turn(m.strategies[0][0], m.id)

    # ---- requests that cannot be served

    def _wake_for_sweep(self, at_ns: int, out: Actions) -> None:
        if at_ns < self._sweep_ns:
            self._sweep_ns = at_ns
            out.wake_at(at_ns, _SWEEP)

    def _sweep(self, now_ns: int, out: Actions) -> None:
        """Give up the requests whose time has run out, and tell those who have to be told."""
        self._sweep_ns = now_ns  # when to come back is known, and asked for, at the end
        silent = self._silent
        while silent and silent[0][0] <= now_ns:
            _, request_id, reason = heappop(silent)
            out.reject(request_id, reason)
        looks = self._looks
        while looks and looks[0][0] <= now_ns:
            at_ns, model = heappop(looks)
            m = self._models[model]
            if at_ns == m.look_ns:  # not replaced by an earlier one
                m.look_ns = FOREVER
                self._look(now_ns, m, out)
        self._sweep_ns = FOREVER
        if silent or looks:
            first_ns = min(heap[0][0] for heap in (silent, looks) if heap)
            self._wake_for_sweep(first_ns, out)

    def _look(self, now_ns: int, m: _Model, out: Actions) -> None:
        """Give up what can't be done any more, and come back for the next one."""
        while m.queue:
            w = self._most_urgent(m)
            chance_ns = self._last_chance_ns(w)
            if chance_ns > now_ns:
                self._look_at(m, chance_ns, out)
                return
            m.queue.remove(w)  # found at once: it is the oldest, unless SLOs are mixed
            m.fifos.remove(w)
            self._give_up(w, Reason.DEADLINE if m.copies else Reason.CANNOT_LOAD_IN_TIME, out)

    def _look_at(self, m: _Model, at_ns: int, out: Actions) -> None:
        m.look_ns = at_ns
        looks = self._looks
        if len(looks) > 2 * len(self._models) + _SPARE_LOOKS:  # with SLOs of days they would stay
            looks[:] = [(one.look_ns, one.id) for one in self._models if one.look_ns < FOREVER]
            heapify(looks)
        else:
            heappush(looks, (at_ns, m.id))
        self._wake_for_sweep(at_ns, out)

    def _most_urgent(self, m: _Model) -> _Waiting:
        """Of the requests that wait for the model, the one that is due first."""
        if self._infer5 or self._faults.in_order:
            return min(m.queue, key=_DEADLINE_NS)
        return m.queue[0]

    def _give_up(self, w: _Waiting, reason: Reason, out: Actions) -> None:
        w.waits = False
        if self._faults.silent_rejects and out.now_ns < w.deadline_ns:
            heappush(self._silent, (w.deadline_ns, w.id, reason))
            self._wake_for_sweep(w.deadline_ns, out)
        else:
            out.reject(w.id, reason)
        self._demand.meet(w.model.id, w.load_size)
        self._demand.complete(w.model.id, w.exec_size, out.now_ns)

    # ---- loads

    def _schedule_loads(self, now_ns: int, out: Actions) -> None:
        """Load what is most wanted wherever a copy engine has room for it.

        The original asks each GPU in turn which of the models that it lacks is wanted most. Here
        the most wanted model asks for the first GPU that lacks it: the same choice, without
        asking the GPUs that have nothing to do.
        """
        demand = self._demand
        passed = []
        loaded = False
        while self._loaders:
            entry = demand.pop_most_wanted(now_ns)
            if entry is None:
                break
            model = entry[1]
            gpu = self._loader_for(model, now_ns, out)
            if gpu is None:
                passed.append(entry)
            else:
                self._load(now_ns, gpu, self._models[model], out)
                loaded = True
        for entry in passed:
            if loaded:  # which shifts the work of others
                demand.list_again(entry[1], now_ns)
            else:
                demand.put_back(entry)

    def _loader_for(self, model: int, now_ns: int, out: Actions) -> _Gpu | None:
        """The first GPU that lacks the model, has room for it and may begin another load."""
        pages = self._models[model].pages
        for gpu in list(self._loaders.values()):
            if model in gpu.ready or model in gpu.loading:
                continue
            if not self._may_load(gpu, now_ns, out):
                del self._loaders[gpu.id]
            elif self._make_room(now_ns, gpu, pages, out):
                return gpu
        return None

    def _may_load(self, gpu: _Gpu, now_ns: int, out: Actions) -> bool:
        """Whether the GPU's copy engine takes another load now; if not, who will call again."""
        if len(gpu.copy) >= self._max_loads:
            return False  # the next result of a load
        free_ns = gpu.copy.free_ns(now_ns)
        if free_ns == FOREVER:
            return False  # the same
        at_ns = max(gpu.last_load_ns + self._load_interval_ns, free_ns - self._ahead_ns + 1)
        if at_ns <= now_ns:
            return True
        out.wake_at(at_ns, 2 * gpu.id + 1)
        return False

    def _load(self, now_ns: int, gpu: _Gpu, m: _Model, out: Actions) -> None:
        start_ns = gpu.copy.free_ns(now_ns)
        latest_ns = max(now_ns + self._future_ns, start_ns) + self._delta_ns
        action_id = out.load(gpu.lane, m.id, now_ns, latest_ns, m.load_ns, start_ns + m.load_ns)
        assert action_id is not None, f"the ledger refused a load of model {m.id}"
        gpu.copy.add(now_ns, action_id, m.load_ns)
        gpu.load(m.id, m.pages)
        gpu.last_load_ns = now_ns
        m.copies += 1
        self._demand.hold(m.id, gpu.id, now_ns)
        del self._loaders[gpu.id]  # to the end of the line
        if self._may_load(gpu, now_ns, out):
            self._loaders[gpu.id] = gpu

    def _make_room(self, now_ns: int, gpu: _Gpu, pages: int, out: Actions) -> bool:
        """Evict until a model of `pages` may fit: models that nobody waits for first, each least
        recently used first. Evicts nothing if it would not be enough."""
        if gpu.fits(pages):
            return True
        demand = self._demand
        freed = 0
        victims = []
        wanted = []
        for model in gpu.ready:
            if model in gpu.in_use:
                continue
            if not demand.empty(model):
                wanted.append(model)
                continue
            victims.append(model)
            freed += self._models[model].pages
            if gpu.fits(pages, freed):
                break
        while wanted and not gpu.fits(pages, freed):
            victims.append(wanted.pop(0))
            freed += self._models[victims[-1]].pages
        if not gpu.fits(pages, freed):
            return False
        for model in victims:
            self._evict(now_ns, gpu, self._models[model], out)
        return True

    def _evict(self, now_ns: int, gpu: _Gpu, m: _Model, out: Actions) -> None:
        out.unload(gpu.lane, m.id, now_ns, FOREVER)
        gpu.unload(m.id, m.pages)
        m.ready_on.remove(gpu)
        self._lose(now_ns, gpu, m, out)

    def _lose(self, now_ns: int, gpu: _Gpu, m: _Model, out: Actions) -> None:
        """A GPU does not hold the model any more, or will not, as a load failed."""
        m.copies -= 1
        self._demand.release(m.id, gpu.id, now_ns)
        if m.queue and not m.copies:
            # What waits for it needs a load now: its last chance has come closer.
            chance_ns = max(now_ns + 1, self._last_chance_ns(self._most_urgent(m)))
            if chance_ns < m.look_ns:
                self._look_at(m, chance_ns, out)
