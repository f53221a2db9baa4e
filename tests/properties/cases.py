"""Random small worlds, random policies, and a policy that emits nonsense.

Cheap on purpose: a few GPUs with little room, a few models, some dozen requests. What goes wrong in
a large world goes wrong in some small one, and a small one can be read.
"""

import random
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from profiles.durations import Constant, Durations, Quantiles, Samples
from scheduler.faults import (
    DelayedMessages,
    DeviceError,
    Fault,
    LostMessages,
    PausedController,
    SlowGpu,
    StalledCopy,
    WorkerKilled,
)
from scheduler.ledger import Actions
from scheduler.memory import Contiguous
from scheduler.policies import POLICIES
from scheduler.records import (
    FOREVER,
    Action,
    Change,
    GpuInfo,
    Infer,
    ModelInfo,
    Reason,
    Refusal,
    Request,
    Result,
    Status,
    WorkerChange,
)
from sim.cluster import Delays
from sim.gpu import SimGpu
from sim.link import LinkParams
from tests.worlds import MS, ModelSpec, World, run
from workloads import Client

US = 1_000
DAILY = 100
"""Hypothesis' own number of examples. Another one says that a soak is asked for."""


def examples(daily: int) -> settings:
    """So many examples every day; in a soak as many as its profile says."""
    asked = settings.default.max_examples
    return settings(max_examples=daily if asked == DAILY else asked)


class Case(NamedTuple):
    """A world and its traffic. arrivals: (ns, model, stream).

    contiguous: a model has to lie in one piece. faults: what goes wrong. link: to the workers.
    """

    gpus: int
    pages: int
    models: tuple[ModelSpec, ...]
    arrivals: tuple[tuple[int, int, int], ...]
    slo_ns: tuple[tuple[int, ...], ...]
    clients: tuple[Client, ...]
    delays: Delays
    end_ns: int
    drain_ns: int
    seed: int
    contiguous: bool = False
    faults: tuple[Fault, ...] = ()
    link: LinkParams | None = None

    @property
    def stop_ns(self) -> int:
        return self.end_ns + self.drain_ns

    def run(self, policy: Any, *, gpus: int | None = None, record: Any = None) -> World:
        times = np.array([ns for ns, _, _ in self.arrivals], dtype=np.int64)
        which = np.array([model for _, model, _ in self.arrivals], dtype=np.int32)
        return run(
            policy,
            (times, which),
            models=self.models,
            gpus=gpus or self.gpus,
            pages=self.pages,
            delays=self.delays,
            clients=self.clients,
            end_s=self.end_ns / 1e9,
            drain_s=self.drain_ns / 1e9,
            seed=self.seed,
            streams=[stream for _, _, stream in self.arrivals],
            slo_ns=self.slo_ns,
            record=record,
            gpu_kind=partial(SimGpu, memory=Contiguous if self.contiguous else None),
            faults=self.faults,
            link=self.link,
        )


# ---- worlds

_SIZES = st.sampled_from([(1,), (1, 2), (1, 2, 4), (1, 2, 4, 8, 16), (1, 3), (2, 3)])
_TENTHS = st.integers(1, 80)  # of a millisecond
_ROOM = 4
"""Pages that the largest model takes. Every model fits every GPU, as the scenario reader checks."""


def _constant(ns: int, kind: int) -> Durations:
    return Constant(ns)


def _any_kind(ns: int, kind: int) -> Durations:
    if kind == 0:
        return Constant(ns)
    if kind == 1:
        return Quantiles((0.0, 0.9, 1.0), (max(1, ns // 2), ns, 2 * ns))
    return Samples((ns, max(1, ns - 7), 3 * ns, ns))


@st.composite
def _model(draw: Any, durations: Callable[[int, int], Durations]) -> ModelSpec:
    sizes = draw(_SIZES)
    tenths = [draw(_TENTHS) for _ in sizes]
    if draw(st.integers(0, 3)):  # mostly, a larger batch takes longer
        tenths.sort()
    kind = draw(st.integers(0, 2))
    return ModelSpec(
        {size: durations(n * MS // 10, kind) for size, n in zip(sizes, tenths, strict=True)},
        durations(draw(_TENTHS) * MS // 5, kind),
        draw(st.integers(1, _ROOM)),
    )


_SLO_MS = st.sampled_from([0.5, 3, 5, 8, 12, 16, 20, 30, 50, 100, 100, 500])
_GAPS_NS = (0, 0, 0, 1, 100 * US, MS, MS, 2 * MS, 5 * MS, 10 * MS, 40 * MS)
_GAP_NS = st.sampled_from(_GAPS_NS)
_DELAY_NS = st.sampled_from([0, 0, 1, 10 * US, 100 * US, 1_300 * US])
_NO_DELAY = st.just(Delays())
_ANY_DELAYS = st.one_of(_NO_DELAY, st.builds(Delays, *[_DELAY_NS] * len(Delays._fields)))


@st.composite
def cases(
    draw: Any,
    *,
    constant: bool = False,
    delays: bool = True,
    clients: bool = True,
    largest_arrivals: int = 40,
    pieces: bool = False,
) -> Case:
    """A random world. constant: durations do not vary. pieces: models may have to lie in one."""
    models = tuple(
        draw(_model(_constant if constant else _any_kind)) for _ in range(draw(st.integers(1, 6)))
    )
    streams = draw(st.integers(1, 2))
    slo = st.one_of(st.just(FOREVER), _SLO_MS.map(lambda ms: round(ms * MS)))
    if draw(st.booleans()):
        slo = st.just(draw(slo))  # one for all
    slo_ns = tuple(tuple(draw(slo) for _ in models) for _ in range(streams))
    # One number a request is enough, and several times as fast as three.
    choices = len(_GAPS_NS) * len(models) * streams
    least = draw(st.sampled_from([0, largest_arrivals // 8, largest_arrivals // 2]))
    at_ns = 0
    arrivals = []
    for number in draw(
        st.lists(st.integers(0, choices - 1), min_size=least, max_size=largest_arrivals)
    ):
        rest, gap = divmod(number, len(_GAPS_NS))
        at_ns += _GAPS_NS[gap]
        arrivals.append((at_ns, rest % len(models), rest // len(models)))
    end_ns = at_ns + draw(st.sampled_from([1, MS, 60 * MS]))
    closed = []
    if clients and draw(st.booleans()):
        for i in range(draw(st.integers(1, 4))):
            closed.append(
                Client(
                    id=streams + i,
                    model=draw(st.integers(0, len(models) - 1)),
                    slo_ns=draw(slo),
                    think_ns=draw(st.sampled_from([0, MS, 7 * MS])),
                    start_ns=draw(_GAP_NS),
                    # An instant reject may be asked again after 1 us: not for long, then.
                    until_ns=min(end_ns, draw(st.sampled_from([20 * US, 200 * US]))),
                    retry_after_ns=draw(st.sampled_from([0, 7 * US, 100 * US])),
                )
            )
    return Case(
        gpus=draw(st.integers(1, 3)),
        pages=draw(st.integers(_ROOM, 2 * _ROOM)),
        models=models,
        arrivals=tuple(arrivals),
        slo_ns=slo_ns,
        clients=tuple(closed),
        delays=draw(_ANY_DELAYS if delays else _NO_DELAY),
        end_ns=end_ns,
        drain_ns=draw(st.sampled_from([0, 5 * MS, 1000 * MS])),
        seed=draw(st.integers(0, 3)),
        contiguous=pieces and draw(st.booleans()),
    )


_SPAN_S = st.sampled_from([0.001, 0.005, 0.03, 0.2])


@st.composite
def with_link(draw: Any, of: st.SearchStrategy[Case]) -> Case:
    """A world whose batches carry inputs of up to a MB, or much less, over a link of 8 Gbit/s."""
    case = draw(of)
    return case._replace(
        link=LinkParams(
            bits_per_s=8e9,
            sends=draw(st.integers(1, 3)),
            margin_ns=draw(st.sampled_from([0, MS, 5 * MS])),
            input_bytes=tuple(draw(st.sampled_from([0, 1_000, 1_000_000])) for _ in case.models),
        )
    )


@st.composite
def with_faults(draw: Any, of: st.SearchStrategy[Case], *, kills: int = 3) -> Case:
    """A world in which workers die and most of them come back, and other things go wrong."""
    case = draw(of)
    gpu = st.integers(0, case.gpus - 1)
    at_s = st.integers(0, case.end_ns).map(lambda ns: ns / 1e9)
    killed = st.builds(
        WorkerKilled, at_s=at_s, gpu=gpu, back_after_s=st.one_of(st.none(), _SPAN_S, _SPAN_S)
    )
    other = st.one_of(
        st.builds(DeviceError, at_s=at_s, gpu=gpu, batches=st.integers(1, 3)),
        st.builds(StalledCopy, at_s=at_s, gpu=gpu, for_s=_SPAN_S),
        st.builds(
            SlowGpu, at_s=at_s, gpu=gpu, for_s=_SPAN_S, factor=st.sampled_from([1.0, 1.5, 4.0])
        ),
        st.builds(
            DelayedMessages,
            at_s=at_s,
            gpu=gpu,
            for_s=_SPAN_S,
            delay_ms=st.sampled_from([0.1, 3.0, 40.0]),
        ),
        st.builds(
            LostMessages,
            at_s=at_s,
            gpu=gpu,
            lose=st.sampled_from(["actions", "results"]),
            count=st.integers(1, 4),
        ),
        st.builds(PausedController, at_s=at_s, for_s=_SPAN_S),
    )
    faults = draw(st.lists(killed, min_size=1, max_size=kills)) + draw(st.lists(other, max_size=3))
    return case._replace(faults=tuple(faults))


# ---- policies


class Choice(NamedTuple):
    """A policy by its name. A policy serves one run, so each run builds its own."""

    name: str
    params: dict[str, Any]

    def build(self) -> Any:
        kind = POLICIES[self.name]
        return kind(kind.Params(**self.params))


FIFO = st.just(Choice("fifo", {}))

_PARAMS: dict[str, list[Any]] = {
    "default_slo_ms": [1.0, 10.0, 100.0, 1e4],
    "buffer_ms": [0.0, 1.0, 5.0, 20.0],
    "schedule_ahead_ms": [2.0, 5.0, 10.0, 50.0],  # more than future_ms
    "latest_delta_ms": [0.0, 1.0, 10.0],
    "future_ms": [0.0, 0.5, 1.0],
    "lag_ms": [0.0, 10.0],
    "max_loads": [1, 2, 3],
    "load_interval_us": [0.0, 100.0, 5_000.0],
    "max_load_slo_ms": [0.0, 5.0, 25.0, 100.0],
    "estimate_window": [1, 3, 10],
    "estimate_percentile": [0.0, 0.5, 0.99, 1.0],
    "max_batch": [1, 2, 4, 16],
    "max_exec_ms": [0.0, 3.0, 250.0],
}


@st.composite
def clockworks(draw: Any, *, faithful_to: str | None = None, **fixed: Any) -> Choice:
    """Clockwork, as published or with any of its parameters changed."""
    params: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(sorted(_PARAMS)), max_size=5, unique=True)):
        params[name] = draw(st.sampled_from(_PARAMS[name]))
    faults = [faithful_to] if faithful_to else ["none", "osdi20-artifact"]
    params["faithful_to"] = draw(st.sampled_from(faults))
    params["variant"] = draw(st.sampled_from(["infer4", "infer5"]))
    return Choice("clockwork", params | fixed)


_BATCHING: dict[str, list[Any]] = {
    "max_batch": [0, 1, 3, 8],
    "preferred_batch_sizes": [[], [1], [2], [2, 6]],
    "max_queue_delay_us": [0.0, 100.0, 5_000.0, 40_000.0],
    "instances": [1, 2, 3],
    "threads": [0, 1, 2],
    "max_queue_size": [0, 1, 5],
    "staging_slots": [0, 1, 2],
    "max_enqueued_batches": [0, 1, 3],
    "default_timeout_us": [0.0, 500.0, 10_000.0],
    "timeout_action": ["reject", "delay"],
    "priorities": [[], [2], [1, 2], [3, 1, 2]],
}


@st.composite
def batchings(draw: Any) -> Choice:
    """Dynamic batching with any of its parameters changed."""
    names = draw(st.lists(st.sampled_from(sorted(_BATCHING)), max_size=7, unique=True))
    params = {name: draw(st.sampled_from(_BATCHING[name])) for name in names}
    if params.get("max_batch"):
        least = params["max_batch"]
        sizes = params.get("preferred_batch_sizes", [])
        params["preferred_batch_sizes"] = [size for size in sizes if size <= least]
    return Choice("dynamic_batching", params)


class Recorder:
    """Stands before a policy and keeps what goes in and what comes out."""

    def __init__(self, policy: Any, most_events: int = 50_000) -> None:
        self._policy = policy
        self._left = most_events
        self.now_ns = 0
        self.emitted: list[tuple[int, int, Action]] = []
        """(when, GPU, action)."""
        self.results: list[tuple[int, Result]] = []
        self.changes: list[tuple[int, WorkerChange]] = []

    def _after(self, now_ns: int, out: Actions) -> None:
        assert now_ns == out.now_ns
        assert now_ns >= self.now_ns, f"an event at {now_ns} ns came after one at {self.now_ns} ns"
        self.now_ns = now_ns
        self._left -= 1
        assert self._left, "this goes on and on: so many events for so few requests"
        for gpu, action in out.sent:
            self.emitted.append((now_ns, gpu, action))

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        self._policy.on_start(now_ns, gpus, models, rng, out)
        self._after(now_ns, out)

    def on_request(self, now_ns: int, request: Request, out: Actions) -> None:
        self._policy.on_request(now_ns, request, out)
        self._after(now_ns, out)

    def on_result(self, now_ns: int, result: Result, out: Actions) -> None:
        self.results.append((now_ns, result))
        self._policy.on_result(now_ns, result, out)
        self._after(now_ns, out)

    def on_wake(self, now_ns: int, key: Hashable, out: Actions) -> None:
        self._policy.on_wake(now_ns, key, out)
        self._after(now_ns, out)

    def on_worker(self, now_ns: int, change: WorkerChange, out: Actions) -> None:
        self.changes.append((now_ns, change))
        self._policy.on_worker(now_ns, change, out)
        self._after(now_ns, out)


class Hostile:
    """A policy that emits what it likes, sense and nonsense, by dice of its own.

    It keeps its own short books, from the words of the contract, and asserts for each call that it
    was refused exactly if it should be, for one of the reasons that hold, that it was counted, and
    that a refused call changed nothing.
    """

    def __init__(self, seed: int, most_calls: int = 150) -> None:
        self._dice = random.Random(seed)
        self._left = most_calls
        self._gpus: tuple[GpuInfo, ...] = ()
        self._models: tuple[ModelInfo, ...] = ()
        self._seen: list[int] = []
        self._alive: dict[int, int] = {}  # request -> its model
        self._carrier: dict[int, int] = {}  # task -> id of the action in flight
        self._served: set[int] = set()
        self._lost: set[int] = set()
        self.refused = 0
        often = [self._infer] * 4 + [self._answer] * 3 + [self._move, self._wake] * 2
        self._calls = [*often, self._reject]

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        self._gpus, self._models = gpus, models
        for gpu in gpus:  # a start that makes sense, so that some batches run
            for model in models:
                out.load(gpu.lanes[0], model.id, now_ns, FOREVER, 0)
        self._act(now_ns, out)

    def on_request(self, now_ns: int, request: Request, out: Actions) -> None:
        self._seen.append(request.id)
        self._alive[request.id] = request.model
        self._act(now_ns, out)

    def on_result(self, now_ns: int, result: Result, out: Actions) -> None:
        action = result.action
        if isinstance(action, Infer):
            for task in action.tasks:
                if self._carrier.get(task) == action.id:
                    del self._carrier[task]
                    if result.status is Status.DONE and task in self._alive:
                        self._served.add(task)
        self._act(now_ns, out)

    def on_wake(self, now_ns: int, key: Hashable, out: Actions) -> None:
        self._act(now_ns, out)

    def on_worker(self, now_ns: int, change: WorkerChange, out: Actions) -> None:
        if change.change is Change.LOST:
            self._lost.add(change.gpu)
        else:
            self._lost.remove(change.gpu)
        self._act(now_ns, out)

    def _act(self, now_ns: int, out: Actions) -> None:
        for _ in range(self._dice.randrange(4)):
            if self._left:
                self._left -= 1
                call = self._dice.choice(self._calls)
                self._judge(out, *call(now_ns, out))

    def _judge(
        self, out: Actions, call: Callable[[], Any], wrong: set[Refusal], then: Callable[..., None]
    ) -> None:
        """Make the call. wrong: the reasons for which it should be refused."""
        before, counted = self._state(out), list(out.refusals)
        answer = call()
        refused = answer is None or answer is False
        assert refused == bool(wrong), f"{answer} for a call with these faults: {wrong}"
        new = [now - then for now, then in zip(out.refusals, counted, strict=True)]
        if refused:
            assert sum(new) == 1 == max(new)
            assert Refusal(new.index(1)) in wrong
            assert self._state(out) == before, "a refused call changed something"
            self.refused += 1
        else:
            assert not any(new)
            then(answer)

    @staticmethod
    def _state(out: Actions) -> Any:
        work = {task: id(what) for task, what in out.work.items()}
        return list(out.sent), list(out.ended), list(out.wakes), list(out.live), work

    def _window(self, now_ns: int) -> tuple[int, int, set[Refusal]]:
        earliest_ns = now_ns + self._dice.choice([-5 * MS, -1, 0, 0, 0, 1, MS, 4 * MS, 9 * MS])
        closes_ns = now_ns + self._dice.choice([-5 * MS, -1, 0, 1, MS, 4 * MS])
        latest_ns = self._dice.choice([FOREVER, FOREVER, closes_ns])
        bad = latest_ns < earliest_ns or latest_ns < now_ns
        return earliest_ns, latest_ns, {Refusal.BAD_WINDOW} if bad else set()

    def _place(self) -> tuple[int, int, set[Refusal]]:
        """A lane and a model, one in ten of them unknown."""
        dice = self._dice
        lanes = [lane for gpu in self._gpus for lane in gpu.lanes]
        lane = dice.choice(lanes) if dice.random() < 0.9 else dice.choice([-1, len(lanes), 10**9])
        models = len(self._models)
        model = dice.randrange(models) if dice.random() < 0.9 else dice.choice([-1, models, 10**9])
        wrong = set()
        if lane not in lanes:
            wrong.add(Refusal.UNKNOWN_LANE)
        elif lane in self._lost:  # here lane i is GPU i
            wrong.add(Refusal.WORKER_LOST)
        if not 0 <= model < models:
            wrong.add(Refusal.UNKNOWN_MODEL)
        return lane, model, wrong

    def _move(self, now_ns: int, out: Actions) -> Any:
        lane, model, wrong = self._place()
        earliest_ns, latest_ns, bad = self._window(now_ns)
        if self._dice.random() < 0.6:
            call = partial(out.load, lane, model, earliest_ns, latest_ns, -3)
        else:
            call = partial(out.unload, lane, model, earliest_ns, latest_ns)
        return call, wrong | bad, _nothing

    def _infer(self, now_ns: int, out: Actions) -> Any:
        dice = self._dice
        lane, model, wrong = self._place()
        earliest_ns, latest_ns, bad = self._window(now_ns)
        known = Refusal.UNKNOWN_MODEL not in wrong
        if known and dice.random() < 0.7:
            batch = dice.choice(self._models[model].batch_sizes)
        else:
            batch = dice.choice([1, 2, 3, 4, 0, -1, 64])
        if known and batch not in self._models[model].batch_sizes:
            wrong.add(Refusal.UNKNOWN_BATCH)
        busy = self._carrier.keys() | self._served
        free = [task for task, asked in self._alive.items() if asked == model and task not in busy]
        if free and dice.random() < 0.6:
            tasks = tuple(free[: dice.randint(1, max(1, batch))])
        else:
            tasks = tuple(self._someone() for _ in range(dice.choice([1, 1, 1, 2, 2, 3, 0])))
        if not 0 < len(tasks) <= batch:
            wrong.add(Refusal.TOO_MANY_TASKS)
        if any(task not in self._alive for task in tasks):
            wrong.add(Refusal.UNKNOWN_REQUEST)
        if len(set(tasks)) < len(tasks) or any(task in self._carrier for task in tasks):
            wrong.add(Refusal.TASK_IN_FLIGHT)
        if any(self._alive.get(task, model) != model for task in tasks):
            wrong.add(Refusal.WRONG_MODEL)
        if any(task in self._served for task in tasks):
            wrong.add(Refusal.ALREADY_SERVED)

        def ride(action_id: int) -> None:
            for task in tasks:
                self._carrier[task] = action_id

        call = partial(out.infer, lane, model, batch, tasks, earliest_ns, latest_ns, 5)
        return call, wrong | bad, ride

    def _answer(self, now_ns: int, out: Actions) -> Any:
        served = sorted(self._served)
        task = (
            self._dice.choice(served) if served and self._dice.random() < 0.7 else self._someone()
        )
        wrong = set()
        if task not in self._alive:
            wrong.add(Refusal.UNKNOWN_REQUEST)
        elif task not in self._served:
            wrong.add(Refusal.NOT_SERVED)
        return partial(out.answer, task), wrong, lambda _: self._end(task)

    def _reject(self, now_ns: int, out: Actions) -> Any:
        task = self._someone()
        reason: Any = self._dice.choice([*Reason, -1, 99])
        wrong = set() if task in self._alive else {Refusal.UNKNOWN_REQUEST}
        if reason not in list(Reason):
            wrong.add(Refusal.UNKNOWN_REASON)
        return partial(out.reject, task, reason), wrong, lambda _: self._end(task)

    def _wake(self, now_ns: int, out: Actions) -> Any:
        at_ns = now_ns + self._dice.choice([-MS, -1, 0, 1, 50 * US, MS, 30 * MS])
        key = self._dice.choice(["a", 1, (2, "b")])
        wrong = {Refusal.WAKE_IN_THE_PAST} if at_ns <= now_ns else set()
        return partial(out.wake_at, at_ns, key), wrong, _nothing

    def _someone(self) -> int:
        """A request: mostly one of the last few, now and then one that nobody ever sent."""
        if not self._seen or self._dice.random() < 0.1:
            return self._dice.choice([-1, 10**9])
        return self._dice.choice(self._seen[-8:])

    def _end(self, task: int) -> None:
        self._alive.pop(task, None)
        self._served.discard(task)
        self._carrier.pop(task, None)


def _nothing(answer: Any) -> None:
    """Nothing to note."""
