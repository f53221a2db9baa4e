"""Live runs: real processes and clocks, on workers that spin."""

import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from executor.controller import LiveError
from mainspring import load_scenario
from mainspring.crew import Crew
from mainspring.document import ScenarioError
from mainspring.journal import replay
from mainspring.live import LIVE, run_live
from mainspring.run import run
from results import read_actions, read_outcomes
from scheduler.records import Outcome
from tests.executor.clusters import Fates, cluster
from tests.executor.scenarios import loaded
from workloads import WorkloadWarning

pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")


@pytest.fixture
def scenario(tmp_path):
    return loaded(tmp_path)


@pytest.mark.parametrize("policy", ["clockwork", "edf", "fifo"])
def test_a_live_run_is_a_run_like_any_other(scenario, tmp_path, policy):
    """The audit has passed where it comes back: pages, engines, windows, one end a request."""
    (live,) = run_live(scenario, tmp_path / "live", [policy])
    (simulated,) = run(load_scenario(live.directory), tmp_path / "simulated", [policy])

    assert live.summary.arrivals == simulated.summary.arrivals > 100
    rows = [
        pq.read_table(path / "outcomes.parquet", columns=["id", "model", "arrival_ns"])
        .to_pandas()
        .sort_values("id")
        for path in (live.directory, simulated.directory)
    ]
    assert rows[0].to_numpy().tolist() == rows[1].to_numpy().tolist()  # the same arrivals
    assert live.summary.outcomes["ok"] > 0
    batches = {row["id"]: row for row in read_actions(live.directory).to_pylist()}
    for row in read_outcomes(live.directory).to_pylist():
        assert (row["action"] >= 0) == (row["kind"] == "prediction")
        if row["action"] >= 0:
            batch = batches[row["action"]]
            assert [batch[k] for k in ("model", "gpu", "batch")] == [
                row[k] for k in ("model", "gpu", "batch")
            ]
            # Not its end: worker and controller have two clocks, known to some microseconds.
            assert row["arrival_ns"] <= batch["start_ns"] <= row["end_ns"]
    assert (live.directory / LIVE).exists()


def test_the_journal_of_a_live_run_replays_bit_for_bit(scenario, tmp_path):
    (live,) = run_live(scenario, tmp_path / "live")

    came = replay(live.directory)

    assert came.same
    assert came.whole
    assert came.actions >= live.summary.executions


def test_what_a_live_run_cannot_have_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"cluster\.delays_us\.poll = 100"):
        run_live(loaded(tmp_path, "cluster.delays_us.poll=100"), tmp_path / "live")
    with pytest.raises(ScenarioError, match=r"cluster\.stretch = 1\.1: a live run's batches"):
        run_live(loaded(tmp_path, "cluster.stretch=1.1"), tmp_path / "live")


def test_more_workers_than_one_machine_starts_are_refused(tmp_path):
    with pytest.raises(ScenarioError, match=r"cluster\.gpus = 257; .* at most 256"):
        run_live(loaded(tmp_path, "cluster.gpus=257"), tmp_path / "live")
    assert not (tmp_path / "live").exists()


def test_workers_that_were_started_end_where_the_next_cannot_be(monkeypatch):
    crew = Crew("tcp://127.0.0.1:9", 2, [], lambda gpu: None, lambda why: None)
    start = crew._start

    def second_fails(gpu):
        if gpu == 1:
            raise OSError("no more processes")
        start(gpu)

    monkeypatch.setattr(crew, "_start", second_fails)
    with pytest.raises(OSError, match="no more processes"), crew:
        pytest.fail("a crew that is not whole has begun")
    assert not _runs(f"/proc/{crew.pid(0)}/stat")


@pytest.mark.parametrize("key", ["noise=v100", "clocks=[{mhz=1200}]", "link={}"])
def test_what_the_machine_has_of_its_own_is_refused(tmp_path, key):
    scenario = loaded(tmp_path, f"cluster.{key}")
    with pytest.raises(ScenarioError, match=rf"cluster\.{key.partition('=')[0]}: a live run has"):
        run_live(scenario, tmp_path / "live")


@pytest.mark.parametrize(
    "key", ["answers={errors=[0.1]}", "asks={different=10}", "cluster.lanes=2"]
)
def test_what_only_the_simulation_has_is_refused(tmp_path, key):
    scenario = loaded(tmp_path, key)
    with pytest.raises(ScenarioError, match=rf"{key.partition('=')[0]}: only the simulation has"):
        run_live(scenario, tmp_path / "live")


def test_a_worker_without_its_parent_ends():
    """Its parent starts it and dies at once; the worker must not stay behind."""
    code = (
        "import subprocess, sys;"
        "p = subprocess.Popen([sys.executable, '-m', 'executor.worker', 'tcp://127.0.0.1:9', '0']);"
        "print(p.pid)"
    )
    came = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status = f"/proc/{int(came.stdout)}/stat"

    end = time.monotonic() + 20
    while _runs(status):
        assert time.monotonic() < end, "the worker outlives its parent"
        time.sleep(0.05)


def _runs(status: str) -> bool:
    try:
        with open(status) as file:  # noqa: PTH123, gone as soon as it is read
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_closed_loop_clients_ask_again_when_they_have_thought(tmp_path):
    """As in simulation: a client has one request under way, and asks its think time after its end.

    Live and simulated clients have the same ids and models; the load is what GPUs can carry.
    """
    closed = ["workload=[{kind='closed', concurrency=2, think_ms=20}]", "cluster.pages=56"]
    scenario = loaded(tmp_path, *closed)
    (live,) = run_live(scenario, tmp_path / "live")
    (simulated,) = run(scenario, tmp_path / "simulated")

    assert live.summary.outcomes["ok"] > 100
    clients = []
    for done in (live, simulated):
        rows = read_outcomes(done.directory).to_pandas().sort_values("arrival_ns")
        clients.append(set(zip(rows["client"], rows["model"], strict=True)))
        for _, of in rows.groupby("client"):
            waits_ns = of["arrival_ns"].to_numpy()[1:] - of["end_ns"].to_numpy()[:-1]
            assert set(waits_ns) == {20_000_000}
    assert clients[0] == clients[1]
    assert len(clients[0]) == 16
    assert replay(live.directory).same


def test_clients_that_are_rejected_at_once_do_not_stop_the_controller(tmp_path):
    """They ask again at once, again and again; others are served beside them, and the run ends."""
    workloads = (
        "workload=[{kind='closed', concurrency=1, models='resnet50_v2.0', slo_ms=0.001},"
        "{kind='poisson', rate_rps=50, models='resnet50_v2.1'}]"
    )
    with pytest.warns(WorkloadWarning, match=r"workload\.0: [0-9,]+ of the run's"):
        (live,) = run_live(loaded(tmp_path, workloads, "duration_s=0.5"), tmp_path / "live")
    assert len(live.summary.warnings) == 1
    by_client = read_outcomes(live.directory).to_pandas().groupby("client")["outcome"]
    assert set(by_client.get_group(0)) == {"ok"}
    assert "ok" not in set(by_client.get_group(2))
    assert len(by_client.get_group(2)) > 100


def test_a_link_of_clients_is_refused(tmp_path):
    clients = "workload=[{kind='closed', concurrency=1, link_gbit_per_s=1}]"
    with pytest.raises(ScenarioError, match=r"workload\.0\.link_gbit_per_s: only the simulation"):
        run_live(loaded(tmp_path, clients), tmp_path / "live")


def test_every_worker_hears_that_the_run_is_over():
    """Eight times, for the word was lost every other time."""
    code = (
        "import sys; from executor import worker as w; print(w.serve(sys.argv[1], 0, w.Sources()))"
    )
    for _ in range(8):
        world = cluster(Fates(), requests=2)
        command = [sys.executable, "-c", code, world.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            world.run(40_000_000, 10**9)
            world.close()
            assert worker.communicate() == ("End.STOPPED\n", None)


def test_no_other_user_reaches_the_socket_of_the_own_workers():
    world = cluster(Fates())
    socket = Path(world.address.removeprefix("ipc://"))
    assert socket.is_socket()
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    world.close()
    assert not socket.parent.exists()


def test_a_socket_in_too_long_a_path_is_one_line_that_says_what_to_set(tmp_path, monkeypatch):
    home = tmp_path / ("x" * 100)
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    with pytest.raises(LiveError, match="too long a path for the workers' socket; set TMPDIR"):
        cluster(Fates())
    assert not list(home.iterdir())


def test_a_stranger_that_shouts_without_end_ends_nobody():
    """Read until nothing more came, its messages left no time to hear the worker."""
    fates = Fates()
    world = cluster(fates)
    shout = (
        "import sys, zmq; s = zmq.Context().socket(zmq.DEALER); s.connect(sys.argv[1])\n"
        "while True: s.send(bytes(20))"
    )
    commands = [["-m", "executor.worker", world.address, "0"], *[["-c", shout, world.address]] * 3]
    processes = [subprocess.Popen([sys.executable, *command]) for command in commands]
    try:
        world.run(2_000_000_000, 20_000_000_000)
        world.close()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert fates.outcomes == [Outcome.OK] * 100
    assert not fates.lost
    assert world.dropped > 1_000
