"""The notebooks run from top to bottom, as their users see them, in a kernel of their own."""

import os
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="notebooks need pip install 'mainspring[notebooks]'")
nbclient = pytest.importorskip("nbclient", reason="running a notebook needs nbclient, ipykernel")
nbformat = pytest.importorskip("nbformat", reason="reading a notebook needs nbformat")
pytest.importorskip("ipykernel", reason="running a notebook needs nbclient, ipykernel")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

SHOWN = {
    "engineer": ["goodput, 1/s: live", "True", "live.perfetto-trace", "image/png"],
    "first_steps": ["clockwork", "image/png"],
    "planner": ["1. What fleet? 2 GPUs", "4. What to change next?", "no number of GPUs meets this"],
    "researcher": ["LongestQueue", "96 of 96 points", "image/png"],
}
"""What its reader should find in each."""

NEEDS = {"engineer": ["zmq", "perfetto"]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder as in the repository; the kernel finds our packages from there."""
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    )
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))  # nobody's own settings
    return tmp_path / "notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, folder):
    for package in NEEDS.get(path.stem, []):
        pytest.importorskip(package, reason=f"{path.name} needs {package}")
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=400, resources=place).execute()

    found = []
    for output in (each for cell in notebook.cells for each in cell.get("outputs", [])):
        if output.output_type == "stream":
            assert output.name == "stdout", f"complaints on stderr: {output.text}"
            found.append(output.text)
        else:
            found += [*output.data, output.data["text/plain"]]
    for text in SHOWN[path.stem]:
        assert any(text in each for each in found), f"{path.name} does not show {text!r}"
