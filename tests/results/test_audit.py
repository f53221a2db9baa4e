"""The audit finds each kind of nonsense, and names it; and it believes what is sound."""

import random
from itertools import pairwise

import pytest

from results import InvariantError
from results.audit import Audit
from results.columns import actions_of, requests_of
from scheduler.records import AnswerKind, Outcome, Status
from tests.results.helpers import action, request


def audit(*batches, pages_of_model=(1, 1, 1), pages_of_gpu=(2, 2), resident=()):
    """Report these batches of actions, a flush each, and finish."""
    found = Audit(pages_of_model=pages_of_model, pages_of_gpu=pages_of_gpu, resident=resident)
    for rows in batches:
        found.actions(actions_of(rows))
    found.finish(arrivals=0)
    return found


def ended(*rows, arrivals=None):
    found = Audit(pages_of_model=[1], pages_of_gpu=[1])
    for row in rows:
        found.requests(requests_of([row]))
    found.finish(len(rows) if arrivals is None else arrivals)


def test_a_sound_run_passes():
    ended(request(0), request(1, outcome=Outcome.REJECTED), request(2, end=10**9))
    audit(
        [
            action(0, "load", model=0, start=0, end=10),
            action(1, "infer", start=10, end=20),
            action(2, "load", model=1, start=10, end=20),
            action(3, "unload", model=0, start=20, end=20),
            action(4, "load", model=2, start=20, end=30),
            action(5, "infer", gpu=1, start=12, end=22),
        ]
    )


# -- requests


def test_a_request_ends_once():
    with pytest.raises(InvariantError, match="request 7 ended twice, then as late"):
        ended(request(7), request(7, end=10**9))
    with pytest.raises(InvariantError, match="request 7 ended twice"):
        Audit(pages_of_model=[1], pages_of_gpu=[1]).requests(requests_of([request(7), request(7)]))


def test_a_request_ends_once_even_long_after_its_neighbours():
    found = Audit(pages_of_model=[1], pages_of_gpu=[1])
    for start in range(0, 2**16, 2**14):
        found.requests(requests_of([request(i) for i in range(start, start + 2**14)]))
    assert not found._ended._open, "a block whose ids all came is forgotten"
    with pytest.raises(InvariantError, match="request 5 ended twice"):
        found.requests(requests_of([request(5)]))


def test_bug_sim_08_every_arrival_is_accounted_for():
    done = [request(i) for i in range(3)]
    left = [request(3 + i, outcome=Outcome.UNFINISHED) for i in range(7)]
    ended(*done, *left, arrivals=10)
    with pytest.raises(InvariantError, match="10 requests arrived, but 3 ended"):
        ended(*done, arrivals=10)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (request(1, at=20, end=10), "ended before it arrived"),
        (request(1, slo=5, end=6, outcome=Outcome.OK), "is ok, but ended after its deadline"),
        (request(1, slo=5, end=5, outcome=Outcome.LATE), "is late, but ended by its deadline"),
        (request(1, kind=AnswerKind.NONE), "was answered with nothing"),
        (request(1, outcome=Outcome.FAILED, kind=AnswerKind.PREDICTION), "has an answer"),
        (request(1, action=-1), "has a prediction that no action made"),
        (request(1, kind=AnswerKind.DEFAULT, action=7), "has no prediction, but an action"),
    ],
)
def test_an_outcome_is_what_its_times_say(row, complaint):
    with pytest.raises(InvariantError, match=f"request 1 .*{complaint}"):
        ended(row)


# -- engines


OVERLAP = [action(1, start=0, end=10), action(2, start=9, end=19)]


@pytest.mark.parametrize("batches", [[OVERLAP], [OVERLAP[:1], OVERLAP[1:]], [OVERLAP[::-1]]])
def test_executions_of_a_gpu_do_not_overlap(batches):
    with pytest.raises(InvariantError, match="GPU 0: infer 2 started at 9 ns, before action 1"):
        audit(*batches)


def test_loads_of_a_gpu_do_not_overlap():
    with pytest.raises(InvariantError, match=r"GPU 1: load 2 .* loads one model at a time"):
        audit([action(1, "load", gpu=1, start=0, end=10),
               action(2, "load", gpu=1, model=1, start=5, end=15)])  # fmt: skip


def test_an_overlap_far_back_in_time_is_found():
    """The long one is reported last, when those inside it have long been judged."""
    short = [[action(i, start=10 * i, end=10 * i + 5)] for i in range(1, 6)]
    with pytest.raises(InvariantError, match="infer 99 started at 0 ns"):
        audit(*short, [action(99, start=0, end=100)])


def test_reports_may_overtake_each_other_by_a_flush():
    first, second, third = (action(i, start=10 * i, end=10 * i + 9) for i in range(3))
    assert audit([second], [first], [third]).unchecked == 0


def test_a_report_that_is_later_still_is_counted_and_not_guessed_at():
    rows = [[action(i, start=10 * i, end=10 * i + 5)] for i in range(2, 6)]
    assert audit(*rows, [action(1, start=10, end=15)]).unchecked == 1


# -- windows


@pytest.mark.parametrize("window", [{"earliest": 6}, {"latest": 4}])
def test_a_done_action_started_inside_its_window(window):
    with pytest.raises(InvariantError, match="GPU 0: infer 3 started outside its window"):
        audit([action(3, start=5, **window)])


def test_both_ends_belong_to_the_window():
    audit([action(3, start=5, earliest=5, latest=5)])


def test_a_missed_action_has_not_started_at_all():
    audit([action(3, start=9, end=9, latest=4, status=Status.MISSED)])


# -- pages


def test_pages_in_use_never_exceed_those_there_are():
    loads = [action(i, "load", model=i, start=10 * i, end=10 * i + 9) for i in range(3)]
    complaint = r"GPU 0: load 2 of model 2 \(1 pages\) at 20 ns makes 3 pages in use of 2"
    with pytest.raises(InvariantError, match=complaint):
        audit(loads)
    with pytest.raises(InvariantError, match=complaint):
        audit(*([load] for load in loads))


def test_a_load_needs_its_pages_from_its_start():
    """The unload ends while the load runs, so the load had started without room."""
    rows = [
        action(0, "load", model=0, start=0, end=5),
        action(1, "load", model=1, start=5, end=10),
        action(2, "unload", model=0, start=15, end=15),
        action(3, "load", model=2, start=12, end=22),
    ]
    for batches in ([rows], [[row] for row in rows]):
        with pytest.raises(InvariantError, match=r"GPU 0: load 3 .* 3 pages in use of 2"):
            audit(*batches)


def test_pages_that_are_given_back_at_an_instant_can_be_taken_at_it():
    rows = [
        action(0, "load", model=0, start=0, end=5),
        action(1, "load", model=1, start=5, end=10),
        action(2, "unload", model=0, start=12, end=12),
        action(3, "load", model=2, start=12, end=22),
    ]
    audit(rows)
    audit(*([row] for row in rows))


def test_a_model_is_not_loaded_twice_nor_unloaded_unless_there():
    load = action(0, "load", start=0, end=5)
    with pytest.raises(InvariantError, match="model 0 is already on the GPU"):
        audit([load], [action(1, "load", start=5, end=9)])
    with pytest.raises(InvariantError, match="model 0 is not on the GPU"):
        audit([action(1, "unload")])
    audit([action(1, "unload")], resident=[(0, 0)])


def test_what_is_there_at_the_start_takes_pages():
    with pytest.raises(InvariantError, match=r"load 1 of model 2 .* 3 pages"):
        audit([action(1, "load", model=2)], resident=[(0, 0), (0, 1)])
    with pytest.raises(InvariantError, match="GPU 1 starts with 3 pages in use of 2"):
        audit(resident=[(1, 0), (1, 1), (1, 2)])


def test_an_action_is_on_a_gpu_and_of_a_model_that_exist():
    with pytest.raises(InvariantError, match="is on a GPU of which there are 2"):
        audit([action(1, gpu=2)])
    with pytest.raises(InvariantError, match="names a model of which there are 3"):
        audit([action(1, model=3)])


@pytest.mark.parametrize("seed", range(10))
def test_the_verdict_does_not_depend_on_where_flushes_fall(seed):
    """Random GPUs that swap models whenever they can, reported in order of their ends."""
    rng = random.Random(seed)
    rows, copy_free, engine_free, there = [], [0, 0], [0, 0], [[], []]
    for i in range(0, 900, 3):
        gpu = rng.randrange(2)
        start = copy_free[gpu] + rng.randrange(5)
        if len(there[gpu]) == 2:
            gone = there[gpu].pop(rng.randrange(2))
            rows.append(action(i, "unload", gpu=gpu, model=gone, start=start, end=start))
        model = next(model for model in range(3) if model not in there[gpu])
        there[gpu].append(model)
        copy_free[gpu] = start + rng.randrange(1, 20)
        rows.append(action(i + 1, "load", gpu=gpu, model=model, start=start, end=copy_free[gpu]))
        start = engine_free[gpu] + rng.randrange(5)
        engine_free[gpu] = start + rng.randrange(1, 10)
        rows.append(action(i + 2, gpu=gpu, model=model, start=start, end=engine_free[gpu]))
    rows.sort(key=lambda row: row[11])  # end_ns

    def cut():
        at = sorted({0, len(rows), *(rng.randrange(len(rows)) for _ in range(rng.randrange(60)))})
        return [rows[a:b] for a, b in pairwise(at)]

    for _ in range(5):
        assert audit(*cut()).unchecked == 0
        with pytest.raises(InvariantError, match="2 pages in use of 1"):
            audit(*cut(), pages_of_gpu=(1, 2))


# -- workers that die


def loads_twice(lost_at: int | None) -> None:
    found = Audit(pages_of_model=[2], pages_of_gpu=[2, 2])
    found.actions(actions_of([action(0, "load", start=0, end=10)]))
    if lost_at is not None:
        found.worker_lost(0, lost_at)
    found.actions(actions_of([action(1, "load", start=30, end=40)]))
    found.finish(arrivals=0)


def test_a_worker_that_died_comes_back_empty():
    loads_twice(lost_at=20)
    with pytest.raises(InvariantError, match="already on the GPU"):
        loads_twice(lost_at=None)


def test_what_a_worker_brings_after_its_loss_counts_from_nothing():
    with pytest.raises(InvariantError, match="already on the GPU"):
        loads_twice(lost_at=5)  # the first load ends after it, so it is the new worker's


def test_a_worker_may_die_more_than_once():
    found = Audit(pages_of_model=[2], pages_of_gpu=[2])
    for i in range(3):
        found.actions(actions_of([action(i, "load", start=100 * i, end=100 * i + 10)]))
        found.worker_lost(0, 100 * i + 50)
    found.finish(arrivals=0)
