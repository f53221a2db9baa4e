"""The controller's prediction of a GPU. Numbers by hand, in ns; an action reaches the worker 10
after now, and an engine is stuck when its oldest action is overdue by more than 50."""

import pytest

from scheduler.records import FOREVER, GpuInfo, Why
from scheduler.view import EngineView, GpuView


@pytest.fixture
def engine() -> EngineView:
    return EngineView(future_ns=10, lag_ns=50)


def test_an_idle_engine_is_free_as_soon_as_an_action_can_be_there(engine: EngineView) -> None:
    assert engine.free_ns(100) == 110


def test_what_is_outstanding_adds_up(engine: EngineView) -> None:
    engine.add(100, 1, 30)  # from 110
    engine.add(105, 2, 20)
    assert engine.end_ns == 160
    assert engine.free_ns(120) == 160
    assert len(engine) == 2


def test_a_result_puts_the_prediction_right(engine: EngineView) -> None:
    engine.add(100, 1, 30)
    engine.add(100, 2, 20)
    engine.remove(1, 137)  # 3 early: it started at once
    assert engine.free_ns(137) == 157
    engine.remove(2, 160)  # 3 late
    assert engine.end_ns == 160
    assert engine.free_ns(160) == 170


def test_after_an_idle_spell_work_begins_now_and_not_where_the_last_ended(
    engine: EngineView,
) -> None:
    engine.add(100, 1, 30)
    engine.remove(1, 140)
    engine.add(500, 2, 30)
    assert engine.end_ns == 540


def test_a_refused_action_takes_no_time(engine: EngineView) -> None:
    engine.add(100, 1, 30)
    engine.add(100, 2, 40)
    engine.remove(1, 115)  # it did not start
    assert engine.end_ns == 155


def test_an_engine_whose_oldest_action_is_overdue_gets_no_more_work(engine: EngineView) -> None:
    engine.add(100, 1, 30)  # expected to end at 140, so stuck after 190
    assert engine.free_ns(190) == 200
    assert engine.free_ns(191) == FOREVER
    engine.remove(1, 192)
    assert engine.free_ns(192) == 202


def test_only_the_oldest_counts_for_being_stuck(engine: EngineView) -> None:
    engine.add(100, 1, 30)
    engine.add(100, 2, 1_000)
    engine.remove(1, 140)  # 2 began at 140 and ends at 1140
    assert engine.free_ns(1_000) == 1_140
    assert engine.free_ns(1_190) == 1_200
    assert engine.free_ns(1_191) == FOREVER


@pytest.fixture
def gpu() -> GpuView:
    return GpuView(GpuInfo(3, (3,), 10), future_ns=10, lag_ns=50)


def test_pages_are_taken_when_a_load_is_sent(gpu: GpuView) -> None:
    gpu.load(0, 4)
    assert (gpu.free_pages, gpu.holds(0), list(gpu.ready)) == (6, True, [])
    gpu.loaded(0, 4)
    assert (gpu.free_pages, gpu.holds(0), list(gpu.ready)) == (6, True, [0])


def test_a_failed_load_gives_its_pages_back(gpu: GpuView) -> None:
    gpu.load(0, 4)
    gpu.loaded(0, 4, Why.DEVICE_ERROR)
    assert (gpu.free_pages, gpu.holds(0)) == (10, False)


def test_a_failed_unload_takes_them_again(gpu: GpuView) -> None:
    gpu.load(0, 4)
    gpu.loaded(0, 4)
    gpu.unload(0, 4)
    assert (gpu.free_pages, gpu.holds(0)) == (10, False)
    gpu.unload_failed(0, 4)
    assert (gpu.free_pages, gpu.holds(0)) == (6, True)


def test_models_are_kept_least_recently_used_first(gpu: GpuView) -> None:
    for model in (0, 1, 2):
        gpu.load(model, 1)
        gpu.loaded(model, 1)
    assert list(gpu.ready) == [0, 1, 2]
    gpu.use(0)
    assert list(gpu.ready) == [1, 2, 0]
    gpu.use(1)
    assert list(gpu.ready) == [2, 0, 1]


def test_a_model_is_in_use_until_its_last_batch_is_back(gpu: GpuView) -> None:
    gpu.load(0, 1)
    gpu.loaded(0, 1)
    gpu.use(0)
    gpu.use(0)
    gpu.used(0)
    assert gpu.in_use == {0: 1}
    gpu.used(0)
    assert gpu.in_use == {}
