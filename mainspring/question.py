"""What a validation was asked, so that the same command goes on where it was stopped.

    OUT/question.json    the question, and when its live runs were taken

Runs of one question are one answer's; those of another scenario, machine or version are not, and a
directory that holds them is refused. Live runs that are there are not run again. Since a machine
is not the same at all times, it is kept in how many parts they were taken.
Not here: the runs (mainspring.validate), and which of them are whole (mainspring.directory).
"""

import hashlib
import platform
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from mainspring.directory import held
from mainspring.document import Key, ScenarioError, dotted, leaves, show
from mainspring.live import Box
from mainspring.points import code_digest
from mainspring.scenario import Scenario
from results.files import write_whole

FILE: Final = "question.json"
LOCK: Final = ".validate.lock"
CODE: Final = ("executor", "mainspring", "profiles", "results", "scheduler", "sim", "workloads")


class Part(msgspec.Struct, frozen=True):
    """Live runs that one process has taken. first: the first of them; at: when it began, UTC."""

    at: str
    first: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer depends on, but for the machine's mood.

    mainspring, code: the version, and a checksum over our code. machine: its name. loads: None for
    the scenario's own traffic. models: the operator's own code and weights, with their checksums.
    elsewhere: whether workers are started by people. measured: whether real models are measured
    first. scenario: whole, with checksums of what it reads.
    """

    mainspring: str
    code: str
    machine: str
    policies: list[str]
    loads: list[float] | None
    repeats: int
    device: str
    models: dict[str, str]
    elsewhere: bool
    measured: bool
    scenario: dict[str, Any]


class _Record(msgspec.Struct):
    question: Question
    parts: list[Part] = []


class Asked:
    """The directory of a validation while it is ours; see `asking`. parts: of its live runs."""

    def __init__(self, out: Path, record: _Record) -> None:
        self._out = out
        self._record = record
        self._began = False

    @property
    def parts(self) -> list[Part]:
        """In order of time."""
        return self._record.parts

    def begin(self, directory: Path) -> None:
        """A live run is about to be taken; the first one of this process opens a part."""
        if self._began:
            return
        self._began = True
        first = directory.relative_to(self._out).as_posix()
        if self.parts and self.parts[-1].first == first:  # that part has left no run
            self.parts.pop()
        self.parts.append(Part(datetime.now(UTC).isoformat(timespec="seconds"), first))
        _write(self._out, self._record)


def question(
    scenario: Scenario,
    policies: Sequence[str],
    loads: Sequence[float] | None,
    repeats: int,
    box: Box,
    *,
    measured: bool,
) -> Question:
    """What is asked by these arguments of `validate` and `validate_loads`."""
    from mainspring import __version__

    chosen = scenario.choose(policies)
    return Question(
        mainspring=__version__,
        code=code_digest(CODE),
        machine=platform.node(),
        scenario=tomllib.loads(scenario.to_toml(chosen)),
        policies=[choice.label for choice in chosen],
        loads=None if loads is None else list(loads),
        repeats=repeats,
        device=box.device,
        models=dict(_own(box.sources.code)) | dict(_own(box.sources.weights, " weights")),
        elsewhere=box.remote is not None,
        measured=measured,
    )


@contextmanager
def asking(out: Path, asked: Question) -> Iterator[Asked]:
    """Have a validation's directory to ourselves, a new one or one of the same question.

    Raises ScenarioError where it holds something else, or is in use.
    """
    with held(out, LOCK):
        file = out / FILE
        if file.exists():
            try:
                record = msgspec.json.decode(file.read_bytes(), type=_Record)
            except (OSError, msgspec.MsgspecError) as error:
                raise ScenarioError(
                    f"{file}: {error}; choose another --out, or remove {out}"
                ) from None
            if difference := _difference(record.question, asked):
                raise ScenarioError(
                    f"{out} is of another question: {difference}; "
                    "choose another --out, or remove it"
                )
        else:
            record = _Record(asked)
            _write(out, record)
        yield Asked(out, record)


def _difference(was: Question, now: Question) -> str:
    """The first thing in which they differ, in words; empty where there is none."""
    old, new = (  # both as JSON has them, which knows no infinity
        msgspec.json.decode(msgspec.json.encode(one)) for one in (was, now)
    )
    for field in Question.__struct_fields__:
        if old[field] == new[field]:
            continue
        if field == "code":
            return "the code of mainspring is not what it was"
        before, after = dict(leaves(old[field])), dict(leaves(new[field]))
        if not isinstance(new[field], dict):
            return f"{field} was {_said(before)} and is {_said(after)}"
        for key in {**before, **after}:
            if key[0] == "inputs" and before.get(key) != after.get(key):
                return f"{dotted(key[1:])} is not what it was"
            if before.get(key) != after.get(key):
                values = (show(one[key]) if key in one else "none" for one in (before, after))
                return "{} was {} and is {}".format(dotted(key), *values)
    return ""


def _said(values: dict[Key, Any]) -> str:
    """A value or a list of them, as the command line would have it."""
    return ",".join("own" if value is None else str(value) for value in values.values())


def _own(files: Mapping[str, str], what: str = "") -> Iterator[tuple[str, str]]:
    """The operator's own files, by the names of models, each with its checksum."""
    for name, said in files.items():
        path = Path(said.rpartition(":")[0] or said)  # FILE.py:FUNCTION
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else "-"
        yield f"{name}{what}", f"{said} ({digest})"


def _write(out: Path, record: _Record) -> None:
    text = msgspec.json.format(msgspec.json.encode(record), indent=2)
    write_whole(out / FILE, text + b"\n")
