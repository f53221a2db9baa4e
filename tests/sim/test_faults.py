"""What goes wrong, one fault at a time, with numbers by hand: batches of 10 ms, loads of 20 ms."""

from typing import Any

import pytest

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
from scheduler.records import Outcome, Reason, Status, Why
from sim.cluster import Delays
from sim.shared import SharedGpu
from tests.worlds import MS, ActionRow, World, model, run

TEN_MS = model({1: 10.0}, load_ms=20.0)


def world(*faults: Fault, at_ms: Any = (0, 50, 100), policy: str = "fifo", **more: Any) -> World:
    arrivals = [(ms, 0) for ms in at_ms]
    return run(policy, arrivals, models=[TEN_MS], faults=faults, slo_ms=None, **more)


def batches(came: World) -> list[ActionRow]:
    return [row for row in came.actions if row.type == "infer"]


def ended_ms(came: World) -> list[float]:
    return [row.end_ns / MS for row in came.requests]


def test_a_killed_worker_takes_its_batch_along_and_comes_back_empty() -> None:
    came = world(WorkerKilled(at_s=0.055, gpu=0, back_after_s=0.1), drain_s=5)

    assert [(row.outcome, row.reason) for row in came.requests] == [
        (Outcome.OK, Reason.NOTHING),
        (Outcome.FAILED, Reason.WORKER_LOST),  # it may have run
        (Outcome.OK, Reason.NOTHING),
    ]
    assert came.sink.lost == [(0, 55 * MS)]
    assert ended_ms(came) == [30, 55, 185]  # back at 155 ms, loads again, runs
    lost = [row for row in came.actions if row.status == Status.LOST]
    assert [(row.type, row.why) for row in lost] == [("infer", Why.WORKER_LOST)]


def test_a_request_whose_load_was_lost_goes_to_another_gpu() -> None:
    came = world(WorkerKilled(at_s=0.01, gpu=0), at_ms=[0], gpus=2)

    assert [row.outcome for row in came.requests] == [Outcome.OK]
    assert ended_ms(came) == [40]
    assert came.requests[0].gpu == 1


def test_without_a_new_worker_the_queue_waits_to_the_end() -> None:
    came = world(WorkerKilled(at_s=0.04, gpu=0))

    outcomes = [row.outcome for row in came.requests]
    assert outcomes == [Outcome.OK, Outcome.UNFINISHED, Outcome.UNFINISHED]


def test_what_the_worker_has_sent_before_its_death_counts() -> None:
    """Loaded at 20 ms, known at 25; batches from 25 to 35 and from 40 to 50, known at 55."""
    delays = Delays(worker_to_controller_ns=5 * MS)
    came = world(WorkerKilled(at_s=0.052, gpu=0), at_ms=[0, 25], delays=delays)

    assert ended_ms(came) == [40, 55]
    assert all(row.outcome == Outcome.OK for row in came.requests)
    assert came.sink.lost == [(0, 57 * MS)]


def test_batches_go_wrong_as_often_as_asked() -> None:
    came = world(DeviceError(at_s=0.0, gpu=0, batches=2))

    reasons = [row.reason for row in came.requests]
    assert reasons == [Reason.WORKER_FAILED, Reason.WORKER_FAILED, Reason.NOTHING]
    assert [row.why for row in batches(came)[:2]] == [Why.DEVICE_ERROR] * 2


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_stalled_copy_ends_when_the_stall_is_over(kind: str) -> None:
    more = {"gpu_kind": SharedGpu} if kind == "shared" else {}
    came = world(StalledCopy(at_s=0.01, gpu=0, for_s=0.03), **more)

    assert ended_ms(came) == [50, 60, 110]  # loaded at 40


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_slow_gpu_takes_longer_for_what_begins_meanwhile(kind: str) -> None:
    more = {"gpu_kind": SharedGpu} if kind == "shared" else {}
    came = world(SlowGpu(at_s=0.045, gpu=0, for_s=0.01, factor=3.0), **more)

    assert ended_ms(came) == [30, 80, 110]


def test_delayed_messages_take_longer_both_ways() -> None:
    came = world(DelayedMessages(at_s=0.045, gpu=0, for_s=0.05, delay_ms=4.0))

    assert ended_ms(came) == [30, 50 + 4 + 10 + 4, 110]


def test_a_lost_action_is_missed_at_the_second_heartbeat_and_did_not_run() -> None:
    came = world(LostMessages(at_s=0.045, gpu=0), drain_s=2)

    assert [row.reason for row in came.requests] == [
        Reason.NOTHING,
        Reason.WORKER_LOST,
        Reason.NOTHING,
    ]
    assert ended_ms(came) == [30, 200, 210]
    assert [row.why for row in batches(came)][1] == Why.MESSAGE_LOST


def test_a_lost_unload_leaves_the_model_where_it_was() -> None:
    """Room for one of two models: FIFO evicts, in vain, and comes to know."""
    came = run(
        "fifo",
        [(0, 0), (50, 1), (400, 0), (450, 1)],
        models=[TEN_MS, TEN_MS],
        pages=TEN_MS.pages,
        faults=[LostMessages(at_s=0.045, gpu=0)],
        slo_ms=None,
    )
    assert [row.reason for row in came.requests] == [
        Reason.NOTHING,
        Reason.WORKER_FAILED,  # no pages
        Reason.NOTHING,
        Reason.NOTHING,
    ]


def test_a_lost_result_is_sent_again() -> None:
    came = world(LostMessages(at_s=0.045, gpu=0, lose="results"), drain_s=2)

    assert [row.outcome for row in came.requests] == [Outcome.OK] * 3
    assert ended_ms(came) == [30, 200, 210]


def test_what_comes_while_the_controller_is_away_waits() -> None:
    came = world(PausedController(at_s=0.045, for_s=0.2), at_ms=[0, 50, 60])

    assert ended_ms(came) == [30, 255, 265]


def test_a_pause_prolongs_the_wait_for_a_busy_controller() -> None:
    delays = Delays(decision_per_event_ns=2 * MS)
    came = world(PausedController(at_s=0.051, for_s=0.1), at_ms=[0, 50, 50.5], delays=delays)

    assert came.requests[2].end_ns > 151 * MS


@pytest.mark.parametrize("policy", ["clipper-nsdi-aimd", "clipper-0.3", "edf", "clockwork"])
def test_every_policy_serves_again_once_a_worker_is_back(policy: str) -> None:
    every_10_ms = [10 * i for i in range(100)]
    came = run(
        policy,
        [(ms, 0) for ms in every_10_ms],
        models=[model({1: 2.0}, load_ms=5.0)],
        faults=[WorkerKilled(at_s=0.3, gpu=0, back_after_s=0.2)],
    )
    after = [row for row in came.requests if row.arrival_ns > 600 * MS]
    assert len(after) == 39
    assert all(row.outcome == Outcome.OK for row in after)
    assert came.sink.lost == [(0, 300 * MS)]
