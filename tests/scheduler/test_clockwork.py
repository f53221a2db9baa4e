"""Clockwork's choices, with numbers worked out by hand from the artifact's rules.

Rules: the original's INFER4 (constants: buffer 5 ms, ahead and delta 10 ms, future 1 ms; a batch is
planned to be done by arrival + SLO - 5 ms). ResNet-50 of the published profile: load 8.31 ms; 2.73,
4.05, 5.88, 9.93, 17.33 ms for batches of 1, 2, 4, 8, 16. There are no delays.

A GPU that is sent a batch at t counts as busy from t + 1 (future). So a batch of 30 ms that runs
from 100 to 130 is planned until 131, and what comes after it is chosen 10 ms before (ahead), just
after 121.
"""

from typing import Any

import pytest

from profiles.durations import Constant, Quantiles
from scheduler.records import Outcome, Reason, Status, Why
from sim.cluster import Delays
from tests.worlds import MS, RESNET50_PAGES, ModelSpec, Row, World, model, policy, run

ARTIFACT = {"faithful_to": "osdi20-artifact"}
CHOSEN_MS = 121.000001


def ms(ns: int) -> float:
    return ns / MS


def ends(world: World) -> list[tuple[Outcome, Reason, float]]:
    return [(Outcome(r.outcome), Reason(r.reason), ms(r.end_ns)) for r in world.requests]


def of_type(world: World, kind: str) -> list[Any]:
    return [row for row in world.actions if row.type == kind]


def after_a_long_batch(
    arrivals_ms: list[float], slo_ms: float, long_ms: float = 30.0, **params: Any
) -> tuple[World, list[Row]]:
    """ResNet-50 is loaded; from 100 ms the GPU is busy with something else, that takes 30 ms.
    Returns the world, and the fates of the requests for ResNet-50 that come meanwhile."""
    world = run(
        policy("clockwork", **params),
        [(0, 0), (20, 1), (100, 1), *((at_ms, 0) for at_ms in arrivals_ms)],
        models=[model(), model({1: long_ms})],
        streams=[0, 0, 0] + [1] * len(arrivals_ms),
        slo_ns=[[500 * MS] * 2, [round(slo_ms * MS)] * 2],
    )
    busy = next(row for row in of_type(world, "infer") if row.start_ns >= 100 * MS)
    assert (busy.model, busy.start_ns, busy.end_ns) == (1, 100 * MS, (100 + long_ms) * MS)
    return world, world.requests[3:]


def batches(world: World) -> list[tuple[int, float]]:
    """(size, start in ms) of what follows the long batch."""
    return [(r.batch, ms(r.start_ns)) for r in of_type(world, "infer") if r.start_ns > 100 * MS]


# ---- a single request


def test_a_cold_start_takes_a_load_and_a_batch() -> None:
    world = run("clockwork", [(0, 0)])
    load, infer = world.actions
    assert (ms(load.start_ns), ms(load.end_ns)) == (0, 8.31)
    assert (ms(infer.start_ns), ms(infer.end_ns)) == (8.31, 11.04)
    assert ends(world) == [(Outcome.OK, Reason.NOTHING, 11.04)]
    assert world.requests[0].cold


def test_the_window_opens_now_and_closes_ten_ms_after_the_planned_start() -> None:
    world = run("clockwork", [(0, 0), (100, 0), (100.5, 0)])
    load, _, first, second = world.actions
    # An idle engine: max(now + 1 + 10, start + 10) with a planned start at now + 1.
    assert (ms(load.earliest_ns), ms(load.latest_ns)) == (0, 11)
    assert (ms(first.earliest_ns), ms(first.latest_ns)) == (100, 111)
    # The second is planned for 101 + 2.73, and starts when the first is done.
    assert (ms(second.earliest_ns), ms(second.latest_ns)) == (100.5, 113.73)
    assert ms(second.start_ns) == 102.73
    assert second.expected_ns == 2.73 * MS


def test_a_batch_that_misses_its_window_is_final_for_its_requests() -> None:
    """The second batch is planned for 103.73 and may start then at the latest (delta 0), but the
    engine rests for 2 ms after the first, until 104.73."""
    chosen = policy("clockwork", latest_delta_ms=0.0)
    delays = Delays(worker_gap_ns=2 * MS)
    world = run(chosen, [(0, 0), (100, 0), (100.5, 0)], delays=delays)
    missed = world.actions[-1]
    assert (missed.status, missed.why, ms(missed.end_ns)) == (Status.MISSED, Why.WINDOW, 104.73)
    assert ends(world)[2] == (Outcome.FAILED, Reason.MISSED_WINDOW, 104.73)


# ---- which batch


def test_the_batch_is_the_largest_size_that_is_there() -> None:
    """7 wait: 4, then 2 of the 3 that are left, then 1."""
    world, rows = after_a_long_batch([105.0] * 7, slo_ms=100)
    assert batches(world) == [(4, 130), (2, 135.88), (1, 139.93)]
    assert [row.batch for row in rows] == [4, 4, 4, 4, 2, 2, 1]
    assert of_type(world, "infer")[3].sent_ns == CHOSEN_MS * MS


def test_a_batch_that_would_be_too_late_gives_way_to_a_smaller_one() -> None:
    """7 wait, to be done by 136. A batch of 4 would be done at 131 + 5.88, one of 2 at 135.05. The
    first four stand back for a larger batch than they may have; the fifth has 3 from itself on,
    so that 2 is its largest, and sends the head of the queue. For the others it is too late."""
    world, rows = after_a_long_batch([105.0] * 7, slo_ms=36)
    assert batches(world) == [(2, 130)]
    assert [Outcome(row.outcome).name for row in rows] == ["OK"] * 2 + ["TIMED_OUT"] * 5
    # They are given up when 2.73 and 1 (future) before 136 have come.
    assert {ms(row.end_ns) for row in rows[2:]} == {132.27}


@pytest.mark.parametrize(("waiting", "expected"), [(16, [16]), (17, [16, 1]), (20, [16, 4])])
def test_no_batch_is_larger_than_16(waiting: int, expected: list[int]) -> None:
    world, _ = after_a_long_batch([105.0] * waiting, slo_ms=100)
    assert [size for size, _ in batches(world)] == expected


def test_batch_sizes_can_be_forbidden() -> None:
    world, _ = after_a_long_batch([105.0] * 7, slo_ms=100, max_batch=2)
    assert [size for size, _ in batches(world)] == [2, 2, 2, 1]
    world, _ = after_a_long_batch([105.0] * 7, slo_ms=100, max_exec_ms=5.0)  # 4 take 5.88
    assert [size for size, _ in batches(world)] == [2, 2, 2, 1]


def test_the_most_urgent_model_goes_first() -> None:
    """Latest possible start: 198.37 - 2.73 for what came first, 195.9 - 2.73 for what came last."""
    slo_ns = [[500 * MS] * 3, [100 * MS, 100 * MS, 95 * MS]]
    world = run(
        "clockwork",
        [(0, 0), (20, 2), (50, 1), (100, 1), (103.37, 0), (105.9, 2)],
        models=[model(), model({1: 30.0}), model()],
        streams=[0, 0, 0, 0, 1, 1],
        slo_ns=slo_ns,
    )
    assert [row.model for row in of_type(world, "infer")[-2:]] == [2, 0]


# ---- who is given up


def test_who_cannot_start_in_time_is_dropped_when_another_one_goes() -> None:
    """Status 8. Due at 129.9, and the GPU is free at 131."""
    _, (first, second) = after_a_long_batch([100.5, 106.0], slo_ms=34.4)
    assert (first.outcome, first.reason) == (Outcome.REJECTED, Reason.CANNOT_START_IN_TIME)
    assert ms(first.end_ns) == CHOSEN_MS
    assert (second.outcome, ms(second.end_ns)) == (Outcome.OK, 132.73)


def test_who_cannot_be_done_in_time_is_skipped() -> None:
    """Status 7. Due at 132.9; the GPU is free at 131, but a batch of 1 is done at 133.73."""
    _, (first, second) = after_a_long_batch([103.5, 106.0], slo_ms=34.4)
    assert (first.outcome, first.reason) == (Outcome.REJECTED, Reason.SKIPPED)
    assert ms(first.end_ns) == CHOSEN_MS
    assert (second.outcome, ms(second.end_ns)) == (Outcome.OK, 132.73)


def test_who_waits_in_vain_is_given_up_when_a_batch_could_not_be_done_any_more() -> None:
    """Status 4. Due at 145; 1 (future) and 2.73 ms before is the last chance."""
    _, (row,) = after_a_long_batch([105.0], slo_ms=45, long_ms=60)
    assert (row.outcome, row.reason) == (Outcome.TIMED_OUT, Reason.DEADLINE)
    assert ms(row.end_ns) == 141.27


@pytest.mark.parametrize("slo_ms", [2.0, 8.73])
def test_an_slo_that_is_too_short_is_rejected_at_once(slo_ms: float) -> None:
    """2.73 ms, 1 (future) and the buffer of 5 make 8.73, and just that is not enough."""
    _, (row,) = after_a_long_batch([200.0], slo_ms=slo_ms)
    assert (row.outcome, row.reason) == (Outcome.REJECTED, Reason.CANNOT_START_IN_TIME)
    assert ms(row.end_ns) == 200


def test_a_nanosecond_more_is_enough() -> None:
    _, (row,) = after_a_long_batch([200.0], slo_ms=8.730001)
    assert (row.outcome, ms(row.latency_ns)) == (Outcome.OK, 2.73)


def test_a_load_that_would_take_too_long_helps_those_that_follow() -> None:
    """Load 8.31, batch 2.73, future 1, buffer 5: 17.04 ms. The first is told so at once, and its
    model is loaded all the same, for the next."""
    world = run("clockwork", [(0, 0), (8.31, 0)], slo_ms=17.04)
    assert ends(world) == [
        (Outcome.REJECTED, Reason.CANNOT_LOAD_IN_TIME, 0),
        (Outcome.OK, Reason.NOTHING, 11.04),
    ]
    assert [(row.type, ms(row.start_ns)) for row in world.actions] == [("load", 0), ("infer", 8.31)]
    world = run("clockwork", [(0, 0)], slo_ms=17.040001)
    assert ends(world) == [(Outcome.OK, Reason.NOTHING, 11.04)]


def test_who_cannot_be_served_at_all_has_nothing_loaded() -> None:
    """Even of a model that is there, 2.73 ms and 1 before and 5 after make more than 8.73."""
    world = run("clockwork", [(0, 0)], slo_ms=8.73)
    assert ends(world) == [(Outcome.REJECTED, Reason.CANNOT_START_IN_TIME, 0)]
    assert not world.actions


# ---- loads and evictions


def test_a_gpu_has_two_loads_outstanding_at_most() -> None:
    """The second is sent 100 us after the first, the others with the result of one before."""
    world = run("clockwork", [(0, m) for m in range(4)], models=[model()] * 4)
    loads = of_type(world, "load")
    assert [ms(row.sent_ns) for row in loads] == [0, 0.1, 8.31, 16.62]
    assert [ms(row.start_ns) for row in loads] == [0, 8.31, 16.62, 24.93]


def with_room_for(models: int, arrivals: list[tuple[float, int]], *specs: ModelSpec) -> World:
    return run("clockwork", arrivals, models=specs, pages=models * RESNET50_PAGES, slo_ms=500)


def test_the_least_recently_used_model_makes_room() -> None:
    world = with_room_for(2, [(0, 0), (50, 1), (100, 0), (200, 2)], *[model()] * 3)
    (unload,) = of_type(world, "unload")
    assert (unload.model, ms(unload.start_ns)) == (1, 200)
    assert ends(world)[3] == (Outcome.OK, Reason.NOTHING, 211.04)


def test_a_model_that_somebody_waits_for_stays_longer() -> None:
    """Model 0 was used least recently, but a request for it waits behind the batch of 60 ms."""
    slow = model({1: 60.0})
    arrivals = [(0, 0), (50, 1), (100, 3), (200, 3), (205, 0), (210, 2)]
    world = with_room_for(3, arrivals, model(), model(), model(), slow)
    (unload,) = of_type(world, "unload")
    assert (unload.model, ms(unload.start_ns)) == (1, 210)


def test_a_model_in_use_is_not_evicted() -> None:
    """Asked for at 110, the slot is free at 120: 8.31 and 2.73 ms later it is answered."""
    slow = model({1: 20.0})
    world = with_room_for(1, [(0, 0), (100, 0), (110, 1)], slow, model())
    (unload,) = of_type(world, "unload")
    assert (unload.model, ms(unload.start_ns)) == (0, 120)
    assert ends(world)[2] == (Outcome.OK, Reason.NOTHING, 131.04)


def test_nothing_is_evicted_in_vain() -> None:
    """The idle model has 7 pages and 9 are needed; the other one is in use."""
    slow = model({1: 40.0})
    large = model(pages=9)
    world = with_room_for(2, [(0, 0), (50, 1), (100, 0), (110, 2)], slow, model(), large)
    unloads = of_type(world, "unload")
    assert all(ms(row.start_ns) >= 140 for row in unloads)


# ---- estimates


def test_a_batch_is_expected_to_take_what_the_last_ten_took() -> None:
    """The profile's 99th percentile until the first measurement; then rank 0.99 (n - 1) of what
    was measured."""
    spec = ModelSpec({1: Quantiles((0.0, 1.0), (MS, 3 * MS))}, Constant(MS), 1)
    world = run("clockwork", [(50 * i, 0) for i in range(3)], models=[spec])
    first, second, third = of_type(world, "infer")
    assert first.expected_ns == 2.98 * MS
    assert second.expected_ns == first.duration_ns
    low, high = sorted((first.duration_ns, second.duration_ns))
    assert third.expected_ns == int(low + 0.99 * (high - low))


# ---- several GPUs


def test_one_gpu_is_enough_for_a_model_with_little_demand() -> None:
    world = run("clockwork", [(0, 0)] + [(100, 0)] * 10, gpus=3)
    assert len(of_type(world, "load")) == 1


def test_a_hot_model_is_loaded_where_its_demand_is_not_met() -> None:
    """A request lays 2.73 ms x 100 / 95 on its GPUs: 35 are more than the 100 ms that a GPU
    has, less the 1 ms that is always assumed, and 34 are not."""
    for requests, loads in ((34, 1), (35, 2)):
        world = run("clockwork", [(0, 0)] + [(100, 0)] * requests, gpus=2)
        assert len(of_type(world, "load")) == loads


def test_gpus_that_hold_a_model_share_its_requests() -> None:
    world = run("clockwork", [(0, 0)] + [(100, 0)] * 200, gpus=2)
    served = [row.gpu for row in world.requests[1:] if row.outcome == Outcome.OK]
    assert min(served.count(0), served.count(1)) > 20


# ---- the artifact's faults


def test_the_artifact_loads_a_model_onto_every_gpu() -> None:
    world = run(policy("clockwork", **ARTIFACT), [(0, 0)], gpus=3)
    assert sorted(row.gpu for row in of_type(world, "load")) == [0, 1, 2]
    world = run("clockwork", [(0, 0)], gpus=3)
    assert len(of_type(world, "load")) == 1


def test_the_artifact_plans_for_15_ms_and_answers_late() -> None:
    """At an SLO of 2 ms, an idle GPU that holds the model answers after 2.73."""
    _, (row,) = after_a_long_batch([200.0], slo_ms=2, **ARTIFACT)
    assert (row.outcome, ms(row.latency_ns)) == (Outcome.LATE, 2.73)


@pytest.mark.parametrize(
    ("arrivals_ms", "reason"),
    [
        ([100.5, 106.0], Reason.CANNOT_START_IN_TIME),
        ([103.5, 106.0], Reason.SKIPPED),
    ],
)
def test_the_artifact_tells_only_at_the_deadline_less_5_ms(
    arrivals_ms: list[float], reason: Reason
) -> None:
    """As above; but the client hears of it 29.4 ms after it asked."""
    _, (first, second) = after_a_long_batch(arrivals_ms, slo_ms=34.4, **ARTIFACT)
    assert (first.outcome, first.reason) == (Outcome.REJECTED, reason)
    assert ms(first.latency_ns) == 29.4
    assert second.outcome == Outcome.OK


def test_the_artifact_waits_for_the_deadline_with_what_is_hopeless() -> None:
    _, (row,) = after_a_long_batch([105.0], slo_ms=45, long_ms=60, **ARTIFACT)
    assert (row.outcome, row.reason) == (Outcome.TIMED_OUT, Reason.DEADLINE)
    assert ms(row.end_ns) == 145


# ---- what the artifact gets wrong, and we do not


def test_a_schedule_ahead_that_is_not_above_future_is_refused() -> None:
    """An engine is free at now + future at the earliest, so nothing would ever be sent."""
    with pytest.raises(ValueError, match="expected more than future_ms"):
        policy("clockwork", schedule_ahead_ms=1.0, future_ms=1.0)


def busy_until_62(
    spec: Any, arrivals: list[tuple[float, int]], slo_ms: list[float], **params: Any
) -> list[tuple[str, float]]:
    """What becomes of requests for model 0, loaded, that come at 50.1 ms to a GPU that executes
    model 1 from 50 to 62 ms. Each one's end in ms."""
    other = model({1: 12.0}, load_ms=2)
    first = [(0, 0), (10, 1), (50, 1)]
    world = run(
        policy("clockwork", **params),
        first + arrivals,
        models=[spec, other],
        streams=[0, 0, 0, *range(1, 1 + len(slo_ms))],
        slo_ns=[[500 * MS] * 2, *([round(ms * MS)] * 2 for ms in slo_ms)],
    )
    return [(Outcome(row.outcome).name, row.end_ns / MS) for row in world.requests[3:]]


def test_nobody_is_taken_along_in_a_batch_that_is_too_long_for_him() -> None:
    """Several SLOs for one model. The artifact's batch is the head of the queue, whose deadlines
    need not be in order: the one in the middle is late by 20 ms, as planned."""
    spec = model({1: 1.0, 2: 30.0}, load_ms=2)
    three = [(50.1, 0)] * 3
    fates = busy_until_62(spec, three, [500, 22, 500])
    assert "LATE" not in [outcome for outcome, _ in fates]
    fates = busy_until_62(spec, three, [500, 22, 500], **ARTIFACT)
    assert fates[1] == ("LATE", 92)


def test_nobody_is_forgotten_whose_strategy_took_the_one_before_him() -> None:
    """Two requests, due at 70.1 and 70.2 ms (buffer 5 ms less), a GPU that is free at 62. A batch
    of 2 takes 30 ms, so the first stands back for a later one that will carry the larger batch.
    The second has nobody behind it, sends a batch of 1, which takes the head of the queue: the
    first. In the artifact its own strategies are used up now, and it times out."""
    spec = model({1: 1.0, 2: 30.0}, load_ms=2)
    fates = busy_until_62(spec, [(50.1, 0), (50.2, 0)], [25, 25])
    assert fates == [("OK", 63.0), ("OK", 64.0)]
    fates = busy_until_62(spec, [(50.1, 0), (50.2, 0)], [25, 25], **ARTIFACT)
    assert fates == [("OK", 63.0), ("TIMED_OUT", 70.2)]


@pytest.mark.parametrize("slo_ms", [None, 1_000.0])
def test_what_somebody_still_waits_for_is_loaded(slo_ms: float | None) -> None:
    """One slot, that is not free for 40 ms: longer than the 25 ms for which a request speaks for a
    load at the most in the artifact (max_load_slo_ms)."""
    spec = model({1: 10.0}, load_ms=30, pages=1)
    world = run("clockwork", [(0, 0), (0, 1)], models=[spec] * 2, pages=1, slo_ms=slo_ms)
    assert [row.outcome for row in world.requests] == [Outcome.OK] * 2


def test_a_lone_request_is_padded_where_the_smallest_batch_is_2() -> None:
    world = run(policy("clockwork"), [(0, 0)], models=[model({2: 1.0})])
    assert [row.outcome for row in world.requests] == [Outcome.OK]
    assert world.requests[0].reason == Reason.NOTHING


def test_a_batch_behind_one_that_is_overdue_gets_a_window_that_is_not_over() -> None:
    """A controller that takes 1.3 ms for each event hears of results late, and is behind: what it
    believes to run should have ended long ago. Two requests at 40 ms go out one after the other
    (batches of one, no slack in their windows); the second one's window begins now, not when the
    overdue batch should have ended."""
    slow = Delays(decision_per_event_ns=1_300_000, decision_per_action_ns=1_300_000)
    specs = [model({1: 0.1}, load_ms=0.2, pages=1), model({1: 0.1}, load_ms=5.2, pages=1)]
    arrivals = [(0, 0)] * 9 + [(0, 1), (40, 0), (40, 0)]
    chosen = policy("clockwork", buffer_ms=0.0, latest_delta_ms=0.0)
    world = run(chosen, arrivals, models=specs, pages=4, slo_ms=None, delays=slow)
    assert not any(world.cluster.controller.out.refusals)
    assert len(world.requests) == 12
