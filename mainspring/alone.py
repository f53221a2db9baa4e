"""What a scenario's real models cost on this machine while nothing else runs.

    OUT/profile.toml    measured before everything; live and simulated policies plan with it
    HERE/alone-1.toml   measured again, shortly, around each live run

A machine that others share changes its speed by a quarter within a minute. What a batch took in a
live run is therefore held against what it took alone in the same minutes.
Not here: the measuring (mainspring.profiling), and the judgement (mainspring.agreement).
"""

import tomllib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from executor.models import SPIN
from mainspring.agreement import Executions
from mainspring.delays import work
from mainspring.live import Box
from mainspring.run import Progress
from mainspring.scenario import Scenario, build_scenario
from profiles import ProfileWarning, Samples, read

QUANTILE: Final = 0.9
LOADS: Final = 100
AGAIN_QUANTILE: Final = 0.5
AGAIN_LOADS: Final = 20
LONGEST_REST_S: Final = 0.1
"""A scenario of little traffic would be measured for hours."""


def measure(
    scenario: Scenario, out: Path, box: Box, progress: Progress | None, rests: bool
) -> Scenario:
    """Measure the scenario's real models on this device, at the batch sizes that it knows.

    rests: with rests, as a GPU of the scenario has them (`_rest_s`), and not back to back. Models
    that OUT/profile.toml has are not measured again. Returns the scenario with those profiles.
    Raises ProfileError, and KeyboardInterrupt on Ctrl-C.
    """
    file = out / "profile.toml"
    rest_s = _rest_s(scenario) if rests else 0.0
    names = _measured(scenario, file, box, progress, rest_s, QUANTILE, LOADS)
    if not names:
        return scenario
    table = tomllib.loads(scenario.to_toml(scenario.policies))
    del table["inputs"]  # other profiles
    found = []
    for i, models in enumerate(table["models"]):
        if models["model"] in names:
            models["profile"] = f"{file.resolve()}/{models['model']}"
            found.append(f"models.{i}.profile={models['profile']}")
    return msgspec.structs.replace(
        build_scenario(table),
        overrides=(*scenario.overrides, *found),
        written=scenario.written,
    )


def measure_again(scenario: Scenario, file: Path, box: Box, progress: Progress | None) -> None:
    """Measure them in a few seconds, with the scenario's rests, into a file that is written anew.

    Raises as `measure` does.
    """
    file.unlink(missing_ok=True)
    _measured(scenario, file, box, progress, _rest_s(scenario), AGAIN_QUANTILE, AGAIN_LOADS)


def executions(scenario: Scenario, files: Sequence[Path]) -> list[Executions]:
    """What each of the files that are there says of the scenario's real models."""
    came: list[Executions] = []
    for file in files:
        if not file.exists():
            continue
        with warnings.catch_warnings(action="ignore", category=ProfileWarning):  # of a few runs
            profiles = {one.name: one for one in read(file)}
        found: Executions = {}
        for model in scenario.models:
            if model.runs == SPIN:
                continue
            for batch, durations in profiles[model.runs].exec.items():
                assert isinstance(durations, Samples), "we have measured them"
                found.setdefault(batch, {})[model.name] = list(durations.ns)
        came.append(found)
    return came


def _rest_s(scenario: Scenario) -> float:
    """How long a GPU has nothing to do for each request, if each were a batch of its own.

    A device that rests now and then is slower than one that never does, also in the batches that
    follow each other: a CPU of two shared ones by a quarter.
    """
    work_ns, requests = work(scenario)
    time_ns = scenario.spec.duration_s * scenario.spec.cluster.gpus * 1e9
    return min(max(0.0, (time_ns - work_ns) / max(1, requests) / 1e9), LONGEST_REST_S)


def _measured(
    scenario: Scenario, file: Path, box: Box, progress: Progress | None, rest_s: float,
    quantile: float, loads: int,
) -> set[str]:  # fmt: skip
    """The names of the real models, which are in the file now."""
    from mainspring.profiling import profile

    names = {model.runs for model in scenario.models} - {SPIN}
    sizes = {
        batch for model in scenario.models if model.runs in names
        for batch in model.profile.batch_sizes
    }  # fmt: skip
    if not names:
        return names
    done = profile(
        sorted(names), sorted(sizes), file,
        box=box, quantile=quantile, loads=loads, rest_s=rest_s,
        add=True, partial=False, progress=progress,
    )  # fmt: skip
    if names - {one.name for one in done}:
        raise KeyboardInterrupt
    return names
