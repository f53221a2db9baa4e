"""Ensembles, stragglers, and feedback that comes late, in small worlds."""

import msgspec
import numpy as np
import pytest

from scheduler.journal import Header, Learned, Record, Replay
from scheduler.ledger import Controller, member_of
from scheduler.records import (
    AnswerKind,
    GpuInfo,
    ModelInfo,
    Outcome,
    Reason,
    Refusal,
    Request,
    Result,
    Status,
    Why,
)
from sim.answers import Answers
from sim.cluster import Truth
from tests.scheduler.test_ledger import Silent
from tests.worlds import GPU_PAGES, MS, model, policy, run

FAST, SLOW = model({1: 5.0}), model({1: 50.0})


def ensemble(**params):
    return policy("clipper-exp4", wait_ms=0, **params)


def test_an_ensemble_answers_when_all_have_spoken():
    world = run(ensemble(), [(100, 0)], models=[FAST, FAST], gpus=2, slo_ms=30)
    (row,) = world.requests
    assert (row.latency_ns, row.kind, row.batch) == (5 * MS, AnswerKind.PREDICTION, 2)
    assert len([a for a in world.actions if a.type == "infer"]) == 2


def test_a_straggler_is_not_waited_for():
    world = run(ensemble(), [(100, 0)], models=[FAST, SLOW], gpus=2, slo_ms=30)
    (row,) = world.requests
    assert (row.latency_ns, row.kind, row.batch) == (30 * MS, AnswerKind.PARTIAL, 1)
    assert row.outcome == Outcome.OK


def test_blocking_waits_for_the_slowest():
    world = run(ensemble(defaults=False), [(100, 0)], models=[FAST, SLOW], gpus=2, slo_ms=30)
    (row,) = world.requests
    assert (row.latency_ns, row.kind, row.outcome) == (50 * MS, AnswerKind.PREDICTION, Outcome.LATE)


def test_with_nothing_there_the_answer_is_the_default_and_says_why():
    world = run(ensemble(), [(100, 0)], models=[SLOW, SLOW], gpus=2, slo_ms=30)
    (row,) = world.requests
    assert (row.kind, row.reason, row.batch) == (AnswerKind.DEFAULT, Reason.DEADLINE, 0)


def test_a_member_without_room_is_left_out():
    big = model({1: 5.0}, pages=90)
    world = run(ensemble(), [(100, 0)], models=[big, big], gpus=1, pages=100, slo_ms=30)
    (row,) = world.requests
    assert (row.latency_ns, row.kind, row.batch) == (5 * MS, AnswerKind.PARTIAL, 1)


# ---- learning


def learning(name, feedback_ms, errors, requests=3000, eta=0.1, **params):
    chosen = policy(name, wait_ms=0, eta=eta, **params)
    truth = Truth(Answers(errors, 10, 0.0, 0.0, 3), round(feedback_ms * MS))
    arrivals = [(20 + 2.0 * i, i % len(errors)) for i in range(requests)]
    world = run(
        chosen,
        arrivals,
        models=[model({1: 0.5})] * len(errors),
        gpus=len(errors),
        slo_ms=None,
        end_s=10.0,
        truth=truth,
    )
    return world, chosen


@pytest.mark.parametrize("feedback_ms", [0.0, 300.0])
def test_exp3_finds_the_better_model_from_feedback_however_late(feedback_ms):
    world, chosen = learning("clipper-exp3", feedback_ms, (0.5, 0.02))
    assert chosen.judged == 3000
    late = [row for row in world.actions if row.type == "infer"][-500:]
    assert sum(row.model == 1 for row in late) > 0.85 * len(late)


def test_without_feedback_exp3_keeps_drawing_evenly():
    world, chosen = learning("clipper-exp3", 1e9, (0.5, 0.02))  # comes after the end
    assert chosen.judged == 0
    asked = np.bincount([row.model for row in world.actions if row.type == "infer"])
    assert asked / 3000 == pytest.approx([0.5, 0.5], abs=0.03)


def test_exp4_is_better_than_its_best_member():
    # Slowly: the published rule divides by shares, so among equals one soon outweighs the others.
    _, chosen = learning("clipper-exp4", 10.0, (0.3, 0.3, 0.3, 0.3, 0.3), eta=0.0003)
    assert chosen.right / chosen.judged > 0.85  # each alone: 0.7
    # Of five that are right at 0.7 each, 0.7 agree with an answer that is mostly right.
    assert chosen.confidence / 3000 == pytest.approx(0.7, abs=0.05)


def test_each_client_has_weights_of_its_own():
    chosen = policy("clipper-exp3")
    chosen._all = range(2)
    assert chosen.state(1) is chosen.state(1)
    assert chosen.state(1) is not chosen.state(2)


def test_only_so_many_answers_wait_for_feedback():
    _, chosen = learning("clipper-exp4", 1e9, (0.3, 0.3), requests=200, remember=50)
    assert len(chosen._said) == 50


def test_a_journal_with_answers_and_feedback_replays_bit_for_bit():
    encoder, decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Record)
    journal = []
    params = {"wait_ms": 0, "eta": 0.1}
    models = [model({1: 0.5, 2: 0.6})] * 3
    run(
        policy("clipper-exp4", **params),
        [(20 + 2.0 * i, 0) for i in range(50)],
        models=models,
        gpus=3,
        slo_ms=None,
        truth=Truth(Answers((0.5, 0.2, 0.1), 10, 0.0, 0.0, 3), MS),
        record=lambda record: journal.append(encoder.encode(record)),
    )
    gpus = tuple(GpuInfo(i, (i,), GPU_PAGES) for i in range(3))
    infos = tuple(spec.info(i) for i, spec in enumerate(models))
    header = Header(1, "", "", {}, 1, gpus, infos, {})
    again = Replay(header, policy("clipper-exp4", **params), np.random.default_rng(1))
    steps = [decoder.decode(record) for record in journal]
    assert sum(isinstance(step.event, Learned) for step in steps) == 50
    assert [again.step(step) for step in steps] == [None] * len(steps)


# ---- the books


def test_member_tasks_are_checked_as_others_are():
    models = tuple(ModelInfo(i, f"m{i}", 1, 10, (1, 2), (10, 15)) for i in range(2))
    controller = Controller(Silent(), (GpuInfo(0, (0,), 9),), models, np.random.default_rng(0))
    controller.start(0)
    controller.request(0, Request(5, 0, 0, 1000))
    out = controller.out
    task = out.task_of(5, 1)
    assert member_of(task, 2) == (5, 1)
    assert out.infer(0, 0, 1, (task,), 0, 9, 5) is None  # it is model 1's
    assert out.infer(0, 1, 1, (out.task_of(6, 1),), 0, 9, 5) is None  # there is no request 6
    assert not out.answer_with(5, 2)  # nothing is there
    assert out.infer(0, 1, 1, (task,), 0, 9, 5) is not None
    assert out.infer(0, 1, 1, (task,), 0, 9, 5) is None
    said = {refusal for refusal in Refusal if out.refusals[refusal]}
    assert said == {
        Refusal.WRONG_MODEL, Refusal.UNKNOWN_REQUEST, Refusal.NOT_SERVED, Refusal.TASK_IN_FLIGHT,
    }  # fmt: skip
    assert out.reject(5, Reason.DEADLINE)
    assert (out.work, out.members) == ({}, {})


def test_what_comes_after_the_answer_is_nobodys():
    models = tuple(ModelInfo(i, f"m{i}", 1, 10, (1, 2), (10, 15)) for i in range(2))
    controller = Controller(Silent(), (GpuInfo(0, (0,), 9),), models, np.random.default_rng(0))
    controller.start(0)
    controller.request(0, Request(5, 0, 0, 1000))
    out = controller.out
    for number in range(2):
        assert out.infer(0, number, 1, (out.task_of(5, number),), 0, 9, 5) == number
    first, second = (action for _, action in out.sent)
    controller.result(10, Result(first, Status.DONE, Why.NOTHING, 0, 10, 10))
    assert out.served_by(5) == 1
    assert out.answer_with(5, 2)
    assert out.ended[0][1:] == (AnswerKind.PARTIAL, Reason.NOTHING, -1, 1, -1)
    controller.result(20, Result(second, Status.DONE, Why.NOTHING, 10, 20, 10))
    assert (out.work, out.members, out.live) == ({}, {}, {})
    assert not out.answer_with(5, 2)
