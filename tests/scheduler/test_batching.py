"""Clipper's batch sizes, step by step. Numbers: the facts on Clipper, sections 2 to 4."""

import numpy as np
import pytest

from scheduler.batching import Aimd, Average, Explore, Quantile, quantile_line

MS = 1_000_000


def sizes(control: Aimd, latency_ms: float, per_query_ms: float, steps: int) -> list[int]:
    """The sizes of full batches, one after the other."""
    out = []
    for _ in range(steps):
        batch = control.limit(0)
        out.append(batch)
        control.done(batch, round((latency_ms + per_query_ms * batch) * MS))
    return out


def test_aimd_grows_by_two_and_rests_in_its_dead_band():
    # 2 ms a query, SLO 20 ms: 9 queries take 18 ms, which is no longer below 18.
    assert sizes(Aimd(20 * MS, 100), 0, 2, 7) == [1, 3, 5, 7, 9, 9, 9]


def test_aimd_cuts_a_tenth_of_a_batch_that_was_too_slow():
    control = Aimd(20 * MS, 1000)
    control.done(101, 20 * MS)  # at the SLO is too slow
    assert control.limit(0) == 90
    control.done(90, 20 * MS - 1)
    assert control.limit(0) == 90
    control.done(1, 30 * MS)
    assert control.limit(0) == 1


def test_aimd_swings_by_a_tenth_where_it_steps_over_its_dead_band():
    # 3 ms a query below a base of -28.5 ms: 15 queries take 16.5 ms, 17 take 22.5.
    assert sizes(Aimd(20 * MS, 100), -28.5, 3, 16)[-6:] == [17, 15, 17, 15, 17, 15]


def test_single_requests_do_not_let_the_limit_grow():
    """BUG-COR-08 (a): a burst after single requests does not make one huge batch."""
    control = Aimd(20 * MS, 100)
    for _ in range(50):
        control.done(1, 2 * MS)
    assert control.limit(0) == 3  # the prototype's rule: the batch that came back, and two more


def test_a_capped_controller_says_that_it_never_backed_off():
    """BUG-COR-08 (b)."""
    control = Aimd(1000 * MS, 8)
    assert sizes(control, 0, 2, 20)[-10:] == [8] * 10
    assert control.backoffs == 0


def test_a_quantile_line_lies_above_its_share_of_the_points():
    rng = np.random.default_rng(1)
    x = np.arange(1, 401, dtype=float)
    y = 2e6 + 3e4 * x + rng.exponential(1e5, 400)
    slope, base = quantile_line(x, y, 0.99)
    assert 0.985 <= np.mean(y <= slope * x + base + 1) <= 0.9951
    assert slope == pytest.approx(3e4, rel=0.1)


def test_a_quantile_line_through_points_on_a_line_is_that_line():
    x = np.array([1.0, 2.0, 5.0, 9.0])
    assert quantile_line(x, 3 * x + 7, 0.99) == pytest.approx((3, 7))


def test_the_quantile_controller_freezes_where_its_line_meets_the_slo():
    control = Quantile(20 * MS, 1000, samples=5)
    for batch in (1, 3, 5, 7, 9):
        assert control.limit(0) == batch
        control.done(batch, (2 + batch) * MS)
    assert control.limit(0) == 18  # 2 + 18 = 20
    control.done(18, 500 * MS)
    assert control.limit(0) == 18


def test_the_quantile_controller_never_freezes_below_one():
    control = Quantile(20 * MS, 1000, samples=3)
    for batch in (1, 1, 3):
        control.done(batch, 30 * MS * batch)
    assert control.limit(0) == 1


def test_release_03_explores_one_by_one_then_by_a_tenth():
    control = Explore(1000, np.random.default_rng(1))
    seen = []
    for _ in range(60):
        batch = control.limit(10_000 * MS)
        assert control.exploring
        seen.append(batch)
        control.done(batch, batch * MS)
    assert seen[:11] == [1] * 5 + [2] * 5 + [3]
    assert seen[45:50] == [10] * 5
    assert 10 <= seen[50] <= 13


def test_release_03_estimates_once_the_budget_is_below_the_slowest():
    control = Explore(1000, np.random.default_rng(1))
    for batch in (1, 2, 4, 8):
        for _ in range(5):
            control.done(batch, batch * 10 * MS)
    # 0.92 * 50 = 46 ms at 10 ms a query: 4.6, rounded down.
    assert control.limit(50 * MS) == 4
    assert not control.exploring


def test_release_01_takes_what_its_average_throughput_gets_done():
    control = Average(1000)
    assert control.limit(20 * MS) == 1
    control.done(10, 5 * MS)
    control.done(20, 5 * MS)  # 3 a ms
    assert control.limit(20 * MS) == 60
    assert control.limit(-5 * MS) == 1


def test_bug_cor_21_a_line_that_falls_stalls_nobody():
    """1 in 10 ms and 8 in 9 ms, SLO 12 ms: whatever the line says, at least one runs."""
    explore = Explore(8, np.random.default_rng(1))
    quantile = Quantile(12 * MS, 8, samples=3)
    for batch, latency_ms in ((1, 10), (1, 10), (8, 9), (1, 10), (8, 9)):
        explore.done(batch, latency_ms * MS)
        quantile.done(batch, latency_ms * MS)
    assert all(1 <= explore.limit(budget_ms * MS) <= 8 for budget_ms in (0, 1, 5, 10, 12))
    assert quantile.frozen == 8  # a line that does not rise limits nothing
