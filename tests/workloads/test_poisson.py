import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from workloads import Poisson, Workload, WorkloadError

SECOND_NS = 10**9


def arrivals(workload, seconds, models=range(10), seed=1):
    chunks = list(
        workload.chunks(list(models), [], int(seconds * SECOND_NS), np.random.default_rng(seed))
    )
    times_ns = np.concatenate([chunk.times_ns for chunk in chunks])
    chosen = np.concatenate([chunk.models for chunk in chunks])
    return times_ns, chosen


def test_there_are_as_many_arrivals_as_the_rate_says():
    """A Poisson count of mean n has standard deviation sqrt(n); three of them here."""
    times_ns, _ = arrivals(Poisson(rate_rps=5000), seconds=200)
    assert abs(len(times_ns) - 1_000_000) < 3 * math.sqrt(1_000_000)


def test_the_gaps_are_exponential():
    times_ns, _ = arrivals(Poisson(rate_rps=1000), seconds=100)
    gaps_s = np.diff(times_ns) / 1e9
    assert stats.kstest(gaps_s, "expon", args=(0, 1 / 1000)).pvalue > 0.01


def test_the_rate_is_the_total_over_all_models_and_each_gets_its_share():
    _, chosen = arrivals(Poisson(rate_rps=1000), seconds=100, models=[3, 5, 8, 9])
    models, counts = np.unique(chosen, return_counts=True)
    assert models.tolist() == [3, 5, 8, 9]
    assert stats.chisquare(counts).pvalue > 0.01


def test_each_model_alone_is_a_poisson_process_too():
    times_ns, chosen = arrivals(Poisson(rate_rps=1000), seconds=100)
    gaps_s = np.diff(times_ns[chosen == 4]) / 1e9
    assert stats.kstest(gaps_s, "expon", args=(0, 10 / 1000)).pvalue > 0.01


def test_zipf_shares_fall_with_the_rank():
    workload = Poisson(rate_rps=1000, weights="zipf", zipf_s=1.0)
    _, chosen = arrivals(workload, seconds=100, models=range(4))
    # 1, 1/2, 1/3, 1/4 in proportion: they add up to 25/12.
    expected = np.array([12, 6, 4, 3]) / 25 * len(chosen)
    assert stats.chisquare(np.bincount(chosen), expected).pvalue > 0.01


def test_arrivals_come_in_order_from_the_start_to_before_the_end():
    times_ns, chosen = arrivals(Poisson(rate_rps=10_000, start_s=3), seconds=10)
    assert times_ns.dtype == np.int64
    assert chosen.dtype == np.int32
    assert np.all(np.diff(times_ns) >= 0)
    assert 3 * SECOND_NS <= times_ns[0] < 3.01 * SECOND_NS
    assert 9.99 * SECOND_NS < times_ns[-1] < 10 * SECOND_NS


def test_the_same_seed_gives_the_same_arrivals_and_another_seed_others():
    workload = Poisson(rate_rps=1000)
    first, again, other = (arrivals(workload, 10, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0][:100], other[0][:100])


def test_a_longer_run_begins_as_the_shorter_one():
    short, long = (arrivals(Poisson(rate_rps=5000), seconds) for seconds in (7, 20))
    assert np.array_equal(short[0], long[0][: len(short[0])])
    assert np.array_equal(short[1], long[1][: len(short[1])])


def test_a_workload_that_begins_after_the_end_has_no_arrivals():
    assert list(Poisson(rate_rps=1, start_s=5).chunks([0], [], SECOND_NS, None)) == []


def test_models_are_chosen_by_name_or_pattern():
    names = ["resnet50", "resnet18", "bert[0]", "bert[1]"]
    assert Poisson(rate_rps=1).select(names) == [0, 1, 2, 3]
    assert Poisson(rate_rps=1, models="resnet*").select(names) == [0, 1]
    assert Poisson(rate_rps=1, models=["bert*", "resnet18", "bert[1]"]).select(names) == [1, 2, 3]
    # As a pattern, bert[1] would mean bert1; a name is taken as a name first.
    assert Poisson(rate_rps=1, models="bert[1]").select(names) == [3]


def test_a_pattern_that_matches_no_model_is_refused():
    with pytest.raises(WorkloadError) as error:
        Poisson(rate_rps=1, models="resnet5").select(["resnet50", "bert", "a", "b", "c"])
    assert str(error.value) == (
        'models = "resnet5" matches no model (did you mean resnet50?); '
        "expected one of resnet50, bert, a, b, ... (5 in all), or a pattern"
    )


def test_it_is_read_from_a_table_and_keeps_its_unit():
    workload = msgspec.toml.decode('kind = "poisson"\nrate_rps = 20\nslo_ms = 2.9', type=Workload)
    assert workload == Poisson(rate_rps=20.0, slo_ms=2.9)
    assert workload.slo_ns == 2_900_000
    assert Poisson(rate_rps=20).slo_ns is None


RATE = "expected requests a second over all models, finite and above 0"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate_rps": -1.0}, f"rate_rps = -1.0; {RATE}"),
        ({"rate_rps": 0.0}, f"rate_rps = 0.0; {RATE}"),
        ({"rate_rps": math.nan}, f"rate_rps = nan; {RATE}"),
        ({"rate_rps": math.inf}, f"rate_rps = inf; {RATE}"),
        ({"slo_ms": 0.0}, "slo_ms = 0.0; expected milliseconds above 0"),
        ({"slo_ms": math.nan}, "slo_ms = nan; expected milliseconds above 0"),
        ({"start_s": -1.0}, "start_s = -1.0; expected a finite time, at least 0"),
        ({"start_s": math.inf}, "start_s = inf; expected a finite time, at least 0"),
        (
            {"models": []},
            'models is empty; expected names or patterns, such as "resnet*"',
        ),
        (
            {"weights": "zip"},
            'weights = "zip"; expected one of "uniform", "zipf", "turns", '
            "or a list with a number for each model",
        ),
        ({"weights": "zipf"}, 'weights = "zipf" needs zipf_s, its exponent, such as 1.0'),
        ({"zipf_s": 1.0}, 'zipf_s = 1.0 needs weights = "zipf"'),
        (
            {"weights": "zipf", "zipf_s": -1.0},
            "zipf_s = -1.0; expected an exponent, finite and above 0",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(WorkloadError) as error:
        Poisson(**{"rate_rps": 1.0, **fields})
    assert str(error.value) == message


def test_an_unknown_field_or_kind_is_refused():
    with pytest.raises(msgspec.ValidationError, match="unknown field `rate`"):
        msgspec.convert({"kind": "poisson", "rate_rps": 1, "rate": 2}, Workload)
    with pytest.raises(msgspec.ValidationError, match="Invalid value 'poison'"):
        msgspec.convert({"kind": "poison"}, Workload)
