"""The command line: exit codes, one-line errors, and what goes to which stream."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring import __version__, run
from mainspring.cli import main
from mainspring.names import shadowed
from results import read_summary
from results.table import percent


@pytest.fixture
def call(capsys):
    """Call the command line; gives its exit code, stdout and stderr."""

    def call(*args):
        with pytest.raises(SystemExit) as exited:
            main(list(map(str, args)))
        captured = capsys.readouterr()
        return exited.value.code or 0, captured.out, captured.err

    return call


def test_version(call):
    assert call("--version") == (0, f"mainspring {__version__}\n", "")


def test_without_a_command_there_is_the_help_and_what_most_want_comes_first(call):
    code, out, _ = call()
    assert code == 0
    assert out.index("  run ") < out.index("  report ") < out.index("  predictions ")


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "mainspring", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"mainspring {__version__}\n"


def test_too_large_a_cluster_is_one_line(call, write, monkeypatch):
    def too_large(*args, **options):
        raise MemoryError("Unable to allocate 44.7 GiB")

    monkeypatch.setattr("mainspring.cli.run_scenario", too_large)
    code, _, err = call("run", write(), "--out", "out")
    assert code == 2
    assert err.startswith("mainspring: Unable to allocate 44.7 GiB; expected fewer GPUs")


def test_predictions_of_several_runs_name_one(call, write, without_pictures):
    call("run", write(), "--out", "both", "--policy", "clockwork", "--policy", "fifo", "-q")
    code, _, err = call("predictions", "both")
    assert code == 2
    assert "both holds 2 runs; expected one of them, such as both/clockwork" in err


def test_a_run_prints_a_table_and_where_its_files_are(call, write):
    code, out, err = call("run", write(), "--out", "out", "--policy", "clockwork", "--seed", 3)
    assert (code, err) == (0, "")
    assert "goodput" in out
    assert "results:  out\n" in out
    assert f"picture:  {Path('out/overview.png')}\n" in out


def test_without_out_a_run_goes_to_a_directory_with_its_name_and_time(
    call, write, without_pictures
):
    code, _, _ = call("run", write(), "--policy", "fifo")
    (directory,) = Path("runs").iterdir()
    assert code == 0
    assert directory.name.startswith("small-20")


def test_quiet_prints_only_where_the_results_are(call, write, without_pictures):
    assert call("run", write(), "--out", "out", "-q") == (0, "out\n", "")


def test_json_prints_the_summaries_and_nothing_else(call, write, without_pictures):
    code, out, err = call("run", write(), "--out", "out", "--json")
    assert (code, err) == (0, "")
    assert [each["name"] for each in json.loads(out)] == ["clockwork", "fifo"]

    assert call("report", "out", "--json") == (0, out, "")


def test_a_report_shows_finished_runs_and_draws_them(call, write, without_pictures):
    call("run", write(), "--out", "out")
    code, out, err = call("report", "out", "--out", "picture.png")
    assert (code, err) == (0, "")
    assert out.split()[:2] == ["clockwork", "fifo"]
    assert out.endswith("picture:  picture.png\n")
    assert Path("picture.png").read_bytes()[:4] == b"\x89PNG"


def test_the_policies_are_listed_and_explained(call):
    code, out, _ = call("policies")
    assert code == 0
    assert re.search(r"\nedf +Earliest deadline first", out)
    assert "  buffer_ms = 5.0  (ms, number, at least 0" in call("policies", "clockwork")[1]
    (about,) = json.loads(call("policies", "edf", "--json")[1])
    assert {parameter["name"] for parameter in about["parameters"]} >= {"batch", "drop"}


def completed(monkeypatch, capsys, *words):
    """What a shell offers for the last word."""
    monkeypatch.setenv("_MAINSPRING_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit):
        main([])
    return capsys.readouterr().out.split()


def test_a_shell_completes_scenarios_and_policies(monkeypatch, capsys, write):
    write()
    Path("small.txt").touch()
    Path("smaller").mkdir()
    assert completed(monkeypatch, capsys, "mainspring", "run", "sma") == ["small.toml", "smaller/"]
    words = ("mainspring", "run", "small.toml", "--policy", "clo")
    assert completed(monkeypatch, capsys, *words) == ["clockwork"]
    assert completed(monkeypatch, capsys, "mainspring", "policies", "e") == ["edf"]


USER_ERRORS = {
    "unknown command": (["rum"], "mainspring: No such command 'rum'"),
    "unknown option": (["run", "small.toml", "--sed", "1"], "mainspring: No such option: --sed"),
    "no scenario": (["run"], "mainspring: Missing argument 'SCENARIO.toml|RUN_DIR'"),
    "negative seed": (
        ["run", "small.toml", "--seed", "-1"],
        "mainspring: Invalid value for '--seed'",
    ),
    "missing file": (["run", "no.toml"], "mainspring: no.toml: No such file or directory"),
    "unknown key": (
        ["run", "small.toml", "--set", "sed=2"],
        "mainspring: --set sed=2: sed: unknown key; did you mean seed?",
    ),
    "a tail that no one can ask for": (
        ["plan", "small.toml", "--p99-ms", "-3"],
        "mainspring: --p99-ms -3; expected milliseconds above 0",
    ),
    "unknown policy": (
        ["run", "small.toml", "--policy", "clokwork"],
        "mainspring: no policy clokwork; did you mean clockwork?",
    ),
    "directory in use": (
        ["run", "small.toml", "--out", "."],
        "mainspring: . is not empty; choose another --out, or remove it",
    ),
    "a file in the way": (
        ["run", "small.toml", "--out", "small.toml"],
        "mainspring: small.toml is a file; choose another --out, a directory",
    ),
    "a place where nothing can be made": (
        ["run", "small.toml", "--out", "small.toml/out"],
        "mainspring: small.toml/out: cannot be written (Not a directory); choose another --out",
    ),
    "a wrong unit": (
        ["run", "small.toml", "--set", "slo_s=0.1"],
        "mainspring: --set slo_s=0.1: slo_s: unknown key; did you mean slo_ms?",
    ),
    "a negative rate": (
        ["run", "small.toml", "--set", "workload.0.rate_rps=-5"],
        "mainspring: --set workload.0.rate_rps=-5: workload.0.rate_rps = -5",
    ),
    "a rate that is no number": (
        ["run", "small.toml", "--set", "workload.0.rate_rps=nan"],
        "mainspring: --set workload.0.rate_rps=nan: workload.0.rate_rps = nan; "
        "expected a finite number",
    ),
    "a model without a profile": (
        ["run", "small.toml", "--set", "models.0.profile=clockwork_v100/resnet5"],
        "mainspring: --set models.0.profile=clockwork_v100/resnet5: models.0.profile = "
        '"clockwork_v100/resnet5"; no model resnet5 in clockwork_v100',
    ),
    "a model larger than the memory": (
        ["run", "small.toml", "--set", "cluster.pages=3"],
        "mainspring: small.toml, line 12: models.0.profile: resnet50_v2 needs 7 pages, "
        "but a GPU has 3 (cluster.pages)",
    ),
    "no run to report": (
        ["report", "."],
        "mainspring: .: no summary.json: not the directory of a run",
    ),
    "no such run": (
        ["report", "nope"],
        "mainspring: nope: no such directory; expected the directory of a run",
    ),
    "a seed beyond 64 bits": (
        ["run", "small.toml", "--seed", "99999999999999999999999"],
        "mainspring: Invalid value for '--seed': ",
    ),
    "a number that looks like an option": (
        ["worker", "127.0.0.1:5555", "-1"],
        "mainspring: -1 is no option, and below 0; expected a number of at least 0",
    ),
    "an empty file": (["run", "empty.toml"], "mainspring: empty.toml is empty; expected a file of"),
    "a scenario without a name": (
        ["run", "nameless.toml"],
        "mainspring: nameless.toml: missing key name (what tables and pictures call the scenario)",
    ),
    "the default scenario is elsewhere": (
        ["validate"],
        "mainspring: scenarios/live.toml, which is validated by default, is not in this directory;",
    ),
    "a live run with a platform's delays": (
        ["live", "small.toml", "--set", "cluster.delays_us.poll=3"],
        "mainspring: cluster.delays_us.poll = 3: a live run has the delays of its machine; leave "
        "the table out, or --set cluster.delays_us={}",
    ),
    "no directory to report": (["report"], "mainspring: Missing argument 'RUN_DIR...'"),
    "an unknown policy to explain": (
        ["policies", "clokwork"],
        "mainspring: no policy clokwork; did you mean clockwork?",
    ),
}


@pytest.mark.parametrize(("args", "message"), USER_ERRORS.values(), ids=USER_ERRORS.keys())
def test_a_users_mistake_is_one_line_and_exit_code_2(call, write, args, message):
    write()
    Path("empty.toml").touch()
    Path("nameless.toml").write_text("duration_s = 1.0\n")
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_an_interrupted_run_prints_its_table_and_ends_with_130(call, write, monkeypatch):
    def interrupted(scenario, out, policies, progress, **options):
        def press_ctrl_c(label, share):
            if share > 0.4:
                os.kill(os.getpid(), signal.SIGINT)

        return run(scenario, out, policies, press_ctrl_c, **options)

    monkeypatch.setattr("mainspring.cli.run_scenario", interrupted)
    code, out, err = call("run", write(("rate_rps = 200", "rate_rps = 900")), "--out", "out")
    assert code == 130
    assert "goodput" in out
    assert "interrupted: clockwork is not complete" in err
    summary = read_summary(Path("out/clockwork"))
    asked, open_ = summary.slo_requests + summary.slo_undecided, summary.slo_undecided
    assert open_ > 0
    told = f"{open_:,} could still have been in time and count in no share"
    assert f"of its {summary.outcomes['unfinished']:,} requests in flight {told}" in err
    code, out, _ = call("report", "out", "--html", "page.html")
    assert re.search(rf"undecided at interruption +{open_}\b", out)
    high = percent((summary.slo_in_time + open_) / asked, 2)
    assert f"{percent(summary.slo_in_time / asked, 2)}% to {high}%" in Path("page.html").read_text()
    assert err.endswith("; not run: fifo\n")
    assert "Ctrl-C again stops at once" in err


def test_another_package_of_one_of_our_names_is_noticed(tmp_path):
    home = tmp_path / "ours"
    (home / "scheduler").mkdir(parents=True)
    (home / "scheduler" / "__init__.py").write_text("")
    (line,) = shadowed(home)
    assert line.startswith("mainspring: warning: scheduler is imported from ")
    assert line.endswith("give mainspring an environment of its own")


def test_nothing_is_said_where_all_packages_are_ours():
    assert list(shadowed()) == []
