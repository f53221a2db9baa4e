import numpy as np
import pytest

from workloads import Activation, WorkloadError

S = 10**9


def arrivals(workload, models, seconds, seed=1):
    chunks = list(workload.chunks(range(models), [], seconds * S, np.random.default_rng(seed)))
    return (
        np.concatenate([chunk.times_ns for chunk in chunks]),
        np.concatenate([chunk.models for chunk in chunks]),
    )


def test_one_more_model_is_asked_every_second_until_all_are():
    times, models = arrivals(Activation(rate_rps=2000, every_s=1), 5, 8)
    for second in range(8):
        asked = set(models[(times >= second * S) & (times < (second + 1) * S)].tolist())
        assert asked == set(range(min(second + 1, 5)))


def test_the_rate_is_the_same_throughout_and_shared_evenly():
    times, models = arrivals(Activation(rate_rps=4000, every_s=1, active=3), 4, 10)
    assert len(times) == pytest.approx(40_000, rel=0.02)
    last = models[times >= 5 * S]
    assert np.bincount(last) / len(last) == pytest.approx([0.25] * 4, abs=0.02)


def test_it_begins_at_its_start_and_a_longer_run_begins_as_a_shorter_one():
    workload = Activation(rate_rps=500, start_s=2, every_s=0.5)
    short, long = arrivals(workload, 9, 5), arrivals(workload, 9, 9)
    assert short[0][0] >= 2 * S
    assert short[1][0] == 0
    n = len(short[0])
    assert np.array_equal(long[0][:n], short[0])
    assert np.array_equal(long[1][:n], short[1])


def test_more_models_in_use_than_there_are_is_an_error():
    with pytest.raises(WorkloadError, match="active = 4; expected at most the workload's 3 models"):
        arrivals(Activation(rate_rps=1, active=4), 3, 1)
    with pytest.raises(WorkloadError, match="active = 0"):
        Activation(rate_rps=1, active=0)
