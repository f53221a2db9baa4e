"""What is known of a run when its page is made: its numbers, its parts, its scenario.

Read as it was written down. What the scenario refers to (traces, profiles, a policy's file) may be
gone by now, and nothing here needs it.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from mainspring.directory import RECORD
from mainspring.document import ScenarioError
from mainspring.live import LIVE
from mainspring.runs import Run, Runs
from mainspring.scenario import Spec
from results import Summary
from results.breakdown import Breakdown, breakdown
from results.reader import read_models
from workloads import Closed


class Case(NamedTuple):
    """A run. text: its scenario as it was recorded; record: its run.json. what: the scenario but
    for the policy and the seed, for comparing it with others. live: on real processes."""

    run: Run
    summary: Summary
    parts: Breakdown
    spec: Spec
    text: str
    record: Mapping[str, Any]
    what: str
    live: bool

    @property
    def label(self) -> str:
        """What it is called beside others."""
        return self.run.label


def cases_of(runs: Runs) -> list[Case]:
    """Read them. Raises ScenarioError or ResultsError where a directory is not a whole run."""
    return [_case(run, summary) for run, summary in zip(runs, runs.summaries, strict=True)]


def _case(run: Run, summary: Summary) -> Case:
    directory = run.directory
    try:
        text = (directory / "scenario.toml").read_text(encoding="utf-8")
        record = json.loads((directory / RECORD).read_text(encoding="utf-8"))
        table = tomllib.loads(text)
        spec = msgspec.convert(table, Spec)
    except OSError as error:
        raise ScenarioError(
            f"{error.filename}: {error.strerror}; a page needs the directory as mainspring run "
            "left it"
        ) from None
    except ValueError as error:  # no JSON, no TOML, or other keys
        raise ScenarioError(
            f"{directory}: scenario.toml or {RECORD}: {error}; written by another version of "
            "mainspring? Run it again"
        ) from None
    same = {key: value for key, value in table.items() if key not in ("policy", "seed")}
    same["inputs"] = {
        name: digest for name, digest in spec.inputs.items() if not name.endswith(".py")
    }
    return Case(
        run=run,
        summary=summary,
        parts=breakdown(directory, _workload_of(spec, run), stream_names(spec)),
        spec=spec,
        text=text,
        record=record,
        what=json.dumps(same, sort_keys=True),
        live=(directory / LIVE).is_file(),
    )


def _workload_of(spec: Spec, run: Run) -> dict[int, int]:
    """Which client of the rows belongs to which workload, as mainspring/world.py numbers them:
    open-loop streams from 0, closed-loop clients above all workloads."""
    open_loop = [i for i, workload in enumerate(spec.workload) if not isinstance(workload, Closed)]
    found = dict(enumerate(open_loop))
    next_client = len(spec.workload)
    for i, workload in enumerate(spec.workload):
        if isinstance(workload, Closed):
            n = len(workload.clients(workload.select(read_models(run.directory))))
            found |= dict.fromkeys(range(next_client, next_client + n), i)
            next_client += n
    return found


def stream_names(spec: Spec) -> list[str]:
    """A name for each workload: its key in the scenario, and what it asks for."""
    return [f"workload.{i} ({_asks_for(workload)})" for i, workload in enumerate(spec.workload)]


def _asks_for(workload: Any) -> str:
    patterns: Sequence[str] = (
        [workload.models] if isinstance(workload.models, str) else workload.models
    )
    if list(patterns) == ["*"]:
        return kind_of(workload)
    return ", ".join(patterns) if len(patterns) <= 2 else f"{patterns[0]}, ..., {patterns[-1]}"


def kind_of(workload: Any) -> str:
    """As the scenario's `kind` has it."""
    return str(type(workload).__struct_config__.tag)
