"""Live runs of real torch models on a CPU."""

import pytest

from executor.models import Sources
from mainspring.cli import main
from mainspring.document import ScenarioError
from mainspring.live import Box, run_live
from tests.executor.scenarios import COMPUTING, loaded, written

pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")
pytest.importorskip("torch", reason="real models need torch: pip install 'mainspring[executor]'")


def real(folder, *overrides, **more):
    return loaded(folder, "slo_ms=200", *overrides, text=COMPUTING, **more)


def test_real_models_run_live(tmp_path):
    """Four models in turn on an arena that holds two; the audit has passed where it comes back."""
    (live,) = run_live(real(tmp_path), tmp_path / "live")
    assert live.summary.outcomes["ok"] > 20
    assert live.summary.loads > 4
    assert "device" in live.punctuality.workers[0]


def test_what_goes_wrong_on_the_device_is_counted_in_its_words(tmp_path):
    code = tmp_path / "bad.py"
    code.write_text(
        "import torch\n"
        "class Bad(torch.nn.Module):\n"
        "    runs = 0\n"
        "    def forward(self, x):\n"
        "        Bad.runs += 1\n"
        "        if Bad.runs > 3:  # after the warm-up\n"
        "            raise RuntimeError('out of luck')\n"
        "        return x\n"
        "def bad():\n"
        "    return Bad(), torch.ones(1)\n"
    )
    box = Box(sources=Sources({"bad": f"{code}:bad"}))
    (live,) = run_live(real(tmp_path, "models.0.model=bad"), tmp_path / "live", box=box)
    assert live.punctuality.device_errors["RuntimeError: out of luck"] > 0
    assert live.summary.outcomes["ok"] == 0


def test_memory_in_pages_is_refused_on_a_cpu(tmp_path):
    with pytest.raises(ScenarioError, match=r'set cluster\.memory = "contiguous"'):
        run_live(real(tmp_path, "cluster.memory=pages"), tmp_path / "live")
    with pytest.raises(ScenarioError, match=r"set cluster\.engines = 1"):
        run_live(real(tmp_path, "cluster.engines=2"), tmp_path / "live")


def test_a_model_that_the_worker_cannot_have_ends_the_run_with_its_reason(tmp_path):
    code = tmp_path / "none.py"
    code.write_text("def make():\n    raise ValueError('no such luck')\n")
    box = Box(sources=Sources({"none": f"{code}:make"}))
    with pytest.raises(ScenarioError, match=r"worker 0: --model none=.*ValueError: no such luck"):
        run_live(real(tmp_path, "models.0.model=none"), tmp_path / "live", box=box)
    assert not (tmp_path / "live").exists()


def test_a_gpu_that_is_not_there_ends_the_run_with_that_reason(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU; make gpu-check runs on it")
    for model in ("mlp-tiny", "spin"):
        scenario = real(tmp_path, f"models.0.model={model}")
        with pytest.raises(ScenarioError, match="worker 0: there is no CUDA GPU"):
            run_live(scenario, tmp_path / model, box=Box("cuda"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--set", "models.0.model=mpl-tiny"],
            'models.0.model = "mpl-tiny"; did you mean mlp',
        ),
        (["--model", "x"], "--model x: expected NAME=FILE, as in net=net.py:make_model"),
        (["--model", "x=y.py:z"], "x=y.py:z: there is no file y.py"),
        (["--weights", "x=y.pt"], "x=y.pt: there is no file y.pt"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, capsys, arguments, told):
    with pytest.raises(SystemExit) as end:
        main(["live", str(written(tmp_path, COMPUTING)), *arguments])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mainspring: {told}")


def test_a_batch_of_seconds_is_not_taken_for_a_dead_worker(tmp_path):
    """It keeps the worker from answering three times as long as a silent one has, and takes twice
    as long as its profile says: it counts as under way, and its request is served."""
    (tmp_path / "slow.py").write_text(
        "import time, torch\n"
        "class Slow(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        end = time.monotonic() + 3\n"
        "        while time.monotonic() < end:\n"
        "            pass\n"
        "        return x\n"
        "def slow():\n"
        "    return Slow(), torch.ones(1)\n"
    )
    scenario = real(
        tmp_path, "models.0.model=slow", "models.0.copies=1", "slo_ms=60000", "duration_s=4",
        "drain_s=30", "workload=[{kind='constant', rate_rps=0.5}]", exec_ms="{ 1 = 1500 }",
    )  # fmt: skip
    box = Box(sources=Sources({"slow": f"{tmp_path / 'slow.py'}:slow"}))
    (live,) = run_live(scenario, tmp_path / "live", box=box)
    assert live.summary.workers_lost_whole_run == 0
    assert live.summary.outcomes["ok"] == live.summary.arrivals == 2
