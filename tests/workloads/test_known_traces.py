"""Readers of the published traces: small cases first, then the files themselves."""

import csv
import gzip
import json
import math

import numpy as np
import pytest

from profiles import Samples
from workloads import (
    Azure2021,
    AzureLlm,
    Disb,
    Mooncake,
    Reef,
    ServeGen,
    Trace,
    WorkloadError,
    WorkloadWarning,
    located,
)
from workloads.azure2019_tables import join, read_durations, read_memory
from workloads.tokens import fit

SECOND_NS = 10**9
DAY_S = 86_400


def arrivals(workload, run_s=DAY_S, names=("m0",), seed=0):
    """(times, models) of all arrivals."""
    chunks = list(
        workload.chunks(
            range(len(names)), names, int(run_s * SECOND_NS), np.random.default_rng(seed)
        )
    )
    times_ns = np.concatenate([chunk.times_ns for chunk in chunks])
    assert np.all(np.diff(times_ns) >= 0)
    return times_ns, np.concatenate([chunk.models for chunk in chunks])


def error_of(call, *args, **kwargs):
    with pytest.raises(WorkloadError) as error:
        call(*args, **kwargs)
    return str(error.value)


# -- Azure Functions 2019, durations and memory ----------------------------------------------------

HEAD = "HashOwner,HashApp,HashFunction,Average,Count,percentile_Average_50\n"


def functions(table):
    return {function[-1]: value for function, value in table.items()}


def test_bug_wrk_01_two_rows_are_merged_and_a_missing_one_is_told(tmp_path):
    path = tmp_path / "durations.csv"
    path.write_text(HEAD + "o,a,f1,100,10,90\no,a,f1,200,30,190\no,a,f2,50,10,50\n")
    with pytest.warns(WorkloadWarning, match="function f1 has 2 rows; merged 2 rows"):
        durations = read_durations(path)
    assert functions(durations) == {"f1": 175.0, "f2": 50.0}
    calls = {("o", "a", "f1"): 40, ("o", "a", "f2"): 10, ("o", "a", "f3"): 7}
    joined = join(calls, durations)
    assert functions(joined.calls) == {"f1": 40, "f2": 10}
    assert joined.report() == ("no duration for 1 of 3 functions: 7 of 57 calls dropped (12.3%)")
    assert functions(join(calls, durations, default_ms=60).ms)["f3"] == 60
    assert error_of(read_durations, path, strict=True) == (
        "durations.csv: function f1 has 2 rows; expected one"
    )


def test_bug_wrk_03_an_average_of_zero_gives_way_to_the_median(tmp_path):
    path = tmp_path / "durations.csv"
    path.write_text(HEAD + "o,a,f1,0,12,35\n")
    with pytest.warns(WorkloadWarning) as caught:
        assert functions(read_durations(path)) == {"f1": 35.0}
    assert str(caught[0].message) == (
        "durations.csv, line 2: an average of 0 ms over 12 executions; its median is used, 35 ms"
    )


def test_bug_wrk_04_a_negative_average_gives_way_to_the_median(tmp_path):
    path = tmp_path / "durations.csv"
    path.write_text(HEAD + "o,a,f1,-1200,50,120\n")
    with pytest.warns(WorkloadWarning, match=r"^durations.csv, line 2: an average of -1200 ms"):
        assert functions(read_durations(path)) == {"f1": 120.0}
    assert error_of(read_durations, path, strict=True) == (
        "durations.csv, line 2: an average of -1200 ms over 50 executions; "
        "expected a duration, at least 0"
    )


def test_bug_wrk_05_percentiles_are_of_weighted_averages():
    """Two periods: an average of 20 over 6 calls, and of 26 over 2."""
    sample = Samples((20,) * 6 + (26,) * 2)
    assert [sample.estimate_ns(q) for q in (0.5, 0.75, 0.9)] == [20, 20, 26]
    assert sample.mean_ns() == 21.5


def test_bug_wrk_05_a_day_without_a_memory_file_has_a_stated_default():
    calls = {("o", "a", "f1"): 100, ("o", "a", "f2"): 1}
    with pytest.warns(WorkloadWarning) as caught:
        memory = read_memory(None, calls, default_mb=170)
    assert functions(memory) == {"f1": 170, "f2": 170}
    assert [str(warning.message) for warning in caught] == [
        "no memory file: no memory for 2 of 2 functions; 170 MB is assumed"
    ]


def test_bug_wrk_05_arrivals_are_those_of_the_invocations(tmp_path):
    path = tmp_path / "durations.csv"
    path.write_text(HEAD + "o,a,f1,20,97,20\n")
    joined = join({("o", "a", "f1"): 100}, read_durations(path))
    assert functions(joined.calls) == {"f1": 100}


def test_the_files_of_500_functions_join(shared):
    folder = shared("data/traces/azure_functions_2019")
    durations = read_durations(folder / "fn500_day_durations.csv.gz")
    memory = read_memory(folder / "fn500_day_memory.csv.gz", durations, default_mb=0)
    assert len(durations) == len(memory) == 500
    assert min(memory.values()) > 0


# -- Azure Functions 2021 --------------------------------------------------------------------------


@pytest.fixture
def calls(tmp_path):
    """A trace of invocations given as (end, duration), each of a function of its own."""

    def calls(*rows):
        text = "".join(f"a,f{i},{end},{duration}\n" for i, (end, duration) in enumerate(rows))
        (tmp_path / "calls.csv").write_text("app,func,end_timestamp,duration\n" + text)
        return located(Azure2021(path="calls.csv", mapping="round_robin"), tmp_path)

    return calls


def test_bug_wrk_02_a_call_begins_its_duration_before_its_end(calls):
    workload = calls((10.0, 8.0), (9.0, 0.5), (5.0, 6.0))
    assert workload.read().start_s.tolist() == [-1.0, 2.0, 8.5]
    times_ns, chosen = arrivals(workload, names=["m0", "m1", "m2"])
    assert times_ns.tolist() == [0, 3 * SECOND_NS, 9_500_000_000]
    assert chosen.tolist() == [2, 0, 1]
    assert "1 of 3 began before second 0 of the trace" in workload.notes()


def test_bug_wrk_03_calls_without_a_duration_are_arrivals(calls):
    workload = calls((1, 0), (2, 0), (3, 0.013), (4, 0.134))
    assert len(arrivals(workload)[0]) == 4
    assert "zero duration: 2 of 4 (50%); they are arrivals too" in workload.notes()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("x", 1), "calls.csv, line 2: x is no end_timestamp in seconds; expected a number"),
        ((5, -1), "calls.csv, line 2: -1 is no duration in seconds; expected a number, "
         "at least 0"),
        ((5, "nan"), "calls.csv, line 2: nan is no duration in seconds; expected a number, "
         "at least 0"),
        (("nan", 1), "calls.csv, line 2: nan is no end_timestamp in seconds; expected a number"),
    ],
)  # fmt: skip
def test_a_call_that_makes_no_sense_is_refused(calls, row, message):
    assert error_of(arrivals, calls(row)) == message


def test_the_200_calls_of_2021(shared):
    workload = Azure2021(path=str(shared("data/traces/azure_functions_2021/Azure2021_200.csv")))
    read = workload.read()
    assert (len(read.start_s), read.n_functions) == (199, 31)
    times_ns, _ = arrivals(workload, names=["a", "b"])
    assert len(times_ns) == 199
    assert times_ns[-1] / 60e9 == pytest.approx(21, abs=1.1)


# -- tokens ----------------------------------------------------------------------------------------


def test_bug_wrk_13_requests_that_are_too_long_are_dropped_clipped_or_refused(tmp_path):
    inputs, outputs = np.array([9000, 8000, 100]), np.array([200, 300, 50])
    assert fit(inputs, outputs, 8192, "drop").kept.tolist() == [False, False, True]
    clipped = fit(inputs, outputs, 8192, "clip")
    assert clipped.inputs.tolist() == [7992, 7892, 100]
    assert clipped.outputs.tolist() == [200, 300, 50]
    assert clipped.too_long.tolist() == [True, True, False]
    (tmp_path / "t.jsonl").write_text(
        "".join(
            json.dumps({"timestamp": i, "input_length": n, "output_length": m}) + "\n"
            for i, (n, m) in enumerate(zip(inputs.tolist(), outputs.tolist(), strict=True))
        )
    )
    path = str(tmp_path / "t.jsonl")
    assert error_of(arrivals, Mooncake(path=path, max_tokens=8192)) == (
        "t.jsonl, line 1: 9000 + 200 tokens are more than max_tokens = 8192; "
        'set too_long = "drop" or "clip"'
    )
    with pytest.warns(WorkloadWarning, match="2 of 3 requests longer .* dropped"):
        assert len(arrivals(Mooncake(path=path, max_tokens=8192, too_long="drop"))[0]) == 1
    with pytest.warns(WorkloadWarning, match="2 of 3 requests longer .* clipped"):
        assert len(arrivals(Mooncake(path=path, max_tokens=8192, too_long="clip"))[0]) == 3


def test_bug_wrk_14_requests_without_an_output_token_are_kept_with_a_warning(tmp_path):
    """The rate per tenth of a trace is printed by `mainspring workloads show`."""
    (tmp_path / "t.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.68,1,0\n2023-11-16 18:15:47.68,1,5\n"
    )
    path = str(tmp_path / "t.csv")
    with pytest.warns(WorkloadWarning, match="1 of 2 requests without an output token, kept"):
        assert arrivals(AzureLlm(path=path))[0].tolist() == [0, SECOND_NS]
    with pytest.warns(WorkloadWarning, match="1 of 2 requests without an output token, dropped"):
        assert arrivals(AzureLlm(path=path, no_output="drop"))[0].tolist() == [SECOND_NS]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2023-11-16 18:15:46,x,1", "t.csv, line 2: x is not a number of tokens (ContextTokens); "
         "expected a whole number"),
        ("2023-11-16 18:15:46,1,-1", "t.csv, line 2: -1 is not a number of tokens "
         "(GeneratedTokens); expected a whole number"),
        ("yesterday,1,1", "t.csv, line 2: yesterday is not a date stamp"),
    ],
)  # fmt: skip
def test_a_wrong_row_of_tokens_is_refused(tmp_path, row, message):
    (tmp_path / "t.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n")
    assert error_of(arrivals, AzureLlm(path=str(tmp_path / "t.csv"))) == message


def test_azures_conversations_of_2023(shared):
    """README: 19,366 requests from 18:15:46.68 to 19:14:08.40, and their tokens."""
    path = str(shared("data/traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz"))
    workload = AzureLlm(path=path)
    times_ns, _ = arrivals(workload)
    assert len(times_ns) == 19_366
    assert times_ns[-1] / 1e9 == pytest.approx(58 * 60 + 21.72, abs=0.01)
    assert workload.totals() == (19_366, 22_361_870, 4_088_665)
    plain = Trace(path=path, time_column="TIMESTAMP", time_unit="stamp")
    assert np.array_equal(arrivals(plain)[0], times_ns)


def test_mooncakes_conversations(shared):
    path = str(shared("data/traces/mooncake_fast25/conversation_trace.jsonl.gz"))
    workload = Mooncake(path=path)
    times_ns, _ = arrivals(workload)
    assert (len(times_ns), times_ns[-1]) == (12_031, 3_536_999_000_000)
    assert len(np.unique(times_ns)) < len(times_ns)
    assert workload.totals() == (12_031, 144_793_823, 4_122_048)


# -- ServeGen --------------------------------------------------------------------------------------

SERVEGEN_HEAD = "client,start_s,rate_rps,iat_cv,fit,param1,param2\n"


@pytest.fixture
def rates(tmp_path):
    def rates(*rows, **fields):
        (tmp_path / "rates.csv").write_text(SERVEGEN_HEAD + "".join(f"{row}\n" for row in rows))
        return located(ServeGen(path="rates.csv", **fields), tmp_path)

    return rates


@pytest.mark.parametrize(
    ("fit", "shape", "cv"),
    [
        ("Gamma", 0.25, 2.0),
        ("Gamma", 4.0, 0.5),
        # A Weibull's cv is sqrt(G(1 + 2/k) / G(1 + 1/k)^2 - 1).
        ("Weibull", 0.7, math.sqrt(math.gamma(1 + 2 / 0.7) / math.gamma(1 + 1 / 0.7) ** 2 - 1)),
    ],
)
def test_a_clients_gaps_have_the_recorded_rate_and_the_fitted_shape(rates, fit, shape, cv):
    workload = rates(f"0,0,100,1,{fit},{shape},1", repeat=20)
    times_ns, _ = arrivals(workload, 12_000)
    gaps = np.diff(times_ns)
    assert gaps.mean() / 1e9 == pytest.approx(0.01, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.02)


@pytest.mark.parametrize(("fit", "shape"), [("Gamma", 0.1), ("Weibull", 0.5), ("", 0)])
def test_a_windows_expected_count_is_its_rate_even_where_it_is_low(rates, fit, shape):
    """0.01/s is 6 a window; a fresh start would miss by (cv^2 - 1) / 2: 4.5 for the Gamma."""
    workload = rates(f"0,0,0.01,1,{fit},{shape},1", repeat=20_000)
    times_ns, _ = arrivals(workload, 20_000 * 600)
    # Counts have a variance of at most 10 x 6 here: three standard deviations of the mean.
    assert len(times_ns) / 20_000 == pytest.approx(6, abs=3 * math.sqrt(60 / 20_000))


def test_clients_are_mapped_to_models_and_windows_chosen(rates):
    rows = ("a,0,1,1,Gamma,1,1", "a,600,0,0,,0,0", "b,0,0,0,,0,0", "b,600,2,1,Gamma,1,1")
    workload = rates(*rows, mapping="round_robin")
    times_ns, chosen = arrivals(workload, names=["m0", "m1"])
    assert set(chosen[times_ns < 600 * SECOND_NS].tolist()) == {0}
    assert set(chosen[times_ns >= 600 * SECOND_NS].tolist()) == {1}
    second = rates(*rows, windows=(1, 1), rate_scale=10.0)
    times_ns, _ = arrivals(second)
    assert times_ns[-1] < 600 * SECOND_NS
    assert len(times_ns) == pytest.approx(12_000, abs=3 * 12_000**0.5)
    assert error_of(arrivals, rates(*rows, windows=(1, 2))) == (
        "windows = [1, 2]; rates.csv has windows 0 to 1"
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a,0,-1,1,Gamma,1,1"], "rates.csv, line 2: rate_rps = -1; expected requests a second, "
         "at least 0"),
        (["a,0,nan,1,Gamma,1,1"], "rates.csv, line 2: rate_rps = nan; expected requests a "
         "second, at least 0"),
        (["a,10,1,1,Gamma,1,1"], "rates.csv, line 2: start_s = 10; expected a multiple of 600"),
        (["a,0,1,1,Normal,1,1"], "rates.csv, line 2: fit = Normal; expected Gamma, Weibull or "
         "nothing"),
        (["a,0,1,1,Gamma,0,1"], "rates.csv, line 2: param1 = 0; expected a shape above 0"),
        (["a,0,1,1,Gamma,1,1"] * 2, "rates.csv, line 3: client a at 0 s is already on line 2; "
         "remove one of the rows"),
    ],
)  # fmt: skip
def test_a_wrong_window_is_refused(rates, rows, message):
    assert error_of(arrivals, rates(*rows)) == message


@pytest.mark.parametrize(
    ("name", "clients", "windows", "requests"),
    [
        ("m-small", 43, 2016, 1_420_558_786),
        ("deepseek-r1", 73, 144, 1_383_669),
        ("mm-image", 35, 144, 818_610),
    ],
)
def test_servegens_clients(shared, name, clients, windows, requests):
    """Counts of the README: rows, clients, span, and rate x 600 s summed."""
    path = shared(f"data/traces/servegen/{name}_client_rates.csv.gz")
    workload = ServeGen(path=str(path))
    rates = workload.read()
    assert rates.rate_rps.shape == (windows, clients)
    assert rates.rate_rps.sum() * 600 == pytest.approx(requests, abs=1)
    if name == "mm-image":
        times_ns, _ = arrivals(workload)
        assert len(times_ns) == pytest.approx(requests, rel=0.02)


# -- REEF and DISB ---------------------------------------------------------------------------------

REEF_MODELS = ["vgg", "densenet", "resnet152", "inception", "bert"]


def test_reefs_workload_e(shared):
    """README: 5 real-time clients, 6,240 arrivals in 60 s."""
    path = str(shared("data/traces/reef_fig10/E.json.gz"))
    times_ns, chosen = arrivals(Reef(path=path), names=REEF_MODELS)
    assert len(times_ns) == 6_240
    assert times_ns[-1] < 60 * SECOND_NS
    assert np.bincount(chosen).tolist() == [1020, 1260, 1140, 1260, 1560]
    assert error_of(arrivals, Reef(path=path), names=["vgg16"]) == (
        "E.json.gz: vgg is not a model of this workload (did you mean vgg16?); expected vgg16; "
        'rename it, as rename = { "vgg" = "..." }, or set mapping = "round_robin"'
    )


@pytest.mark.parametrize(
    ("name", "clients", "count"),
    [("A", 1, 6000), ("C", 1, 6000), ("D", 5, 6000), ("REAL", 5, 1684)],
)
def test_disbs_workloads(shared, name, clients, count):
    """Rates of workloads.md for 60 s; REAL's instants as the README counts them."""
    workload = Disb(
        path=str(shared(f"data/profiles/disb/workloads/{name}.json")), mapping="round_robin"
    )
    assert len(workload.read(np.random.default_rng(0))) == clients
    assert len(arrivals(workload)[0]) == count


def test_disbs_random_and_closed_workloads(shared):
    folder = shared("data/profiles/disb/workloads")
    times_ns, _ = arrivals(Disb(path=str(folder / "E.json"), mapping="round_robin"))
    assert len(times_ns) == pytest.approx(6000, abs=3 * 6000**0.5)
    closed = Disb(path=str(folder / "B.json"))
    assert error_of(arrivals, closed) == (
        'B.json has only closed-loop clients; they are kind = "closed"'
    )
    assert "vgg19-imagenet, resnet152-imagenet" in closed.notes()[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.json: Input data was truncated; is the file whole?"),
        ('{"rt": [{"name": "a"', "x.json: Input data was truncated; is the file whole?"),
        ('{"rt": []}', "x.json has no instants; expected rt clients with a trace"),
        ('{"rt": [{"name": "m0", "frequency": 1, "trace": [5, 4]}]}', "x.json: client m0 has 4.0 "
         "ms after 5.0 ms; expected rising instants, at least 0"),
        ('{"rt": [{"name": "m0", "frequency": 1, "trace": [-1]}]}', "x.json: client m0 has -1.0 "
         "ms after 0.0 ms; expected rising instants, at least 0"),
    ],
)  # fmt: skip
def test_a_wrong_json_file_is_refused(tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    assert error_of(arrivals, Reef(path=str(tmp_path / "x.json"))) == message


# -- the original Clockwork ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["e1c_r200", "e1c_r600", "e1c_r800", "e4c_sloexp1_r200", "e5c_small10_r200"]
)
def test_the_requests_of_the_original_controllers_runs(shared, name):
    """Every request of a run, with the number of the model that it asks for."""
    path = shared(f"data/clockwork_original/traces/{name}.csv.gz")
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    models = 1 + max(int(row["model"]) for row in rows)
    workload = Trace(
        path=str(path), time_column="arrival_us", time_unit="us", model_column="model", sort=True
    )
    times_ns, chosen = arrivals(workload, names=[f"m{i}" for i in range(models)])
    assert len(times_ns) == len(rows)
    assert np.bincount(chosen, minlength=models).tolist() == [
        sum(int(row["model"]) == model for row in rows) for model in range(models)
    ]
