"""One GPU's discipline: each refusal one by one, and a refused action changes nothing."""

from typing import Any

import pytest

from scheduler.records import FOREVER, Infer, Load, Status, Unload, Why
from scheduler.worker import Engine, Residence, Worker

PAGES_OF = (2, 3, 4)


class Gpu:
    """A worker with 6 pages and short words for its moves."""

    def __init__(self) -> None:
        self.worker = Worker(PAGES_OF, pages=6)
        self._next_id = 0

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id

    def load(self, model: int, *, at: int = 0, window: tuple[int, int] = (0, FOREVER)) -> Any:
        self.worker.submit(at, Load(self._id(), 0, model, *window, 0))
        return self.worker.start(Engine.COPY, at)

    def infer(self, model: int, *, at: int = 0, window: tuple[int, int] = (0, FOREVER)) -> Any:
        self.worker.submit(at, Infer(self._id(), 0, model, 1, (7,), *window, 0))
        return self.worker.start(Engine.EXEC, at)

    def unload(self, model: int, *, at: int = 0, window: tuple[int, int] = (0, FOREVER)) -> Any:
        return self.worker.submit(at, Unload(self._id(), 0, model, *window, 0))

    def finish(self, engine: Engine, at: int = 10) -> Any:
        return self.worker.finish(engine, 0, at, at)

    def loaded(self, *models: int) -> "Gpu":
        for model in models:
            assert isinstance(self.load(model), Load)
            self.finish(Engine.COPY)
        return self

    def state(self) -> Any:
        """All there is, but for the queue's numbers."""
        worker = self.worker
        return worker.pages_used, dict(worker.residence), list(worker._running)


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


# ---- what is allowed


def test_a_load_takes_its_pages_when_it_starts_and_the_model_is_ready_when_it_ends(
    gpu: Gpu,
) -> None:
    load = gpu.load(0)
    assert gpu.state() == (2, {0: Residence.LOADING}, [None, load])
    result = gpu.finish(Engine.COPY, at=10)
    assert (result.status, result.why, result.end_ns) == (Status.DONE, Why.NOTHING, 10)
    assert gpu.state() == (2, {0: Residence.READY}, [None, None])


def test_an_unload_is_done_at_once_and_gives_all_pages_back(gpu: Gpu) -> None:
    result = gpu.loaded(0).unload(0, at=12)
    assert (result.status, result.start_ns, result.end_ns) == (Status.DONE, 12, 12)
    assert gpu.state() == (0, {}, [None, None])


def test_a_load_may_fill_the_gpu_to_the_last_page(gpu: Gpu) -> None:
    assert isinstance(gpu.loaded(0).load(2), Load)
    assert gpu.worker.pages_used == 6


def test_both_ends_belong_to_a_window(gpu: Gpu) -> None:
    gpu.loaded(0)
    assert isinstance(gpu.infer(0, at=5, window=(5, 9)), Infer)
    gpu.finish(Engine.EXEC)
    assert isinstance(gpu.infer(0, at=9, window=(5, 9)), Infer)


def test_weights_load_while_another_model_executes(gpu: Gpu) -> None:
    infer = gpu.loaded(0).infer(0)
    load = gpu.load(1)
    assert gpu.worker._running == [infer, load]


def test_a_busy_engine_starts_nothing(gpu: Gpu) -> None:
    gpu.loaded(0).infer(0)
    assert gpu.infer(0) is None
    assert isinstance(gpu.finish(Engine.EXEC).action, Infer)
    assert isinstance(gpu.worker.start(Engine.EXEC, 10), Infer)


def test_an_action_before_its_window_says_when_to_call_again(gpu: Gpu) -> None:
    gpu.loaded(0)
    assert gpu.infer(0, at=3, window=(8, 9)) == 8
    assert gpu.worker.start(Engine.EXEC, 7) == 8
    assert isinstance(gpu.worker.start(Engine.EXEC, 8), Infer)


def test_actions_start_by_earliest_start_and_then_in_the_order_of_arrival(gpu: Gpu) -> None:
    gpu.loaded(0)
    for earliest in (5, 3, 5, 3):
        gpu.infer(0, at=0, window=(earliest, FOREVER))
    order = []
    for _ in range(4):
        order.append(gpu.worker.start(Engine.EXEC, 6).id)
        gpu.finish(Engine.EXEC)
    assert order == [3, 5, 2, 4]  # the load was 1


def test_what_cannot_start_any_more_makes_room_for_the_next(gpu: Gpu) -> None:
    gpu.loaded(0)
    gpu.worker.submit(0, Infer(8, 0, 0, 1, (1,), 0, 4, 0))
    gpu.worker.submit(0, Infer(9, 0, 0, 1, (2,), 0, FOREVER, 0))
    missed = gpu.worker.start(Engine.EXEC, 5)
    assert (missed.action.id, missed.status) == (8, Status.MISSED)
    assert gpu.worker.start(Engine.EXEC, 5).id == 9


def test_an_idle_engine_has_nothing_to_say(gpu: Gpu) -> None:
    assert gpu.worker.start(Engine.EXEC, 0) is None
    assert gpu.worker.start(Engine.COPY, 0) is None


# ---- what is refused


def refused(gpu: Gpu, move: str, model: int, **when: Any) -> tuple[Status, Why]:
    """Make a move that is refused; what it says, once it is seen to have changed nothing."""
    before = gpu.state()
    result = getattr(gpu, move)(model, **when)
    assert gpu.state() == before
    at = when.get("at", 0)
    assert (result.start_ns, result.end_ns, result.duration_ns) == (at, at, 0)
    return result.status, result.why


@pytest.mark.parametrize("move", ["infer", "load"])
def test_after_its_window_an_action_is_missed(gpu: Gpu, move: str) -> None:
    gpu.loaded(0)
    model = {"infer": 0, "load": 1}[move]
    assert refused(gpu, move, model, at=10, window=(5, 9)) == (Status.MISSED, Why.WINDOW)


@pytest.mark.parametrize("window", [(5, 9), (11, 20)])
def test_an_unload_outside_its_window_is_missed(gpu: Gpu, window: tuple[int, int]) -> None:
    gpu.loaded(0)
    missed = refused(gpu, "unload", 0, at=10, window=window)
    assert missed == (Status.MISSED, Why.WINDOW)


def test_a_batch_needs_its_model(gpu: Gpu) -> None:
    assert refused(gpu, "infer", 0) == (Status.FAILED, Why.NOT_LOADED)


def test_a_model_on_its_way_is_not_there_yet(gpu: Gpu) -> None:
    gpu.load(0)
    assert refused(gpu, "infer", 0) == (Status.FAILED, Why.NOT_LOADED)
    assert refused(gpu, "unload", 0) == (Status.FAILED, Why.NOT_LOADED)


def test_a_model_that_is_there_is_not_loaded_again(gpu: Gpu) -> None:
    assert refused(gpu.loaded(0), "load", 0) == (Status.FAILED, Why.ALREADY_LOADED)


def test_a_load_needs_room(gpu: Gpu) -> None:
    """2 + 3 of 6 pages are taken, and model 2 needs 4."""
    assert refused(gpu.loaded(0, 1), "load", 2) == (Status.FAILED, Why.NO_PAGES)


def test_pages_are_taken_by_what_is_still_loading(gpu: Gpu) -> None:
    gpu.load(2)
    gpu.worker.submit(0, Load(9, 0, 1, 0, FOREVER, 0))
    gpu.finish(Engine.COPY)
    result = gpu.worker.start(Engine.COPY, 10)
    assert result.why is Why.NO_PAGES


def test_what_is_not_there_is_not_unloaded(gpu: Gpu) -> None:
    assert refused(gpu, "unload", 0) == (Status.FAILED, Why.NOT_LOADED)


def test_a_model_in_use_is_not_unloaded(gpu: Gpu) -> None:
    gpu.loaded(0, 1).infer(0)
    assert refused(gpu, "unload", 0) == (Status.FAILED, Why.IN_USE)
    assert gpu.unload(1).status is Status.DONE  # another one is
    gpu.finish(Engine.EXEC)
    assert gpu.unload(0).status is Status.DONE


def test_nothing_can_finish_that_has_not_started(gpu: Gpu) -> None:
    with pytest.raises(AssertionError, match="COPY finished, but nothing was running"):
        gpu.finish(Engine.COPY)
