"""REEF's profiles (Han et al., OSDI 2022): how long a model takes alone, at batch 1.

    {"model_latency": 1188, "kernel_latency": {"fused_...": {"total_latency": 24, ...}}}

The latencies are in microseconds. Those of the kernels are where a model may be preempted, for
which a profile has no word yet: they are not imported.
"""

import json
from pathlib import Path

from profiles.durations import Constant
from profiles.errors import ProfileError
from profiles.importers.draft import Draft, Given, micros, text_of


def is_one(path: Path) -> bool:
    """Whether the file looks like one."""
    return text_of(path).lstrip().startswith('{"model_latency"')


def read(path: Path, given: Given) -> list[Draft]:
    """The model of the file, by the file's name."""
    try:
        content = json.loads(text_of(path))
    except ValueError as error:
        raise ProfileError(f"{path.name}: not JSON: {error}; is the file whole?") from None
    if not isinstance(content, dict) or "model_latency" not in content:
        raise ProfileError(f"{path.name} has no model_latency; expected it, in microseconds")
    latency = str(content["model_latency"])
    return [
        Draft(
            name=path.name.partition(".")[0],
            exec={1: Constant(micros(f"{path.name}: model_latency", latency))},
            about="REEF (OSDI 2022), github SJTU-IPADS/reef-artifacts, resource",
            notes=["exec_ms is the model's latency at batch 1"],
        )
    ]
