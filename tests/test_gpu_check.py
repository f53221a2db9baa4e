"""The script that checks a GPU, where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_without_a_gpu_it_ends_with_one_sentence(tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'mainspring[executor]'")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU; make gpu-check does the real thing")
    came = subprocess.run(
        [sys.executable, ROOT / "benchmarks/gpu_check.py", "--out", tmp_path / "out"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert came.returncode == 2
    assert came.stderr.strip() == (
        "gpu-check: nothing was checked, for there is no CUDA GPU here that torch can use."
    )
    assert not (tmp_path / "out").exists()
