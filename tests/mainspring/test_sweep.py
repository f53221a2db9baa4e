"""Sweeps: every setting with the same seeds, each point once, whatever happens in between."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mainspring
from mainspring.cli import main
from mainspring.document import ScenarioError
from mainspring.points import Failed, Job, Workers
from mainspring.report import report
from mainspring.study import load_study
from results import read_summary
from results.intervals import two_sided
from workloads import WorkloadWarning

STUDY = """\
name = "tiny"
scenario = "small.toml"

[set]
duration_s = 1.0
warmup_s = 0.2

[grid]
policy = ["clockwork", "fifo"]
"workload.0.rate_rps" = [100, 300]

[replications]
count = 2
"""


@pytest.fixture
def study(write):
    """Write the study beside the small scenario, with some of its text replaced."""
    write()

    def write_study(*changes: tuple[str, str]) -> Path:
        text = STUDY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        Path("tiny.toml").write_text(text)
        return Path("tiny.toml")

    return write_study


TRACE = """\
kind = "trace"
path = "t.csv"
time_column = "t"
time_unit = "s"
"""


def test_what_workloads_warn_of_is_said_once_and_kept(study, here, write):
    """Points run where nobody sees a warning, and a half-empty run looks good."""
    write(('kind = "poisson"\nrate_rps = 200\n', TRACE))
    Path("t.csv").write_text("t\n0.3\n0.4\n")
    Path("tiny.toml").write_text(
        'scenario = "small.toml"\n[set]\nduration_s = 1.0\nwarmup_s = 0.2\n'
        "[replications]\ncount = 3\n"
    )
    expected = r"t\.csv: it ends at 0\.4 s, and the run at 1 s.* \(6 of 6 runs\)"
    for _ in range(2):  # the second time nothing runs
        with pytest.warns(WorkloadWarning, match=expected) as caught:
            done = mainspring.sweep("tiny.toml", "out", executor=here)
        assert len(caught) == 1
    assert mainspring.load_sweep("out").warnings == done.warnings
    report(["out"], "page.html")
    assert "it ends at 0.4 s" in Path("page.html").read_text()
    assert read_summary(done.runs()[0]).warnings[0].startswith("t.csv: it ends at 0.4 s")


@pytest.fixture
def here():
    """An executor that starts at once: threads of this process."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_every_setting_gets_the_same_seeds_and_the_same_arrivals(study, here):
    done = mainspring.sweep(study(), "out", executor=here)

    rows = pq.read_table("out/table.parquet").to_pylist()
    assert len(rows) == 2 * 2 * 2 == done.table.num_rows
    arrivals = {}
    for row in rows:
        arrivals.setdefault((row["workload.0.rate_rps"], row["seed"]), set()).add(row["arrivals"])
        summary = read_summary(Path("out", row["directory"]))
        assert (row["digest"], row["share_in_time"]) == (summary.digest, summary.share_in_time)
    assert all(len(counts) == 1 for counts in arrivals.values())
    assert len(arrivals) == 4


def test_what_is_done_is_not_done_again_and_a_change_runs_only_what_it_changes(study, here):
    first = mainspring.sweep(study(), "out", executor=here)
    before = {path: path.stat().st_mtime_ns for path in Path("out/points").iterdir()}

    again = mainspring.sweep(study(), "out", executor=here)
    assert again.digest == first.digest
    assert {path: path.stat().st_mtime_ns for path in Path("out/points").iterdir()} == before

    more = mainspring.sweep(study(("[100, 300]", "[100, 300, 500]")), "out", executor=here)
    assert more.table.num_rows == 12
    assert len(list(Path("out/points").iterdir())) == len(before) + 4


def test_another_input_is_another_point(study, here, write):
    mainspring.sweep(study(), "out", executor=here)
    write(("pages = 64", "pages = 32"))
    mainspring.sweep(study(), "out", executor=here)
    assert len(list(Path("out/points").iterdir())) == 16


def test_a_killed_sweep_goes_on_and_gives_the_same_table(study):
    """SIGKILL in the middle: no table, whole points only; the same command makes the rest."""
    study(("count = 2", "count = 5"))
    command = [sys.executable, "-c", "from mainspring.cli import main; main()"]
    command += ["sweep", "tiny.toml", "--jobs", "2", "--quiet", "--out"]
    whole = subprocess.run([*command, "whole"], check=True, capture_output=True, text=True)
    assert whole.stdout.strip() == "whole"

    process = subprocess.Popen([*command, "cut"])
    points = Path("cut/points")
    while process.poll() is None and (not points.exists() or len(list(points.iterdir())) < 4):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = set(points.iterdir())
    assert not Path("cut/table.parquet").exists()
    assert 4 <= len(kept) < 20
    assert all((path / "summary.json").is_file() for path in kept)

    subprocess.run([*command, "cut"], check=True, capture_output=True)
    assert mainspring.load_sweep("cut").digest == mainspring.load_sweep("whole").digest


def test_ctrl_c_keeps_what_is_done(study, here):
    def interrupt(text, done, total):
        if done == 3:
            raise KeyboardInterrupt

    cut = mainspring.sweep(study(), "out", executor=here, progress=interrupt)
    assert cut.interrupted
    assert cut.table.num_rows == 3
    assert mainspring.sweep(study(), "out", executor=here).table.num_rows == 8


def test_a_point_that_fails_is_a_row_with_its_error(study, here):
    Path("bad.py").write_text(
        "from scheduler.policies.fifo import Fifo\n"
        "class Bad(Fifo):\n"
        "    def on_request(self, now_ns, request, out):\n"
        "        raise ValueError('no idea')\n"
    )
    done = mainspring.sweep(
        study(('["clockwork", "fifo"]', '["bad.py:Bad", "fifo"]')), "out", executor=here
    )
    assert len(done.failed) == 4
    assert {row["policy"] for row in done.failed} == {"Bad"}
    assert "line 4: ValueError: no idea" in done.failed[0]["error"]
    good = [row for row in done.table.to_pylist() if row["policy"] == "fifo"]
    assert all(row["error"] is None and row["arrivals"] for row in good)


def test_seeds_are_added_until_the_interval_is_narrow_enough(study, here):
    done = mainspring.sweep(
        study(
            ("count = 2", 'metric = "arrivals"\nhalf_width = 8.0\nat_least = 3\nat_most = 20'),
            ("[100, 300]", "[100]"),
        ),
        "out",
        executor=here,
    )
    by_policy = {
        policy: [row["seed"] for row in done.table.to_pylist() if row["policy"] == policy]
        for policy in ("clockwork", "fifo")
    }
    assert by_policy["clockwork"] == by_policy["fifo"]  # compared with each other: equally many
    n = len(by_policy["fifo"])
    assert 3 < n <= 20
    arrivals = [row["arrivals"] for row in done.table.to_pylist() if row["policy"] == "fifo"]
    assert n == 20 or two_sided(arrivals).half_width <= 8.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[100, 300]", "100"), 'line 10: grid.workload.0.rate_rps = 100; expected a list'),
        (("[100, 300]", "[-1]"), "line 10: grid.workload.0.rate_rps = -1.0; expected"),
        (('"fifo"]', '"fifi"]'), "line 9: grid.policy: no policy fifi; did you mean fifo?"),
        (("[100, 300]", "[100, 0.0, 0]"), "line 10: grid.workload.0.rate_rps: 0 is there twice"),
        (('"fifo"]', '"fifo", "fifo"]'), 'line 9: grid.policy: "fifo" is there twice; expec'),
        (("count = 2", "cuont = 2"), "line 13: replications.cuont: unknown key; did you mean"),
        (("duration_s = 1.0", "durations = 1.0"), "line 5: set.durations: unknown key; did you"),
        (("workload.0", "wrkload.0"), "line 10: grid.wrkload.0.rate_rps: wrkload: unknown key; "),
        (("count = 2", "count = 999_999_999"), "line 13: replications.count = 999999999 makes 3,9"),
        (("[100, 300]", f"{list(range(1, 60_000))}"), "line 8: grid: 119,998 combinations; expect"),
        (("warmup_s = 0.2", "seed = 1"), "line 12: replications: the study gives its seeds itself"),
    ],
)  # fmt: skip
def test_an_unusable_study_is_one_line_with_its_place_before_anything_runs(study, change, message):
    with pytest.raises(ScenarioError) as error:
        mainspring.sweep(study(change), "out")
    assert message in str(error.value).replace("tiny.toml, ", "")
    assert not Path("out").exists()


def test_its_own_study_runs_again_from_anywhere(study, here, monkeypatch):
    """The page says so, and the file beside the results named its scenario from another folder."""
    done = mainspring.sweep(study(), "out", executor=here)
    again = Path("out/study.toml").resolve()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert mainspring.sweep(again, "again", executor=here).digest == done.digest


def test_one_value_for_all_points_from_the_command_line(study, here, capsys):
    done = mainspring.sweep(
        study(),
        "out",
        overrides=["workload.0.rate_rps=50", "duration_s=1.5", "seed=7"],
        policies=["edf"],
        executor=here,
    )
    (row,) = done.rows()
    assert (row["workload.0.rate_rps"], row["policy"], row["seed"]) == (50, "edf", 7)
    assert row["end_ns"] == 1_500_000_000
    again = mainspring.sweep("out/study.toml", "again", executor=here)
    assert again.digest == done.digest

    with pytest.raises(SystemExit):
        main(["sweep", "tiny.toml", "--out", "out", "--set", "seed=7", "--jobs", "1", "--json"])
    said = capsys.readouterr()
    assert not said.err
    rows = json.loads(said.out)
    assert len(rows) == 4
    assert {row["seed"] for row in rows} == {7}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"overrides": ["durations=5"]}, "--set durations=5: durations: unknown key; did you mean"),
        ({"overrides": ["seed=x"]}, '--set seed=x: seed = "x"; expected a whole number'),
        ({"overrides": ["wrkload.0=5"]}, "--set wrkload.0=5: wrkload.0: wrkload: unknown key; did"),
        ({"policies": ["edf", "edf"]}, '--policy edf --policy edf: "edf" is there twice'),
        ({"policies": ["edg"]}, "--policy edg: no policy edg; did you mean edf?"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_told_in_its_words(study, asked, message):
    with pytest.raises(ScenarioError) as error:
        mainspring.sweep(study(), "out", **asked)
    assert str(error.value).startswith(message)


def test_a_scenario_is_no_study_and_a_study_no_scenario(study, write):
    with pytest.raises(ScenarioError, match=r"^small.toml is a scenario; expected a study"):
        mainspring.sweep("small.toml", "out")
    with pytest.raises(ScenarioError, match=r"^tiny.toml is a study; expected a scenario"):
        mainspring.plan(study())


def test_points_one_by_one_are_combined_with_the_grid(study):
    file = study(
        ("[replications]\ncount = 2", '[[point]]\n"cluster.gpus" = 1\n[[point]]\nslo_ms = 50.0')
    )
    settings = load_study(file).settings
    assert len(settings) == 2 * 4
    assert {s.scenario.spec.slo_ms for s in settings} == {100.0, 50.0}


def test_two_sweeps_at_once_in_one_directory_are_refused(study, here):
    refused = []

    def try_another(text, done, total):
        if not refused:
            with pytest.raises(ScenarioError, match="out is in use by another process") as error:
                mainspring.sweep(study(), "out", executor=here)
            refused.append(error)

    mainspring.sweep(study(), "out", executor=here, progress=try_another)
    assert refused


def _die(job: Job) -> Failed:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _die_once(job: Job) -> Failed:
    marker = Path(job.home, job.address)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Failed("done")


def _lives(job: Job) -> Failed:
    return _die(job) if job.address == "killer" else Failed("done")


@pytest.mark.parametrize("work", [_die_once, _lives])
def test_a_process_that_dies_costs_only_the_points_under_way(tmp_path, monkeypatch, work):
    monkeypatch.setattr("mainspring.points.run_job", work)
    names = ["a", "killer", "b", "c"]
    jobs = [Job(str(tmp_path), name, "", "", "", (), frozenset()) for name in names]

    def start():
        import multiprocessing

        return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))

    came = {}
    with Workers(start(), 2, start) as workers:
        workers.run(jobs, lambda job, outcome: came.__setitem__(job.address, outcome.error))
    assert set(came) == set(names)
    assert {came[name] for name in "abc"} == {"done"}
    expected = "done" if work is _die_once else "its process died, 2 times; out of memory?"
    assert came["killer"] == expected
