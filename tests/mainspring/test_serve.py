"""The command that serves, as its user runs it, asked by a client that we did not write."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import numpy as np
import pytest

from executor.models import build
from mainspring import load_scenario, run
from mainspring.document import ScenarioError
from mainspring.journal import replay
from mainspring.runs import load_runs
from results import read_actions, read_outcomes
from tests.executor.scenarios import COMPUTING, SPINNING, written

http = pytest.importorskip("tritonclient.http", reason="needs pip install 'tritonclient[http]'")
InferenceServerException = pytest.importorskip("tritonclient.utils").InferenceServerException
pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")

COMMAND = [sys.executable, "-c", "from mainspring.cli import main; main()", "serve"]


class Served(NamedTuple):
    process: subprocess.Popen[str]
    address: str
    out: Path
    client: Any

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    started: list[Served] = []

    def start(*options: str, scenario: str = SPINNING) -> Served:
        file = written(tmp_path, scenario)
        out = tmp_path / "out"
        command = [*COMMAND, str(file), "--set=slo_ms=60000", "--port=0", f"--out={out}", *options]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
            start_new_session=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("serving at http://127.0.0.1:"), line
        address = line.split("http://")[1].split(";")[0]
        client = http.InferenceServerClient(address, concurrency=16, network_timeout=120)
        started.append(Served(process, address, out, client))
        return started[-1]

    yield start
    for one in started:
        one.client.close()
        one.process.kill()
        one.process.communicate()


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def tensors(items: int = 1) -> list[Any]:
    tensor = http.InferInput("input", [items, 10], "UINT8")
    tensor.set_data_from_numpy(np.zeros((items, 10), np.uint8))
    return [tensor]


def counted(address: str) -> tuple[dict[str, int], int]:
    """Requests that have ended, by outcome, and those that wait, as /metrics has them."""
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    ended: Counter[str] = Counter()
    waiting = 0.0
    for line in lines:
        if found := re.match(r'mainspring_requests_total{.*outcome="(\w+)".*} (.*)', line):
            ended[found[1]] += int(float(found[2]))
        elif line.startswith("mainspring_waiting_requests "):
            waiting = float(line.split()[1])
    return dict(ended), int(waiting)


def answer_of(asked: Any) -> bool:
    """Whether it was answered; if not, the server was closed before the request came to it."""
    try:
        return asked.get_result().as_numpy("output").shape == (1, 0)
    except InferenceServerException as error:
        raise AssertionError(f"let in, and then not answered: {error}") from None
    except OSError:
        return False


def test_every_request_is_answered_counted_and_written_down(serve: Any) -> None:
    served = serve()
    names = [model["name"] for model in served.client.get_model_repository_index()]
    assert len(names) == 8
    assert served.client.get_model_metadata(names[0])["outputs"][0]["shape"] == [-1, 0]

    asked = [served.client.async_infer(names[i % 8], tensors()) for i in range(300)]
    assert all(one.get_result().as_numpy("output").shape == (1, 0) for one in asked)

    ended, _ = counted(served.address)
    assert ended == {"ok": 300}

    for model in served.client.get_inference_statistics()["model_stats"]:
        stats = model["inference_stats"]
        # perf_analyzer ends itself where these three differ.
        counts = {stats[f"compute_{part}"]["count"] for part in ("input", "infer", "output")}
        assert counts == {stats["success"]["count"]}

    under_way = [served.client.async_infer(names[i], tensors()) for i in range(8)]
    while counted(served.address) == ({"ok": 300}, 0):
        pass
    assert served.end() == 0
    answered = sum(answer_of(one) for one in under_way)
    assert answered >= 1

    (done,) = load_runs(served.out)
    assert done.summary.arrivals == 300 + answered
    assert not done.summary.interrupted
    assert replay(served.out).same


def test_ctrl_c_goes_to_all_in_a_terminal_and_the_workers_finish(serve: Any) -> None:
    served = serve()
    under_way = [served.client.async_infer("resnet50_v2.0", tensors()) for _ in range(4)]
    while counted(served.address) == ({}, 0):
        pass
    os.killpg(served.process.pid, signal.SIGINT)

    assert served.process.wait(120) == 0
    assert sum(answer_of(one) for one in under_way) >= 1
    assert load_runs(served.out)[0].summary.workers_lost_whole_run == 0


def workers_of(served: Served) -> list[Any]:
    """The worker processes, by GPU: its number is what follows the address in their commands."""
    psutil = pytest.importorskip("psutil", reason="needs psutil, to find the workers")
    workers = {}
    for process in psutil.Process(served.process.pid).children():
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            command = process.cmdline()
            if "executor.worker" in command:
                workers[int(command[command.index("executor.worker") + 2])] = process
    return [workers[gpu] for gpu in sorted(workers)]


def wait_until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, f"a minute without {what}"


def get(address: str, path: str, body: Any = None) -> str:
    """What is there, or the status and what is wrong."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f"http://{address}{path}", data, timeout=60) as answer:
            assert answer.status == 200
            return "ok"
    except HTTPError as error:
        return f"{error.code} {json.load(error)['reason']}"


def requests_of(directory: Path) -> list[tuple[Any, ...]]:
    """Model, arrival and deadline of each request of a run, in order."""
    rows = read_outcomes(directory).to_pandas().sort_values("id")
    return list(zip(rows["model"], rows["arrival_ns"], rows["deadline_ns"], strict=True))


def test_what_was_served_runs_again_in_simulation(
    serve: Any, tmp_path: Path, without_pictures: None
) -> None:
    """With the SLOs that the requests brought, and not with the scenario's own workload."""
    served = serve()
    for i in range(30):
        own = {"parameters": {"slo_ms": 5000}} if i % 3 == 0 else {}
        served.client.infer(f"resnet50_v2.{i % 8}", tensors(), **own)
    assert served.end() == 0

    (again,) = run(load_scenario(served.out), tmp_path / "again")
    assert requests_of(again.directory) == requests_of(served.out)
    assert again.summary.outcomes["ok"] == again.summary.arrivals == 30


def test_what_served_nothing_says_why_it_cannot_run_again(serve: Any) -> None:
    served = serve()
    assert served.end() == 0
    with pytest.raises(ScenarioError, match=r"arrivals\.parquet\"; no such file: serve writes it"):
        load_scenario(served.out)


def test_a_killed_worker_leaves_no_post_unanswered_and_comes_back(serve: Any) -> None:
    """`kill -9` of one worker of two, then of both, with posts in flight each time.

    A process that starts takes its time from the others: some of these may miss their windows.
    """
    served = serve()
    zeros = {"name": "input", "datatype": "UINT8", "shape": [1, 10], "data": [0] * 10}

    def infer(i: int) -> str:
        return get(served.address, f"/v2/models/resnet50_v2.{i % 8}/infer", {"inputs": [zeros]})

    def ready() -> bool:
        return get(served.address, "/v2/health/ready") == "ok"

    def none_is_left() -> bool:
        for worker in workers_of(served):
            worker.kill()  # and the next time those that have taken their places
        return not ready()

    def answered() -> int:
        return sum(counted(served.address)[0].values())

    assert ready()
    with ThreadPool(32) as clients:
        asked = clients.map_async(infer, range(600), chunksize=1)
        wait_until(lambda: answered() > 100, "an answer")
        workers_of(served)[0].kill()
        fates = Counter(asked.get(60))
        assert set(fates) <= {"ok", "503 worker_lost", "503 missed_window"}
        assert fates["ok"] > 100
        assert ready(), "the other worker serves"

        wait_until(lambda: len(workers_of(served)) == 2, "a new worker")
        asked = clients.map_async(infer, range(600), chunksize=1)
        wait_until(lambda: answered() > 700, "an answer")
        wait_until(none_is_left, "a health that tells of it")
        wait_until(ready, "a health that is good again")
        fates = Counter(asked.get(60))
        assert set(fates) <= {"ok", "503 worker_lost", "503 missed_window", "503 not_ready"}
        assert fates["ok"] > 100
        assert "ok" in {infer(i) for i in range(20)}, "it says that it is ready, so it serves"

    assert served.end() == 0
    (done,) = load_runs(served.out)
    ids = read_outcomes(served.out)["id"].to_pylist()
    assert sorted(ids) == list(range(done.summary.arrivals)), "each request once"
    assert done.summary.arrivals == 1220 - fates["503 not_ready"]
    actions = read_actions(served.out)["id"].to_pylist()
    assert len(set(actions)) == len(actions), "no action twice"
    assert done.summary.workers_lost_whole_run >= 3
    assert replay(served.out).same


def test_what_cannot_be_served_in_time_or_held_is_refused_with_a_reason(serve: Any) -> None:
    served = serve("--waiting=2")
    with pytest.raises(InferenceServerException, match="too many requests wait already"):
        served.client.infer("resnet50_v2.0", tensors(items=3))
    with pytest.raises(InferenceServerException, match="rejected") as refused:
        served.client.infer("resnet50_v2.0", tensors(), parameters={"slo_ms": 0.5})
    assert "503" in refused.value.status()
    assert served.end() == 0


def test_real_models_compute_what_clients_send(serve: Any) -> None:
    """Four copies in turn on an arena that holds two, in batches of what happens to wait."""
    torch = pytest.importorskip("torch", reason="needs pip install 'mainspring[executor]'")
    served = serve(scenario=COMPUTING)
    about = served.client.get_model_metadata("small.0")
    (given,), (made,) = about["inputs"], about["outputs"]
    assert given["datatype"] == made["datatype"] == "FP32"
    assert given["shape"] == made["shape"] == [-1, 64]

    rng = np.random.default_rng(1)
    rows = rng.normal(size=(120, 2, 64)).astype(np.float32)
    asked = []
    for i, row in enumerate(rows):
        tensor = http.InferInput(given["name"], [2, 64], "FP32")
        tensor.set_data_from_numpy(row)
        asked.append(served.client.async_infer(f"small.{i % 4}", [tensor]))
    answers = np.stack([one.get_result().as_numpy(made["name"]) for one in asked])

    with torch.inference_mode():
        expected = build("mlp-tiny").module(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(answers, expected, rtol=1e-4, atol=1e-6)
    assert len({answer.tobytes() for answer in answers}) == 120
    assert served.end() == 0
    assert load_runs(served.out)[0].summary.loads > 4
    assert replay(served.out).same


@pytest.mark.parametrize("given", ["--port", "--policy", "models"])
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path: Path, given: str) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    option = {
        "--port": f"--port={taken.getsockname()[1]}",
        "--policy": "--policy=best",
        "models": "--set=models.0.model=nobody",
    }[given]
    out = tmp_path / "out"
    done = subprocess.run(
        [*COMMAND, str(written(tmp_path)), f"--out={out}", option],
        capture_output=True, text=True, timeout=120, check=False, env=_environment(),
    )  # fmt: skip
    taken.close()

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not out.exists()
