"""`mainspring trace`, read back and compared with the run that it shows."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

pytest.importorskip("perfetto", reason="traces need perfetto: pip install 'mainspring[trace]'")

from mainspring import load_scenario, run
from mainspring.cli import main
from scheduler.records import FOREVER
from tests.results.trace_file import TraceFile, read_trace

HASTY = """\
import msgspec

from scheduler.policies.fifo import Fifo
from scheduler.records import Infer, Reason, Status


class Params(msgspec.Struct):
    pass


class Hasty(Fifo):
    '''Sends each request to its GPU at once, to start within a millisecond or not at all.'''

    Params = Params

    def on_start(self, now_ns, gpus, models, rng, out):
        self._models = models
        self._lanes = [gpu.lanes[0] for gpu in gpus]
        for lane in self._lanes:
            for model in models:
                out.load(lane, model.id, now_ns, 2**63 - 1, model.load_ns)

    def on_request(self, now_ns, request, out):
        lane = self._lanes[request.id % len(self._lanes)]
        size = self._models[request.model].batch_sizes[0]
        out.infer(lane, request.model, size, (request.id,), now_ns, now_ns + 1_000_000, 1)

    def on_result(self, now_ns, result, out):
        if type(result.action) is Infer:
            (request,) = result.action.tasks
            if result.status is Status.DONE:
                out.answer(request)
            else:
                out.reject(request, Reason.MISSED_WINDOW)
"""

TWO_GPUS = [
    ("gpus = 1\npages = 64", "gpus = 2\npages = 21"),
    ("copies = 3", "copies = 8"),
    ("rate_rps = 200", "rate_rps = 900"),
]
"""Room for half of the models, and more requests than can be answered."""


@pytest.fixture
def call(capsys):
    def call(*args):
        with pytest.raises(SystemExit) as exited:
            main(list(map(str, args)))
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return call


def the_trace_is_the_run(trace: TraceFile, actions: list[dict], outcomes: list[dict]) -> None:
    """Every action and every request once, with its times, names, and all that led to its end."""
    ran = [a for a in actions if a["status"] == "done" and a["type"] != "unload"]
    expected = Counter(
        (
            a["start_ns"],
            a["end_ns"],
            f"GPU {a['gpu']}",
            "execution" if a["type"] == "infer" else "copy",
            f"{a['model']} x{a['batch']}" if a["type"] == "infer" else f"load {a['model']}",
            a["id"],
        )
        for a in ran
    )
    assert (
        Counter(
            (s.start_ns, s.end_ns, *s.track[:2], s.name, s.notes["action"]) for s in trace.slices
        )
        == expected
    )
    engines = {slice.track for slice in trace.slices}
    assert len({track[:2] for track in engines}) == len(engines), "an exclusive engine, one track"

    marks = defaultdict(list)
    for mark in trace.marks:
        marks[mark.category].append(mark)
    for status in ("missed", "failed"):
        not_run = [a for a in actions if a["status"] == status]
        of_actions = [mark for mark in marks[status] if mark.track[1] == "not run"]
        assert sorted(
            (m.start_ns, m.notes["action"], m.notes["why"]) for m in of_actions
        ) == sorted((a["start_ns"], a["id"], a["why"]) for a in not_run)
    unloads = [a for a in actions if (a["type"], a["status"]) == ("unload", "done")]
    assert Counter(m.name for m in marks["unload"]) == Counter(
        f"unload {a['model']}" for a in unloads
    )

    by_id = {slice.notes["action"]: slice for slice in trace.slices}
    assert len(trace.flows) == len(outcomes)
    assert trace.ended == {row["id"] for row in outcomes}
    for row in outcomes:
        arrival, *served, end = trace.flows[row["id"]]
        assert (arrival.start_ns, arrival.name) == (row["arrival_ns"], f"arrival: {row['model']}")
        why = "" if row["reason"] == "nothing" else f" ({row['reason']})"
        assert end.start_ns == row["end_ns"]
        assert end.name == f"{row['outcome']}{why}: {row['model']}"
        assert end.notes["latency_ns"] == row["end_ns"] - row["arrival_ns"]
        if row["deadline_ns"] < FOREVER:
            assert end.notes["left_ns"] == row["deadline_ns"] - row["end_ns"]
        if row["kind"] == "none":
            assert not served
            continue
        (batch,) = served
        assert batch is by_id[row["action"]]
        assert batch.track[:2] == (f"GPU {row['gpu']}", "execution")
        assert batch.name == f"{row['model']} x{row['batch']}"
        assert row["arrival_ns"] <= batch.start_ns < batch.end_ns <= row["end_ns"]


@pytest.mark.parametrize("policy", ["clockwork", "edf", "fifo", "hasty.py:Hasty"])
def test_a_trace_is_the_run(write, without_pictures, policy):
    Path("hasty.py").write_text(HASTY)
    (done,) = run(load_scenario(write(*TWO_GPUS)), "out", [policy])

    trace = read_trace(done.trace("out/my.pftrace"))

    the_trace_is_the_run(trace, done.actions().to_pylist(), done.outcomes().to_pylist())
    assert {track[:2] for track in trace.tracks} >= {
        (f"GPU {i}", engine) for i in range(2) for engine in ("execution", "copy")
    }
    if policy.startswith("hasty"):
        assert done.summary.missed_actions > 100
        assert done.summary.outcomes["failed"] > 100
    else:
        assert done.summary.evictions > 0


def test_batches_of_containers_overlap_on_tracks_of_one_name(write, without_pictures):
    scenario = write(("gpus = 1", "gpus = 1\nlanes = 3"), ("rate_rps = 200", "rate_rps = 600"))
    (done,) = run(load_scenario(scenario), "out", ["clipper-nsdi-aimd"])

    trace = read_trace(done.trace("out/my.pftrace"))

    executed = [slice for slice in trace.slices if slice.track[1] == "execution"]
    assert len(executed) == sum(a["type"] == "infer" for a in done.actions().to_pylist())
    assert len({slice.track for slice in executed}) == 3
    assert len(trace.flows) == done.outcomes().num_rows


def test_the_command_writes_into_the_run_and_says_where(call, write, without_pictures):
    (done,) = run(load_scenario(write()), "out", ["fifo"])
    code, out, err = call("trace", "out")
    assert (code, err) == (0, "")
    assert f"requests: {done.outcomes().num_rows:,}\n" in out
    assert f"trace:    {Path('out/run.perfetto-trace')}; open it in https://ui.perfetto.dev" in out
    assert call("trace", "out", "-q", "-o", "b.pftrace") == (0, "b.pftrace\n", "")
    assert Path("b.pftrace").read_bytes() == Path("out/run.perfetto-trace").read_bytes()


def test_a_part_of_a_run(call, write, without_pictures):
    (done,) = run(load_scenario(write()), "out", ["clockwork"])
    assert call("trace", "out", "--from", 0.5, "--until", "0.75", "-q", "-o", "a.pftrace")[0] == 0
    trace = read_trace(Path("a.pftrace"))
    shown = {
        row["id"]: row
        for row in done.outcomes().to_pylist()
        if row["arrival_ns"] < 750_000_000 and row["end_ns"] >= 500_000_000
    }
    assert shown
    assert set(trace.flows) == set(shown) == trace.ended
    served = {row["action"] for row in shown.values() if row["action"] >= 0}
    under_way = {
        a["id"]
        for a in done.actions().to_pylist()
        if a["start_ns"] < 750_000_000 and a["end_ns"] >= 500_000_000
    }
    assert {slice.notes["action"] for slice in trace.slices} == served | under_way


# ---- mistakes are one line, exit code 2, and leave nothing


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere"], "nowhere: no such directory; expected the directory of a run"),
        (["."], ".: no summary.json: not the directory of a run"),
        (["out"], "out holds 2 runs; expected one of them, such as out/clockwork"),
        (["out/fifo", "-o", "x.json"], "x.json: expected a name that ends with .perfetto-trace"),
        (["out/fifo", "-o", "no/x.pftrace"], "no/x.pftrace: cannot be written"),
        (["out/fifo", "--from", "1", "--until", "1"], "from 1 s until 1 s; expected an end that"),
        (["out/fifo", "--from", "nan"], "from nan s until inf s; expected"),
        (["out/fifo", "--from", "inf"], "from inf s until inf s; expected"),
        (["out/fifo", "--from", "500"], "out/fifo: nothing is under way in that time"),
        (["out/fifo", "--from", "-1"], "from -1 s; expected 0, where a run starts, or later"),
    ],
)
def test_a_mistake_is_one_line(call, write, without_pictures, args, message):
    run(load_scenario(write(("duration_s = 2.0", "duration_s = 0.6"))), "out")
    before = set(Path().rglob("*"))
    code, out, err = call("trace", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("mainspring: ")
    assert err.count("\n") == 1
    assert set(Path().rglob("*")) == before
