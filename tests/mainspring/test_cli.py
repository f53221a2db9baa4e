"""The command line: exit codes, one-line errors, and what goes to which stream."""

import os
import signal
from pathlib import Path

import pytest

from mainspring import __version__, run
from mainspring.cli import main
from mainspring.names import shadowed


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
    "unknown policy": (
        ["run", "small.toml", "--policy", "clokwork"],
        "mainspring: no policy clokwork; did you mean clockwork?",
    ),
    "directory in use": (
        ["run", "small.toml", "--out", "."],
        "mainspring: . is not empty; choose another --out, or remove it",
    ),
}


@pytest.mark.parametrize(("args", "message"), USER_ERRORS.values(), ids=USER_ERRORS.keys())
def test_a_users_mistake_is_one_line_and_exit_code_2(call, write, args, message):
    write()
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_an_interrupted_run_prints_its_table_and_ends_with_130(call, write, monkeypatch):
    def interrupted(scenario, out, policies, progress):
        return run(scenario, out, policies, lambda *_: os.kill(os.getpid(), signal.SIGINT))

    monkeypatch.setattr("mainspring.cli.run_scenario", interrupted)
    code, out, err = call("run", write(), "--out", "out")
    assert code == 130
    assert "goodput" in out
    assert err == "interrupted: clockwork is not complete\n"


def test_another_package_of_one_of_our_names_is_noticed(tmp_path):
    home = tmp_path / "ours"
    (home / "scheduler").mkdir(parents=True)
    (home / "scheduler" / "__init__.py").write_text("")
    (line,) = shadowed(home)
    assert line.startswith("mainspring: warning: scheduler is imported from ")
    assert line.endswith("give mainspring an environment of its own")


def test_nothing_is_said_where_all_packages_are_ours():
    assert list(shadowed()) == []
