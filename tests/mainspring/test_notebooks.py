"""The notebooks run from top to bottom."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    (tmp_path / "scenarios").symlink_to(NOTEBOOKS.parent / "scenarios")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "a notebook is kept without its outputs"
            exec(compile("".join(cell["source"]), path.name, "exec"), names)
