"""DISB's results: for each client of a benchmark, its latency with nothing else running.

The stand-alone latency is a whole request at one batch size: copies included. How long requests
took when the GPU was shared is the benchmark's own result, and no profile.
"""

import json
from pathlib import Path
from typing import Any

from profiles.durations import Constant, Durations
from profiles.errors import ProfileError
from profiles.importers.draft import Draft, Given, micros, text_of

ALONE = "standAloneTotalLatency(us)"


def is_one(path: Path) -> bool:
    """Whether the file looks like one."""
    text = text_of(path)
    return text.lstrip().startswith("{") and ALONE in text


def read(path: Path, given: Given) -> list[Draft]:
    """The clients of the file, by their names."""
    try:
        content = json.loads(text_of(path))
    except ValueError as error:
        raise ProfileError(f"{path.name}: not JSON: {error}; is the file whole?") from None
    if given.batch is None:
        raise ProfileError(
            f"{path.name} does not tell the batch size; give --batch (it is in the workload: 1 in "
            "all of DISB's own)"
        )
    results = content.get("results") if isinstance(content, dict) else None
    if not results:
        raise ProfileError(f"{path.name} has no results; expected a list of clients")
    drafts = []
    for result in results:
        name = str(result.get("clientName", "?"))
        where = f"{path.name}: {name}"
        exec_: dict[int, Durations] = {
            given.batch: Constant(micros(where, str(_alone(where, result))))
        }
        drafts.append(
            Draft(
                name=name,
                exec=exec_,
                about=f"DISB, github SJTU-IPADS/disb, results of {path.name.partition('.')[0]}",
                notes=["exec_ms is the mean latency of a request alone, copies included"],
            )
        )
    return drafts


def _alone(where: str, result: dict[str, Any]) -> Any:
    for analyzer in result.get("analyzers", []):
        if ALONE in analyzer:
            return analyzer[ALONE]
    raise ProfileError(f"{where}: no {ALONE}; expected it in one of its analyzers")
