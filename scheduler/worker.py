"""The worker's brain: the discipline of one GPU.

It takes actions, keeps them by earliest start, owns the page table, and says which action starts
now and which can no longer be honoured. It does not decide anything: an action that cannot start
inside its window is not run late, it comes back as missed (Clockwork, section 3 of the facts on
its source: "no autonomy"). The same object runs inside the simulated GPU and inside the live
worker process.

Not here: time (the caller passes it), and how long things take.
"""

from enum import IntEnum
from heapq import heappop, heappush
from typing import Final

from scheduler.memory import Memory, NoSpace, Place
from scheduler.records import Action, Infer, Load, Result, Status, Unload, Why


class Engine(IntEnum):
    """What works side by side on a GPU: kernels, and the copy of weights."""

    EXEC = 0
    COPY = 1


class Residence(IntEnum):
    """Where a model stands on this GPU."""

    ABSENT = 0
    LOADING = 1
    READY = 2


ENGINES: Final = tuple(Engine)


class Worker:
    """One GPU's queues and page table.

    pages_of_model: pages that each model's weights take, by model index.
    pages: the GPU's room, in pages.
    memory: says on which pages a model lies (`scheduler/memory.py`). Without it pages are counted
    only: that is all there is to know where any free page will do, and no device to tell.
    """

    def __init__(
        self, pages_of_model: tuple[int, ...], pages: int, memory: Memory | None = None
    ) -> None:
        self.pages = pages
        self.pages_used = 0
        self.residence: dict[int, Residence] = {}
        """Models that are not absent."""
        self.places: dict[int, Place] = {}
        """Where they lie, if there is a memory that knows."""
        self._memory = memory
        self.pages_of_model = pages_of_model
        self._running: list[Action | None] = [None, None]
        self._queues: list[list[tuple[int, int, Action]]] = [[], []]
        self._seq = 0

    def submit(self, now_ns: int, action: Action) -> Result | None:
        """Take an action. An unload is done at once; the others wait for `start`."""
        if type(action) is Unload:
            return self._unload(now_ns, action)
        engine = Engine.EXEC if type(action) is Infer else Engine.COPY
        self._seq += 1
        heappush(self._queues[engine], (action.earliest_ns, self._seq, action))
        return None

    def is_idle(self, engine: Engine) -> bool:
        """Whether nothing runs on `engine`."""
        return self._running[engine] is None

    def start(self, engine: Engine, now_ns: int) -> Action | Result | int | None:
        """Say what `engine` does now.

        Returns an action, which has started; or a result, of an action that cannot start (call
        again); or the time at which to call again; or None: busy, or nothing to do.
        """
        queue = self._queues[engine]
        if self._running[engine] is not None or not queue:
            return None
        earliest_ns, _, action = queue[0]
        if earliest_ns > now_ns:
            return earliest_ns
        heappop(queue)
        if now_ns > action.latest_ns:
            return Result(action, Status.MISSED, Why.WINDOW, now_ns, now_ns, 0)
        why = self._begin(action)
        if why is not Why.NOTHING:
            return Result(action, Status.FAILED, why, now_ns, now_ns, 0)
        self._running[engine] = action
        return action

    def finish(
        self,
        engine: Engine,
        start_ns: int,
        end_ns: int,
        duration_ns: int,
        why: Why = Why.NOTHING,
    ) -> Result:
        """The running action of `engine` has ended. why: what went wrong, if anything did.

        A model whose load went wrong is absent, and its pages are free.
        """
        action = self._running[engine]
        assert action is not None, f"engine {engine.name} finished, but nothing was running on it"
        self._running[engine] = None
        if why is not Why.NOTHING:
            if type(action) is Load:
                self._forget(action.model)
            return Result(action, Status.FAILED, why, start_ns, end_ns, duration_ns)
        if type(action) is Load:
            self.residence[action.model] = Residence.READY
        return Result(action, Status.DONE, Why.NOTHING, start_ns, end_ns, duration_ns)

    def _begin(self, action: Action) -> Why:
        model = action.model
        here = self.residence.get(model, Residence.ABSENT)
        if type(action) is Infer:
            return Why.NOTHING if here is Residence.READY else Why.NOT_LOADED
        if here is not Residence.ABSENT:
            return Why.ALREADY_LOADED
        need = self.pages_of_model[model]
        if self.pages_used + need > self.pages:
            return Why.NO_PAGES
        if self._memory is not None:
            try:
                self.places[model] = self._memory.take(need)
            except NoSpace:
                return Why.NO_SPACE
        self.pages_used += need
        self.residence[model] = Residence.LOADING
        return Why.NOTHING

    def _unload(self, now_ns: int, action: Unload) -> Result:
        model = action.model
        why = Why.NOTHING
        if not action.earliest_ns <= now_ns <= action.latest_ns:
            return Result(action, Status.MISSED, Why.WINDOW, now_ns, now_ns, 0)
        if self.residence.get(model, Residence.ABSENT) is not Residence.READY:
            why = Why.NOT_LOADED
        else:
            running = self._running[Engine.EXEC]
            if running is not None and running.model == model:
                why = Why.IN_USE
        if why is not Why.NOTHING:
            return Result(action, Status.FAILED, why, now_ns, now_ns, 0)
        self._forget(model)
        return Result(action, Status.DONE, Why.NOTHING, now_ns, now_ns, 0)

    def _forget(self, model: int) -> None:
        del self.residence[model]
        self.pages_used -= self.pages_of_model[model]
        assert self.pages_used >= 0, f"model {model} gave back more pages than it took"
        if self._memory is not None:
            self._memory.give(self.places.pop(model))
