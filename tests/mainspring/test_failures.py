"""A run that does not come to its end: what is left, what is said, and that one can go on."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mainspring import load_runs, load_scenario, run
from mainspring.cli import main
from mainspring.scenario import ScenarioError
from results import InvariantError, ResultsError, RunWriter, plots
from workloads import WorkloadError

TRACE = """\
kind = "trace"
path = "arrivals.csv"
time_column = "t"
time_unit = "ms"
model_column = "m"
"""


@pytest.fixture(name="traced")
def scenario_with_a_trace(write, without_pictures):
    """The small scenario on a trace of which one row, far down, is bad; and a way to mend it."""
    scenario = write(
        ('kind = "poisson"\nrate_rps = 200\n', TRACE), ("duration_s = 2", "duration_s = 60")
    )

    def trace(row_30_000: str) -> Path:
        rows = [f"{i},{i % 3}" for i in range(40_000)]
        rows[29_998] = row_30_000
        Path("arrivals.csv").write_text("t,m\n" + "\n".join(rows) + "\n")
        return scenario

    return trace


@pytest.mark.parametrize("bad", ["soon,1", "29998,-1", "nan,1", "29998"])
def test_a_bad_row_found_in_mid_run_is_named_and_leaves_nothing_in_the_way(traced, bad):
    scenario = traced(bad)
    with pytest.raises(WorkloadError, match=r"arrivals\.csv, line 30000: ") as caught:
        run(load_scenario(scenario), "out")
    assert "\n" not in str(caught.value)
    assert not Path("out").exists()

    traced("29998,1")
    assert [each.summary.outcomes_whole_run["ok"] for each in run(load_scenario(scenario), "out")]


def test_a_directory_that_was_there_stays_and_is_empty_again(traced):
    scenario = traced("soon,1")
    Path("out").mkdir()
    with pytest.raises(WorkloadError):
        run(load_scenario(scenario), "out")
    assert list(Path("out").iterdir()) == []


def fill_the_disk(monkeypatch, after: int) -> None:
    """From the given write of rows on, there is no room."""
    write_batch, calls = pq.ParquetWriter.write_batch, iter(range(10**6))

    def full(self, *batch):
        if next(calls) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_batch(self, *batch)

    monkeypatch.setattr(pq.ParquetWriter, "write_batch", full)


def test_a_full_disk_is_one_line_and_leaves_nothing_in_the_way(
    write, without_pictures, monkeypatch
):
    fill_the_disk(monkeypatch, after=0)
    with pytest.raises(ResultsError) as caught:
        run(load_scenario(write()), "out")
    assert str(caught.value) == (
        "out/clockwork/outcomes.parquet: cannot be written (No space left on device); "
        "make room or choose another directory, then run again"
    )
    assert not Path("out").exists()


def test_what_finished_before_is_kept_and_said(write, without_pictures, monkeypatch):
    fill_the_disk(monkeypatch, after=2)
    with pytest.raises(ResultsError) as caught:
        run(load_scenario(write()), "out")
    assert caught.value.__notes__ == ["(finished before it, in out: clockwork)"]
    assert [path.name for path in Path("out").iterdir() if path.is_dir()] == ["clockwork"]
    with pytest.warns(UserWarning, match="out/fifo is left out"):
        assert [each.label for each in load_runs("out")] == ["clockwork"]


def test_a_picture_that_cannot_be_drawn_does_not_cost_the_runs(write, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(ResultsError, match=r"overview\.png: cannot be written") as caught:
        run(load_scenario(write()), "out")
    assert caught.value.__notes__ == ["(the runs themselves are finished: mainspring report out)"]
    assert len(load_runs("out")) == 2


def test_bug_cli_08_a_run_that_fails_is_no_success_and_shows_no_table(traced, capsys):
    with pytest.raises(SystemExit) as exited:
        main(["run", str(traced("soon,1")), "--out", "out"])
    assert exited.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("mainspring: ")
    assert err.count("\n") == 1


def test_an_unsound_run_keeps_its_rows(write, without_pictures, monkeypatch):
    def unsound(*_, **__):
        raise InvariantError("request 3 ended twice")

    monkeypatch.setattr(RunWriter, "close", unsound)
    with pytest.raises(InvariantError):
        run(load_scenario(write()), "out", ["fifo"])
    assert Path("out/outcomes.parquet.part").exists()
    with pytest.raises(ScenarioError, match="out holds a run that did not finish; choose another"):
        run(load_scenario("small.toml"), "out", ["fifo"])


def test_a_policy_that_breaks_leaves_nothing_in_the_way(write, without_pictures):
    scenario = load_scenario(write())
    Path("mine.py").write_text(
        "from scheduler.policies.fifo import Fifo\n"
        "class Mine(Fifo):\n"
        "    def on_result(self, *event):\n"
        "        raise ZeroDivisionError\n"
    )
    with pytest.raises(ScenarioError, match=r"policy Mine: .*mine\.py, line 4: ZeroDivisionError"):
        run(scenario, "out", ["mine.py:Mine"])
    assert not Path("out").exists()


def test_a_handler_with_other_arguments_is_found_before_the_run(write):
    scenario = load_scenario(write())
    Path("mine.py").write_text(
        "from scheduler.policies.fifo import Fifo\n"
        "class Mine(Fifo):\n"
        "    def on_request(self, request): ...\n"
    )
    with pytest.raises(ScenarioError, match=r"called as on_request\(self, now_ns, request, out\)"):
        run(scenario, "out", ["mine.py:Mine"])


def test_a_run_without_a_request_has_its_pictures(write):
    runs = run(load_scenario(write(), ["workload.0.rate_rps=1e-9"]), "out")
    assert runs[0].summary.arrivals == 0
    plots.comparison({"nothing": runs[0].directory}).save(Path("picture.png"))
    assert Path("picture.png").is_file()


def test_a_batch_size_that_was_not_measured_is_refused_counted_and_shown(write, without_pictures):
    scenario = load_scenario(write())
    Path("mine.py").write_text(
        "from scheduler.policies.fifo import Fifo\n"
        "class Mine(Fifo):\n"
        "    def _infer(self, now_ns, gpu, request, out):\n"
        "        out.infer(gpu.lane, request.model, 3, (request.id,), now_ns, 2**62, 1)\n"
        "        out.reject(request.id, 6)\n"
        "        self._release(gpu)\n"
    )
    (only,) = runs = run(scenario, "out", ["mine.py:Mine"])
    assert list(only.summary.refusals) == ["unknown_batch"]
    assert "refused: unknown batch" in repr(runs)


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
def test_a_killed_run_leaves_nothing_that_looks_whole(write, capfd):
    scenario = write(("duration_s = 2", "duration_s = 100000"))
    command = [sys.executable, "-c", "from mainspring.cli import main; main()"]
    run_it = [*command, "run", str(scenario), "--out", "out", "--policy", "fifo"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    child = subprocess.Popen(run_it, env=env)
    rows = Path("out/outcomes.parquet.part")
    for _ in range(600):
        if rows.exists() and rows.stat().st_size > 10_000:
            break
        time.sleep(0.1)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL

    assert sorted(path.name for path in Path("out").iterdir()) == [
        "actions.parquet.part",
        "outcomes.parquet.part",
        "run.json",
        "scenario.toml",
    ]
    for args, said in (
        (["report", "out"], "out: no summary.json: the run did not finish"),
        (run_it[3:], "out holds a run that did not finish; choose another --out, or remove it"),
    ):
        capfd.readouterr()
        assert subprocess.run([*command, *args], env=env, check=False).returncode == 2
        assert capfd.readouterr().err.startswith(f"mainspring: {said}")
