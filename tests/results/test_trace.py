"""Traces, read back and compared with the rows that they were made of."""

import sys

import pyarrow.parquet as pq
import pytest

pytest.importorskip("perfetto", reason="traces need perfetto: pip install 'mainspring[trace]'")

from results import ResultsError
from results.trace import Traced, write_trace
from results.writer import FLUSH_ROWS
from scheduler.records import Outcome, Reason, Status, Why
from tests.results.helpers import MS, action, request, writer
from tests.results.trace_file import read_trace


def traced(tmp_path, rows, *, actions=(), exclusive=True, gpus=1, **window):
    """The trace of a run with these rows, and what was told of it."""
    about = {"models": ["resnet50", "bert"], "pages_of_model": [1, 1], "pages_of_gpu": [9] * gpus}
    with writer(tmp_path / "run", exclusive=exclusive, **about) as sink:
        for row in actions:
            sink.action(row)
        for row in rows:
            sink.request(row)
        sink.close(arrivals=len(rows))
    path = tmp_path / "out.perfetto-trace"
    came = write_trace(tmp_path / "run", path, **window)
    assert not list(tmp_path.glob("*.part"))
    return read_trace(path), came


def test_a_flow_leads_from_the_arrival_over_the_batch_to_the_end(tmp_path):
    trace, came = traced(
        tmp_path,
        [request(0, at=1 * MS, end=7 * MS, action=4), request(1, at=2 * MS, end=7 * MS, action=4)],
        actions=[action(4, start=3 * MS, end=6 * MS, batch=2, latest=5 * MS)],
    )
    assert came == Traced(requests=2, slices=1, unloads=0, not_run=0)
    (batch,) = trace.slices
    assert batch[:2] == (3 * MS, 6 * MS)
    assert batch.track[:2] == ("GPU 0", "execution")
    assert batch.name == "resnet50 x2"
    assert batch.notes == {
        "action": 4, "tasks": 2, "sent_ns": 3 * MS, "earliest_ns": 0, "latest_ns": 5 * MS,
        "expected_ns": 3 * MS,
    }  # fmt: skip
    arrival, served, end = trace.flows[1]
    assert served == batch
    assert (arrival.start_ns, arrival.name, arrival.notes) == (
        2 * MS, "arrival: resnet50", {"request": 1},
    )  # fmt: skip
    assert (end.start_ns, end.name, end.category) == (7 * MS, "ok: resnet50", "ok")
    assert end.notes == {"request": 1, "latency_ns": 5 * MS, "left_ns": 95 * MS, "batch": 1}
    assert arrival.track == end.track
    assert arrival.track[:2] == ("requests", "client 0")
    assert trace.ended == {0, 1}


def test_at_one_instant_a_flow_still_leads_forward(tmp_path):
    """Arrived, begun, and ended without any time between, as a world without delays has it."""
    trace, _ = traced(
        tmp_path,
        [request(0, at=5, end=9), request(1, at=9, end=9, outcome=Outcome.REJECTED)],
        actions=[action(0, start=5, end=9), action(1, start=9, end=9)],
    )
    assert [event.name.split(":")[0] for event in trace.flows[0]] == [
        "arrival", "resnet50 x1", "ok",
    ]  # fmt: skip
    assert [event.name.split(":")[0] for event in trace.flows[1]] == ["arrival", "rejected"]


def test_what_did_not_run_is_marked_with_its_reason(tmp_path):
    missed = {"status": Status.MISSED, "why": Why.WINDOW}
    trace, came = traced(
        tmp_path,
        [request(0, end=20, outcome=Outcome.FAILED, reason=Reason.MISSED_WINDOW)],
        actions=[
            action(0, start=15, end=15, earliest=3, latest=10, **missed),
            action(1, "load", model=1, start=16, end=16, status=Status.FAILED, why=Why.NO_PAGES),
            action(2, start=30, end=34, status=Status.FAILED, why=Why.DEVICE_ERROR),
            action(3, "load", start=30, end=40),
            action(4, "unload", start=50, end=50),
        ],
    )
    assert came == Traced(requests=1, slices=2, unloads=1, not_run=2)
    marks = [mark for mark in trace.marks if mark.track[0] == "GPU 0"]
    assert [(mark.start_ns, mark.track[1], mark.name, mark.category) for mark in marks] == [
        (15, "not run", "missed window: resnet50 x1", "missed"),
        (16, "not run", "failed (no_pages): load bert", "failed"),
        (50, "copy", "unload resnet50", "unload"),
    ]
    assert [marks[0].notes[name] for name in ("earliest_ns", "latest_ns", "why")] == [
        3, 10, "window",
    ]  # fmt: skip
    assert trace.slices[0].notes["why"] == "device_error"
    assert trace.slices[1].name == "load resnet50"
    assert [event.name for event in trace.flows[0]] == [
        "arrival: resnet50",
        "failed (missed_window): resnet50",
    ]


def test_batches_that_overlap_lie_on_as_few_tracks_as_there_are_at_once(tmp_path):
    spans = [(0, 10), (4, 12), (10, 14), (12, 20), (13, 21), (14, 22), (30, 31)]
    trace, _ = traced(
        tmp_path,
        [],
        actions=[action(i, start=s, end=e) for i, (s, e) in enumerate(spans)],
        exclusive=False,
    )
    assert sorted(each[:2] for each in trace.slices) == spans
    assert len({each.track for each in trace.slices}) == 3
    assert sum(track[1] == "execution" for track in trace.tracks) == 3
    assert {each.track[:2] for each in trace.slices} == {("GPU 0", "execution")}


def test_every_gpu_has_its_engines_even_where_it_is_idle(tmp_path):
    trace, _ = traced(tmp_path, [request(0)], actions=[action(0), action(1, "load")], gpus=3)
    engines = [track[:2] for track in trace.tracks if track[0] != "requests"]
    assert engines == [(f"GPU {i}", name) for i in range(3) for name in ("execution", "copy")]


def test_a_window_has_what_is_under_way_in_it_and_whole_flows(tmp_path):
    trace, came = traced(
        tmp_path,
        [
            request(0, at=0, end=9),  # over before it
            request(1, at=5, end=25, action=11),  # served before it, answered in it
            request(2, at=12, end=50, action=13),  # served behind it
            request(3, at=20, end=60),  # comes behind it
        ],
        actions=[
            action(0, start=1, end=8),
            action(11, start=8, end=9),
            action(12, start=9, end=11),
            action(13, start=30, end=40),
            action(3, start=40, end=55),
        ],
        from_s=10e-9,
        until_s=20e-9,
    )
    assert came.requests == 2
    assert {request: len(flow) for request, flow in trace.flows.items()} == {1: 3, 2: 3}
    assert [each.notes["action"] for each in trace.slices] == [11, 12, 13]


def test_a_window_in_which_nothing_is_under_way_is_no_trace(tmp_path):
    with pytest.raises(ResultsError, match=r"nothing is under way in that time; .* 0.01 s"):
        traced(tmp_path, [request(0, end=10 * MS)], from_s=0.02)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_long_run_has_every_row_in_it(tmp_path):
    n = 2 * FLUSH_ROWS + 5
    with writer(tmp_path / "run", end_ns=n * MS) as sink:
        for i in range(n):
            sink.action(action(i, start=i * MS, end=i * MS + 10))
            sink.request(request(i, at=i * MS, end=i * MS + 20))
        sink.close(arrivals=n)
    seen = []
    path = tmp_path / "out.pftrace"
    write_trace(tmp_path / "run", path, progress=lambda done, of: seen.append((done, of)))
    trace = read_trace(path)
    assert [each.start_ns for each in trace.slices] == [i * MS for i in range(n)]
    assert [len(trace.flows[i]) for i in range(n)] == [3] * n
    assert seen == sorted(seen)
    assert seen[-1] == (3 * n, 3 * n)


# ---- what can go wrong


def test_a_run_of_an_earlier_version_is_refused(tmp_path):
    with writer(tmp_path / "run") as sink:
        sink.request(request(0))
        sink.close(arrivals=1)
    outcomes = tmp_path / "run" / "outcomes.parquet"
    pq.write_table(pq.read_table(outcomes).drop_columns("action"), outcomes)
    with pytest.raises(ResultsError, match=r"outcomes\.parquet: .* earlier version; run it again"):
        write_trace(tmp_path / "run", tmp_path / "out.pftrace")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_another_ending_is_refused_so_that_no_result_is_overwritten(tmp_path):
    with pytest.raises(ResultsError, match="expected a name that ends with"):
        write_trace(tmp_path, tmp_path / "outcomes.parquet")


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    with writer(tmp_path / "run") as sink:
        sink.close(arrivals=0)
    for name in [name for name in sys.modules if name.partition(".")[0] == "perfetto"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "perfetto", None)
    with pytest.raises(ResultsError, match=r"pip install 'mainspring\[trace\]'"):
        write_trace(tmp_path / "run", tmp_path / "out.pftrace")


def test_what_is_broken_off_leaves_nothing(tmp_path):
    with writer(tmp_path / "run") as sink:
        sink.request(request(0))
        sink.close(arrivals=1)
    path = tmp_path / "out.pftrace"
    path.write_bytes(b"of before")

    def stop(done, of):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_trace(tmp_path / "run", path, progress=stop)
    assert path.read_bytes() == b"of before"
    assert not list(tmp_path.glob("*.part"))
