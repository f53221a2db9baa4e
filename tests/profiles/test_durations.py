import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles import Constant, ProfileError, Quantiles, Samples


def rng():
    return np.random.default_rng(7)


def test_a_constant_is_what_it_is():
    duration = Constant(2_730_000)
    assert duration.constant_ns == 2_730_000
    assert duration.estimate_ns(0.01) == duration.estimate_ns() == 2_730_000
    assert duration.mean_ns() == 2_730_000
    assert duration.draw_ns(rng(), 3).tolist() == [2_730_000] * 3


def test_a_constant_takes_nothing_from_the_generator():
    used, fresh = rng(), rng()
    Constant(5).draw_ns(used, 1000)
    assert used.random() == fresh.random()


def test_quantiles_are_joined_by_straight_lines_and_flat_outside():
    duration = Quantiles((0.5, 0.9), (100, 200))
    assert duration.estimate_ns(0.7) == 150
    assert duration.estimate_ns(0.1) == 100
    assert duration.estimate_ns(0.99) == 200
    assert duration.constant_ns is None
    # Half of the mass at 100, 0.4 of it evenly from 100 to 200, a tenth at 200.
    assert duration.mean_ns() == pytest.approx(0.5 * 100 + 0.4 * 150 + 0.1 * 200)


def test_draws_from_quantiles_have_those_quantiles():
    drawn = Quantiles((0, 0.5, 1), (1000, 3000, 10_000)).draw_ns(rng(), 100_000)
    assert drawn.dtype == np.int64
    assert np.median(drawn) == pytest.approx(3000, rel=0.02)
    assert drawn.mean() == pytest.approx(0.5 * 2000 + 0.5 * 6500, rel=0.02)
    assert drawn.min() >= 1000
    assert drawn.max() <= 10_000


def test_samples_are_drawn_as_they_are():
    samples = Samples((50, 10, 20, 30, 40))
    assert set(samples.draw_ns(rng(), 1000).tolist()) == {10, 20, 30, 40, 50}
    assert samples.mean_ns() == 30
    # The smallest sample that 99 % and 60 % of them do not exceed: never a value in between.
    assert samples.estimate_ns(0.99) == 50
    assert samples.estimate_ns(0.6) == 30


def test_equal_quantiles_and_equal_samples_are_a_constant():
    assert Quantiles((0.1, 0.9), (7, 7)).constant_ns == 7
    assert Samples((7, 7, 7)).constant_ns == 7
    assert Samples((7, 8)).constant_ns is None


def test_the_same_seed_draws_the_same():
    for duration in (Quantiles((0, 1), (10, 1000)), Samples((1, 2, 3))):
        assert duration.draw_ns(rng(), 50).tolist() == duration.draw_ns(rng(), 50).tolist()


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=20), st.floats(0, 1))
def test_an_estimate_is_never_outside_what_was_measured(values, q):
    shares = tuple(np.linspace(0, 1, len(values)).tolist())
    for duration in (Samples(tuple(values)), Quantiles(shares, tuple(sorted(values)))):
        assert min(values) <= duration.estimate_ns(q) <= max(values)
        assert min(values) <= round(duration.mean_ns()) <= max(values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(0), "0 ns is not a duration; expected a whole number above 0"),
        (lambda: Samples(()), "no samples; expected at least one duration"),
        (lambda: Samples((5, -1)), "-1 ns is not a duration; expected a number above 0"),
        (
            lambda: Quantiles((), ()),
            "no quantiles; expected at least one share and its duration",
        ),
        (
            lambda: Quantiles((0.5, 1.5), (1, 2)),
            "1.5 is not a quantile; expected a share from 0 to 1, such as 0.99",
        ),
        (
            lambda: Quantiles((0.5, 0.5), (1, 2)),
            "quantile 0.5 comes after 0.5; expected ascending shares",
        ),
        (
            lambda: Quantiles((0.5, 0.9), (20, 10)),
            "quantile 0.9 (10 ns) is below quantile 0.5 (20 ns); "
            "expected durations that do not fall",
        ),
        (
            lambda: Constant(1).estimate_ns(99),
            "99 is not a quantile; expected a share from 0 to 1, such as 0.99",
        ),
    ],
)
def test_nonsense_is_refused(make, message):
    with pytest.raises(ProfileError) as error:
        make()
    assert str(error.value) == message
