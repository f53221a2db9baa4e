"""A study: one scenario, run with some of its keys changed, as a TOML file has it.

    name = "load"
    scenario = "demo.toml"                        # from this file's folder

    [set]                                         # for all points
    duration_s = 10.0

    [grid]                                        # every combination of these
    policy = ["clockwork", "fifo"]
    "workload.0.rate_rps" = [400, 800, 1200]

    [[point]]                                     # or one by one; each with every combination
    "cluster.gpus" = 2

    [replications]                                # seeds 1, 2, 3, ... for every point
    count = 5

Keys are those of `--set`. Each setting gets the same seeds, so that policies are compared on the
same arrivals. `policy` is a label of the scenario, one of our policies, or my_policy.py:MyPolicy.
Everything is checked before anything runs; errors name the line of this file.
Not here: running it (mainspring.sweep).
"""

import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import tomli_w
from msgspec import Meta

from mainspring.document import Document, Key, ScenarioError, show, toml_value
from mainspring.scenario import (
    Count,
    PolicyChoice,
    Positive,
    Scenario,
    build_scenario,
    is_path,
    load_scenario,
)

POLICY: Final = "policy"
HEAD: Final = (
    "# The study as it was run, with whole paths, so that it can be run again from anywhere."
)
SEED: Final = "seed"
MOST: Final = 100_000
"""Runs of a study: more take days, and their list alone takes minutes."""


class Replications(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many seeds each setting gets.

    count: so many. half_width: until the confidence interval of the metric's mean reaches no
    further than this on either side, but at_least and at_most so many; settings that differ in
    their policy alone get equally many. metric: as `mainspring compare` takes it.
    first_seed: the others follow it.
    """

    count: Count | None = None
    first_seed: Annotated[int, Meta(ge=0, le=2**62)] = 1
    metric: str = "goodput"
    half_width: Positive | None = None
    confidence: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    at_least: Annotated[int, Meta(ge=2, le=10**6)] = 5
    at_most: Count = 50

    @property
    def first_round(self) -> range:
        """The seeds that every setting gets."""
        n = self.count or (1 if self.half_width is None else self.at_least)
        return range(self.first_seed, self.first_seed + n)


class StudySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a study's file says. name: the file's by default."""

    name: Annotated[str, Meta(pattern=r"^[\w.-]+$")] | None = None
    scenario: str | dict[str, Any]
    set: dict[str, Any] = {}
    grid: dict[str, Any] = {}
    point: list[dict[str, Any]] = []
    replications: Replications = Replications()


class Setting(NamedTuple):
    """One combination of values, with one policy. values: of the swept keys, the policy's label
    among them, as the table shows them."""

    values: dict[str, Any]
    scenario: Scenario
    choice: PolicyChoice

    @property
    def compared(self) -> str:
        """What settings have in common that differ in their policy alone."""
        others = {
            key: value
            for key, value in self.values.items()
            if key != POLICY and not key.startswith(f"{POLICY}.")
        }
        return json.dumps(others, sort_keys=True)


class Study(NamedTuple):
    """A study that has been checked. keys: what is swept, `policy` always among them; seeds:
    given by the study itself, instead of replications; text: the study as TOML, all paths whole."""

    name: str
    keys: tuple[str, ...]
    settings: tuple[Setting, ...]
    seeds: tuple[int, ...] | None
    replications: Replications
    text: str


def load_study(
    path: str | Path, overrides: Sequence[str] = (), policies: Sequence[str] = ()
) -> Study:
    """Read and check a study's file. Raises ScenarioError, whose message is one line.

    overrides: `key=value`; all points have that value, swept or not, and with `seed` that seed.
    policies: are swept, instead of those of the study. Paths in both start from the working
    directory.
    """
    path = Path(path)
    document = Document.read(path)
    if "scenario" not in document.data and "cluster" in document.data:
        raise ScenarioError(
            f"{path} is a scenario; expected a study, which names a scenario and a grid of its "
            "keys (mainspring run and compare take a scenario)"
        )
    return _checked(document, path.stem, overrides, policies)


def build_study(
    table: Mapping[str, Any], overrides: Sequence[str] = (), policies: Sequence[str] = ()
) -> Study:
    """Make a study in code: a table with the keys of a study's file.

    `scenario` may be the table of a scenario too. Paths start from the working directory.
    overrides, policies: as for `load_study`.
    """
    document = Document(deepcopy(dict(table)), source="study", folder=Path())
    return _checked(document, "study", overrides, policies)


class _Change(NamedTuple):
    """A key of the scenario and a value for it, and where the study says so."""

    key: str
    value: Any
    place: Key


def _checked(
    document: Document, name: str, overrides: Sequence[str], policies: Sequence[str]
) -> Study:
    _make_paths_absolute(document)
    for override in overrides:
        _override(document, override)
    if policies:
        _sweep_policies(document, policies)
    spec = document.decode(StudySpec)
    _check_replications(document, spec.replications)
    fixed = list(_changes(spec.set, ("set",)))
    grid = [
        [change._replace(value=value) for value in _listed(document, change)]
        for change in _changes(spec.grid, ("grid",))
    ]
    points = [list(_changes(table, ("point", i))) for i, table in enumerate(spec.point)] or [[]]
    _check_once(document, [fixed, [values[0] for values in grid], *points])
    swept = [values[0].key for values in grid]
    keys = tuple(dict.fromkeys([*swept, *(change.key for point in points for change in point)]))

    combinations = math.prod([len(points), *map(len, grid)])
    if combinations > MOST:
        raise document.error(
            ("grid",), f"{combinations:,} combinations; expected at most {MOST:,} runs in a study"
        )
    settings: dict[str, Setting] = {}
    seeds: list[int] = []
    for point, *combination in product(points, *grid):
        changes = [*fixed, *point, *combination]
        values = {change.key: change.value for change in (*point, *combination)}
        for change in changes:
            if change.key == SEED:
                seed = values.pop(SEED, change.value)
                if type(seed) is not int or seed < 0:
                    raise document.error(change.place, f"= {show(seed)}; expected a whole number")
                seeds.append(seed)
        changes = [change for change in changes if change.key != SEED]
        for scenario, choice in _apply(document, spec.scenario, changes):
            setting = Setting(values | {POLICY: choice.label}, scenario, choice)
            settings.setdefault(json.dumps(setting.values, sort_keys=True, default=str), setting)
    each = spec.replications
    key, n = ("count", each.count) if each.half_width is None else ("at_most", each.at_most)
    if not seeds and n and n * len(settings) > MOST:
        runs = f"{n * len(settings):,} runs with {len(settings):,} settings"
        raise document.error(
            ("replications", key), f"= {n} makes {runs}; expected at most {MOST:,} runs in a study"
        )
    if seeds and "replications" in document.data:
        raise document.error(
            ("replications",), "the study gives its seeds itself; take them out, or this table"
        )
    return Study(
        name=spec.name or name,
        keys=tuple(dict.fromkeys([*(key for key in keys if key != SEED), POLICY])),
        settings=tuple(settings.values()),
        seeds=tuple(dict.fromkeys(seeds)) or None,
        replications=spec.replications,
        text=f"{HEAD}\n{tomli_w.dumps(document.data)}",
    )


def _make_paths_absolute(document: Document) -> None:
    """Paths in a study start from its folder."""
    for place, value in document.leaves():
        match place:
            case ("scenario",) if isinstance(value, str):
                document.set(place, str((document.folder / value).resolve()))
                continue
            case (
                ("grid", *inside, int()) | ("point", int(), *inside) | ("set" | "scenario", *inside)
            ):
                key = _steps(".".join(map(str, inside)))
            case _:
                continue
        document.set(place, _whole(key, value, document.folder))


def _steps(name: str) -> Key:
    return tuple(int(part) if part.isdecimal() else part for part in name.split("."))


def _whole(key: Key, value: Any, folder: Path) -> Any:
    """The value of a scenario's key; a path starts from `folder`."""
    if isinstance(value, str) and (is_path(key, value) or (key == (POLICY,) and ":" in value)):
        return str((folder / value).resolve())
    return value


def _override(document: Document, override: str) -> None:
    """Give all points one value for a key, in the place of what the study has for it."""
    name, equals, text = override.partition("=")
    name = name.strip()
    if not equals or not all(name.split(".")):
        raise ScenarioError(f"--set {override}: expected key=value, as in duration_s=5")
    value = _whole(_steps(name), toml_value(text.strip()), Path())
    told = f"--set {override}"
    if name == SEED:
        document.data.pop("replications", None)
    for part in ("grid", "set"):
        table = document.data.setdefault(part, {})
        for change in _changes(table, (part,)) if isinstance(table, dict) else ():
            if change.key == name:
                document.give(change.place, [value] if part == "grid" else value, told, name)
                return
    document.give(("set", name), value, told, name)


def _sweep_policies(document: Document, policies: Sequence[str]) -> None:
    whole = [_whole((POLICY,), name, Path()) for name in policies]
    told = " ".join(f"--policy {name}" for name in policies)
    document.data.setdefault("grid", {})
    document.give(("grid", POLICY), whole, told, "")


def _check_replications(document: Document, replications: Replications) -> None:
    if replications.count is not None and replications.half_width is not None:
        raise document.error(
            ("replications", "count"), "half_width says how many it takes; expected one of the two"
        )
    if replications.at_most < replications.at_least:
        raise document.error(
            ("replications", "at_most"),
            f"= {replications.at_most}; expected at_least, {replications.at_least}, or more",
        )


def _changes(table: Mapping[str, Any], place: Key, prefix: str = "") -> Iterator[_Change]:
    """A table of keys; `workload.0.rate_rps = 1`, without quotes, is the same as with them."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _changes(value, (*place, name), f"{prefix}{name}.")
        else:
            yield _Change(f"{prefix}{name}", value, (*place, name))


def _listed(document: Document, change: _Change) -> Sequence[Any]:
    if not isinstance(change.value, list) or not change.value:
        problem = f"= {show(change.value)}" if change.value != [] else "is empty"
        raise document.error(change.place, f"{problem}; expected a list of values to try")
    seen: set[Hashable] = set()
    for value in change.value:
        known_by = value if isinstance(value, Hashable) else show(value)
        if known_by in seen:
            raise document.error(change.place, f"{show(value)} is there twice; expected each once")
        seen.add(known_by)
    return change.value


def _check_once(document: Document, tables: Sequence[Sequence[_Change]]) -> None:
    fixed, grid, *points = tables
    for point in points:
        seen: set[str] = set()
        for change in (*fixed, *grid, *point):
            if change.key in seen:
                raise document.error(
                    change.place, f"{change.key} has a value elsewhere in this study; choose one"
                )
            seen.add(change.key)


def _apply(
    document: Document, source: str | dict[str, Any], changes: Sequence[_Change]
) -> Iterator[tuple[Scenario, PolicyChoice]]:
    """The scenario with these changes, and each of its policies."""
    policy = next((change for change in changes if change.key == POLICY), None)
    overrides: dict[str, _Change] = {}
    for change in changes:
        if change is not policy:
            overrides[f"{change.key}={_literal(change.value)}"] = change
    try:
        if isinstance(source, dict):
            scenario = build_scenario(source, list(overrides))
        else:
            scenario = load_scenario(source, list(overrides))
    except ScenarioError as error:
        raise _placed(document, str(error), overrides) from None
    if policy is None:
        names: list[str] = []
    elif isinstance(policy.value, str):
        names = [policy.value]
    else:
        raise document.error(policy.place, f"= {show(policy.value)}; expected a policy's name")
    try:
        choices = scenario.choose(names)
    except ScenarioError as error:
        raise document.error(policy.place if policy else ("scenario",), str(error)) from None
    for choice in choices:
        yield scenario, choice


def _placed(document: Document, message: str, overrides: Mapping[str, _Change]) -> ScenarioError:
    """A complaint about a value that came from the study, with its place there."""
    for override, change in overrides.items():
        if (rest := message.removeprefix(f"--set {override}: ")) != message:
            problem = rest.removeprefix(f"{change.key} ")
            if problem == rest:
                problem = rest.removeprefix(f"{change.key}: ")
            return document.error(change.place, problem)
    return ScenarioError(message)


def _literal(value: Any) -> str:
    """A value as TOML has it in a line."""
    if isinstance(value, bool | str):
        return json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_name(key)} = {_literal(child)}" for key, child in value.items())
        return f"{{{', '.join(pairs)}}}"
    return str(value)


def _name(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key) else json.dumps(key)
