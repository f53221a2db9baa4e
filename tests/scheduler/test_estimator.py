"""Clockwork's estimator: the 99th percentile of the last ten, with linear interpolation.

Numbers by hand: of n sorted values the percentile p is at rank p (n - 1), between two of them in
proportion.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.estimator import Estimator


def estimator(seed_ns: int = 5_000, window: int = 10, percentile: float = 0.99) -> Estimator:
    return Estimator(seed_ns, window, percentile)


def test_the_profile_holds_until_the_first_measurement() -> None:
    clockwork = estimator(seed_ns=2_730_000)
    assert clockwork.estimate_ns == 2_730_000
    assert clockwork.add(2_500_000) == 2_500_000


@pytest.mark.parametrize(
    ("values", "estimate"),
    [
        # rank 0.99 of 0..1: 100 + 0.99 * 100
        ([100, 200], 199),
        # rank 1.98 of 0..2: 200 + 0.98 * 100
        ([300, 100, 200], 298),
        # rank 8.91 of 0..9: 900 + 0.91 * 100
        (list(range(100, 1_001, 100)), 991),
        # practically the maximum: one slow run of ten lifts it to 1000 + 0.91 * 1000
        ([1_000] * 9 + [2_000], 1_910),
    ],
)
def test_the_rank_is_between_two_values_in_proportion(values: list[int], estimate: int) -> None:
    clockwork = estimator()
    for value in values:
        clockwork.add(value)
    assert clockwork.estimate_ns == estimate


def test_a_slow_run_is_forgotten_after_ten_others() -> None:
    clockwork = estimator()
    clockwork.add(9_000)
    seen = [clockwork.add(1_000) for _ in range(10)]
    # k others: 1000 + max(0, 0.99 k - (k - 1)) * 8000, the slow one being the largest of k + 1.
    assert seen[0] == 1_000 + round(0.99 * 8_000)
    assert seen[8] == 1_000 + round(0.91 * 8_000)
    assert seen[9] == 1_000


def test_the_maximum_and_the_median() -> None:
    largest, median = estimator(percentile=1.0), estimator(percentile=0.5)
    for value in (40, 10, 30, 20):
        largest.add(value)
        median.add(value)
    assert largest.estimate_ns == 40
    assert median.estimate_ns == 25


@given(
    st.lists(st.integers(1, 10**9) | st.sampled_from([5, 5, 7]), min_size=1, max_size=30),
    st.integers(1, 12),
    st.floats(0, 1),
)
def test_it_is_numpys_linear_percentile_of_the_window(
    values: list[int], window: int, percentile: float
) -> None:
    clockwork = estimator(window=window, percentile=percentile)
    for value in values:
        clockwork.add(value)
    expected = float(np.quantile(values[-window:], percentile, method="linear"))
    assert clockwork.estimate_ns == pytest.approx(expected, abs=1, rel=1e-9)
    assert min(values[-window:]) <= clockwork.estimate_ns <= max(values[-window:])
