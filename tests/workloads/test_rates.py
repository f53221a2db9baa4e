"""Workloads whose arrivals are made: their counts, gaps and shapes, against theory."""

import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from workloads import (
    Bursts,
    Closed,
    Constant,
    Gamma,
    Mmpp,
    Periodic,
    Poisson,
    Ramp,
    Steps,
    Workload,
    WorkloadError,
    located,
)

SECOND_NS = 10**9

EVERY_KIND = [
    Constant(rate_rps=1000),
    Constant(rate_rps=1000, weights="turns"),
    Poisson(rate_rps=1000),
    Gamma(rate_rps=1000, cv=2),
    Mmpp(rate_rps=1000, levels=[1, 10], mean_s=[0.5, 0.1]),
    Mmpp(rate_rps=1000, levels=[1, 10, 0], mean_s=[0.01, 0.01, 0.1], gaps="even"),
    Bursts(rate_rps=1000, every_s=1, burst_s=0.1, burst_share=0.5),
    Periodic(rate_rps=1000, period_s=7, amplitude=1, peak_s=3),
    Ramp(from_rps=0, to_rps=2000, ramp_s=20),
    Steps(steps=[(0, 500), (3, 0), (4, 3000)], period_s=5),
]


def arrivals(workload, seconds, models=range(10), seed=1):
    """(times, models) of all arrivals."""
    chunks = list(
        workload.chunks(list(models), [], int(seconds * SECOND_NS), np.random.default_rng(seed))
    )
    return (
        np.concatenate([chunk.times_ns for chunk in chunks]),
        np.concatenate([chunk.models for chunk in chunks]),
    )


def times_s(workload, seconds, seed=1):
    return arrivals(workload, seconds, seed=seed)[0] / 1e9


# -- every kind ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", EVERY_KIND, ids=repr)
def test_arrivals_are_in_order_within_the_run_and_typed(workload):
    workload = msgspec.structs.replace(workload, start_s=2.0)
    times_ns, chosen = arrivals(workload, 12)
    assert (times_ns.dtype, chosen.dtype) == (np.int64, np.int32)
    assert np.all(np.diff(times_ns) >= 0)
    assert 2 * SECOND_NS <= times_ns[0] <= times_ns[-1] < 12 * SECOND_NS
    assert set(chosen.tolist()) == set(range(10))


@pytest.mark.parametrize("workload", EVERY_KIND, ids=repr)
def test_a_longer_run_begins_as_the_shorter_one(workload):
    short, long = arrivals(workload, 7), arrivals(workload, 31)
    assert len(short[0]) < len(long[0])
    assert np.array_equal(short[0], long[0][: len(short[0])])
    assert np.array_equal(short[1], long[1][: len(short[1])])


@pytest.mark.parametrize("workload", EVERY_KIND, ids=repr)
def test_one_seed_gives_one_result(workload):
    assert np.array_equal(arrivals(workload, 5), arrivals(workload, 5))


@pytest.mark.parametrize("workload", EVERY_KIND, ids=repr)
def test_it_is_read_from_a_table_as_it_is_written(workload):
    table = msgspec.to_builtins(workload)
    assert msgspec.convert(table, Workload) == workload


@pytest.mark.parametrize("workload", EVERY_KIND, ids=repr)
def test_a_workload_that_begins_after_the_end_has_no_arrivals(workload):
    late = msgspec.structs.replace(workload, start_s=5.0)
    assert list(late.chunks([0], [], SECOND_NS, np.random.default_rng(0))) == []


@pytest.mark.parametrize("workload", EVERY_KIND, ids=repr)
def test_chunks_stay_small(workload):
    field = "to_rps" if isinstance(workload, Ramp) else "rate_rps"
    if isinstance(workload, Steps):
        workload = Steps(steps=[(0, 5000), (3, 0), (4, 30_000)], period_s=5)
    else:
        workload = msgspec.structs.replace(workload, **{field: 10_000.0})
    sizes = [
        len(chunk.times_ns)
        for chunk in workload.chunks(range(100), [], 50 * SECOND_NS, np.random.default_rng(1))
    ]
    assert sum(sizes) > 100_000
    assert max(sizes) <= 16_384


# -- constant --------------------------------------------------------------------------------------


def test_bug_wrk_10_a_constant_rate_keeps_its_gaps_and_covers_the_warm_up():
    times_ns, _ = arrivals(Constant(rate_rps=10), 120)
    assert np.bincount(times_ns // (60 * SECOND_NS)).tolist() == [600, 600]
    assert set(np.diff(times_ns).tolist()) == {100_000_000}
    assert times_ns[-1] == 119_900_000_000
    # A run of three minutes whose first one is the warm-up.
    times_ns, _ = arrivals(Constant(rate_rps=10), 180)
    assert (len(times_ns), int((times_ns < 60 * SECOND_NS).sum())) == (1800, 600)


@pytest.mark.parametrize(
    ("rate_rps", "seconds", "count"), [(40, 10, 400), (120 / 60, 60, 120), (7, 3, 21)]
)
def test_bug_wrk_11_a_rate_is_no_burst_and_does_not_drift(rate_rps, seconds, count):
    times_ns, _ = arrivals(Constant(rate_rps=rate_rps), seconds)
    assert times_ns.tolist() == [round(k * 10**9 / rate_rps) for k in range(count)]


def test_a_constant_rate_does_not_drift_in_a_day():
    workload = Constant(rate_rps=7)
    times_ns, _ = arrivals(workload, 86_400)
    assert len(times_ns) == 7 * 86_400
    assert times_ns[7 * 86_399] == 86_399 * SECOND_NS


def test_models_take_turns():
    _, chosen = arrivals(Constant(rate_rps=10_000, weights="turns"), 10, models=[3, 5, 8])
    assert chosen.tolist() == [[3, 5, 8][k % 3] for k in range(100_000)]


def test_models_share_in_proportion_to_a_list():
    _, chosen = arrivals(Poisson(rate_rps=1000, weights=[3.0, 0.0, 1.0]), 40, models=[1, 2, 3])
    counts = np.bincount(chosen, minlength=4)
    assert counts[2] == 0
    assert stats.chisquare(counts[[1, 3]], np.array([0.75, 0.25]) * len(chosen)).pvalue > 0.01


# -- gamma -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "cv"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_bug_wrk_12_burstiness_keeps_the_mean(shape, cv):
    """200,000 gaps: mean 0.1 s and the coefficient of variation within 2 %."""
    gaps_s = np.diff(times_s(Gamma(rate_rps=10, cv=shape**-0.5), 20_000))
    assert len(gaps_s) == pytest.approx(200_000, rel=0.02)
    assert gaps_s.mean() == pytest.approx(0.1, rel=0.02)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.02)
    assert stats.kstest(gaps_s[:10_000], "gamma", args=(shape, 0, 0.1 / shape)).pvalue > 0.01


@pytest.mark.parametrize("cv", [0.0, -1.0, math.nan, math.inf, 1e4])
def test_bug_wrk_12_a_burstiness_that_cannot_be_is_refused(cv):
    with pytest.raises(WorkloadError, match=r"^cv = .*; expected"):
        Gamma(rate_rps=10, cv=cv)


def test_a_model_sees_gaps_that_are_closer_to_random_than_those_of_the_whole():
    """A share p of gaps with coefficient c has sqrt(1 + p (c^2 - 1)): here sqrt(1.3)."""
    times_ns, chosen = arrivals(Gamma(rate_rps=1000, cv=2), 1000)
    gaps = np.diff(times_ns[chosen == 3])
    assert gaps.std() / gaps.mean() == pytest.approx(math.sqrt(1 + 0.1 * 3), rel=0.02)


# -- mmpp ------------------------------------------------------------------------------------------


def dispersion(rates, mean_s, window_s):
    """Variance / mean of the arrivals of a two-level MMPP in a window, in the stationary state.

    Heffes and Lucantoni (1986), equation for IDC(t), with s = 1 / mean_s.
    """
    (r1, r2), (s1, s2) = rates, (1 / mean_s[0], 1 / mean_s[1])
    s = s1 + s2
    limit = 2 * (r1 - r2) ** 2 * s1 * s2 / (s**2 * (r1 * s2 + r2 * s1))
    return 1 + limit * (1 - (1 - math.exp(-s * window_s)) / (s * window_s))


@pytest.mark.parametrize("window_s", [0.2, 1.0, 10.0])
def test_mmpp_has_its_mean_rate_and_its_index_of_dispersion(window_s):
    workload = Mmpp(rate_rps=100, levels=[1, 9], mean_s=[0.75, 0.25])
    rates = workload.rates_rps()
    assert rates.tolist() == pytest.approx([100 / 3, 300])
    counts = []
    for seed in range(4):
        times = times_s(workload, 10_000, seed)
        counts.append(np.bincount((times / window_s).astype(int), minlength=int(1e4 / window_s)))
    counts = np.concatenate(counts)
    assert counts.mean() / window_s == pytest.approx(100, rel=0.02)
    assert counts.var() / counts.mean() == pytest.approx(
        dispersion(rates, workload.mean_s, window_s), rel=0.05
    )


def test_mmpp_with_three_levels_holds_each_for_its_share():
    """Levels of 0, 106 and 529 a second are told apart by their counts in 100 ms."""
    workload = Mmpp(rate_rps=300, levels=[0, 1, 5], mean_s=[10.0, 20.0, 30.0])
    unit = 300 * 60 / (20 + 5 * 30)
    assert workload.rates_rps().tolist() == pytest.approx([0, unit, 5 * unit])
    times = times_s(workload, 40_000)
    counts = np.bincount((times * 10).astype(int), minlength=400_000)
    idle, low = (counts == 0).mean(), ((counts > 0) & (counts < 2.5 * unit / 10)).mean()
    # 2,000 stays: the shares are known to about 2 %.
    assert (idle, low) == pytest.approx((1 / 6, 1 / 3), abs=0.02)


# -- bursts, ramp, periodic ------------------------------------------------------------------------


def test_bursts_hold_their_share_and_the_mean_stays():
    workload = Bursts(rate_rps=1000, every_s=2, burst_s=0.1, burst_share=0.6, gaps="even")
    times = times_s(workload, 20)
    assert len(times) == 20_000
    within = times % 2.0 < 0.1 - 1e-9
    assert within.sum() == pytest.approx(12_000, abs=10)


def test_between_bursts_of_share_1_it_is_idle():
    times = times_s(Bursts(rate_rps=1000, every_s=1, burst_s=0.1, burst_share=1), 30)
    assert len(times) == pytest.approx(30_000, abs=3 * 30_000**0.5)
    assert (times % 1.0).max() <= 0.1


@pytest.mark.parametrize("ends", [(0, 2000), (2000, 0), (300, 1700), (1000, 1000.001)])
def test_a_ramp_has_as_many_arrivals_as_its_area(ends):
    """The integral of the rate up to t is from t + (to - from) t^2 / (2 ramp)."""
    workload = Ramp(from_rps=ends[0], to_rps=ends[1], ramp_s=100, gaps="even")
    times = times_s(workload, 100)
    assert len(times) == pytest.approx(100_000, abs=1)
    for t in (10, 25, 50, 75):
        area = ends[0] * t + (ends[1] - ends[0]) * t**2 / 200
        assert int((times < t).sum()) == pytest.approx(area, abs=1.01)


def test_after_a_ramp_the_rate_stays():
    assert len(times_s(Ramp(from_rps=0, to_rps=100, ramp_s=10, gaps="even"), 110)) == 10_500
    times = times_s(Ramp(from_rps=100, to_rps=0, ramp_s=10), 1000)
    assert times.max() < 10
    assert len(times) == pytest.approx(500, abs=3 * 500**0.5)


@pytest.mark.parametrize("amplitude", [0.3, 1.0])
def test_a_period_has_as_many_arrivals_as_its_area(amplitude):
    """The integral of 1 + a cos(2 pi (t - p) / T) is t + a T / 2 pi (sin(..) + sin(2 pi p / T))."""
    workload = Periodic(rate_rps=1000, period_s=60, amplitude=amplitude, peak_s=20, gaps="even")
    times = times_s(workload, 600)
    assert len(times) == 600_000
    for t in (5, 20, 50, 59, 333):
        swing = math.sin(2 * math.pi * (t - 20) / 60) + math.sin(2 * math.pi / 3)
        area = 1000 * (t + amplitude * 60 / (2 * math.pi) * swing)
        assert int((times < t).sum()) == pytest.approx(area, abs=1.5)


def test_the_rate_is_highest_at_its_peak():
    times = times_s(Periodic(rate_rps=1000, period_s=60, amplitude=0.9, peak_s=20), 600)
    assert np.argmax(np.bincount((times % 60).astype(int) // 4)) in (4, 5)


# -- steps -----------------------------------------------------------------------------------------

SPIKE = [(0, 10), (10, 200), (11, 10), (20, 0)]


def spike_counts(workload):
    times = times_s(workload, 30)
    return np.histogram(times, [0, 10, 11, 20, 30])[0].tolist()


def test_bug_cli_11_a_shape_of_ones_own_keeps_its_counts_and_scales(tmp_path):
    assert spike_counts(Steps(steps=SPIKE, gaps="even")) == [100, 200, 90, 0]
    (tmp_path / "shape.csv").write_text(
        "start_s,rate_rps\n" + "".join(f"{start},{rate}\n" for start, rate in SPIKE)
    )
    from_file = located(Steps(path="shape.csv", gaps="even"), tmp_path)
    assert spike_counts(from_file) == [100, 200, 90, 0]
    for scale, total in ((0.5, 195), (2.0, 780)):
        scaled = Steps(steps=SPIKE, gaps="even", rate_scale=scale)
        assert sum(spike_counts(scaled)) == total


def test_steps_begin_anew_after_their_period():
    workload = Steps(steps=[(0, 10), (1, 0)], period_s=5, gaps="even")
    assert np.bincount(times_s(workload, 12).astype(int)).tolist() == [
        10, 0, 0, 0, 0, 10, 0, 0, 0, 0, 10,
    ]  # fmt: skip


def test_the_last_step_holds_to_the_end_of_a_long_run():
    assert len(times_s(Steps(steps=[(0, 0), (5, 0.01)], gaps="even"), 3 * 86_400)) == 2592


# -- mistakes --------------------------------------------------------------------------------------

RATE = "expected requests a second over all models, finite and above 0"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(rate_rps=-5), f"rate_rps = -5; {RATE}"),
        (lambda: Constant(rate_rps=math.nan), f"rate_rps = nan; {RATE}"),
        (lambda: Gamma(rate_rps=math.nan, cv=1), f"rate_rps = nan; {RATE}"),
        (
            lambda: Mmpp(rate_rps=1, levels=[1], mean_s=[1]),
            "levels = [1] with mean_s = [1]; expected at least two levels, and how long each "
            "lasts on average",
        ),
        (
            lambda: Mmpp(rate_rps=1, levels=[1, -1], mean_s=[1, 1]),
            "levels = [1, -1]; expected rates in proportion to each other, at least 0",
        ),
        (
            lambda: Mmpp(rate_rps=1, levels=[0, 0], mean_s=[1, 1]),
            "levels = [0, 0]; expected one above 0",
        ),
        (
            lambda: Mmpp(rate_rps=1, levels=[0, 1], mean_s=[1, 0]),
            "mean_s = [1, 0]; expected seconds, each above 0",
        ),
        (
            lambda: Bursts(rate_rps=1, every_s=1, burst_s=1, burst_share=0.5),
            "burst_s = 1; expected seconds, above 0 and below every_s, 1",
        ),
        (
            lambda: Bursts(rate_rps=1, every_s=1, burst_s=0.5, burst_share=1.5),
            "burst_share = 1.5; expected the share of the requests that come in bursts, "
            "above 0 and at most 1",
        ),
        (
            lambda: Periodic(rate_rps=1, period_s=1, amplitude=1.5),
            "amplitude = 1.5; expected a share of the mean rate, above 0 and at most 1",
        ),
        (
            lambda: Ramp(from_rps=math.nan, to_rps=1, ramp_s=1),
            "from_rps = nan; expected requests a second over all models, at least 0",
        ),
        (
            lambda: Ramp(from_rps=0, to_rps=0, ramp_s=1),
            "to_rps = 0, as from_rps; expected one of them above 0",
        ),
        (
            lambda: Steps(),
            "expected either steps, such as [[0, 10], [60, 200]], or the path of a CSV file with "
            "the columns start_s and rate_rps",
        ),
        (
            lambda: Steps(steps=[(0, -1)]),
            "steps = [0, -1]: -1 is not a rate; expected requests a second, at least 0",
        ),
        (
            lambda: Steps(steps=[(0, math.nan)]),
            "steps = [0, nan]: nan is not a rate; expected requests a second, at least 0",
        ),
        (
            lambda: Steps(steps=[(1, 1)]),
            "steps = [1, 1]: the first step is at 1 s; expected one at 0, such as [0, 0] for an "
            "idle beginning",
        ),
        (
            lambda: Steps(steps=[(0, 1), (5, 2), (5, 3)]),
            "steps = [5, 3]: 5 s comes after 5 s; expected rising times, one step each",
        ),
        (
            lambda: Steps(steps=[(0, 1), (5, 2)], period_s=5),
            "period_s = 5; expected more than the time of the last step, 5 s",
        ),
        (lambda: Steps(steps=[(0, 0)]), "steps = [0, 0]: all rates are 0; expected one above 0"),
        (
            lambda: Ramp(from_rps=0, to_rps=1, ramp_s=1, gaps="odd"),
            'gaps = "odd"; expected one of "poisson", "even"',
        ),
        (
            lambda: Poisson(rate_rps=1, weights=[0.0, 0.0]),
            "weights = [0.0, 0.0]; expected a number for each model, finite, at least 0, and not "
            "all of them 0",
        ),
    ],
)  # fmt: skip
def test_values_that_make_no_sense_are_refused_in_one_line(make, message):
    with pytest.raises(WorkloadError) as error:
        make()
    assert str(error.value) == message


def test_weights_of_another_number_of_models_are_refused():
    with pytest.raises(WorkloadError) as error:
        arrivals(Poisson(rate_rps=1, weights=[1.0, 2.0]), 1, models=[0, 1, 2])
    assert str(error.value) == (
        "weights has 2 numbers, and the workload asks for 3 models; expected one for each"
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,x\n", "shape.csv, line 2: start_s 0, rate_rps x; expected two numbers"),
        ("0,\n", "shape.csv, line 2: start_s 0, rate_rps is empty; expected two numbers"),
        ("0,1\n2,-1\n", "shape.csv, line 3: -1.0 is not a rate; expected requests a second, at "
         "least 0"),
        ("0,1\n2,nan\n", "shape.csv, line 3: nan is not a rate; expected requests a second, at "
         "least 0"),
        ("0,1\n2,1\n1,1\n", "shape.csv, line 4: 1 s comes after 2 s; expected rising times, one "
         "step each"),
        ("", "shape.csv has no rows; expected at least one below its header"),
    ],
)  # fmt: skip
def test_a_wrong_shape_is_refused_with_its_line(tmp_path, rows, message):
    (tmp_path / "shape.csv").write_text("start_s,rate_rps\n" + rows)
    with pytest.raises(WorkloadError) as error:
        arrivals(located(Steps(path="shape.csv"), tmp_path), 1)
    assert str(error.value) == message


def test_bug_cli_06_a_rate_and_a_number_of_clients_contradict_each_other():
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert({"kind": "poisson", "rate_rps": 20, "concurrency": 4}, Workload)
    assert str(error.value) == (
        "concurrency = 4; this kind is open-loop: its requests come at their own rate, however "
        'many are under way. Clients that wait for their answer are kind = "closed", which has '
        "concurrency and no rate"
    )
    with pytest.raises(WorkloadError) as error:
        Closed(concurrency=4, rate_rps=20.0)
    assert str(error.value) == (
        "rate_rps = 20.0; this kind is closed-loop: a client asks again when it has its answer, "
        "so that the rate follows from the latency. Requests at a rate of their own are "
        'kind = "constant" or "poisson", without concurrency'
    )
