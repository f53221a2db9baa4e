"""The numbers of a run, in stories small enough to check by hand."""

import pytest

from results.columns import actions_of, requests_of
from results.summary import clopper_pearson
from results.tally import Tally
from scheduler.records import AnswerKind, Outcome, Reason, Status, Why
from tests.results.helpers import MS, SECOND, action, request


def summary(requests=(), actions=(), *, gpus=1, warmup=0, end=SECOND):
    tally = Tally(gpus=gpus, warmup_ns=warmup, end_ns=end)
    tally.requests(requests_of(requests))
    tally.actions(actions_of(actions))
    return tally.summary(
        name="a", about={}, interrupted=False, end_ns=end, refusals={}, unchecked_actions=0,
        digest="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # R: binom.test(k, n)$conf.int
        (0, 10, 0.0, 0.3084971),
        (10, 10, 0.6915029, 1.0),
        (5, 10, 0.1870860, 0.8129140),
        (60, 100, 0.4972092, 0.6967052),
    ],
)
def test_the_interval_is_that_of_clopper_and_pearson(successes, n, low, high):
    assert clopper_pearson(successes, n) == pytest.approx((low, high), abs=1e-6)


def test_no_requests_have_no_interval():
    assert clopper_pearson(0, 0) is None


def test_bug_rep_01_a_default_answer_is_not_a_prediction():
    """Ten answers at the deadline of 20 ms, none of them from the model."""
    s = summary(
        [
            request(i, at=at, slo=20 * MS, end=at + 20 * MS, kind=AnswerKind.NONE)
            for i, at in enumerate(range(0, 1_000 * MS, 100 * MS))
        ]
    )
    assert (s.goodput_rps, s.slo_in_time, s.slo_requests) == (0.0, 0, 10)
    assert s.latency.n == 0


def test_bug_rep_04_what_was_dropped_stays_in_the_denominator():
    fates = (
        [{"end": 10 * MS}] * 60
        + [{"end": 200 * MS}] * 10
        + [{"outcome": Outcome.REJECTED, "reason": Reason.SKIPPED}] * 20
        + [{"outcome": Outcome.UNFINISHED}] * 10
    )
    s = summary([request(i, **fate) for i, fate in enumerate(fates)])
    assert s.share_in_time == 0.60
    assert s.share_in_time_95 == pytest.approx((0.4972092, 0.6967052), abs=1e-6)
    assert s.goodput_rps == 60.0
    assert s.reasons == {"skipped": 20}
    assert sum(s.outcomes.values()) == s.arrivals == 100
    assert (s.outcomes["late"], s.outcomes["unfinished"]) == (10, 10)


def test_bug_rep_04_requests_without_slo_are_counted_apart():
    met = [request(i) for i in range(40)]
    late = [request(40 + i, end=SECOND // 2) for i in range(10)]
    without = [request(50 + i, slo=None) for i in range(50)]
    s = summary(met + late + without)
    assert (s.share_in_time, s.slo_requests, s.no_slo_requests) == (0.80, 50, 50)
    assert s.latency.n == 100
    assert s.slo_ms == (100.0, 100.0)


def test_bug_rep_09_requests_count_where_they_arrive():
    s = summary(
        [
            request(1, at=8 * SECOND, slo=None, end=12 * SECOND),
            request(2, at=10 * SECOND + SECOND // 2, slo=None, end=12 * SECOND),
            request(3, at=12 * SECOND, slo=None, end=14 * SECOND + SECOND // 2),
        ],
        warmup=10 * SECOND,
        end=14 * SECOND,
    )
    assert (s.latency.n, s.latency.mean_ms) == (2, 2_000.0)
    assert s.completed_rps == 0.5
    assert s.backlog_at_start == 1
    assert s.outcomes_whole_run["ok"] == 3


def test_the_borders_of_the_span_are_the_first_inside_and_the_first_outside():
    at = [10 * MS - 1, 10 * MS, 20 * MS - 1, 20 * MS]
    rows = [request(i, at=t, end=t + MS) for i, t in enumerate(at)]
    assert summary(rows, warmup=10 * MS, end=20 * MS).arrivals == 2


def test_bug_rep_11_offered_and_completed_rates_are_both_named():
    """100 a second arrive, 50 a second can be served, 20 ms each, first come first served."""
    rows = [
        request(i, at=i * 10 * MS, slo=None, end=(i + 1) * 20 * MS) for i in range(1_000)
    ]  # fmt: skip
    s = summary(rows, end=10 * SECOND)
    assert (s.offered_rps, s.goodput_rps) == (100.0, None)
    assert s.completed_rps == pytest.approx(50, abs=0.11)
    assert s.latency.max_ms == 10_010.0


def test_bug_rep_12_an_execution_across_a_border_counts_with_its_part_inside():
    runs = [action(0, start=0, end=10), action(1, start=15, end=20)]
    assert summary([], runs, end=18).gpu_utilisation == [pytest.approx(13 / 18)]
    assert summary([], runs, warmup=5, end=18).gpu_utilisation == [pytest.approx(8 / 13)]
    assert summary([], [action(0, start=-5, end=99)], end=18).gpu_utilisation == [1.0]


def test_bug_rep_12_the_mean_is_over_all_gpus_also_the_idle_ones():
    s = summary([], [action(0, start=0, end=4), action(1, gpu=1, start=0, end=2)], gpus=3, end=10)
    assert s.gpu_utilisation == [0.4, 0.2, 0.0]
    assert s.mean_gpu_utilisation == pytest.approx(0.2)


def test_bug_rep_13_each_mean_batch_has_its_name():
    sizes = {1: 1, 2: 2, 3: 4, 4: 4}  # tasks and the size that is executed for them
    s = summary([], [action(tasks, tasks=tasks, batch=size) for tasks, size in sizes.items()])
    assert s.mean_batch_of_executions == 2.5
    assert s.mean_batch_of_requests == 3.0
    assert s.mean_batch_executed == 11 / 4
    assert s.executions_by_batch == {1: 1, 2: 1, 4: 2}


def test_actions_are_counted_by_what_became_of_them():
    s = summary(
        [request(0, cold=True), request(1)],
        [
            action(0, "load"),
            action(1, "load", start=2 * SECOND, end=3 * SECOND),
            action(2, "unload"),
            action(3, status=Status.MISSED, why=Why.WINDOW),
            action(4, "load", status=Status.FAILED, why=Why.NO_PAGES),
        ],
    )
    assert (s.loads, s.loads_rps, s.evictions, s.executions) == (1, 1.0, 1, 0)
    assert (s.missed_actions, s.failed_actions) == (1, 1)
    assert s.not_done_why == {"window": 1, "no_pages": 1}
    assert s.cold_requests == 1


def test_the_prediction_error_is_measured_minus_expected():
    faster = [action(i, start=0, end=7_000, expected=10_000) for i in range(60)]
    slower = [action(60 + i, start=0, end=12_000, expected=10_000) for i in range(940)]
    error = summary([], faster + slower).prediction_error
    assert (error.n, error.p50_us, error.p99_us) == (1_000, 2.0, 2.0)
    assert summary([], faster).prediction_error.p99_us is None


def test_the_mean_number_in_the_system_is_littles():
    rows = [request(i, at=i * 10 * MS, end=i * 10 * MS + 50 * MS) for i in range(100)]
    assert summary(rows).mean_in_system == pytest.approx(100 * 0.050)  # rate times sojourn
