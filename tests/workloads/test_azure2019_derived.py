import numpy as np
import pytest

from workloads import Azure2019Derived, WorkloadError

S = 10**9


@pytest.fixture
def path(tmp_path):
    """Three functions, four minutes: one busy, one rare, one that is never called."""
    file = tmp_path / "trace.csv"
    file.write_text(
        "HashOwner,HashApp,HashFunction,Trigger,1,2,3,4\n"
        "o,a,busy,http,100,0,200,100\n"
        "o,a,rare,timer,0,1,0,0\n"
        "o,a,never,timer,0,0,0,0\n"
    )
    return str(file)


def played(workload, models=50, minutes=4, seed=3):
    chunks = workload.chunks(range(models), [], minutes * 60 * S, np.random.default_rng(seed))
    return [(chunk.times_ns, chunk.models) for chunk in chunks]


def test_the_same_seed_makes_the_same_functions_and_another_one_others(path):
    workload = Azure2019Derived(path=path, functions=200, rate_rps=50)
    one, same, other = (played(workload, seed=seed) for seed in (3, 3, 4))
    for (times, models), (times_too, models_too) in zip(one, same, strict=True):
        assert np.array_equal(times, times_too)
        assert np.array_equal(models, models_too)
    assert sum(len(times) for times, _ in one) != sum(len(times) for times, _ in other)


def test_the_mean_rate_over_the_minutes_is_the_one_asked_for(path):
    workload = Azure2019Derived(path=path, functions=2000, rate_rps=100)
    requests = sum(len(times) for times, _ in played(workload))
    assert requests == pytest.approx(100 * 240, rel=0.03)  # 24,000 +- 155 by chance


def test_rate_scale_multiplies_it(path):
    workload = Azure2019Derived(path=path, functions=2000, rate_rps=100, rate_scale=0.5)
    assert sum(len(t) for t, _ in played(workload)) == pytest.approx(50 * 240, rel=0.04)


def test_turned_round_the_minutes_are_alike(path):
    workload = Azure2019Derived(path=path, functions=3000, rate_rps=200)
    by_minute = [len(times) for times, _ in played(workload)]
    assert len(by_minute) == 4
    assert min(by_minute) > 0.85 * max(by_minute)  # recorded: from 1 to 200


def test_the_busiest_functions_go_to_the_first_models(path):
    workload = Azure2019Derived(path=path, functions=500, rate_rps=200)
    models = np.concatenate([models for _, models in played(workload)])
    counts = np.bincount(models, minlength=50)
    assert counts[:5].sum() > counts[5:10].sum() > counts[15:20].sum()


def test_what_makes_no_sense_is_an_error(path):
    with pytest.raises(WorkloadError, match="functions = 0"):
        Azure2019Derived(path=path, functions=0, rate_rps=1)
    with pytest.raises(WorkloadError, match='placement = "even"; expected one of "poisson"'):
        Azure2019Derived(path=path, rate_rps=1, placement="even")


def test_functions_that_are_never_invoked_cannot_be_scaled(tmp_path):
    file = tmp_path / "silent.csv"
    file.write_text("HashOwner,HashApp,HashFunction,Trigger,1\no,a,never,timer,0\n")
    with pytest.raises(WorkloadError, match="none of those drawn is ever invoked"):
        played(Azure2019Derived(path=str(file), functions=5, rate_rps=1))


def test_from_the_extract_at_hand_come_seventeen_thousand_functions(shared):
    path = shared("data/traces/azure_functions_2019/fn500_min480-799_invocations.csv.gz")
    workload = Azure2019Derived(path=str(path), rate_rps=2000)
    [(times, models), *_] = played(workload, models=4026, minutes=1)
    assert len(times) == pytest.approx(2000 * 60, rel=0.1)
    assert len(np.unique(models)) > 800
