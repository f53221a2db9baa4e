"""Workers that a person starts, as their users do: two terminals, and what goes wrong there."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.journal import replay

zmq = pytest.importorskip("zmq", reason="needs pyzmq: pip install 'mainspring[executor]'")
if not zmq.has("curve"):
    pytest.skip("this libzmq was built without CURVE", allow_module_level=True)

SCENARIO = """
name = "apart"
duration_s = 3.0
slo_ms = 200.0
[cluster]
gpus = 2
pages = 21
[[models]]
profile = "clockwork_docs/resnet50_v2"
copies = 4
[[workload]]
kind = "poisson"
rate_rps = 100
[policy.clockwork]
[policy.fifo]
"""

COMMAND = [sys.executable, "-c", "from mainspring.cli import main; main()"]


class Terminal:
    """A command under way, and what it has said on stderr."""

    def __init__(self, *args: str) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        self.process = subprocess.Popen(
            [*COMMAND, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def says(self, text: str, times: int = 1) -> None:
        """Wait until it has said so, so often."""
        with self._news:
            came = self._news.wait_for(
                lambda: sum(text in line for line in self.lines) >= times, 120
            )
        assert came, f"it never said {text!r}, but: {self.lines}"

    def ends(self) -> int:
        code = self.process.wait(120)
        self._reader.join(20)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()


Start = Callable[..., Terminal]


@pytest.fixture
def terminal() -> Iterator[Start]:
    open_: list[Terminal] = []

    def start(*args: Any) -> Terminal:
        open_.append(Terminal(*map(str, args)))
        return open_[-1]

    yield start
    for one in open_:
        one.process.kill()
        one.ends()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    from executor.keys import make_keys

    make_keys(tmp_path / "keys", 2)
    return tmp_path / "keys"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "apart.toml"
    file.write_text(SCENARIO)
    return file


@pytest.fixture
def address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def summary(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "summary.json").read_text())


def test_two_workers_serve_two_runs_and_one_dies_in_between(
    terminal: Start, keys: Path, scenario: Path, address: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run = terminal("live", scenario, "--listen", address, "--keys", keys, "--out", out)
    run.says(f"start: mainspring worker {address} 0 --keys worker-0, and so for GPU 1")
    first = terminal("worker", address, 0, "--keys", keys / "worker-0")
    run.says("1 of 2 workers are here")
    run.says(f"start: mainspring worker {address} 1 --keys worker-1")
    second = terminal("worker", address, 1, "--keys", keys / "worker-1")
    run.says("2 of 2 workers are here")
    first.says("the run is over")
    for worker in (first, second):
        worker.says("taken on", times=2)
    time.sleep(0.7)  # the clocks are compared, and the run has begun
    one_short = "1 of 2 workers are here"
    before = sum(one_short in line for line in run.lines)
    second.process.kill()
    run.says(one_short, times=before + 1)
    third = terminal("worker", address, 1, "--keys", keys)  # the whole of them will do, too

    assert run.ends() == 0
    third.says("waits for a controller", times=2)
    for worker in (first, third):
        worker.process.send_signal(signal.SIGINT)
        assert worker.ends() == 0
    assert summary(out / "clockwork")["outcomes"]["ok"] > 200
    assert summary(out / "fifo")["workers_lost_whole_run"] == 1
    assert replay(out / "clockwork").same
    assert replay(out / "fifo").same


def test_a_worker_that_cannot_take_part_says_why_and_ends(
    terminal: Start, keys: Path, scenario: Path, address: str, tmp_path: Path
) -> None:
    from executor.keys import make_keys

    make_keys(tmp_path / "other", 1)
    mixed = tmp_path / "mixed"  # believes our controller, but has a key that is not listed
    mixed.mkdir()
    for file in ("keys/worker-0/controller.key", "other/worker-0/worker.key_secret"):
        (mixed / Path(file).name).write_bytes((tmp_path / file).read_bytes())
    run = terminal("live", scenario, "--listen", address, "--keys", keys, "--out", tmp_path / "out")
    run.says("0 of 2 workers are here")
    cases = [
        (["0"], "asks for keys; give --keys DIR"),
        (["0", "--keys", tmp_path / "other"], "is not the one whose key lies in"),
        (["0", "--keys", mixed], "does not let this worker's key in"),
        (["0", "--keys", tmp_path / "nowhere"], "is no key file"),
        (["7", "--keys", keys / "worker-0"], "the cluster has no GPU 7"),
    ]
    workers = [terminal("worker", address, *options) for options, _ in cases]
    for worker, (_, why) in zip(workers, cases, strict=True):
        assert worker.ends() == 2
        assert why in worker.lines[-1]
        assert len(worker.lines) == 2  # what it waits for, and why in vain
    run.process.send_signal(signal.SIGINT)
    assert run.ends() == 130


def test_a_worker_for_cpus_takes_no_part_in_a_run_for_gpus(
    terminal: Start, scenario: Path, address: str, tmp_path: Path
) -> None:
    run = terminal(
        "live", scenario, "--device", "cuda", "--listen", address, "--out", tmp_path / "out"
    )
    run.says("0 of 2 workers are here")
    worker = terminal("worker", address, "0", "--device", "cpu")
    assert worker.ends() == 2
    assert "the run is for cuda" in worker.lines[-1]
    run.says("the worker of GPU 0 cannot take part")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["no-such-host.invalid:5555", "0"], "no-such-host.invalid is not found"),
        (["127.0.0.1:5555", "0", "--device", "cuda:9"], "--device cuda:9: "),
    ],
)
def test_a_worker_that_would_wait_in_vain_says_so_at_once(
    options: list[str], why: str, capsys: Any
) -> None:
    from mainspring.cli import main

    with pytest.raises(SystemExit) as end:
        main(["worker", *options])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen", "0.0.0.0:5555"], "so it needs keys; make some with mainspring keys"),
        (["--listen", "[::]:5555"], "so it needs keys"),
        (["--listen", "some.host:5555"], "so it needs keys"),
        (["--listen", "5555"], "5555 is no address; expected HOST:PORT"),
        (["--listen", "ipc://here"], "is no address"),
        (["--listen", "127.0.0.1:65536"], "is no address"),
        (["--keys", "keys"], "--keys is about workers on other machines"),
        (["--wait", "5"], "--wait is about workers on other machines"),
        (["--listen", "127.0.0.1:5555", "--keys", "nowhere"], "is no key file"),
        (
            ["--listen", "127.0.0.1:5555", "--set",
             "faults=[{kind='worker_killed', at_s=1.0, gpu=0}]"],
            "kill the worker on its machine",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["live", "serve"])
def test_what_makes_no_sense_is_refused_in_a_line(
    command: str, options: list[str], why: str, scenario: Path, tmp_path: Path, capsys: Any
) -> None:
    from mainspring.cli import main

    out = tmp_path / "out"
    one = ["--policy", "clockwork"]
    with pytest.raises(SystemExit) as end:
        main([command, str(scenario), "--out", str(out), *one, *options])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_there_is_an_end_to_waiting_where_the_user_says_so(
    scenario: Path, address: str, tmp_path: Path, capsys: Any
) -> None:
    from mainspring.cli import main

    with pytest.raises(SystemExit) as end:
        main(["live", str(scenario), "--out", str(tmp_path / "out"), "--listen", address,
              "--wait", "0.3"])  # fmt: skip
    assert end.value.code == 2
    assert "workers [0, 1] did not come up within 0.3 s" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_models_that_run_elsewhere_are_not_measured_here(
    scenario: Path, address: str, tmp_path: Path, capsys: Any
) -> None:
    from mainspring.cli import main

    scenario.write_text(SCENARIO.replace("copies = 4", 'copies = 4\nmodel = "mlp"'))
    with pytest.raises(SystemExit) as end:
        main(["validate", str(scenario), "--out", str(tmp_path / "out"), "--listen", address,
              "--set", "cluster.memory=contiguous", "--set", "cluster.engines=1"])  # fmt: skip
    assert end.value.code == 2
    assert "run mainspring profile there" in capsys.readouterr().err
