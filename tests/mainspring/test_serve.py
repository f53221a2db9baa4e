"""The command that serves, as its user runs it, asked by a client that we did not write."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from executor.models import build
from mainspring.journal import replay
from mainspring.runs import load_runs
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

    (run,) = load_runs(served.out)
    assert run.summary.arrivals == 300 + answered
    assert not run.summary.interrupted
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
