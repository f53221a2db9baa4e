"""Quantiles: exact to the resolution they state, and silent where there are too few values."""

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from results import ResultsError
from results.latency import LONGEST_NS, QUANTILES, Durations, decode, rank_of, signed_quantiles_ns

MS = 1_000_000


def durations(values_ns):
    found = Durations()
    found.record(np.array(values_ns, np.int64))
    return found


def nearest_rank(values, share):
    return np.quantile(values, share, method="inverted_cdf")


@pytest.mark.parametrize("seed", range(5))
def test_quantiles_are_those_of_numpy_within_the_resolution(seed):
    values = (np.random.default_rng(seed).lognormal(16, 2, 100_000)).astype(np.int64)
    found = durations(values).quantiles_ns()
    for name, (top, bottom) in QUANTILES.items():
        if found[name] is None:
            continue
        exact = nearest_rank(values, top / bottom)
        assert exact <= found[name] <= exact + max(1_000, exact / 10_000) + 1_000


@pytest.mark.parametrize(
    ("n", "highest"), [(19, None), (20, "p50"), (99, "p50"), (100, "p90"), (1_000, "p99"),
                       (9_999, "p99"), (10_000, "p99.9"), (100_000, "p99.99")],
)  # fmt: skip
def test_bug_rep_07_a_quantile_needs_ten_values_beyond_it(n, highest):
    given_ones = [name for name in QUANTILES if rank_of(n, name) is not None]
    assert (given_ones[-1] if given_ones else None) == highest


@given(st.lists(st.integers(0, LONGEST_NS), min_size=20, max_size=300))
def test_bug_rep_05_no_quantile_is_above_the_largest_value(values):
    summary = durations(values).summary()
    quantiles = [value for value in summary.quantiles_ms.values() if value is not None]
    assert quantiles == sorted(quantiles)
    assert summary.min_ms <= quantiles[0]
    assert quantiles[-1] <= summary.max_ms == max(values) / 1e6


def test_bug_rep_06_the_median_is_the_nearest_rank():
    values = [value * MS for value in (1, 2, 3, 4) for _ in range(10)]
    assert durations(values).quantiles_ns()["p50"] == 2 * MS


def test_bug_rep_03_nothing_is_added_to_what_was_measured():
    """Latencies count from the planned arrival, so there is no omission to make up for."""
    summary = durations([value * MS for value in (60, 80, 100, 120, 140)]).summary()
    assert (summary.n, summary.max_ms, summary.mean_ms) == (5, 140.0, 100.0)


def test_bug_rep_05_one_sample_is_the_least_and_the_largest():
    summary = durations([733 * MS]).summary()
    assert (summary.min_ms, summary.max_ms, summary.mean_ms) == (733.0, 733.0, 733.0)
    assert set(summary.quantiles_ms.values()) == {None}  # a quantile needs ten values beyond it


def test_bug_rep_08_the_whole_has_its_own_quantile():
    values = [10 * MS] * 990 + [1_000 * MS] * 10
    assert durations(values).quantiles_ns()["p99"] == 10 * MS


def test_bug_rep_15_one_value_comes_back_as_itself_and_the_resolution_is_told():
    summary = durations([48_611_000] * 30).summary()
    assert summary.min_ms == summary.max_ms == summary.quantiles_ms["p50"] == 48.611
    assert "0.01 %" in summary.resolution


def test_bug_rep_15_a_value_that_cannot_be_counted_is_an_error():
    for wrong in (-1, LONGEST_NS + 1):
        with pytest.raises(ResultsError, match=f"a duration of {wrong} ns"):
            durations([wrong])


def test_mean_and_extremes_are_exact():
    summary = durations([1, 2, 999]).summary()
    assert (summary.mean_ms, summary.min_ms, summary.max_ms) == (334 / 1e6, 1 / 1e6, 999 / 1e6)


def test_cells_are_those_that_the_library_chooses():
    values_us = np.random.default_rng(0).integers(0, 2**39, 2_000) >> np.arange(2_000) % 39
    ours, theirs = durations(values_us * 1_000), HdrHistogram(1, LONGEST_NS // 1_000, 4)
    for value in values_us.tolist():
        assert theirs.record_value(value)
    assert ours._counts.tolist() == list(theirs.counts)
    cells = np.flatnonzero(ours._counts)
    assert ours._upper_us(cells).tolist() == [
        theirs.get_highest_equivalent_value(theirs.get_value_from_index(int(cell)))
        for cell in cells
    ]


def test_the_encoded_histogram_is_read_by_the_library_and_by_us():
    values = durations([2 * MS, 5 * MS, 5 * MS])
    assert HdrHistogram.decode(values.encode()).get_total_count() == 3
    for mine, read in zip(
        values.distribution(), decode(values.encode(), values.max_ns), strict=True
    ):
        assert mine.tolist() == read.tolist()
    assert decode(durations([]).encode(), 0)[0].tolist() == []


def test_errors_have_quantiles_with_their_sign():
    below, above = durations([3_000] * 60), durations([2_000] * 40)
    assert signed_quantiles_ns(below, above, ("p50", "p90", "p99")) == {
        "p50": -3_000, "p90": 2_000, "p99": None,
    }  # fmt: skip
