"""The controller's view of a GPU: what it holds, and when each of its engines will be free.

The view is a prediction. It changes when an action is sent, and is put right when the result
comes back. Source of the engine's arithmetic: Clockwork's WorkerTracker, which adds the expected
durations of what is outstanding to the end of what is finished.
"""

from collections import OrderedDict
from collections.abc import Callable

from mypy_extensions import mypyc_attr

from scheduler.records import FOREVER, GpuInfo, Why


class EngineView:
    """When will an engine be free?

    future_ns: a new action reaches the worker this long after now, at the earliest.
    lag_ns: if the oldest action is overdue by more than this, the engine counts as stuck.
    """

    __slots__ = ("_begin_ns", "_future_ns", "_lag_ns", "_outstanding", "end_ns")

    def __init__(self, future_ns: int, lag_ns: int) -> None:
        self._future_ns = future_ns
        self._lag_ns = lag_ns
        self._outstanding: dict[int, int] = {}  # action id -> expected duration, oldest first
        self._begin_ns = 0  # when the oldest outstanding action started, as far as we know
        self.end_ns = 0
        """When everything outstanding is expected to be finished."""

    def __len__(self) -> int:
        return len(self._outstanding)

    def free_ns(self, now_ns: int) -> int:
        """The earliest start of a new action; FOREVER while the engine is stuck."""
        outstanding = self._outstanding
        if outstanding:
            oldest_end_ns = self._begin_ns + next(iter(outstanding.values()))
            if oldest_end_ns + self._lag_ns < now_ns:
                return FOREVER
        soonest_ns = now_ns + self._future_ns
        end_ns = self.end_ns
        return end_ns if end_ns > soonest_ns else soonest_ns

    def add(self, now_ns: int, action_id: int, expected_ns: int) -> None:
        """An action was sent."""
        if not self._outstanding:
            self._begin_ns = self.end_ns = max(self.end_ns, now_ns + self._future_ns)
        self._outstanding[action_id] = expected_ns
        self.end_ns += expected_ns

    def remove(self, action_id: int, end_ns: int) -> None:
        """An action ended, or did not start, at `end_ns`; what is left begins then."""
        expected_ns = self._outstanding.pop(action_id)
        left_ns = self.end_ns - self._begin_ns - expected_ns
        self._begin_ns = end_ns
        self.end_ns = end_ns + left_ns

    def rescale(self, was_mhz: int, is_mhz: int) -> None:
        """The clock has changed: what is outstanding will take more, or less."""
        self._outstanding = {
            action_id: expected_ns * was_mhz // is_mhz
            for action_id, expected_ns in self._outstanding.items()
        }
        if self._outstanding:
            self.end_ns = self._begin_ns + sum(self._outstanding.values())


@mypyc_attr(allow_interpreted_subclasses=True)
class GpuView:
    """One GPU as the controller sees it.

    ready: models that can run, least recently used first.
    loading: models on their way. in_use: batches in flight, by model.
    """

    def __init__(self, info: GpuInfo, future_ns: int, lag_ns: int) -> None:
        self.id = info.id
        self.lane = info.lanes[0]
        self._pages, self._future_ns, self._lag_ns = info.pages, future_ns, lag_ns
        self.clear()

    def clear(self) -> None:
        """Its worker is gone, or has come back: there is nothing on it."""
        self.free_pages = self._pages
        self._no_hole = FOREVER  # since the last pages came free, none for so many side by side
        self.ready: OrderedDict[int, None] = OrderedDict()
        self.loading: set[int] = set()
        self.in_use: dict[int, int] = {}
        self.exec = EngineView(self._future_ns, self._lag_ns)
        self.copy = EngineView(self._future_ns, self._lag_ns)

    def holds(self, model: int) -> bool:
        """Whether the model is on this GPU or on its way."""
        return model in self.ready or model in self.loading

    def fits(self, pages: int, freed: int = 0) -> bool:
        """Whether a model may fit, once models of `freed` pages in all have been evicted.

        Enough free pages may not be side by side (`Why.NO_SPACE`). After such a failure no model
        of that size or above is believed to fit until something else has been evicted.
        """
        return self.free_pages + freed >= pages and (freed > 0 or pages < self._no_hole)

    def victims(
        self, pages: int, pages_of: Callable[[int], int], may_go: Callable[[int], bool]
    ) -> list[int] | None:
        """Idle models to evict so that one of `pages` may fit, least recently used first.

        pages_of: of a model. may_go: which may be evicted. None if all those were not enough.
        """
        found: list[int] = []
        freed = 0
        for model in self.ready:
            if self.fits(pages, freed):
                break
            if model not in self.in_use and may_go(model):
                found.append(model)
                freed += pages_of(model)
        return found if self.fits(pages, freed) else None

    def load(self, model: int, pages: int) -> None:
        """A load was sent."""
        self.free_pages -= pages
        self.loading.add(model)

    def loaded(self, model: int, pages: int, why: Why = Why.NOTHING) -> None:
        """A load came back. why: it is not done."""
        self.loading.discard(model)
        if why is Why.NOTHING:
            self.ready[model] = None
        else:
            self.free_pages += pages
            self._no_hole = pages if why is Why.NO_SPACE else FOREVER

    def unload(self, model: int, pages: int) -> None:
        """An unload was sent."""
        del self.ready[model]
        self.free_pages += pages
        self._no_hole = FOREVER

    def unload_failed(self, model: int, pages: int) -> None:
        """An unload came back undone: the model is still there."""
        self.ready[model] = None
        self.free_pages -= pages

    def use(self, model: int) -> None:
        """A batch of the model was sent."""
        self.in_use[model] = self.in_use.get(model, 0) + 1
        self.ready.move_to_end(model)

    def used(self, model: int) -> None:
        """A batch of the model came back."""
        left = self.in_use.pop(model) - 1
        if left:
            self.in_use[model] = left
