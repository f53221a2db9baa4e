"""Nonsense is refused, counted, and changes nothing."""

from typing import Any

import numpy as np
import pytest

from scheduler.ledger import Controller, lost
from scheduler.records import (
    FOREVER,
    Change,
    GpuInfo,
    ModelInfo,
    Reason,
    Refusal,
    Request,
    Result,
    Status,
    Why,
    WorkerChange,
)

GPUS = (GpuInfo(0, (0,), 100),)
MODELS = (ModelInfo(0, "m", 1, 10, (1, 2, 4), (10, 15, 20)),)


class Silent:
    def on_start(self, *event: Any) -> None: ...
    def on_request(self, *event: Any) -> None: ...
    def on_result(self, *event: Any) -> None: ...
    def on_wake(self, *event: Any) -> None: ...


@pytest.fixture
def controller() -> Controller:
    controller = Controller(Silent(), GPUS, MODELS, np.random.default_rng(0))
    controller.start(0)
    for i in range(3):
        controller.request(100, Request(i, 0, 100, 1000))
    return controller


def infer(controller: Controller, **changes: Any) -> int | None:
    action: dict[str, Any] = {
        "lane": 0,
        "model": 0,
        "batch": 2,
        "tasks": (0, 1),
        "earliest_ns": 100,
        "latest_ns": 200,
        "expected_ns": 15,
    }
    return controller.out.infer(**action | changes)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"lane": 1}, Refusal.UNKNOWN_LANE),
        ({"model": 1}, Refusal.UNKNOWN_MODEL),
        ({"model": -1}, Refusal.UNKNOWN_MODEL),
        ({"batch": 3}, Refusal.UNKNOWN_BATCH),
        ({"tasks": ()}, Refusal.TOO_MANY_TASKS),
        ({"tasks": (0, 1, 2)}, Refusal.TOO_MANY_TASKS),
        ({"tasks": (0, 7)}, Refusal.UNKNOWN_REQUEST),
        ({"tasks": (0, 0)}, Refusal.TASK_IN_FLIGHT),
        ({"earliest_ns": 201}, Refusal.BAD_WINDOW),
        ({"earliest_ns": 0, "latest_ns": 99}, Refusal.BAD_WINDOW),
    ],
)
def test_a_senseless_batch_is_refused(
    controller: Controller, changes: dict[str, Any], refusal: Refusal
) -> None:
    assert infer(controller, **changes) is None
    assert controller.out.refusals[refusal] == 1
    assert sum(controller.out.refusals) == 1
    assert not controller.out.sent
    assert not controller.out.work
    assert infer(controller) is not None  # the same requests are still there for a good one


def test_a_task_rides_in_one_batch_at_a_time(controller: Controller) -> None:
    infer(controller)
    assert infer(controller, tasks=(1, 2)) is None
    assert controller.out.refusals[Refusal.TASK_IN_FLIGHT] == 1
    assert infer(controller, batch=1, tasks=(2,)) is not None


def test_padding_is_allowed(controller: Controller) -> None:
    assert infer(controller, batch=4, tasks=(0, 1, 2)) is not None


def done(controller: Controller, status: Status = Status.DONE) -> None:
    _, action = controller.out.sent.pop(0)
    controller.result(120, Result(action, status, Why.NOTHING, 105, 120, 15))


def test_a_prediction_needs_a_finished_batch(controller: Controller) -> None:
    assert not controller.out.answer(0)
    infer(controller)
    assert not controller.out.answer(0)
    assert controller.out.refusals[Refusal.NOT_SERVED] == 2
    done(controller)
    assert controller.out.answer(0)
    assert not controller.out.answer(0)
    assert controller.out.refusals[Refusal.UNKNOWN_REQUEST] == 1
    (ended,) = controller.out.ended
    request, _, _, gpu, batch, action = ended
    assert (request.id, gpu, batch, action) == (0, 0, 2, 0)


def test_after_a_miss_the_tasks_may_ride_again(controller: Controller) -> None:
    infer(controller)
    done(controller, Status.MISSED)
    assert not controller.out.answer(0)
    assert infer(controller) is not None


def test_a_request_that_ended_in_flight_stays_ended(controller: Controller) -> None:
    infer(controller)
    assert controller.out.reject(0, Reason.DEADLINE)
    assert not controller.out.reject(0, Reason.DEADLINE)
    done(controller)
    assert not controller.out.answer(0)
    assert controller.out.answer(1)
    assert [request.id for request in controller.stop()] == [2]


def test_a_wake_in_the_past_is_refused(controller: Controller) -> None:
    assert not controller.out.wake_at(100, "now is too late, or time would stand still")
    assert controller.out.wake_at(101, "later")
    assert controller.out.refusals[Refusal.WAKE_IN_THE_PAST] == 1


def test_a_request_is_cold_while_no_gpu_holds_its_model(controller: Controller) -> None:
    assert controller.out.live[0].cold
    controller.out.load(0, 0, 100, FOREVER, 10)
    done(controller)
    controller.request(130, Request(3, 0, 130, 1000))
    assert not controller.out.live[3].cold
    controller.out.unload(0, 0, 130, FOREVER)
    done(controller)
    controller.request(140, Request(4, 0, 140, 1000))
    assert controller.out.live[4].cold


def test_a_request_rides_only_in_a_batch_of_its_model() -> None:
    other = ModelInfo(1, "n", 1, 10, (1, 2), (10, 15))
    controller = Controller(Silent(), GPUS, (*MODELS, other), np.random.default_rng(0))
    controller.start(0)
    controller.request(100, Request(0, 0, 100, 1000))
    controller.request(100, Request(1, 1, 100, 1000))
    assert infer(controller) is None
    assert infer(controller, model=1) is None
    assert controller.out.refusals[Refusal.WRONG_MODEL] == 2
    assert not controller.out.work
    assert infer(controller, batch=1, tasks=(0,)) is not None
    assert infer(controller, batch=1, tasks=(1,), model=1) is not None


def test_a_served_request_waits_for_its_answer_and_rides_no_more(controller: Controller) -> None:
    infer(controller)
    done(controller)
    assert infer(controller) is None
    assert controller.out.refusals[Refusal.ALREADY_SERVED] == 1
    assert controller.out.answer(0)


def test_a_reason_that_does_not_exist_is_refused_and_the_request_lives_on(
    controller: Controller,
) -> None:
    assert not controller.out.reject(0, 99)  # type: ignore[arg-type]
    assert controller.out.refusals[Refusal.UNKNOWN_REASON] == 1
    assert not controller.out.ended
    assert controller.out.reject(0, Reason.DEADLINE)


def test_what_a_lost_worker_held_is_gone_and_nothing_may_be_sent_to_it(
    controller: Controller,
) -> None:
    controller.out.load(0, 0, 100, FOREVER, 10)
    done(controller)
    infer(controller)
    _, action = controller.out.sent.pop()

    controller.worker(150, WorkerChange(0, Change.LOST))
    controller.result(150, lost(action, 150, Why.WORKER_LOST))

    assert controller.out.load(0, 0, 150, FOREVER, 10) is None
    assert controller.out.refusals[Refusal.WORKER_LOST] == 1
    assert not controller.out.work  # the requests are the policy's again
    controller.request(160, Request(3, 0, 160, 1000))
    assert controller.out.live[3].cold
    controller.worker(170, WorkerChange(0, Change.BACK))
    assert controller.out.load(0, 0, 170, FOREVER, 10) is not None
