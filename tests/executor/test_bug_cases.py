"""Cases of the area executor from public bug reports, by their numbers.

Elsewhere: 1 and 2 (when requests are sent) in test_sender.py; more kills in test_faults.py.
"""

import itertools
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest

from executor.models import Sources
from mainspring.crew import TRIES, Crew
from mainspring.document import ScenarioError
from mainspring.live import Box, run_live
from profiles.durations import Constant
from results import read_actions, read_outcomes
from scheduler.records import ACTION_COLUMNS, FOREVER, GpuInfo, ModelInfo, Reason, Status, Why
from tests.executor.scenarios import COMPUTING, loaded

pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")


@pytest.fixture
def live(tmp_path):
    """A run of 200 requests, one each 10 ms."""

    def live(faults=""):
        scenario = loaded(
            tmp_path, "duration_s=2", "slo_ms=1000", "cluster.gpus=1", "cluster.pages=56",
            "models.0.copies=1", "workload.0.kind=constant", more=faults,
        )  # fmt: skip
        (done,) = run_live(scenario, tmp_path / "live", ["edf"])
        return done, read_outcomes(tmp_path / "live").to_pandas().sort_values("id")

    return live


def test_bug_exe_03_and_04_latency_counts_from_the_plan_and_lateness_is_shown(live):
    """BUG-EXE-04, too. The controller is away for 200 ms, in which 20 requests fall due."""
    pause = '[[faults]]\nkind = "paused_controller"\nat_s = 1.0\nfor_s = 0.2\n'
    done, rows = live(pause)

    assert (rows["arrival_ns"].diff().dropna() == 10_000_000).all()  # the plan, not the handling
    latency_ms = (rows["end_ns"] - rows["arrival_ns"]) / 1e6
    waited = rows["arrival_ns"].between(1.0e9, 1.2e9)
    assert latency_ms[waited].max() > 150
    assert done.punctuality.arrival_late_us["p50"] < 150_000
    assert len(rows) == 200


def test_bug_exe_16_the_wall_clock_is_used_for_no_duration(live, monkeypatch):
    """It jumps back by two seconds and on by five, again and again."""
    jumps = itertools.cycle([0.0, -2.0, 5.0])
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + next(jumps))
    _, rows = live()

    latency_ms = (rows["end_ns"] - rows["arrival_ns"]) / 1e6
    assert latency_ms.min() > 0
    assert latency_ms.max() < 1_000


class Flood:
    """Sends each lane so many loads and unloads in turn, all at once; gives its requests up."""

    def __init__(self, each: int) -> None:
        self._each = each

    def on_start(self, now_ns, gpus, models, rng, out):
        for i in range(self._each):
            for gpu in gpus:
                if i % 2:
                    out.unload(gpu.lanes[0], 0, now_ns, FOREVER)
                else:
                    out.load(gpu.lanes[0], 0, now_ns, FOREVER, 1)

    def on_request(self, now_ns, request, out):
        out.reject(request.id, Reason.DEADLINE)

    def on_result(self, now_ns, result, out):
        pass

    def on_wake(self, now_ns, key, out):
        pass

    def on_worker(self, now_ns, change, out):
        pass


class Rows:
    """A sink that keeps actions, and calls back at each."""

    def __init__(self, seen=lambda count: None) -> None:
        self.actions, self.lost, self._seen = [], [], seen

    def action(self, row):
        self.actions.append(dict(zip(ACTION_COLUMNS, row, strict=True)))
        self._seen(len(self.actions))

    def worker_lost(self, gpu, at_ns):
        self.lost.append(gpu)

    def request(self, row):
        pass


def flooded(gpus, each, sink, faults=()):
    """A live run of `Flood`; returns when every action has ended, or a minute has gone by."""
    from executor.controller import LiveCluster
    from executor.wire import Bill, Setup
    from scheduler.faults import PausedController

    costs = {1: Constant(1)}
    world = LiveCluster(
        Flood(each),
        tuple(GpuInfo(i, (i,), 1) for i in range(gpus)),
        (ModelInfo(0, "m", 1, 1, (1,), (1,)),),
        [Setup(1, 1, [Bill(1, Constant(1), costs)]) for _ in range(gpus)],
        iter(()), [[FOREVER]], sink, np.random.default_rng(1),
        # What workers answer meanwhile waits in queues, theirs and ours.
        faults=[PausedController(at_s=0.0, for_s=0.1), *faults],
        kill=lambda fault: crew.kill(fault),
    )  # fmt: skip
    crew = Crew(world.address, gpus, [], world.gone, world.fail)
    with crew:
        try:
            world.run(0, 60_000_000_000)
        finally:
            world.close()
    return world


def test_bug_exe_10_ten_thousand_messages_and_none_is_missed():
    """1,000 actions to each of ten workers at full speed, the receiver of their results asleep for
    100 ms: more than a socket's queue holds. Each has one result. A worker closes right after its
    last report. On a machine too busy for ten a worker may be lost; then what it had is told."""
    sink = Rows()
    flooded(10, 1_000, sink)

    assert sorted(row["id"] for row in sink.actions) == list(range(10_000))
    assert Counter(row["gpu"] for row in sink.actions) == dict.fromkeys(range(10), 1_000)
    lost = {row["gpu"] for row in sink.actions if row["status"] == Status.LOST}
    assert lost <= set(sink.lost)


def test_bug_exe_10_what_a_killed_receiver_had_is_reported_as_lost():
    """One of two is killed half-way. Sent = received + reported."""
    from scheduler.faults import WorkerKilled

    sink = Rows()
    flooded(2, 50_000, sink, [WorkerKilled(at_s=0.11, gpu=1)])

    assert sink.lost == [1]
    assert sorted(row["id"] for row in sink.actions) == list(range(100_000))
    by_gpu = [Counter(row["status"] for row in sink.actions if row["gpu"] == gpu) for gpu in (0, 1)]
    assert by_gpu[0][Status.LOST] == 0
    assert by_gpu[1][Status.LOST] > 0
    whys = {row["why"] for row in sink.actions if row["status"] == Status.LOST}
    assert whys == {Why.WORKER_LOST}


SLOW = """
import sys, time, torch

class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        time.sleep(1.5)
        return x * self.weight

def slow():
    time.sleep(5.5)
    return Slow().eval(), torch.zeros(4)

def touched():
    if "touched_the_gpu" in sys.modules:
        raise RuntimeError("cannot use the GPU in a forked process")
    return torch.nn.Linear(4, 4).eval(), torch.zeros(4)

def without_driver():
    raise RuntimeError("the driver is not there")
"""


@pytest.fixture
def own(tmp_path):
    """A box with a model of the operator's own, by the name of its function."""
    pytest.importorskip("torch", reason="models need torch: pip install 'mainspring[executor]'")
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    return lambda name: Box(sources=Sources({name: f"{file}:{name}"}))


def test_bug_exe_13_a_limit_for_answers_is_none_for_coming_up(tmp_path, own):
    """A worker takes 5.5 s to have its model, and more to have run it once: longer than anything
    that is said in a run may be awaited (SILENCE_S, SILENT_NS), or than an answer's limit of 1 s.
    A batch takes 1.5 s. So answers are late, the worker is well, and coming up is in no batch."""
    scenario = loaded(
        tmp_path, "duration_s=2", "drain_s=60", "slo_ms=1000", "models.0.copies=1",
        "models.0.model=slow", "workload.0.kind=constant", "workload.0.rate_rps=1",
        text=COMPUTING, exec_ms="{ 1 = 1500 }",
    )  # fmt: skip
    (live,) = run_live(scenario, tmp_path / "live", box=own("slow"))

    assert live.summary.workers_lost_whole_run == 0
    assert live.summary.arrivals == live.summary.outcomes["late"] == 2
    batches = read_actions(live.directory).to_pylist()
    begun_ns = [row["start_ns"] for row in batches]
    assert min(begun_ns) >= 0  # time zero is when it was there
    assert all(row["duration_ns"] >= 1.5e9 for row in batches if row["type"] == "infer")


def test_bug_exe_15_a_worker_that_dies_comes_back(tmp_path):
    """2 workers at 50/s, batches of 20 ms, loads of 2 s; worker 1 is killed after 4 s (of 12; the
    case has 20 of 60). What was on it fails, nothing else, and it serves again."""
    killed = '[[faults]]\nkind = "worker_killed"\nat_s = 4.0\ngpu = 1\nback_after_s = 0.2\n'
    scenario = loaded(
        tmp_path, "duration_s=12", "slo_ms=20000", "cluster.gpus=2", "cluster.pages=4",
        "models.0.copies=1", "models.0.model=spin", "workload.0.kind=constant",
        "workload.0.rate_rps=50", "cluster.memory=pages",
        text=COMPUTING.replace("[policy.fifo]", "[policy.edf]"), more=killed,
        exec_ms="{ 1 = 20 }", load_ms=2_000,
    )  # fmt: skip
    (live,) = run_live(scenario, tmp_path / "live")

    summary = live.summary
    assert summary.arrivals == sum(summary.outcomes.values()) == 600
    assert summary.outcomes["failed"] == summary.reasons.get("worker_lost", 0)
    assert summary.outcomes["failed"] <= 2  # the batch in flight, and one that was on its way
    assert summary.outcomes["unfinished"] == 0
    assert summary.workers_lost_whole_run == len(live.punctuality.workers_away_ms) == 1
    again = [
        row["type"] for row in read_actions(live.directory).to_pylist()
        if row["gpu"] == 1 and row["status"] == "done" and row["start_ns"] > 4.2e9
    ]  # fmt: skip
    assert Counter(again)["load"] == 1
    assert Counter(again)["infer"] > 10


def test_bug_exe_15_a_worker_that_cannot_be_started_again_ends_the_run():
    gone, failed = [], threading.Event()
    why = []

    def fail(text: str) -> None:
        why.append(text)
        failed.set()

    with Crew("tcp://127.0.0.1:9", 1, ["--no-such-option"], gone.append, fail):
        assert failed.wait(60)
    assert gone == [0] * TRIES == [0] * 3
    assert why == ["worker 0 ended 3 times, last with exit code 2; what it wrote above says why"]


def test_bug_exe_17_a_worker_inherits_nothing_of_its_parents(tmp_path, own, monkeypatch):
    """The parent has touched the device. A model that refuses after a fork runs on two workers."""
    monkeypatch.setitem(sys.modules, "touched_the_gpu", sys)
    scenario = loaded(
        tmp_path, "cluster.gpus=2", "models.0.copies=2", "models.0.model=touched", text=COMPUTING
    )
    (live,) = run_live(scenario, tmp_path / "live", box=own("touched"))

    assert live.summary.outcomes["ok"] + live.summary.outcomes["late"] == live.summary.arrivals > 20
    assert set(read_outcomes(live.directory)["gpu"].to_pylist()) == {0, 1}


def test_bug_exe_17_an_error_at_start_up_reaches_the_parent_with_its_text(tmp_path, own):
    scenario = loaded(tmp_path, "models.0.model=without_driver", text=COMPUTING)
    with pytest.raises(ScenarioError, match=r"worker 0: .*the driver is not there"):
        run_live(scenario, tmp_path / "live", box=own("without_driver"))
