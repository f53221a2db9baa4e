"""A simulated GPU: the worker's brain, with durations drawn from profiles.

Two engines work side by side, one runs batches and one copies weights; each does one thing at a
time. Where one core does both they take turns.
Not here: what to run when (`scheduler/worker.py`), and messages (`sim/cluster.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from mypy_extensions import mypyc_attr

from profiles.durations import Durations
from scheduler.memory import Memory
from scheduler.records import Action, Infer, Result, Why
from scheduler.worker import ENGINES, Engine, Worker
from sim.clock import Clock
from sim.trouble import Trouble


class ModelCost:
    """What one model costs on this kind of GPU. pages: room for its weights."""

    __slots__ = ("exec", "load", "pages")

    def __init__(self, pages: int, load: Durations, exec: Mapping[int, Durations]) -> None:
        self.pages = pages
        self.load = load
        self.exec = exec


class Stream:
    """Draws from one distribution after another, in blocks: one call into numpy per block."""

    BLOCK = 256

    def __init__(self, durations: Durations, rng: np.random.Generator) -> None:
        self._durations = durations
        self._rng = rng
        self._block: list[int] = []

    def next_ns(self) -> int:
        """The next duration."""
        if not self._block:
            self._block = self._durations.draw_ns(self._rng, self.BLOCK).tolist()
            self._block.reverse()
        return self._block.pop()

    def draw_ns(self, n: int) -> np.ndarray:
        """The next n, shape (n,)."""
        return self._durations.draw_ns(self._rng, n)


@mypyc_attr(allow_interpreted_subclasses=True)
class SimGpu:
    """One GPU. `report` is called with each result at the moment it is known to the worker.

    gap: an engine stays idle this long between two actions, in ns.
    memory: makes the memory for so many pages, where it matters on which a model lies.
    turns: one engine at a time; when one is done the other may begin first.
    """

    def __init__(
        self,
        clock: Clock,
        pages: int,
        costs: Sequence[ModelCost],
        gap: int | Stream,
        rng: np.random.Generator,
        report: Callable[[Result], None],
        memory: Callable[[int], Memory] | None = None,
        turns: bool = False,
    ) -> None:
        self.worker = Worker(
            tuple(cost.pages for cost in costs), pages, memory(pages) if memory else None
        )
        self.trouble: Trouble | None = None
        """What is wrong with it, where a scenario has faults."""
        self._clock = clock
        self._costs = costs
        self._gap = gap
        self._rng = rng
        self._report = report
        self._turns = turns
        self._free_ns = [0] * len(ENGINES)
        self._core = [0 if turns else engine for engine in ENGINES]
        """Where in `_free_ns` an engine looks."""
        self._start_ns = [0] * len(ENGINES)
        self._alarm_ns = [-1] * len(ENGINES)
        self._duration_ns: dict[tuple[int, int], int | Stream] = {}
        self._finished = [partial(self._finish, engine) for engine in ENGINES]
        self._called = [partial(self._alarm, engine) for engine in ENGINES]

    def submit(self, now_ns: int, action: Action) -> None:
        """An action has arrived."""
        result = self.worker.submit(now_ns, action)
        if result is not None:
            self._report(result)
        else:
            self._run(Engine.EXEC if type(action) is Infer else Engine.COPY, now_ns)

    def crash(self) -> None:
        """Its worker dies: nobody hears of it again."""
        self._report = nobody_hears

    def _run(self, engine: Engine, now_ns: int) -> None:
        """Start what can be started."""
        core = self._core[engine]
        free_ns = self._free_ns[core]
        if now_ns < free_ns:  # running, or in the gap behind an action
            if self.worker.is_idle(engine) and not now_ns < self._alarm_ns[engine] <= free_ns:
                self._call_at(engine, now_ns, free_ns)
            return
        while True:
            step = self.worker.start(engine, now_ns)
            if step is None:
                return
            if isinstance(step, int):
                if not now_ns < self._alarm_ns[engine] <= step:
                    self._call_at(engine, now_ns, step)
                return
            if isinstance(step, Result):
                self._report(step)
                continue
            duration_ns = self._draw(step)
            if self.trouble is not None and engine is Engine.EXEC:
                duration_ns = self.trouble.slowed(now_ns, duration_ns)
            self._start_ns[engine] = now_ns
            self._free_ns[core] = now_ns + duration_ns + next_ns(self._gap)
            self._clock.call_in(duration_ns, self._finished[engine])
            return

    def _finish(self, engine: Engine, now_ns: int) -> None:
        why = Why.NOTHING
        trouble = self.trouble
        if trouble is not None:
            if engine is Engine.EXEC:
                why = trouble.batch_ends()
            elif now_ns < trouble.stalled_until_ns:
                left_ns = trouble.stalled_until_ns - now_ns
                self._free_ns[self._core[engine]] = now_ns + left_ns + next_ns(self._gap)
                self._clock.call_in(left_ns, self._finished[engine])
                return
        start_ns = self._start_ns[engine]
        self._report(self.worker.finish(engine, start_ns, now_ns, now_ns - start_ns, why))
        if self._turns:
            self._run(ENGINES[1 - engine], now_ns)
        self._run(engine, now_ns)

    def _call_at(self, engine: Engine, now_ns: int, at_ns: int) -> None:
        self._alarm_ns[engine] = at_ns
        self._clock.call_in(at_ns - now_ns, self._called[engine])

    def _alarm(self, engine: Engine, now_ns: int) -> None:
        self._run(engine, now_ns)

    def _draw(self, action: Action) -> int:
        batch = action.batch if type(action) is Infer else 0
        key = (action.model, batch)
        duration = self._duration_ns.get(key)
        if duration is None:
            cost = self._costs[action.model]
            durations = cost.exec[batch] if batch else cost.load
            constant_ns = durations.constant_ns
            duration = Stream(durations, self._rng) if constant_ns is None else constant_ns
            self._duration_ns[key] = duration
        return duration if isinstance(duration, int) else duration.next_ns()


def next_ns(delay: int | Stream) -> int:
    """A delay that may vary."""
    return delay if isinstance(delay, int) else delay.next_ns()


def nobody_hears(result: Result) -> None:
    """The report of a worker that is dead."""
