"""The scenarios that live runs are tested with."""

from pathlib import Path
from typing import Any

from mainspring import load_scenario
from mainspring.scenario import Scenario

SPINNING = """
name = "short"
seed = 3
duration_s = 1.5
slo_ms = 200.0

[cluster]
gpus = 2
pages = 21

[[models]]
profile = "clockwork_docs/resnet50_v2"
copies = 8

[[workload]]
kind = "poisson"
rate_rps = 100

[policy.clockwork]
"""
"""Eight models that spin, on two workers that hold three each."""

COMPUTING = """
name = "real"
seed = 3
duration_s = 1.0

[cluster]
pages = 2
page_mib = 1
memory = "contiguous"
engines = 1

[[models]]
profile = "profile.toml/small"
copies = 4
model = "mlp-tiny"

[[workload]]
kind = "poisson"
rate_rps = 40

[policy.fifo]
"""
"""Four models that compute, on a worker that holds two."""

_PROFILE = """
schema = 1
device = "some CPU"
source = "a guess, for a test"
licence = "none"

[models.small]
weights_bytes = 40_000
input_bytes = 256
output_bytes = 256
load_ms = LOAD_MS
exec_ms = EXEC_MS
"""


_EXEC_MS = "{ 1 = 1, 2 = 1.5, 4 = 2 }"


def written(
    folder: Path,
    text: str = SPINNING,
    more: str = "",
    exec_ms: str = _EXEC_MS,
    load_ms: float = 1,
) -> Path:
    """The scenario's file in a folder, with its profile beside it. more: goes to its end.
    exec_ms: of the models that compute, by batch size; load_ms: of each."""
    profile = _PROFILE.replace("EXEC_MS", exec_ms).replace("LOAD_MS", str(load_ms))
    (folder / "profile.toml").write_text(profile)
    file = folder / "scenario.toml"
    file.write_text(text + more)
    return file


def loaded(folder: Path, *overrides: str, **given: Any) -> Scenario:
    """The scenario, with some of its keys changed. given: as `written` takes it."""
    return load_scenario(written(folder, **given), overrides)
