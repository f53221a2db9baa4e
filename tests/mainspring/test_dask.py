"""A sweep on a real Dask cluster on the loopback: two workers, one of which is killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mainspring
from mainspring.document import ScenarioError

STUDY = {
    "name": "on-dask",
    "scenario": "small.toml",
    "set": {"duration_s": 1.0, "warmup_s": 0.2},
    "grid": {"policy": ["clockwork", "fifo"]},
    "replications": {"count": 8},
}


@pytest.fixture
def cluster(tmp_path):
    """The scheduler's address, and two worker processes."""
    pytest.importorskip("distributed", reason="this test needs Dask; pip install '.[dask]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env}
    place = ["--no-dashboard", "--host", "127.0.0.1"]
    port = address.rpartition(":")[2]
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", port, *place]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, *place]
    worker += ["--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path / "dask")]
    processes = [subprocess.Popen(scheduler, **quiet)]
    processes += [subprocess.Popen(worker, **quiet) for _ in range(2)]
    try:
        from distributed import Client

        with Client(address, timeout="60s") as client:
            client.wait_for_workers(2, timeout=60)
        yield address, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_killed_dask_worker_costs_nothing_but_its_points(write, cluster):
    write()
    address, workers = cluster
    killed = []

    def kill_one(text, done, total):
        if done == 3 and not killed:
            workers[0].send_signal(signal.SIGKILL)
            killed.append(time.monotonic())

    there = mainspring.sweep(STUDY, "there", dask=address, progress=kill_one)
    assert killed
    assert there.table.num_rows == 16
    assert not there.failed
    assert len(list(Path("there/points").iterdir())) == 16

    here = mainspring.sweep(STUDY, "here", jobs=1)
    assert there.digest == here.digest


def test_a_cluster_that_is_not_there_is_one_line(write):
    pytest.importorskip("distributed", reason="this test needs Dask; pip install '.[dask]'")
    write()
    with pytest.raises(ScenarioError, match=r"--dask tcp:.*expected the address of a dask sched"):
        mainspring.sweep(STUDY, "out", dask="tcp://127.0.0.1:9")
