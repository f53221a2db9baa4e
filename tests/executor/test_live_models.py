"""Live runs of real torch models on a CPU."""

import pytest

from executor.models import Sources
from mainspring import load_scenario
from mainspring.cli import main
from mainspring.document import ScenarioError
from mainspring.live import Box, run_live

pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")
pytest.importorskip("torch", reason="real models need torch: pip install 'mainspring[executor]'")

PROFILE = """
schema = 1
device = "some CPU"
source = "a guess, for a test"
licence = "none"
[models.small]
weights_bytes = 40_000
input_bytes = 256
output_bytes = 256
load_ms = 1
exec_ms = { 1 = 1, 2 = 1.5 }
"""
SCENARIO = """
name = "real"
seed = 3
duration_s = 1.0
slo_ms = 200.0
[cluster]
pages = 2
page_mib = 1
memory = "contiguous"
[[models]]
profile = "profile.toml/small"
copies = 4
model = "mlp-tiny"
[[workload]]
kind = "poisson"
rate_rps = 40
[policy.fifo]
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "profile.toml").write_text(PROFILE)
    file = tmp_path / "real.toml"
    file.write_text(SCENARIO)
    return file


def test_real_models_run_live(file, tmp_path):
    """Four models in turn on an arena that holds two; the audit has passed where it comes back."""
    (live,) = run_live(load_scenario(file), tmp_path / "live")
    assert live.summary.outcomes["ok"] > 20
    assert live.summary.loads > 4
    assert "device" in live.punctuality.workers[0]


def test_what_goes_wrong_on_the_device_is_counted_in_its_words(file, tmp_path):
    code = tmp_path / "bad.py"
    code.write_text(
        "import torch\n"
        "class Bad(torch.nn.Module):\n"
        "    runs = 0\n"
        "    def forward(self, x):\n"
        "        Bad.runs += 1\n"
        "        if Bad.runs > 2:  # after the warm-up\n"
        "            raise RuntimeError('out of luck')\n"
        "        return x\n"
        "def bad():\n"
        "    return Bad(), torch.ones(1)\n"
    )
    box = Box(sources=Sources({"bad": f"{code}:bad"}))
    (live,) = run_live(load_scenario(file, ["models.0.model=bad"]), tmp_path / "live", box=box)
    assert live.punctuality.device_errors["RuntimeError: out of luck"] > 0
    assert live.summary.outcomes["ok"] == 0


def test_memory_in_pages_is_refused_on_a_cpu(file, tmp_path):
    with pytest.raises(ScenarioError, match=r'set cluster\.memory = "contiguous"'):
        run_live(load_scenario(file, ["cluster.memory=pages"]), tmp_path / "live")


def test_a_model_that_the_worker_cannot_have_ends_the_run_with_its_reason(file, tmp_path):
    code = tmp_path / "none.py"
    code.write_text("def make():\n    raise ValueError('no such luck')\n")
    box = Box(sources=Sources({"none": f"{code}:make"}))
    with pytest.raises(ScenarioError, match=r"worker 0: --model none=.*ValueError: no such luck"):
        run_live(load_scenario(file, ["models.0.model=none"]), tmp_path / "live", box=box)
    assert not (tmp_path / "live").exists()


def test_a_gpu_that_is_not_there_ends_the_run_with_that_reason(file, tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU; make gpu-check runs on it")
    for model in ("mlp-tiny", "spin"):
        loaded = load_scenario(file, [f"models.0.model={model}"])
        with pytest.raises(ScenarioError, match="worker 0: there is no CUDA GPU"):
            run_live(loaded, tmp_path / model, box=Box("cuda"))


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
def test_a_mistake_is_one_line(file, capsys, arguments, told):
    with pytest.raises(SystemExit) as end:
        main(["live", str(file), *arguments])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mainspring: {told}")
