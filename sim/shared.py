"""A simulated GPU that several containers share, as reactive servers use it.

    lane 0   ███████ model a ███████
    lane 1        ████ model b ██████████        in flight together: each slows the others down
    lane 2             ███ model c ████

Every lane is a process with one batch in flight; nobody says whose kernels run. A batch that runs
alone takes the profile's duration. Together, a batch of a model that keeps a share u of the GPU
busy counts u, and all are slowed down by `contention` times the sum of what is in flight, once
that is above 1. u is the batch's throughput against the best of its model. On top, a batch that
has had company takes longer or shorter at random (`jitter`). Weights are copied beside all that.

Measured, not chosen: both numbers are fitted, each with one measured file left out (`Sharing`).
Left out: what containers take beyond the weights; give the GPU fewer pages for that.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from scheduler.memory import Memory
from scheduler.records import Action, Infer, Result, Status, Unload, Why
from scheduler.worker import Engine, Residence, Worker
from sim.clock import Clock
from sim.gpu import ModelCost, Stream, next_ns, nobody_hears
from sim.trouble import Trouble

BLOCK = 256


class Sharing(NamedTuple):
    """How batches in flight slow each other down.

    contention: slow-down for each unit of the GPU that is asked for. jitter: standard deviation of
    the logarithm of what a batch with company takes.
    """

    contention: float = 0.92
    """Fitted on ParvaGPU's measurements on an A100, without resnet50's."""
    jitter: float = 0.5
    """Fitted on DISB's results on an RTX 3080, without those of TensorRT under workload D."""


class _Flight:
    """A batch in flight. left_ns: of it, as if it ran alone. demand: of the GPU."""

    __slots__ = ("action", "crowded", "demand", "left_ns", "start_ns")

    def __init__(self, action: Infer, left_ns: float, demand: float, start_ns: int) -> None:
        self.action = action
        self.left_ns = left_ns
        self.demand = demand
        self.start_ns = start_ns
        self.crowded = False


class SharedGpu:
    """The arguments of `sim.gpu.SimGpu`, and how sharing is.

    gaps: by model, how long a lane stays idle after a batch of a size, in ns; instead of gap.
    """

    def __init__(
        self,
        clock: Clock,
        pages: int,
        costs: Sequence[ModelCost],
        gap: int | Stream,
        rng: np.random.Generator,
        report: Callable[[Result], None],
        sharing: Sharing | None = None,
        gaps: Sequence[Callable[[int], int]] | None = None,
        memory: Callable[[int], Memory] | None = None,
    ) -> None:
        self.worker = Worker(
            tuple(cost.pages for cost in costs), pages, memory(pages) if memory else None
        )
        self.trouble: Trouble | None = None
        """What is wrong with it, where a scenario has faults."""
        self._clock = clock
        self._costs = costs
        self._gap = gap
        self._gaps = gaps
        self._rng = rng
        self._report = report
        self._sharing = sharing or Sharing()
        self._demand = [_demands(cost) for cost in costs]
        self._streams: dict[tuple[int, int], Stream] = {}
        self._queues: dict[int, deque[Infer]] = {}
        self._flights: dict[int, _Flight] = {}  # by lane
        self._closed: set[int] = set()  # lanes in the gap after a batch
        self._slow = 1.0
        self._since_ns = 0
        self._round = 0
        self._copy_start_ns = 0
        self._factors: list[float] = []

    def submit(self, now_ns: int, action: Action) -> None:
        """An action has arrived."""
        if type(action) is Infer:
            self._queues.setdefault(action.lane, deque()).append(action)
            self._serve(action.lane, now_ns)
            return
        if type(action) is Unload and any(
            flight.action.model == action.model for flight in self._flights.values()
        ):
            self._report(Result(action, Status.FAILED, Why.IN_USE, now_ns, now_ns, 0))
            return
        result = self.worker.submit(now_ns, action)
        if result is not None:
            self._report(result)
        else:
            self._copy(now_ns)

    def crash(self) -> None:
        """Its worker dies: nobody hears of it again."""
        self._report = nobody_hears

    # ---- weights, one copy at a time

    def _copy(self, now_ns: int) -> None:
        while self.worker.is_idle(Engine.COPY):
            step = self.worker.start(Engine.COPY, now_ns)
            if step is None:
                return
            if isinstance(step, Result):
                self._report(step)
            elif isinstance(step, int):
                self._clock.call_in(step - now_ns, self._copy)
                return
            else:
                self._copy_start_ns = now_ns
                self._clock.call_in(self._draw_ns(step.model, 0), self._copied)

    def _copied(self, now_ns: int) -> None:
        start_ns = self._copy_start_ns
        if self.trouble is not None and now_ns < self.trouble.stalled_until_ns:
            self._clock.call_in(self.trouble.stalled_until_ns - now_ns, self._copied)
            return
        self._report(self.worker.finish(Engine.COPY, start_ns, now_ns, now_ns - start_ns))
        self._copy(now_ns)

    # ---- batches, one in flight on each lane

    def _serve(self, lane: int, now_ns: int) -> None:
        queue = self._queues[lane]
        while queue and lane not in self._flights and lane not in self._closed:
            action = queue[0]
            if action.earliest_ns > now_ns:
                wait_ns = action.earliest_ns - now_ns
                self._clock.call_in(wait_ns, partial(self._serve, lane))
                return
            queue.popleft()
            if now_ns > action.latest_ns:
                self._report(Result(action, Status.MISSED, Why.WINDOW, now_ns, now_ns, 0))
            elif self.worker.residence.get(action.model) is not Residence.READY:
                self._report(Result(action, Status.FAILED, Why.NOT_LOADED, now_ns, now_ns, 0))
            else:
                self._start(lane, action, now_ns)

    def _start(self, lane: int, action: Infer, now_ns: int) -> None:
        self._advance(now_ns)
        alone_ns = self._draw_ns(action.model, action.batch)
        if self.trouble is not None:
            alone_ns = self.trouble.slowed(now_ns, alone_ns)
        demand = self._demand[action.model][action.batch]
        self._flights[lane] = flight = _Flight(action, alone_ns, demand, now_ns)
        if len(self._flights) > 1:
            for other in self._flights.values():
                if not other.crowded:
                    other.crowded = True
                    other.left_ns *= self._factor()
            assert flight.crowded
        self._plan(now_ns)

    def _advance(self, now_ns: int) -> None:
        """What has been done since the last change."""
        done_ns = (now_ns - self._since_ns) / self._slow
        for flight in self._flights.values():
            flight.left_ns -= done_ns
        self._since_ns = now_ns

    def _plan(self, now_ns: int) -> None:
        """The flights have changed: how fast are they, and which is the next to land?"""
        self._round += 1
        flights = self._flights
        if not flights:
            return
        asked = sum(flight.demand for flight in flights.values()) if len(flights) > 1 else 0.0
        self._slow = max(1.0, self._sharing.contention * asked)
        lane = min(flights, key=lambda lane: flights[lane].left_ns)
        delay_ns = max(0, math.ceil(flights[lane].left_ns * self._slow))
        self._clock.call_in(delay_ns, partial(self._land, lane, self._round))

    def _land(self, lane: int, planned: int, now_ns: int) -> None:
        if planned != self._round:
            return  # something has started since
        self._advance(now_ns)
        flight = self._flights.pop(lane)
        self._plan(now_ns)
        action, start_ns = flight.action, flight.start_ns
        gap_ns = self._gaps[action.model](action.batch) if self._gaps else next_ns(self._gap)
        if gap_ns:
            self._closed.add(lane)
            self._clock.call_in(gap_ns, partial(self._open, lane))
        spent_ns = now_ns - start_ns
        why = Why.NOTHING if self.trouble is None else self.trouble.batch_ends()
        status = Status.DONE if why is Why.NOTHING else Status.FAILED
        self._report(Result(action, status, why, start_ns, now_ns, spent_ns))
        if not gap_ns:
            self._serve(lane, now_ns)

    def _open(self, lane: int, now_ns: int) -> None:
        self._closed.discard(lane)
        self._serve(lane, now_ns)

    # ---- draws

    def _draw_ns(self, model: int, batch: int) -> int:
        stream = self._streams.get((model, batch))
        if stream is None:
            cost = self._costs[model]
            stream = Stream(cost.exec[batch] if batch else cost.load, self._rng)
            self._streams[model, batch] = stream
        return stream.next_ns()

    def _factor(self) -> float:
        """Lognormal with mean 1."""
        jitter = self._sharing.jitter
        if not jitter:
            return 1.0
        if not self._factors:
            drawn = self._rng.lognormal(-jitter * jitter / 2, jitter, BLOCK)
            self._factors = drawn.tolist()
        return self._factors.pop()


def _demands(cost: ModelCost) -> dict[int, float]:
    """By batch size, the share of the GPU that a batch keeps busy."""
    rates = {batch: batch / durations.mean_ns() for batch, durations in cost.exec.items()}
    best = max(rates.values())
    return {batch: rate / best for batch, rate in rates.items()}
