"""What a run leaves on disk: rows, digest, and nothing that looks whole before it is."""

import gc
import json
import tracemalloc

import pyarrow.parquet as pq
import pytest

from results import (
    InvariantError,
    ResultsError,
    read_actions,
    read_latencies,
    read_outcomes,
    read_seconds,
    read_summary,
)
from results.breakdown import breakdown
from results.summary import clopper_pearson
from results.writer import FLUSH_ROWS
from scheduler.records import ACTION_COLUMNS, REQUEST_COLUMNS, Outcome, Reason, Refusal, Status, Why
from tests.results.helpers import MS, SECOND, action, request, writer


def test_rows_come_back_with_words_and_model_names(tmp_path):
    with writer(tmp_path / "run", models=["resnet50", "bert"], pages_of_model=[1, 1]) as sink:
        sink.request(request(0))
        sink.request(request(1, outcome=Outcome.REJECTED, reason=Reason.CANNOT_LOAD_IN_TIME))
        sink.action(action(7, "load", model=1, end=5))
        sink.action(action(8, status=Status.MISSED, why=Why.WINDOW, start=9, end=9))
        sink.close(arrivals=2)

    outcomes = read_outcomes(tmp_path / "run")
    assert tuple(outcomes.column_names) == REQUEST_COLUMNS
    assert outcomes["model"].to_pylist() == ["resnet50", "resnet50"]
    assert outcomes["outcome"].to_pylist() == ["ok", "rejected"]
    assert outcomes["reason"].to_pylist() == ["nothing", "cannot_load_in_time"]
    assert outcomes["end_ns"].to_pylist() == [10 * MS, 10 * MS]
    assert outcomes["cold"].to_pylist() == [False, False]

    actions = read_actions(tmp_path / "run")
    assert tuple(actions.column_names) == ACTION_COLUMNS
    assert actions["model"].to_pylist() == ["bert", "resnet50"]
    assert actions["type"].to_pylist() == ["load", "infer"]
    assert actions["why"].to_pylist() == ["nothing", "window"]


def test_actions_are_read_by_window(tmp_path):
    with writer(tmp_path) as sink:
        for i in range(5):
            sink.action(action(i, start=10 * i, end=10 * i + 9))
        sink.close(arrivals=0)
    assert read_actions(tmp_path, start_ns=15, stop_ns=30)["id"].to_pylist() == [1, 2]


def test_a_run_longer_than_a_flush_has_row_groups_and_every_row(tmp_path):
    n = 2 * FLUSH_ROWS + 5
    with writer(tmp_path, end_ns=n * MS) as sink:
        for i in range(n):
            sink.request(request(i, at=i * MS, end=i * MS + 5 * MS))
        summary = sink.close(arrivals=n)
    assert summary.arrivals == n
    file = pq.ParquetFile(tmp_path / "outcomes.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(3)] == [FLUSH_ROWS, FLUSH_ROWS, 5]
    assert read_outcomes(tmp_path)["id"].to_pylist() == list(range(n))


def test_the_digest_is_that_of_the_values(tmp_path):
    rows = [request(i, at=i, end=i + 10) for i in range(100)]

    def digest(name, rows):
        with writer(tmp_path / name) as sink:
            for row in rows:
                sink.request(row)
            return sink.close(arrivals=len(rows)).digest

    changed = [*rows[:50], (*rows[50][:2], 1, *rows[50][3:]), *rows[51:]]
    assert digest("a", rows) == digest("b", rows)
    assert digest("a again", rows) != digest("c", changed)
    assert digest("d", rows[::-1]) != digest("e", rows)


def test_a_run_that_is_not_closed_leaves_nothing_that_looks_whole(tmp_path):
    def world():
        with writer(tmp_path) as sink:
            sink.request(request(0))
            raise RuntimeError("the world broke")

    with pytest.raises(RuntimeError):
        world()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "actions.parquet.part",
        "outcomes.parquet.part",
    ]
    with pytest.raises(ResultsError, match="did not finish"):
        read_outcomes(tmp_path)


def test_an_unsound_run_leaves_its_rows_for_a_look_but_no_result(tmp_path):
    sink = writer(tmp_path)
    sink.request(request(0))
    with pytest.raises(InvariantError, match="2 requests arrived, but 1 ended"):
        sink.close(arrivals=2)
    assert pq.read_table(tmp_path / "outcomes.parquet.part")["id"].to_pylist() == [0]
    assert not (tmp_path / "summary.json").exists()


def test_a_directory_that_is_no_run_says_so(tmp_path):
    with pytest.raises(ResultsError, match=r"no summary\.json: not the directory of a run"):
        read_outcomes(tmp_path)


def test_a_finished_run_is_not_written_over_by_chance(tmp_path):
    writer(tmp_path).close(arrivals=0)
    with pytest.raises(ResultsError, match="already holds a finished run"):
        writer(tmp_path)
    with writer(tmp_path, overwrite=True) as sink:
        assert not (tmp_path / "summary.json").exists()
        sink.close(arrivals=0)
    assert read_summary(tmp_path).arrivals == 0


def test_a_full_disk_names_the_file_and_the_way_out(tmp_path):
    for name in ("outcomes.parquet", "latency.hdr", "summary.json"):
        where = tmp_path / name
        where.mkdir()
        (where / f"{name}.part").symlink_to("/dev/full")

        def run(where=where):
            with writer(where) as sink:
                sink.request(request(0))
                sink.close(arrivals=1)

        with pytest.raises(ResultsError, match=rf"{name}: .*No space left.*make room"):
            run()
        assert not (where / "summary.json").exists()


def test_a_row_of_the_wrong_length_or_word_is_an_error(tmp_path):
    sink = writer(tmp_path / "a")
    sink.request(request(0)[:-1])
    with pytest.raises(ResultsError, match="a row has not 13 values"):
        sink.close(arrivals=1)
    sink = writer(tmp_path / "b")
    sink.action(action(0, "prefetch"))
    with pytest.raises(ResultsError, match="'prefetch' is not a type of action"):
        sink.close(arrivals=0)


@pytest.mark.parametrize("interrupted", [True, False])
def test_what_could_still_have_been_in_time_is_in_no_share(tmp_path, interrupted):
    """SLOs of 100 ms, all stopped at 1 s: the request of 850 ms is missed, that of 950 ms open. A
    run that ends in order had its time to answer: there both are missed."""
    with writer(tmp_path) as sink:
        for i in range(6):
            sink.request(request(i, at=i * MS, end=(i + 1) * MS))
        sink.request(request(6, at=6 * MS, outcome=Outcome.REJECTED))
        for i, at_ms in ((7, 850), (8, 950)):
            fate = {"outcome": Outcome.UNFINISHED, "end": SECOND}
            sink.request(request(i, at=at_ms * MS, **fate))
        sink.request(request(9, at=960 * MS, slo=None, end=SECOND, outcome=Outcome.UNFINISHED))
        stopped = {"interrupted": True, "stopped_ns": SECOND} if interrupted else {}
        summary = sink.close(arrivals=10, **stopped)
    assert summary.outcomes["unfinished"] == 3
    assert (summary.arrivals, summary.no_slo_requests) == (10, 1)
    assert summary.slo_undecided == (1 if interrupted else 0)
    assert summary.slo_requests == (8 if interrupted else 9)
    assert summary.share_in_time == 6 / summary.slo_requests
    assert summary.share_in_time_95 == clopper_pearson(6, summary.slo_requests)
    (client,) = breakdown(tmp_path).clients
    assert (client.slo_requests, client.slo_in_time) == (summary.slo_requests, 6)


def test_an_interrupted_run_is_measured_as_far_as_it_came(tmp_path):
    with writer(tmp_path, warmup_ns=SECOND, end_ns=10 * SECOND) as sink:
        for i in range(4):
            at = i * SECOND // 2
            sink.request(request(i, at=at, end=at + MS))
        summary = sink.close(
            arrivals=4,
            interrupted=True,
            stopped_ns=2 * SECOND,
            refusals={Refusal.BAD_WINDOW: 3, Refusal.UNKNOWN_LANE: 0},
        )
    assert summary.interrupted
    assert summary.arrivals == 2
    assert summary.goodput_rps == 2.0
    assert summary.refusals == {"bad_window": 3}
    assert read_summary(tmp_path) == summary


def test_seconds_count_every_request_where_it_arrived(tmp_path):
    with writer(tmp_path) as sink:
        sink.request(request(0, at=0))
        sink.request(request(1, at=100 * SECOND, end=100 * SECOND + 5))
        sink.request(request(2, at=100 * SECOND, end=101 * SECOND))
        sink.close(arrivals=3)
    seconds = read_seconds(tmp_path)
    assert len(seconds["second"]) == 101
    assert seconds["arrivals"].sum() == 3
    assert (seconds["ok"][0], seconds["ok"][100], seconds["late"][100]) == (1, 1, 1)


def test_latencies_come_back_as_they_were_counted(tmp_path):
    with writer(tmp_path) as sink:
        for i in range(3):
            sink.request(request(i, end=(i + 1) * 1234 * 1000))
        sink.close(arrivals=3)
    latency_ms, counts = read_latencies(tmp_path)
    assert latency_ms.tolist() == [1.234, 2.468, 3.702]
    assert counts.tolist() == [1, 2, 3]


def test_bug_rep_14_a_run_in_which_nothing_completed_is_strict_json(tmp_path):
    with writer(tmp_path) as sink:
        for i in range(3):
            sink.request(request(i, outcome=Outcome.UNFINISHED, end=5 * MS))
        sink.close(arrivals=3)

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    found = json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert found["goodput_rps"] == 0.0
    assert found["share_in_time"] == 0.0
    assert found["latency"]["mean_ms"] is None
    assert set(found["latency"]["quantiles_ms"].values()) == {None}
    assert found["mean_batch_executed"] is None

    writer(tmp_path / "empty").close(arrivals=0)
    empty = read_summary(tmp_path / "empty")
    assert empty.goodput_rps is None
    assert empty.share_in_time is None
    assert empty.share_in_time_95 is None


def test_bug_sim_18_memory_does_not_grow_with_the_number_of_requests(tmp_path):
    def peak(name, flushes):
        gc.collect()
        tracemalloc.start()
        n = flushes * FLUSH_ROWS
        with writer(tmp_path / name) as sink:
            for i in range(n):
                sink.request(request(i, at=i * 1000, end=i * 1000 + MS))
            sink.close(arrivals=n)
        high = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return high

    assert peak("long", 4) < 1.1 * peak("short", 2)
