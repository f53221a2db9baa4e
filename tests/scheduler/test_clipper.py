"""The Clippers at work: small stories on a simulated GPU."""

import numpy as np
import pytest

from scheduler.policies.clipper import ClipperAimd
from scheduler.records import AnswerKind, Outcome, Reason
from tests.worlds import MS, Sink, model, policy, run

LINE = {batch: 1.0 + batch for batch in range(1, 17)}
FLAT = dict.fromkeys(range(1, 9), 10.0)


def batches(world) -> list[tuple[float, int]]:
    """(start in ms, tasks)"""
    return [(row.start_ns / MS, row.tasks) for row in world.actions if row.type == "infer"]


def aimd(**params):
    return policy("clipper-nsdi-aimd", **params)


def test_a_batch_waits_for_company_from_the_receipt_of_its_first():
    arrivals = [(20, 0), (25, 0), (40, 0), (41, 0), (42.5, 0)]
    world = run(aimd(wait_ms=2), arrivals, models=[model(LINE)], slo_ms=None)
    # The limit is 1 at first, so the first one is a full batch; then it is 3.
    assert batches(world) == [(20, 1), (27, 1), (42, 2), (45, 1)]


def test_without_a_wait_a_free_container_starts_at_once():
    world = run(aimd(wait_ms=0), [(20, 0), (30, 0)], models=[model(LINE)], slo_ms=None)
    assert batches(world) == [(20, 1), (30, 1)]


def test_a_model_slower_than_its_slo_gives_defaults_that_are_no_goodput():
    """BUG-REP-01: 10 requests every 200 ms, 100 ms each, SLO 20 ms."""
    arrivals = [(100 + 200 * i, 0) for i in range(10)]
    world = run(policy("clipper-0.3"), arrivals, models=[model({1: 100.0})], slo_ms=20, end_s=3.0)
    assert [row.latency_ns for row in world.requests] == [20 * MS] * 10
    assert {row.kind for row in world.requests} == {AnswerKind.DEFAULT}
    assert {row.reason for row in world.requests} == {Reason.DEADLINE}
    assert len(batches(world)) == 10


def test_equal_questions_run_once():
    """BUG-REP-02, without the cost of a hit: 1 miss and 3 hits; then 1 miss and 2 joins."""
    chosen = policy("clipper-0.3", cache_mib=1)
    arrivals = [(100, 0), (200, 0), (300, 0), (350, 0), (400, 0), (401, 0), (402, 0)]
    world = run(
        chosen,
        arrivals,
        models=[model({1: 10.0})],
        slo_ms=50,
        keys=iter([5, 5, 5, 5, 6, 6, 6]),
    )
    ended = [row.latency_ns / MS for row in world.requests]
    assert ended == [10, 0, 0, 0, 10, 9, 8]
    assert len(batches(world)) == 2
    assert chosen.cache.counts == [3, 2, 2]
    assert [row.kind for row in world.requests].count(AnswerKind.CACHED) == 5


def test_a_dropped_question_lets_the_next_one_run():
    """An entry whose task was dropped does not stay open for ever."""
    chosen = policy("clipper-0.3", cache_mib=1)
    # The container is busy until 200; the first x expires in the queue, the second joined it.
    arrivals = [(50, 0), (51, 0), (140, 0), (300, 0)]
    world = run(
        chosen,
        arrivals,
        models=[model({1: 150.0})],
        slo_ms=100,
        keys=iter([1, 2, 2, 2]),
    )
    assert [row.kind for row in world.requests][1] == AnswerKind.DEFAULT
    assert len(batches(world)) >= 2
    assert all(row.outcome is not Outcome.UNFINISHED for row in world.requests)


def test_replicas_are_chosen_at_random_by_the_prototype():
    """BUG-COR-09: two replicas, 1,000 requests, twice the same."""

    def shares() -> list[int]:
        chosen = aimd(replicas=2, wait_ms=0)
        world = run(
            chosen,
            [(100 + i, 0) for i in range(1000)],
            models=[model({1: 0.5})],
            gpus=2,
            slo_ms=None,
            end_s=2.0,
            seed=7,
        )
        return [row.gpu for row in world.requests]

    gpus = shares()
    assert 450 <= gpus.count(0) <= 550
    assert gpus == shares()


def test_replicas_of_a_release_pull_from_one_queue():
    arrivals = [(100, 0)] * 4
    world = run(
        policy("clipper-0.3", replicas=2), arrivals, models=[model({1: 10.0})], gpus=2, slo_ms=100
    )
    assert [row.latency_ns / MS for row in world.requests] == [10, 10, 20, 20]


def test_a_container_without_room_answers_nothing():
    spec = model({1: 1.0}, pages=10)
    world = run(policy("clipper-0.3"), [(100, 0), (100, 1)], models=[spec, spec], pages=15)
    assert [row.outcome for row in world.requests] == [Outcome.OK, Outcome.FAILED]


def test_full_batches_settle_in_the_dead_band():
    """SLO 20 ms, 1 ms and 1 more a query: from 17 queries (18 ms) on the limit rests."""
    times = np.arange(100 * MS, 1000 * MS, MS // 20)
    chosen = aimd(wait_ms=0)
    assert isinstance(chosen, ClipperAimd)
    line = {batch: 1.0 + batch for batch in range(1, 40)}
    world = run(
        chosen, (times, np.zeros(len(times), np.int32)), models=[model(line)], slo_ms=None,
        sink=Sink(), end_s=1.0, drain_s=0.1,
    )  # fmt: skip
    assert [size for _, size in batches(world)][:10] == [1, 3, 5, 7, 9, 11, 13, 15, 17, 17]


def test_an_unknown_version_is_named():
    with pytest.raises(KeyError):
        policy("clipper-9")


# ---- cases of the bug log


def ends(world):
    return [(row.end_ns - world.requests[0].arrival_ns) / MS for row in world.requests]


def test_bug_cor_01_the_timer_starts_with_the_first_request_and_not_with_the_last_batch():
    """Wait 5 ms, 10 ms a batch; AIMD has grown before, by a full batch of one and one of three."""
    warm_up = [(20, 0), *[(100, 0)] * 3]
    world = run(
        aimd(wait_ms=5, max_batch=4),
        [*warm_up, (200, 0), (300, 0), (303, 0)],
        models=[model(FLAT)],
        slo_ms=None,
    )
    assert batches(world)[-2:] == [(205, 1), (305, 2)]


def test_bug_cor_02_without_a_wait_what_queued_meanwhile_runs_together():
    lines = {size: 10.0 + 2 * size for size in range(1, 9)}
    arrivals = [(100.0 + i, 0) for i in range(5)]
    world = run(policy("clipper-0.1"), arrivals, models=[model(lines)], slo_ms=100)
    assert ends(world) == [12, 30, 30, 30, 30]
    assert [size for _, size in batches(world)] == [1, 4]


def test_bug_cor_15_the_last_request_does_not_wait_for_another_to_come():
    """Five at once, batches up to 2. AIMD starts at 1, so the odd one runs first."""
    world = run(
        aimd(wait_ms=5, max_batch=2),
        [(100, 0)] * 5,
        models=[model({1: 10.0, 2: 10.0})],
        slo_ms=None,
    )
    assert ends(world) == [10, 20, 20, 30, 30]


@pytest.mark.parametrize("name", ["clipper-0.3", "clipper-0.1", "clipper-nsdi-aimd"])
def test_bug_cor_22_nobody_is_refused_while_nothing_has_been_measured(name):
    arrivals = [(100.0 + i, 0) for i in range(5)]
    world = run(policy(name, max_batch=1), arrivals, models=[model({1: 10.0})], slo_ms=100)
    assert ends(world) == [10, 20, 30, 40, 50]
    assert {row.outcome for row in world.requests} == {Outcome.OK}


def test_bug_cor_16_a_client_that_has_given_up_is_in_no_batch():
    """T = 20 ms, at most 2 together: r0 at 0, r1 at 1, whose client gives up at 10, r2 at 2. The
    batches are {r0} and {r2}. A client tells when it gives up beforehand: by its deadline."""
    world = run(
        policy("clipper-0.3", max_batch=2),
        [(100, 0), (101, 0), (102, 0)],
        models=[model({1: 20.0, 2: 20.0})],
        streams=[0, 1, 0],
        slo_ns=[[1_000 * MS], [9 * MS]],
    )
    assert batches(world) == [(100, 1), (120, 1)]
    assert [row.end_ns // MS for row in world.requests] == [120, 110, 140]
    served, gave_up, last = world.requests
    assert (gave_up.kind, gave_up.reason) == (AnswerKind.DEFAULT, Reason.DEADLINE)
    assert {served.outcome, last.outcome} == {Outcome.OK}
    assert last.latency_ns == 38 * MS
