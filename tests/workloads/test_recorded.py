"""Recorded traces: other kinds of files, date stamps, and what can be done to a recording."""

import gzip
import json
import warnings

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from workloads import Trace, Workload, WorkloadError, WorkloadWarning, located

SECOND_NS = 10**9


def arrivals(workload, names, run_s):
    return [
        (time_ns, names[model])
        for times_ns, models in workload.chunks(
            range(len(names)), names, int(run_s * SECOND_NS), np.random.default_rng(0)
        )
        for time_ns, model in zip(times_ns.tolist(), models.tolist(), strict=True)
    ]


@pytest.fixture
def replay(tmp_path):
    """Write a trace, replay it, and give the arrivals as (seconds, model)."""

    def replay(content, name="trace.csv", names=("a", "b"), run_s=100, **fields):
        if isinstance(content, pa.Table):
            pa.parquet.write_table(content, tmp_path / name)
        else:
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(data)
        fields = {"time_column": "t", "model_column": "m", "time_unit": "s", **fields}
        workload = located(Trace(path=name, **fields), tmp_path)
        return [(ns / 1e9, model) for ns, model in arrivals(workload, names, run_s)]

    return replay


def error_of(call, *args, **fields):
    with pytest.raises(WorkloadError) as error:
        call(*args, **fields)
    return str(error.value)


# -- what is done to a recording -------------------------------------------------------------------

THREE = "t,m\n1000,a\n1010,a\n1030,b\n"


def test_bug_wrk_08_a_scale_divides_the_gaps_from_the_first_request(replay):
    """rate_scale multiplies the rate: 2 plays twice as fast. There is no second spelling."""
    assert replay(THREE, time_origin="first") == [(0, "a"), (10, "a"), (30, "b")]
    assert replay(THREE, time_origin="first", rate_scale=2) == [(0, "a"), (5, "a"), (15, "b")]
    assert replay(THREE, time_origin="first", rate_scale=0.5) == [(0, "a"), (20, "a"), (60, "b")]


def test_a_slice_is_cut_in_the_recordings_own_time_and_begins_at_start_s(replay):
    text = "t,m\n0,a\n5,a\n7,b\n9,a\n"
    assert replay(text, slice_s=(5, 9)) == [(0, "a"), (2, "b")]
    assert replay(text, slice_s=(4, 9), start_s=10, rate_scale=2) == [(10.5, "a"), (11.5, "b")]
    assert replay(THREE, time_origin="first", slice_s=(10, 40)) == [(0, "a"), (20, "b")]


def test_a_slice_is_played_again_and_again(replay):
    text = "t,m\n0,a\n5,a\n7,b\n90,a\n"
    assert replay(text, slice_s=(5, 10), repeat=3) == [
        (0, "a"), (2, "b"), (5, "a"), (7, "b"), (10, "a"), (12, "b"),
    ]  # fmt: skip
    assert replay(text, slice_s=(5, 10), repeat=3, rate_scale=2, run_s=5) == [
        (0, "a"), (1, "b"), (2.5, "a"), (3.5, "b"),
    ]  # fmt: skip


def test_a_repetition_needs_a_length(replay):
    assert error_of(replay, THREE, repeat=2, run_s=2000) == (
        "repeat = 2; trace.csv does not say how long it is; expected slice_s beside it, "
        "such as slice_s = [0, 600]"
    )


def test_a_slice_without_a_request_is_an_error(replay):
    assert error_of(replay, THREE, slice_s=(0, 10)) == (
        "slice_s = [0, 10]; trace.csv has no request in it; expected seconds since its beginning"
    )


def test_a_share_of_the_requests_is_kept_by_chance(replay):
    text = "t,m\n" + "".join(f"{i},a\n" for i in range(10_000))
    kept = replay(text, keep=0.25, time_unit="ms")
    assert len(kept) == pytest.approx(2500, abs=3 * (10_000 * 0.25 * 0.75) ** 0.5)
    assert kept == replay(text, keep=0.25, time_unit="ms")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate_scale": 0.0}, "rate_scale = 0.0; expected a factor, finite and above 0"),
        ({"rate_scale": float("nan")}, "rate_scale = nan; expected a factor, finite and above 0"),
        ({"keep": 0.0}, "keep = 0.0; expected a share, above 0 and at most 1"),
        ({"repeat": 0}, "repeat = 0; expected how often, at least 1"),
        (
            {"slice_s": (5, 5)},
            "slice_s = [5, 5]; expected the first second and the end, such as [0, 600]",
        ),
        (
            {"mapping": "by_name"},
            'mapping = "by_name"; expected one of "name", "by_volume", "round_robin"',
        ),
        (
            {"weights": "zipf", "zipf_s": 1.0},
            'weights = "zipf"; the models follow from model_column here; expected no weights',
        ),
        (
            {"mapping": "by_volume", "model_column": None},
            "mapping and rename need a model_column",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(replay, fields, message):
    assert error_of(replay, THREE, **fields) == message


# -- models ----------------------------------------------------------------------------------------


def test_a_name_of_the_trace_may_stand_for_a_model(replay):
    text = "t,m\n0,resnet\n1,b\n2,a\n"
    assert replay(text, rename={"resnet": "a"}) == [(0, "a"), (1, "b"), (2, "a")]
    assert error_of(replay, text, rename={"resnet": "c"}) == (
        "rename: resnet = c is not a model of this workload; expected a, b"
    )


def test_models_may_take_the_places_of_the_traces_names(replay):
    text = "t,m\n0,x\n1,y\n2,z\n3,z\n4,z\n5,y\n"
    assert "".join(model for _, model in replay(text, mapping="round_robin")) == "abaaab"
    # By volume: z (3), y (2), x (1); floor(i * 2 / 3) is 0, 0, 1.
    assert "".join(model for _, model in replay(text, mapping="by_volume")) == "baaaaa"


def test_names_are_numbered_alike_when_they_come_in_many_blocks(replay):
    text = "t,m\n" + "".join(f"{i},n{(i * 7) % 10}\n" for i in range(100_000))
    names = [f"m{i}" for i in range(10)]
    played = replay(text, mapping="round_robin", names=names, time_unit="us")
    assert [model for _, model in played] == [f"m{i % 10}" for i in range(100_000)]


def test_without_a_model_column_requests_pick_a_model(replay):
    text = "t\n0\n1\n2\n3\n"
    assert replay(text, model_column=None, weights="turns") == [
        (0, "a"), (1, "b"), (2, "a"), (3, "b"),
    ]  # fmt: skip


# -- files -----------------------------------------------------------------------------------------


def test_json_lines_read_as_csv_does(replay):
    lines = [{"t": 0, "m": "a", "more": [1, 2]}, {"m": 1, "t": 2.5}]
    text = "\n".join(map(json.dumps, lines)) + "\n\n"
    assert replay(text, name="trace.jsonl") == [(0, "a"), (2.5, "b")]
    assert replay(gzip.compress(text.encode()), name="trace.jsonl.gz") == [(0, "a"), (2.5, "b")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace.jsonl is empty; expected a JSON object on each line"),
        ('{"t": 1}\n', "trace.jsonl has no column m; expected it beside t"),
        ('{"t": 1, "m": "a"}\n\n{"t": 2}\n', "trace.jsonl, line 3: no field m; expected it on "
         "every line"),
        ('{"t": 1, "m": "a"}\n{"t": "x", "m": "a"}\n', "trace.jsonl, line 2: x is not a time in "
         "s; expected a number, at least 0"),
        ('{"t": 1, "m": "a"}\n{"t": null, "m": "a"}\n', "trace.jsonl, line 2: an empty cell is "
         "not a time in s; expected a number, at least 0"),
        ('{"t": 1, "m": "a"}\n{"t": -2, "m": "a"}\n', "trace.jsonl, line 2: -2 is not a time in "
         "s; expected a number, at least 0"),
        ('{"t": 1, "m": "c"}\n', "trace.jsonl, line 1: c is not a model of this workload; "
         "expected a, b, or a number from 0 to 1"),
        ('{"t": 2, "m": "a"}\n{"t": 1, "m": "a"}\n', "trace.jsonl, line 2: its t is before that "
         "of the line above; expected them in order, or set sort = true"),
    ],
)  # fmt: skip
def test_wrong_json_lines_are_refused_with_their_line(replay, text, message):
    assert error_of(replay, text, name="trace.jsonl") == message


def test_torn_json_lines_are_refused(replay):
    text = '{"t": 1, "m": "a"}\n{"t": 2, "m"'
    assert error_of(replay, text, name="trace.jsonl") == (
        "trace.jsonl, line 2: not a JSON object (Input data was truncated); "
        "expected one on each line; is the file whole?"
    )
    torn = gzip.compress(b'{"t": 1, "m": "a"}\n' * 500)[:-9]
    assert error_of(replay, torn, name="trace.jsonl.gz") == (
        "trace.jsonl.gz: the gzip data is torn or damaged; fetch or write the file again"
    )


@pytest.mark.parametrize(
    "times",
    [
        pa.array([0.0, 1.5, 3.0]),
        pa.array([0.0, 1.5, 3.0], pa.float32()),
    ],
)
def test_parquet_reads_as_csv_does(replay, times):
    for models in (
        pa.array(["a", "b", "a"]),
        pa.array([0, 1, 0], pa.int64()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array(["a", "b", "a"], pa.large_string()),
    ):
        table = pa.table({"t": times, "m": models})
        assert replay(table, name="trace.parquet") == [(0, "a"), (1.5, "b"), (3, "a")]


def test_whole_nanoseconds_of_a_parquet_file_are_exact(tmp_path):
    times = [2**53 + 1, 2**53 + 2, 2**53 + 3]
    pa.parquet.write_table(pa.table({"t": times}), tmp_path / "t.parquet")
    workload = located(
        Trace(path="t.parquet", time_column="t", time_unit="ns", time_origin="first"), tmp_path
    )
    assert [ns for ns, _ in arrivals(workload, ["a"], 1)] == [0, 1, 2]


def test_parquet_time_stamps_are_stamps(replay):
    stamps = pa.array([1_700_000_000_000, 1_700_000_000_250], pa.timestamp("ms", "UTC"))
    table = pa.table({"t": stamps, "m": ["a", "b"]})
    assert replay(table, name="t.parquet", time_unit="stamp") == [(0, "a"), (0.25, "b")]
    assert "is not a time in s" in error_of(replay, table, name="t.parquet")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"t": pa.array([], pa.float64()), "m": pa.array([], pa.string())}),
         "t.parquet has no rows; expected at least one"),
        (pa.table({"t": [1.0], "n": ["a"]}), "t.parquet has no column m; expected it beside t, n"),
        (pa.table({"t": [1.0, None], "m": ["a", "a"]}), "t.parquet, row 2: t is empty; expected "
         "a value"),
        (pa.table({"t": [1.0, float("nan")], "m": ["a", "a"]}), "t.parquet, row 2: NaN is not a "
         "time in s; expected a number, at least 0"),
        (pa.table({"t": [1.0, 2.0], "m": ["a", "c"]}), "t.parquet, row 2: c is not a model of "
         "this workload; expected a, b, or a number from 0 to 1"),
        (pa.table({"t": [2, 1], "m": ["a", "a"]}), "t.parquet, row 2: its t is before that of "
         "the line above; expected them in order, or set sort = true"),
    ],
)  # fmt: skip
def test_a_wrong_parquet_file_is_refused_with_its_row(replay, table, message):
    assert error_of(replay, table, name="t.parquet") == message


def test_a_torn_parquet_file_is_refused(tmp_path, replay):
    pa.parquet.write_table(pa.table({"t": [1.0], "m": ["a"]}), tmp_path / "whole.parquet")
    torn = (tmp_path / "whole.parquet").read_bytes()[:-7]
    message = error_of(replay, torn, name="t.parquet")
    assert message.startswith("t.parquet: ")
    assert "\n" not in message


# -- date stamps -----------------------------------------------------------------------------------

DAY = "2023-11-16 "


def exact_ns(tmp_path, *stamps, **fields):
    text = "t\n" + "".join(f"{DAY}{stamp}\n" for stamp in stamps)
    (tmp_path / "stamps.csv").write_text(text)
    workload = located(
        Trace(path="stamps.csv", time_column="t", time_unit="stamp", **fields), tmp_path
    )
    return [ns for ns, _ in arrivals(workload, ["a"], 4e9)]  # to the end of any recording


def test_bug_wrk_06_stamps_keep_their_seventh_digit_and_no_zone_is_utc(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    with pytest.warns(WorkloadWarning) as caught:
        times_ns = exact_ns(
            tmp_path, "10:00:00.1234567+00:00", "10:00:01+00:00", "10:00:01.0000001"
        )
    assert times_ns == [0, 876_543_300, 876_543_400]
    assert [str(warning.message) for warning in caught] == [
        "stamps.csv: some time stamps have a time zone and some have none; "
        "those without are taken to be UTC"
    ]


def test_stamps_without_any_zone_or_with_others_need_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert exact_ns(tmp_path, "10:00:00", "10:00:00.5") == [0, 500_000_000]
        assert exact_ns(tmp_path, "10:00:00Z", "12:00:01+02:00") == [0, SECOND_NS]


@pytest.mark.parametrize("wrong", ["10:61:00", "soon", "10:00:00.12345678901", ""])
def test_what_is_no_stamp_is_refused_with_its_line(tmp_path, wrong):
    with pytest.raises(WorkloadError) as error:
        exact_ns(tmp_path, "10:00:00", wrong)
    assert str(error.value) == (
        f"stamps.csv, line 3: {DAY}{wrong} is not a date stamp; "
        "expected one such as 2023-11-16 18:15:46.68"
    )


def test_unsorted_stamps_are_refused_or_sorted(tmp_path):
    with pytest.raises(WorkloadError, match=r"^stamps.csv, line 3: its t is before"):
        exact_ns(tmp_path, "10:00:01", "10:00:00")
    assert exact_ns(tmp_path, "10:00:01", "10:00:00", sort=True) == [0, SECOND_NS]


@pytest.mark.parametrize(
    ("end_s", "fields"),
    [
        (4.9, {}),
        (89.9, {}),
        (44, {"slice_s": [0, 45], "repeat": 2, "rate_scale": 2}),
        (7, {"start_s": 90}),
    ],
)
def test_a_recording_that_leaves_the_end_of_the_run_empty_is_warned_of(replay, end_s, fields):
    with pytest.warns(WorkloadWarning) as caught:
        *_, last = replay(f"t\n0\n{end_s}\n", model_column=None, **fields)
    assert [str(warning.message) for warning in caught] == [
        f"trace.csv: it ends at {last[0]:.4g} s, and the run at 100 s: nothing is asked in "
        "between; set duration_s, or repeat, which plays it again; is time_unit right?"
    ]


@pytest.mark.parametrize(
    ("end_s", "fields"),
    [
        (90, {}),
        (101, {}),
        (49, {"slice_s": [0, 50], "repeat": 2}),
        (9, {"start_s": 90}),
    ],
)
def test_one_that_fills_the_run_is_not(replay, end_s, fields):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replay(f"t\n0\n{end_s}\n", model_column=None, **fields)


def test_it_is_read_from_a_scenarios_table():
    workload = msgspec.toml.decode(
        """
        kind = "trace"
        path = "x.parquet"
        time_column = "t"
        time_unit = "stamp"
        model_column = "m"
        rename = { resnet = "resnet50_v2" }
        slice_s = [60, 120.5]
        """,
        type=Workload,
    )
    assert workload.slice_s == (60.0, 120.5)
    assert workload.rename == {"resnet": "resnet50_v2"}
