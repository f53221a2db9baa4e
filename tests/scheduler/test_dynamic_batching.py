"""Dynamic batching as Triton and TF Serving do it: small stories on a simulated GPU.

Every story begins long after a request of each model has loaded it.
"""

from collections import Counter
from typing import Any

import msgspec
import pytest

from scheduler.policies import POLICIES
from scheduler.records import FOREVER, Outcome, Reason
from tests.worlds import MS, World, model, policy, run

WARM_MS = 10_000.0
WARM_NS = 10_000 * MS
FLAT = dict.fromkeys((1, 2, 4, 8, 16), 10.0)
"""Any batch takes 10 ms."""


def serve(
    arrivals: list[float] | list[tuple[float, int]],
    exec_ms: dict[int, float] = FLAT,
    *,
    models: int = 1,
    streams: list[int] | None = None,
    end_s: float = 20.0,
    **params: Any,
) -> World:
    """Requests at so many ms (of model 0 where none is named), after one that loads each model.

    streams: which client each of them comes from.
    """
    warm = [(0.0, m) for m in range(models)]
    asked = [each if isinstance(each, tuple) else (each, 0) for each in arrivals]
    return run(
        policy("dynamic_batching", **params),
        [*warm, *((WARM_MS + ms, m) for ms, m in asked)],
        models=[model(exec_ms)] * models,
        streams=None if streams is None else [0] * len(warm) + streams,
        slo_ns=None if streams is None else [[FOREVER] * models] * (max(streams) + 1),
        slo_ms=None,
        end_s=end_s,
    )


def batches(world: World) -> list[tuple[float, int]]:
    """(start in ms, requests)"""
    rows = [row for row in world.actions if row.type == "infer"]
    return [(row.start_ns / MS - WARM_MS, row.tasks) for row in rows if row.start_ns >= WARM_NS]


def rows_of(world: World) -> list[Any]:
    return [row for row in world.requests if row.arrival_ns >= WARM_NS]


def ends_ms(world: World) -> list[float]:
    return [row.end_ns / MS - WARM_MS for row in rows_of(world)]


def rejected(world: World) -> list[tuple[float, float]]:
    """(arrival, end) in ms of those that found the queue full."""
    return [
        (row.arrival_ns / MS - WARM_MS, row.end_ns / MS - WARM_MS)
        for row in rows_of(world)
        if row.reason == Reason.QUEUE_FULL
    ]


# ---- which batch, and when


def test_bug_cor_01_the_wait_counts_from_the_request_and_not_from_the_batch_before() -> None:
    """At most 4, wait 5 ms, T = 10. Arrivals 0, 100, 103: {0} at 5, {100, 103} at 105."""
    world = serve([0, 100, 103], FLAT, max_batch=4, max_queue_delay_us=5_000)
    assert batches(world) == [(5, 1), (105, 2)]
    assert ends_ms(world) == [15, 115, 115]


def test_bug_cor_02_without_a_delay_what_queued_is_one_batch() -> None:
    """At most 8, T(n) = 10 + 2n. Arrivals 0, 1, 2, 3, 4: [1] at 0 and [4] at 12."""
    world = serve([0, 1, 2, 3, 4], {n: 10.0 + 2 * n for n in range(1, 9)})
    assert batches(world) == [(0, 1), (12, 4)]
    assert ends_ms(world) == [12, 30, 30, 30, 30]


def test_bug_cor_03_a_batch_is_padded_to_a_size_that_was_measured_and_pays_for_it() -> None:
    """Sizes 1, 4, 8 take 5, 8, 12 ms, wait 2 ms, three at 0: one batch of 4 at 2, done at 10."""
    world = serve([0, 0, 0], {1: 5.0, 4: 8.0, 8: 12.0}, max_queue_delay_us=2_000)
    assert batches(world) == [(2, 3)]
    assert world.actions[-1].batch == 4
    assert ends_ms(world) == [10, 10, 10]


def test_bug_cor_06_the_largest_preferred_size_that_can_be_filled_goes_at_once() -> None:
    """Preferred 2 and 6, at most 8, delay 100 ms, T = 10. Seven that came while nothing could run
    (at one instant each would be seen alone, and two would go): a batch of 6, and the seventh
    waits out its delay."""
    params = {"preferred_batch_sizes": [2, 6], "max_batch": 8, "max_queue_delay_us": 100_000}
    world = run(
        policy("dynamic_batching", **params),
        [(0, 0)] * 7,
        models=[model(dict.fromkeys(range(1, 9), 10.0), load_ms=5)],
        slo_ms=None,
    )
    assert [row.tasks for row in world.actions if row.type == "infer"] == [6, 1]
    assert [row.end_ns // MS for row in world.requests] == [15] * 6 + [110]


def test_bug_cor_06_two_of_three_go_when_the_second_comes() -> None:
    """The same sizes, one request each at 0, 1, 2: two at 1, the third waits until 102."""
    world = serve(
        [0, 1, 2], FLAT, preferred_batch_sizes=[2, 6], max_batch=8, max_queue_delay_us=100_000
    )
    assert batches(world) == [(1, 2), (102, 1)]
    assert ends_ms(world) == [11, 11, 112]


@pytest.mark.parametrize(
    ("queued", "delay_us", "sizes"),
    [(3, 0, [3]), (5, 0, [4, 1]), (13, 0, [8, 4, 1]), (13, 1_000, [13]), (20, 1_000, [16, 4])],
)
def test_what_queued_during_an_execution(queued: int, delay_us: float, sizes: list[int]) -> None:
    """Preferred 4 and 8, at most 16. One executes until 9 or 10, and the others come at 1. Without
    a delay: 3 go together, of 5 four, of 13 eight, and of the rest four. Past the delay of the
    oldest all go, up to the most, whatever is preferred."""
    world = serve(
        [-1.0] + [1.0] * queued,
        dict.fromkeys(range(1, 17), 10.0),
        preferred_batch_sizes=[4, 8],
        max_queue_delay_us=delay_us,
    )
    ran = [row.tasks for row in world.actions if row.type == "infer"]
    assert ran[1:] == [1, *sizes]


def test_past_its_delay_a_batch_still_grows_until_an_instance_is_free() -> None:
    """Busy until 10, delay 2 ms, arrivals at 0, 1, 5, 9: one batch of 4 at 10."""
    world = serve([-2, 0, 1, 5, 9], max_queue_delay_us=2_000)
    assert batches(world) == [(0, 1), (10, 4)]


def test_sparse_requests_wait_for_the_delay_and_no_longer() -> None:
    """Arrivals every 100 ms, delay 7 ms: each takes 7 + 10 ms exactly."""
    world = serve([100.0 * i for i in range(10)], max_queue_delay_us=7_000)
    assert {row.latency_ns for row in rows_of(world)} == {17 * MS}


def test_a_full_batch_waits_for_nothing() -> None:
    world = serve([0] * 16, max_queue_delay_us=7_000)
    assert ends_ms(world) == [10] * 16
    world = serve([0] * 15, max_queue_delay_us=7_000)
    assert ends_ms(world) == [17] * 15


# ---- limits on the queue


def test_bug_cor_04_a_limit_in_batches_counts_those_that_wait_and_not_the_one_that_runs() -> None:
    """At most 2, two batches may be enqueued, T = 10: r0 at 0, r1 to r5 at 1. Four wait, and the
    last is refused at once."""
    world = serve([0, 1, 1, 1, 1, 1], {1: 10.0, 2: 10.0}, max_enqueued_batches=2)
    assert rejected(world) == [(1, 1)]
    assert rows_of(world)[-1].outcome == Outcome.REJECTED
    assert ends_ms(world)[:-1] == [10, 20, 20, 30, 30]


def test_bug_cor_04_a_limit_in_requests_is_another_number() -> None:
    """The same with max_queue_size = 2: two wait, three are refused."""
    world = serve([0, 1, 1, 1, 1, 1], {1: 10.0, 2: 10.0}, max_queue_size=2)
    assert rejected(world) == [(1, 1)] * 3
    assert ends_ms(world)[:3] == [10, 20, 20]


@pytest.mark.parametrize(
    ("slots", "refused", "ends"),
    [(0, [300, 400], [2000, 4000, 6000]), (1, [400], [2000, 4000, 6000, 8000])],
)
def test_bug_cor_05_a_staged_batch_is_not_in_the_queue(
    slots: int, refused: list[float], ends: list[float]
) -> None:
    """One at a time, T = 2,000, two may wait. Arrivals 0, 100, ..., 400."""
    world = serve([0, 100, 200, 300, 400], {1: 2_000.0}, max_queue_size=2, staging_slots=slots)
    assert rejected(world) == [(ms, ms) for ms in refused]
    assert [end for end in ends_ms(world) if end > 400] == ends


def test_a_limit_is_of_a_level() -> None:
    """One executes; two of level 1 and one of level 2 come, and each queue has room for one."""
    world = serve(
        [0, 1, 2, 3], {1: 10.0}, streams=[0, 0, 0, 1], priorities=[1, 2], max_queue_size=1
    )
    assert rejected(world) == [(2, 2)]


# ---- timeouts and levels


def test_bug_cor_16_a_request_past_its_timeout_is_never_executed() -> None:
    """T = 20, at most 2: r0 at 0, r1 at 1, r2 at 12; they may wait 9 ms. r1 is noticed when the
    next batch is formed, as in Triton, and given up."""
    world = serve([0, 1, 12], {1: 20.0, 2: 20.0}, default_timeout_us=9_000)
    assert batches(world) == [(0, 1), (20, 1)]
    late = rows_of(world)[1]
    assert (late.outcome, late.reason) == (Outcome.TIMED_OUT, Reason.DEADLINE)
    assert ends_ms(world) == [20, 20, 40]


def test_a_timeout_that_ends_just_then_is_kept() -> None:
    """r1 comes at 1 and may wait for 19 ms: at 20 it has not waited for longer than that."""
    world = serve([0, 1], {1: 20.0}, default_timeout_us=19_000)
    assert ends_ms(world) == [20, 40]


def test_where_an_instance_waits_for_company_a_timeout_is_over_at_its_time() -> None:
    """A delay of 50 ms, and a timeout of 30 ms: given up a nanosecond past it."""
    world = serve([0], max_queue_delay_us=50_000, default_timeout_us=30_000)
    assert [row.end_ns - WARM_NS for row in rows_of(world)] == [30 * MS + 1]
    assert batches(world) == []


def test_timed_out_requests_may_go_behind_the_others_of_their_level_instead() -> None:
    """T = 10, one at a time, a timeout of 15 ms. r1 and r2 come at 1, r3 at 12, and r4, of level 2,
    at 1. At 20 r2 has waited for too long, and r3 goes first; then r2, then level 2."""
    world = serve(
        [0, 1, 1, 1, 12],
        {1: 10.0},
        streams=[0, 0, 0, 1, 0],
        priorities=[1, 2],
        default_timeout_us=15_000,
        timeout_action="delay",
    )
    assert ends_ms(world) == [10, 20, 40, 50, 30]


def test_bug_cor_18_levels_go_in_order_and_within_one_the_first_comes_first() -> None:
    """Busy until 10, T = 10. Waiting: level 3 at 1, 1 at 2, 2 at 3, 2 at 4."""
    world = serve([0, 1, 2, 3, 4], {1: 10.0}, streams=[0, 2, 0, 1, 1], priorities=[1, 2, 3])
    assert ends_ms(world) == [10, 50, 20, 30, 40]


def test_bug_cor_19_level_1_is_the_most_urgent_and_gets_all_while_it_has_work() -> None:
    """Both levels backlogged, 30 executions each: the first 30 are of level 1. (Strict levels;
    there are no weights.)"""
    world = serve([0] * 60, {1: 10.0}, streams=[0, 1] * 30, priorities=[2, 1])
    rows = sorted(rows_of(world), key=lambda row: row.end_ns)
    # The very first came alone, before anyone of level 1.
    assert [row.client for row in rows] == [0] + [1] * 30 + [0] * 29


# ---- instances, models and GPUs


def test_bug_sim_03_more_instances_on_a_serial_gpu_make_smaller_batches() -> None:
    """Arrivals 0 to 7, at most 8, T(n) = 20 + 2n. One instance: 1, 7, done at 56. Two that share a
    serial GPU: 1, 1, 6, done at 76. Two GPUs: done at 54."""
    exec_ms = {n: 20.0 + 2 * n for n in range(1, 9)}
    arrivals = [float(i) for i in range(8)]
    one = serve(arrivals, exec_ms)
    assert [tasks for _, tasks in batches(one)] == [1, 7]
    assert max(ends_ms(one)) == 56
    two = serve(arrivals, exec_ms, instances=2)
    assert [tasks for _, tasks in batches(two)] == [1, 1, 6]
    assert sum(row.duration_ns for row in two.actions[-3:]) == (22 + 22 + 32) * MS
    assert max(ends_ms(two)) == 76


def test_bug_sim_03_two_gpus_are_another_matter() -> None:
    exec_ms = {n: 20.0 + 2 * n for n in range(1, 9)}
    # Two at once, so that the idle GPU loads the model too.
    warm = [(0.0, 0)] * 40
    arrivals = [(WARM_MS + i, 0) for i in range(8)]
    world = run(
        "dynamic_batching",
        warm + arrivals,
        models=[model(exec_ms)],
        gpus=2,
        slo_ms=None,
        end_s=12,
    )
    assert {row.gpu for row in world.actions if row.type == "load"} == {0, 1}
    assert max(ends_ms(world)) == 54


def test_with_one_thread_two_models_with_work_take_turns() -> None:
    """Two saturated queues, one thread: strictly ABAB."""
    arrivals = [(0.0, 0)] * 8 + [(0.0, 1)] * 8
    world = serve(arrivals, {1: 10.0}, models=2, threads=1)
    ran = [row.model for row in world.actions if row.type == "infer" and row.start_ns >= WARM_NS]
    assert ran in ([0, 1] * 8, [1, 0] * 8)
    starts = [row.start_ns for row in world.actions if row.type == "infer"]
    assert len(set(starts)) == len(starts)


def test_without_a_limit_every_model_has_a_batch_in_hand() -> None:
    """A runs from 0 to 10; B's first comes at 1 and is sent at once, so that the second, at 2, does
    not go with it."""
    world = serve([(0.0, 0), (1.0, 1), (2.0, 1)], models=2)
    assert batches(world) == [(0, 1), (10, 1), (20, 1)]
    world = serve([(0.0, 0), (1.0, 1), (2.0, 1)], models=2, threads=1)
    assert batches(world) == [(0, 1), (10, 2)]


def test_where_models_do_not_fit_the_oldest_request_is_served_next() -> None:
    """Room for one of three models, load 10 ms, T = 10; asked for in turns, all are served."""
    arrivals = [(5.0 * i, i % 3) for i in range(30)]
    world = run(
        "dynamic_batching",
        arrivals,
        models=[model({1: 10.0, 8: 10.0}, load_ms=10, pages=1)] * 3,
        pages=1,
        slo_ms=None,
        end_s=3,
    )
    assert Counter(row.outcome for row in world.requests) == {Outcome.OK: 30}
    assert not any(world.cluster.controller.out.refusals)
    assert all(row.status == 0 for row in world.actions)


def test_timed_out_requests_of_a_model_that_is_not_there_load_nothing() -> None:
    """Room for one. Model 0 executes for 100 ms; model 1's request may wait for 50."""
    world = run(
        policy("dynamic_batching", default_timeout_us=50_000),
        [(0, 0), (20, 1)],
        models=[model({1: 100.0}, load_ms=10, pages=1)] * 2,
        pages=1,
        slo_ms=None,
    )
    assert [row.model for row in world.actions if row.type == "load"] == [0]
    assert world.requests[1].reason == Reason.DEADLINE


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_batch": 4, "preferred_batch_sizes": [2, 6]}, "has 6; expected at most max_batch, 4"),
        ({"timeout_action": "drop"}, "Invalid enum value 'drop'"),
        ({"priorities": [0]}, "Expected `int` >= 1"),
    ],
)
def test_a_wrong_parameter_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(params, POLICIES["dynamic_batching"].Params)
