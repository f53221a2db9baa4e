import csv
import gzip
import math
import re
import warnings

import msgspec
import numpy as np
import pytest
from scipy import stats

from workloads import Azure2019, Workload, WorkloadError, WorkloadWarning, located

MINUTE_NS = 60 * 10**9
SECOND_NS = 10**9
HEAD = "HashOwner,HashApp,HashFunction,Trigger,480,481\n"
FN500 = "data/traces/azure_functions_2019/fn500_min480-799_invocations.csv.gz"
SAMPLED = "data/traces/azure_functions_2019_sampled/sampled1350_fullday_invocations.csv.gz"


def arrivals(workload, models=1, minutes=2, seed=1):
    """(times, models) of the first `minutes` of a run."""
    chunks = list(
        workload.chunks(range(models), [], minutes * MINUTE_NS, np.random.default_rng(seed))
    )
    return (
        np.concatenate([chunk.times_ns for chunk in chunks]),
        np.concatenate([chunk.models for chunk in chunks]),
    )


@pytest.fixture
def trace(tmp_path):
    """Write functions as rows of counts, and give a workload that replays them."""

    def trace(*counts, placement="uniform", **fields):
        head = ",".join(["HashOwner,HashApp,HashFunction,Trigger", *map(str, minutes(counts))])
        lines = [f"o,a,f{i},http,{','.join(map(str, row))}" for i, row in enumerate(counts)]
        (tmp_path / "azure.csv").write_text("\n".join([head, *lines, ""]))
        return located(Azure2019(path="azure.csv", placement=placement, **fields), tmp_path)

    def minutes(counts):
        return range(480, 480 + len(counts[0]))

    return trace


@pytest.mark.parametrize("placement", ["uniform", "even", "start"])
def test_each_minute_has_the_recorded_invocations(trace, placement):
    times_ns, _ = arrivals(trace((3, 0, 5), (1, 2, 0), placement=placement), minutes=3)
    assert np.bincount(times_ns // MINUTE_NS).tolist() == [4, 2, 5]
    assert np.all(np.diff(times_ns) >= 0)


def test_a_run_that_goes_on_after_the_trace_is_warned_of(trace):
    with pytest.warns(WorkloadWarning, match=r"^azure.csv: it ends at 120 s, and the run at 180 s"):
        arrivals(trace((3, 0)), minutes=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrivals(trace((3, 0)), minutes=2)  # a minute without requests is part of the trace
        arrivals(trace((3, 0), repeat=2), minutes=4)


def test_start_places_them_at_the_first_instant(trace):
    times_ns, _ = arrivals(trace((3, 2), placement="start"))
    assert times_ns.tolist() == [0, 0, 0, MINUTE_NS, MINUTE_NS]


def test_even_leaves_equal_gaps(trace):
    """120 a minute are 500 ms apart, also from one minute to the next (BUG-WRK-11)."""
    times_ns, _ = arrivals(trace((120, 120), placement="even"))
    assert set(np.diff(times_ns).tolist()) == {500_000_000}


def test_uniform_places_them_at_random_instants(trace):
    times_ns, _ = arrivals(trace((100_000,)), minutes=1)
    assert stats.kstest(times_ns / MINUTE_NS, "uniform").pvalue > 0.01


def test_poisson_draws_the_count_too(trace):
    times_ns, _ = arrivals(trace([60] * 2000, placement="poisson"), minutes=2000)
    counts = np.bincount(times_ns // MINUTE_NS, minlength=2000)
    assert counts.mean() == pytest.approx(60, rel=0.01)
    # A Poisson count varies as much as its mean. The variance of 2,000 of them is within 10 %.
    assert counts.var() == pytest.approx(60, rel=0.1)
    gaps_ns = np.diff(times_ns)
    assert stats.kstest(gaps_ns, "expon", args=(0, SECOND_NS)).pvalue > 0.01


def test_bug_wrk_09_a_minute_does_not_begin_with_a_burst(trace):
    """200 functions, one call each: 3.3 expected in a second, above 10 with chance 0.0006."""
    for placement in ("uniform", "poisson", "even"):
        times_ns, _ = arrivals(trace(*[(1,)] * 200, placement=placement), minutes=1)
        assert np.count_nonzero(times_ns < SECOND_NS) <= 10
    in_each_second = {
        placement: np.bincount(
            arrivals(trace((60,), placement=placement), minutes=1)[0] // SECOND_NS, minlength=60
        )
        for placement in ("uniform", "even")
    }
    assert set(in_each_second["even"].tolist()) == {1}
    assert set(in_each_second["uniform"].tolist()) != {1}


def test_the_placement_has_no_default(trace):
    with pytest.raises(WorkloadError) as error:
        trace((1, 2), placement="")
    assert str(error.value) == (
        "placement is missing: the trace counts invocations per minute and does not say when in "
        "the minute they came, and tail latencies depend on it; expected one of "
        '"uniform", "poisson", "even", "start"'
    )


def test_a_slice_is_named_by_the_labels_and_begins_at_start_s(trace):
    workload = trace((7, 1, 2, 9), placement="start", minutes=(481, 482), start_s=30)
    times_ns, _ = arrivals(workload, minutes=10)
    assert times_ns.tolist() == [30 * SECOND_NS] + [90 * SECOND_NS] * 2


def test_the_run_may_end_within_a_minute(trace):
    workload = trace((600, 600), placement="even")
    chunks = list(workload.chunks([0], [], 90 * SECOND_NS, np.random.default_rng(1)))
    assert sum(len(chunk.times_ns) for chunk in chunks) == 900


def test_a_longer_run_begins_as_the_shorter_one(trace):
    workload = trace(*[(50, 60, 70)] * 5, rate_scale=0.7)
    short, long = (arrivals(workload, models=3, minutes=n) for n in (2, 3))
    assert np.array_equal(short, [column[: len(short[0])] for column in long])


def test_a_whole_scale_multiplies_each_count(trace):
    times_ns, _ = arrivals(trace((3, 5), rate_scale=4.0))
    assert np.bincount(times_ns // MINUTE_NS).tolist() == [12, 20]


@pytest.mark.parametrize("placement", ["uniform", "poisson", "even", "start"])
@pytest.mark.parametrize("scale", [0.25, 1.5])
def test_a_scale_gives_that_share_of_the_load(trace, scale, placement):
    times_ns, _ = arrivals(trace((400_000, 0), rate_scale=scale, placement=placement))
    # The widest case is Poisson, whose standard deviation is the root of the mean.
    assert abs(len(times_ns) - 400_000 * scale) < 3 * math.sqrt(400_000 * scale)


def test_thinning_is_seeded(trace):
    workload = trace(*[(9, 9)] * 20, rate_scale=0.5)
    first, again, other = (arrivals(workload, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert len(first[0]) != len(other[0]) or not np.array_equal(first, other)


def test_by_volume_sorts_functions_and_spreads_them_over_the_models(trace):
    """Function i of F in the order of volume is model floor(i * M / F): Clockwork's rule."""
    counts = [(1, 0), (50, 0), (20, 10), (0, 0), (4, 5)]
    _, models = arrivals(trace(*counts, mapping="by_volume"), models=2)
    # By volume: 50, 30, 9, 1, 0. Of M = 2: floor(0, .4, .8, 1.2, 1.6).
    assert np.bincount(models).tolist() == [50 + 30 + 9, 1]


def test_by_volume_leaves_models_idle_if_there_are_more_of_them_than_functions(trace):
    _, models = arrivals(trace((1, 0), (5, 0), mapping="by_volume"), models=6)
    assert np.bincount(models).tolist() == [5, 0, 0, 1]


def test_round_robin_deals_functions_in_the_order_of_the_file(trace):
    counts = [(1, 0), (50, 0), (30, 0), (0, 2), (9, 0)]
    _, models = arrivals(trace(*counts, mapping="round_robin"), models=2)
    assert np.bincount(models).tolist() == [1 + 30 + 9, 50 + 2]


def test_bug_wrk_01_arrivals_come_from_the_calls_alone(trace):
    """f1, f2 and f3 have 40, 10 and 7 calls; rows of durations, double or missing, add none."""
    _, models = arrivals(trace((40,), (10,), (7,), mapping="round_robin"), models=3, minutes=1)
    assert np.bincount(models).tolist() == [40, 10, 7]


def read(tmp_path, content, name="azure.csv", **fields):
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(data)
    workload = located(Azure2019(path=name, placement="uniform", **fields), tmp_path)
    return len(arrivals(workload)[0])


def test_microsofts_own_shape_a_byte_order_mark_and_windows_lines_are_read(tmp_path):
    text = "HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,timer,3,4\n"
    assert read(tmp_path, text) == 7
    assert read(tmp_path, "\N{BYTE ORDER MARK}" + text) == 7
    assert read(tmp_path, text.replace("\n", "\r\n")) == 7
    assert read(tmp_path, gzip.compress(text.encode()), name="azure.csv.gz") == 7


def test_functions_of_two_apps_may_share_a_name(tmp_path):
    assert read(tmp_path, f"{HEAD}o,a,f,t,1,2\no,b,f,t,1,2\n") == 6


NO_COUNT = "is not a count of invocations; expected a whole number"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}o,a,f,t,1,2\no,a,g,t,1.5,2\n", f"azure.csv, line 3: 1.5 {NO_COUNT}"),
        (f"{HEAD}o,a,f,t,1,2\no,a,g,t,1,-2\n", f"azure.csv, line 3: -2 {NO_COUNT}"),
        (f"{HEAD}o,a,f,t,1,\n", f"azure.csv, line 2: an empty cell {NO_COUNT}"),
        (f"{HEAD}o,a,f,t,1,nan\n", f"azure.csv, line 2: nan {NO_COUNT}"),
        (f"{HEAD}o,a,f,t,1,9999999999\n", f"azure.csv, line 2: 9999999999 {NO_COUNT}"),
        (
            f"{HEAD}o,a,f,t,1,2\no,a,g,t,1\n",
            "azure.csv, line 3: 5 of 6 cells; expected one for each column of the header",
        ),
        (
            f"{HEAD}o,a,f,t,1,2\no,a,g,t,1,2\no,a,f,t,1,2\n",
            "azure.csv, line 4: function f is already on line 2; "
            "add the two rows up, or remove one",
        ),
        ("", "azure.csv is empty; expected a line with the names of its columns"),
        (HEAD, "azure.csv has no rows; expected at least one below its header"),
        (
            "HashOwner,HashApp,Trigger,480\no,a,t,1\n",
            "azure.csv has no column HashFunction; "
            "expected it beside HashOwner, HashApp, Trigger, 480",
        ),
        (
            "HashOwner,HashApp,HashFunction\no,a,f\n",
            "azure.csv has no minutes; expected columns such as 480 or 1_minute",
        ),
        (
            HEAD.replace("481", "480") + "o,a,f,t,1,2\n",
            "azure.csv: two columns are named 480; rename one of them",
        ),
        (
            HEAD.replace("481", "482") + "o,a,f,t,1,2\n",
            "azure.csv has no minute 481; its minutes are 480 to 482",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(WorkloadError) as error:
        read(tmp_path, text)
    assert str(error.value) == message


def test_a_bad_cell_outside_the_slice_does_no_harm(tmp_path):
    assert read(tmp_path, f"{HEAD}o,a,f,t,1,oops\n", minutes=(480, 480)) == 1


def test_a_torn_gzip_file_is_not_read_as_a_short_trace(tmp_path):
    rows = "".join(f"o,a,f{i},t,{i},{i % 7}\n" for i in range(5000))
    whole = gzip.compress((HEAD + rows).encode())
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0x55
    for torn in (whole[:-5], whole[: len(whole) // 2], whole[:5], bytes(damaged), b"no gzip"):
        with pytest.raises(WorkloadError) as error:
            read(tmp_path, torn, name="azure.csv.gz")
        assert str(error.value) == (
            "azure.csv.gz: the gzip data is torn or damaged; fetch or write the file again"
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate_scale": 0.0}, "rate_scale = 0.0; expected a factor, finite and above 0"),
        ({"rate_scale": math.nan}, "rate_scale = nan; expected a factor, finite and above 0"),
        (
            {"minutes": (500, 480)},
            "minutes = [500, 480]; expected the first and the last minute",
        ),
        ({"mapping": "hash"}, 'mapping = "hash"; expected one of "by_volume", "round_robin"'),
        (
            {"placement": "burst"},
            'placement = "burst"; expected one of "uniform", "poisson", "even", "start"',
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(WorkloadError) as error:
        Azure2019(**{"path": "azure.csv", "placement": "uniform", **fields})
    assert str(error.value) == message


def test_it_is_read_from_a_table(tmp_path):
    text = 'kind = "azure2019"\npath = "a.csv"\nplacement = "even"\nminutes = [480, 489]'
    workload = located(msgspec.toml.decode(text, type=Workload), tmp_path)
    assert workload == Azure2019(path=str(tmp_path / "a.csv"), placement="even", minutes=(480, 489))


@pytest.mark.parametrize(
    ("name", "total"), [(FN500, 2_013_353), (SAMPLED, 996_503)], ids=["fn500", "sampled"]
)
@pytest.mark.parametrize("placement", ["uniform", "even", "start"])
def test_the_shared_traces_are_replayed_call_by_call(shared, name, total, placement):
    """Totals: the READMEs beside the files. The counts are added up here without pyarrow."""
    with gzip.open(shared(name), "rt", newline="") as file:
        rows = list(csv.reader(file))
    minutes = [i for i, label in enumerate(rows[0]) if re.match(r"\d+(_minute)?$", label)]
    counts = np.array([[int(row[i]) for i in minutes] for row in rows[1:]])
    assert counts.sum() == total

    workload = Azure2019(path=str(shared(name)), placement=placement, mapping="round_robin")
    times_ns, models = arrivals(workload, models=len(counts), minutes=len(minutes))
    assert np.array_equal(np.bincount(times_ns // MINUTE_NS), counts.sum(axis=0))
    assert np.array_equal(np.bincount(models, minlength=len(counts)), counts.sum(axis=1))


def test_the_minutes_are_played_again_and_again(trace):
    times_ns, _ = arrivals(trace((3, 0), placement="start", repeat=2), minutes=10)
    assert times_ns.tolist() == [0] * 3 + [2 * MINUTE_NS] * 3
    with pytest.raises(WorkloadError, match=r"^repeat = 0; expected how often, at least 1$"):
        trace((1,), placement="start", repeat=0)
