import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from workloads import Trace, WorkloadError, located

SECOND_NS = 10**9


@pytest.fixture
def replay(tmp_path):
    """Write a trace, replay it, and give the arrivals as (seconds, model)."""

    def replay(content, name="trace.csv", names=("a", "b"), run_s=100, **fields):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
        fields = {"time_column": "t", "model_column": "m", "time_unit": "s", **fields}
        workload = located(Trace(path=name, **fields), tmp_path)
        chunks = workload.chunks(
            range(len(names)), names, run_s * SECOND_NS, np.random.default_rng(0)
        )
        return [
            (time_ns / 1e9, names[model])
            for times_ns, models in chunks
            for time_ns, model in zip(times_ns.tolist(), models.tolist(), strict=True)
        ]

    return replay


def test_a_model_is_a_name_or_a_place(replay):
    assert replay("t,m\n0,a\n1.5,b\n1.5,0\n") == [(0, "a"), (1.5, "b"), (1.5, "a")]


def test_a_place_counts_the_workloads_own_models():
    """A number is the n-th of the models that the workload asks for, and not of the run."""
    workload = Trace(path="x", time_column="t", time_unit="s", model_column="m", models="b*")
    assert workload.select(["a0", "b0", "b1"]) == [1, 2]


def test_a_model_whose_name_is_a_number_goes_before_a_place(replay):
    assert replay("t,m\n0,1\n", names=("1", "x")) == [(0, "1")]


def test_other_columns_and_their_order_do_not_matter(replay):
    assert replay("m,junk,t\na,?,1\nb,,2\n") == [(1, "a"), (2, "b")]


def test_a_gzipped_trace_reads_the_same(replay):
    text = "t,m\n0,a\n1,b\n"
    assert replay(gzip.compress(text.encode()), name="trace.csv.gz") == replay(text)


def test_it_begins_at_start_s_and_ends_with_the_run(replay):
    assert replay("t,m\n0,a\n3,b\n5,a\n", start_s=5, run_s=10) == [(5, "a"), (8, "b")]


def test_an_unsorted_trace_is_sorted_on_demand(replay):
    text = "t,m\n2,a\n0,b\n2,b\n0,a\n"
    assert replay(text, sort=True) == [(0, "b"), (0, "a"), (2, "a"), (2, "b")]


def test_a_long_trace_comes_in_many_chunks(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("t,m\n" + "".join(f"{i},0\n" for i in range(100_000)))
    workload = Trace(path=str(path), time_column="t", time_unit="us", model_column="m")
    chunks = list(workload.chunks([7], [""] * 8, SECOND_NS, np.random.default_rng(0)))
    assert max(len(chunk.times_ns) for chunk in chunks) <= 16_384
    assert np.array_equal(
        np.concatenate([chunk.times_ns for chunk in chunks]), np.arange(100_000) * 1000
    )
    assert {model for chunk in chunks for model in chunk.models.tolist()} == {7}


def test_bug_wrk_07_the_unit_of_the_times_has_to_be_said(replay):
    text = "t,m\n0,a\n3000,a\n6000,a\n"
    with pytest.raises(WorkloadError) as error:
        replay(text, time_unit="")
    assert str(error.value) == (
        "time_unit is missing, and trace.csv cannot tell it; "
        'expected one of "ns", "us", "ms", "s", or "stamp" for dates'
    )
    assert replay(text, time_unit="ms") == [(0, "a"), (3, "a"), (6, "a")]
    assert replay(text, time_unit="s", run_s=10_000) == [(0, "a"), (3000, "a"), (6000, "a")]


def test_a_trace_outside_the_run_is_an_error_and_not_an_idle_run(replay):
    with pytest.raises(WorkloadError) as error:
        replay("t,m\n1700000000,a\n")
    assert str(error.value) == (
        "trace.csv: the first request comes at 1.7e+09 s, and the run ends at 100 s; "
        'check time_unit, or set time_origin = "first"'
    )


NO_MODEL = "is not a model of this workload; expected a, b, or a number from 0 to 1"
NO_TIME = "is not a time in s; expected a number, at least 0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace.csv is empty; expected a line with the names of its columns"),
        ("t,m", "trace.csv has no rows; expected at least one below its header"),
        ("t,m\n", "trace.csv has no rows; expected at least one below its header"),
        ("t,n\n1,a\n", "trace.csv has no column m; expected it beside t, n"),
        (
            "t;m\n1;a\n",
            "trace.csv has no column t; expected it beside t;m; columns are to be parted by commas",
        ),
        ("t,mm\n1,a\n", "trace.csv has no column m (did you mean mm?); expected it beside t, mm"),
        ("t,m,t\n1,a,1\n", "trace.csv: two columns are named t; rename one of them"),
        ("t,m\n1,a\nx,b\n", f"trace.csv, line 3: x {NO_TIME}"),
        ("t,m\n1,a\n,b\n", f"trace.csv, line 3: an empty cell {NO_TIME}"),
        ("t,m\n1,a\nnan,b\n", f"trace.csv, line 3: nan {NO_TIME}"),
        ("t,m\n1,a\ninf,b\n", f"trace.csv, line 3: inf {NO_TIME}"),
        ("t,m\n1,a\n-1,b\n", f"trace.csv, line 3: -1 {NO_TIME}"),
        ("t,m\n1,a\n\n2,c\n", f"trace.csv, line 4: c {NO_MODEL}"),
        ("t,m\n1,a\n2,2\n", f"trace.csv, line 3: 2 {NO_MODEL}"),
        (
            "t,m\n1,a\n2\n",
            "trace.csv, line 3: 1 of 2 cells; expected one for each column of the header",
        ),
        (
            "t,m\n1,a\n\n\n0,b\n",
            "trace.csv, line 5: its t is before that of the line above; "
            "expected them in order, or set sort = true",
        ),
        ("t,m\n1,\xff\n".encode("latin-1"), "trace.csv is not UTF-8 text; expected a CSV file"),
        ('t,m\n1,"a\n', "trace.csv is not a CSV file: unexpected end of data"),
    ],
)
def test_a_wrong_trace_is_refused_in_one_line(replay, text, message):
    with pytest.raises(WorkloadError) as error:
        replay(text)
    assert str(error.value) == message


def test_the_line_is_right_far_down_a_file_that_is_read_in_blocks(replay):
    text = "t,m\n" + "".join(f"{i / 1000},a\n" for i in range(90_000))
    with pytest.raises(WorkloadError, match=r"^trace.csv, line 90002: its t is before"):
        replay(text + "1,a\n")


def test_a_torn_gzip_file_is_not_read_as_a_short_trace(replay):
    whole = gzip.compress("".join(["t,m\n", *(f"{i},a\n" for i in range(50))]).encode())
    for torn in (whole[:-1], whole[:-8], whole[:60], whole[:5], b"no gzip"):
        with pytest.raises(WorkloadError) as error:
            replay(torn, name="trace.csv.gz")
        assert str(error.value) == (
            "trace.csv.gz: the gzip data is torn or damaged; fetch or write the file again"
        )


def test_a_missing_trace_is_named_with_the_folder_it_was_looked_for_in(tmp_path):
    workload = located(
        Trace(path="gone.csv", time_column="t", time_unit="s", model_column="m"), tmp_path
    )
    with pytest.raises(WorkloadError) as error:
        next(workload.chunks([0], ["a"], 1, np.random.default_rng(0)))
    assert str(error.value) == (
        f"{tmp_path / 'gone.csv'}: No such file or directory; expected a CSV file"
    )


def test_the_original_clients_arrivals_are_replayed_to_the_nanosecond(shared, tmp_path):
    """15 models at 1,000 requests a second for 20 s, as the original Clockwork client has them."""
    script = shared("tools/original_arrivals.py")
    printed = subprocess.run(
        [sys.executable, script, "15", "1000", "20"], capture_output=True, text=True, check=True
    ).stdout
    path = Path(tmp_path / "arrivals.csv")
    path.write_text(printed)
    rows = [line.split(",") for line in printed.splitlines()[1:]]
    workload = Trace(path=str(path), time_column="arrival_us", time_unit="us", model_column="model")
    chunks = list(workload.chunks(range(15), [""] * 15, 30 * SECOND_NS, np.random.default_rng(0)))
    times_ns = np.concatenate([chunk.times_ns for chunk in chunks])
    assert times_ns.tolist() == [int(time.replace(".", "")) for time, _ in rows]
    assert np.concatenate([chunk.models for chunk in chunks]).tolist() == [int(m) for _, m in rows]
    assert abs(len(rows) - 20_000) < 5 * 20_000**0.5
