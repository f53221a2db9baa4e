"""What goes wrong, one fault at a time, with numbers by hand: batches of 10 ms, loads of 20 ms."""

from collections import Counter
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
from scheduler.records import FOREVER, Outcome, Reason, Status, Why
from sim.cluster import Delays
from sim.link import LinkParams
from sim.shared import SharedGpu
from tests.sim.test_cluster import Script
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


# ---- behind a link: an input takes 4 ms on it, one after the other

LINK = LinkParams(bits_per_s=8e9, sends=1, margin_ns=0, input_bytes=(4_000_000,))


def test_behind_a_link_a_lost_message_has_taken_its_time_there() -> None:
    """The batch of the second request is sent from 50 to 54, and is missed at the second heartbeat
    after that: at 200, not a word of its worker."""
    came = world(LostMessages(at_s=0.045, gpu=0, lose="actions"), link=LINK)
    assert ended_ms(came) == [34, 200, 214]
    (lost,) = [row for row in came.actions if row.status == Status.LOST]
    assert (lost.why, lost.sent_ns) == (Why.MESSAGE_LOST, 50 * MS)
    assert came.requests[1].reason == Reason.WORKER_LOST


def test_behind_a_link_a_delay_comes_on_top() -> None:
    came = world(DelayedMessages(at_s=0.04, gpu=0, for_s=0.02, delay_ms=3.0), link=LINK)
    assert ended_ms(came) == [34, 67, 114]  # 50 + 4 + 3 + 10; its result leaves at 67, in time


def test_what_waits_in_the_link_for_a_worker_that_is_gone_is_not_sent() -> None:
    """Three GPUs with the model, and three requests at 100: their inputs are sent until 104, 108
    and 112. The second one's worker is killed at 101, so the third is sent until 108 already."""
    killed = WorkerKilled(at_s=0.101, gpu=1)
    came = world(killed, at_ms=[0, 0, 0, 100, 100, 100], gpus=3, link=LINK)
    assert [row.gpu for row in came.requests] == [0, 1, 2, 0, -1, 2]
    assert ended_ms(came) == [34, 38, 42, 114, 101, 118]


def test_what_is_under_way_to_a_worker_that_died_does_not_reach_the_next_one() -> None:
    """A batch's input is sent from 100 to 104, its worker dies at 101, and the next one is there at
    102. From 103 on a message to it will be lost: that is the load at 110."""

    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)
        out.wake_at(110 * MS, "load")

    def ask(now_ns: int, request: Any, out: Any) -> None:
        out.infer(0, 0, 1, (request.id,), now_ns, FOREVER, 0)

    def load(now_ns: int, key: Any, out: Any) -> None:
        out.load(0, 0, now_ns, FOREVER, 0)

    came = run(
        Script(start, ask, load),
        [(100, 0)],
        models=[TEN_MS],
        link=LINK,
        faults=[
            WorkerKilled(at_s=0.101, gpu=0, back_after_s=0.001),
            LostMessages(at_s=0.103, gpu=0, lose="actions"),
        ],
    )
    assert [(row.type, Why(row.why)) for row in came.actions] == [
        ("load", Why.NOTHING),
        ("infer", Why.WORKER_LOST),
        ("load", Why.MESSAGE_LOST),
    ]


@pytest.mark.parametrize("link", [None, LINK])
def test_a_message_that_was_lost_and_then_its_worker_ends_once(link: Any) -> None:
    """The second request's batch is lost on its way, at 50; before that is known its worker dies,
    at 60, and the batch with it."""
    came = world(
        LostMessages(at_s=0.045, gpu=0, lose="actions"),
        WorkerKilled(at_s=0.06, gpu=0, back_after_s=0.01),
        link=link,
    )
    assert ended_ms(came) == [30 if link is None else 34, 60, 130 if link is None else 134]
    lost = [(row.id, row.why) for row in came.actions if row.status == Status.LOST]
    assert lost == [(2, Why.WORKER_LOST)]
    assert len({row.id for row in came.actions}) == len(came.actions) == 5


def test_an_action_that_was_too_late_for_the_link_and_lost_with_its_worker_ends_once() -> None:
    """Clockwork gives its batches windows. The link is busy for 40 ms with each of four models'
    inputs, so that many are too late for it, and the worker dies while they wait to be told so."""
    slow = LinkParams(bits_per_s=8e8, sends=1, margin_ns=5 * MS, input_bytes=(4_000_000,) * 4)
    came = run(
        "clockwork",
        [(float(ms), ms % 4) for ms in range(0, 400, 2)],
        models=[model({1: 5.0}, load_ms=2.0)] * 4,
        link=slow,
        faults=[WorkerKilled(at_s=at_s, gpu=0, back_after_s=0.01) for at_s in (0.1, 0.2, 0.3)],
    )
    whys = Counter(Why(row.why).name for row in came.actions if row.status != Status.DONE)
    assert whys["SENT_TOO_LATE"] > 10
    assert whys["WORKER_LOST"] > 3
    assert len({row.id for row in came.actions}) == len(came.actions)
    assert sorted(row.id for row in came.requests) == list(range(200))
