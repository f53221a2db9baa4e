"""The directory of a run: ours alone while it runs, and afterwards whole or gone.

`run.json` says what was begun. It comes first, so a directory with it and without a summary is a
run that did not finish: one that was killed, or that the audit found unsound.
Work of many runs goes on where it stopped: its directory is `held` by one process at a time, and
those of its runs that are whole are `kept`.
Not here: what a run's other files hold (results).
"""

import json
import platform
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

from mainspring.document import ScenarioError
from mainspring.scenario import PolicyChoice, Scenario
from results import InvariantError
from results.files import SUMMARY

RECORD: Final = "run.json"
"""What ran in a directory, and with which policies."""

PACKAGES = ("numpy", "scipy", "simpy", "msgspec", "pyarrow", "hdrhistogram", "matplotlib")
"""What a run's numbers and pictures come from."""


def default_out(scenario: Scenario) -> Path:
    """Where a run goes that was not told where."""
    first = Path("runs") / f"{scenario.spec.name}-{datetime.now():%Y%m%d-%H%M%S}"
    out, n = first, 1
    while out.exists():  # two in one second
        n += 1
        out = first.with_name(f"{first.name}-{n}")
    return out


@contextmanager
def claimed(out: Path) -> Iterator[list[Path]]:
    """Have the directory to ourselves; if the block fails, leave nothing but finished runs.

    The block appends the directory of each run that it finishes to the list that it is given.
    """
    was_there = out.exists()
    if was_there:
        _check_empty(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / RECORD).open("x").close()  # of two processes that come this far, one fails here
    except OSError as error:
        raise cannot_write(out, error) from None
    finished: list[Path] = []
    try:
        yield finished
    except InvariantError:
        raise  # the rows tell what went wrong
    except BaseException as error:
        if finished:
            labels = ", ".join(path.name for path in finished)
            error.add_note(f"(finished before it, in {out}: {labels})")
        with suppress(OSError):  # what went wrong first is what the user has to know
            _remove_all_but(finished, out)
            if not (finished or was_there):
                out.rmdir()
        raise


def _remove_all_but(finished: Sequence[Path], out: Path) -> None:
    if out in finished:
        return
    kept = {*finished, out / RECORD, out / "scenario.toml"} if finished else set()
    for path in {*out.iterdir()} - kept:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_empty(out: Path) -> None:
    if not out.is_dir():
        raise ScenarioError(f"{out} is a file; choose another --out, a directory")
    if not any(out.iterdir()):
        return
    unfinished = (out / RECORD).is_file() and not any(out.rglob(SUMMARY))
    what = "holds a run that did not finish" if unfinished else "is not empty"
    raise ScenarioError(f"{out} {what}; choose another --out, or remove it")


@contextmanager
def held(home: Path, mark: str) -> Iterator[None]:
    """Have a directory in which work goes on to ourselves; it is made if need be.

    mark: the name of a file in it that is locked, and that says which kind of work lies there.
    Raises ScenarioError where the directory holds something else, or is in use.
    """
    if home.exists() and not home.is_dir():
        raise ScenarioError(f"{home} is a file; choose another --out, a directory")
    if home.is_dir() and any(home.iterdir()) and not (home / mark).is_file():
        raise ScenarioError(f"{home} is not empty; choose another --out, or remove it")
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / mark).open("a")
    except OSError as error:
        raise cannot_write(home, error) from None
    with lock:
        if not _locked(lock):
            raise ScenarioError(f"{home} is in use by another process; wait for it, or end it")
        yield


def _locked(file: Any) -> bool:
    """Whether the lock is ours now. It ends with our process, however that ends."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def kept(directory: Path, scenario: Scenario, policies: Sequence[PolicyChoice], last: str) -> bool:
    """Whether a directory holds this run, whole. What is there of one that is not is removed.

    last: the file that is written last. Raises ScenarioError where it holds another run.
    """
    if not (directory / last).is_file():
        if (directory / RECORD).is_file():
            shutil.rmtree(directory)
        return False
    try:
        was = tomllib.loads((directory / "scenario.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        was = {}
    if was != tomllib.loads(scenario.to_toml(policies)):
        raise ScenarioError(
            f"{directory} is a run of something else (see its scenario.toml); "
            "choose another --out, or remove it"
        )
    return True


def write_record(scenario: Scenario, policies: Sequence[PolicyChoice], directory: Path) -> None:
    """Write down what is about to run, so that it can be run again."""
    from mainspring import __version__

    record = {
        "mainspring": __version__,
        "scenario": scenario.spec.name,
        "policies": [choice.label for choice in policies],
        "seed": scenario.spec.seed,
        "overrides": list(scenario.overrides),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        text = scenario.to_toml(policies)
        (directory / "scenario.toml").write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(directory, error) from None


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def recorded_policies(directory: Path) -> list[str]:
    """The labels of the policies that a directory was made for, as its record has them."""
    try:
        record = msgspec.json.decode((directory / RECORD).read_bytes(), type=_Record)
    except (OSError, msgspec.MsgspecError):
        return []
    return record.policies


class _Record(msgspec.Struct):
    policies: list[str]


def cannot_write(directory: Path, error: OSError) -> ScenarioError:
    """To be raised where the system refuses to write there."""
    return ScenarioError(f"{directory}: cannot be written ({error.strerror}); choose another --out")
