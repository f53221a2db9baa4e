"""`mainspring validate`: a scenario live, the same in simulation, and whether they agree.

    OUT/profile.toml          what its real models cost here, where it has any
    OUT/delays.toml           what messages and loops cost here (mainspring.delays)
    OUT/live-1, live-2, ...   the live runs; several give the spread
    OUT/simulated             the same arrivals in simulation, with those delays

At several loads each policy has its delays in OUT/POLICY, and its runs in OUT/POLICY/LOAD.
Not here: the judgement (mainspring.agreement), how loads are found (mainspring.capacity), and the
page (mainspring.report.validation).
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from executor.models import SPIN
from mainspring.agreement import Check, compare, verdict
from mainspring.capacity import Capacity, find_capacity, scaled
from mainspring.delays import MeasuredDelays, measure_delays
from mainspring.directory import default_out
from mainspring.document import ScenarioError
from mainspring.live import Box, run_live
from mainspring.run import Progress, run
from mainspring.scenario import Scenario
from mainspring.world import arrivals

MEASURED_QUANTILE: Final = 0.9
MEASURED_LOADS: Final = 100
LOADS: Final = (0.5, 0.9, 1.3)
"""Shares of capacity."""
POLICIES: Final = ("clockwork", "fifo", "edf")


class Validation(msgspec.Struct, frozen=True):
    """What came of it. exit_code: one a verdict, 0, 4 or 5."""

    verdict: str
    exit_code: int
    checks: list[Check]
    delays: MeasuredDelays
    """What the simulation was given; of several policies, that of the first."""
    capacities: list[Capacity] = []
    """Of each policy, where loads were asked for."""

    def to_json(self) -> bytes:
        """The verdict and every check, with its grade in words."""
        table: Any = msgspec.to_builtins(self)
        for check, row in zip(self.checks, table["checks"], strict=True):
            row["grade"] = check.grade.name.lower()
        return msgspec.json.format(msgspec.json.encode(table), indent=2)

    def __repr__(self) -> str:
        """The delays, the capacities, every check in a line, then the verdict."""
        return "\n".join(
            [repr(self.delays), *map(repr, self.capacities), *self._lines(), "", self.verdict]
        )

    def _lines(self) -> Iterator[str]:
        heading = None
        for check in self.checks:
            if (now := heading_of(check)) != heading:
                heading = now
                yield from ("", now) if now else ("",)
            yield f"{check.grade.name.lower():<6} {check.name}{numbers_of(check)}"
            if why := "; ".join(filter(None, (check.reason, check.advice))):
                yield f"       {why}"


def heading_of(check: Check) -> str:
    """Of what runs a check is; empty where there is only one kind."""
    return "" if check.load is None else f"{check.policy} at {check.load:.0%} of capacity"


def numbers_of(check: Check) -> str:
    """The numbers of a check as they are printed."""
    names = ("live", "simulated", "difference", "tolerance", "spread")
    numbers = [
        f"{name} {value:.4g}" for name in names if (value := getattr(check, name)) is not None
    ]
    if check.low is not None:
        numbers.append(f"live 95% {check.low:.4g} to {check.high:.4g}")
    return f": {', '.join(numbers)}" if numbers else ""


def validate(
    scenario: Scenario,
    out: str | Path | None = None,
    policy: str = "clockwork",
    repeats: int = 3,
    progress: Progress | None = None,
    box: Box = Box(),  # noqa: B008, it is immutable
) -> Validation:
    """Run one policy live `repeats` times and once in simulation, and compare.

    Before that a live run with another seed measures the delays that the simulation is given.

    out: a new directory, `runs/NAME-TIME` by default. p99 is judged where the machine has a core
    for each worker beside the controller's. Raises ScenarioError where that cannot be done.
    """
    out = default_out(scenario) if out is None else Path(out)
    if any((out / name).exists() for name in ("calibration", "live-1", "simulated")):
        raise ScenarioError(f"{out} is there already; choose another --out")
    delays = measure_delays(scenario, out, policy, box, progress)
    checks = _compared(scenario, out, policy, repeats, delays, progress, box, None)
    return _judged(checks, delays, [])


def validate_loads(
    scenario: Scenario,
    out: str | Path | None = None,
    policies: Sequence[str] = ("clockwork",),
    loads: Sequence[float] = LOADS,
    repeats: int = 3,
    progress: Progress | None = None,
    box: Box = Box(),  # noqa: B008, it is immutable
) -> Validation:
    """As `validate`, at shares of each policy's own capacity, which is found by simulation with
    the delays that were measured. Raises ScenarioError as `validate` and `find_capacity` do.
    """
    out = default_out(scenario) if out is None else Path(out)
    homes = [out / choice.label for choice in scenario.choose(policies)]
    if any(home.exists() for home in homes):
        raise ScenarioError(f"{out} is there already; choose another --out")
    checks: list[Check] = []
    capacities: list[Capacity] = []
    delays: list[MeasuredDelays] = []
    for policy, home in zip(policies, homes, strict=True):
        home.mkdir(parents=True)
        delays.append(measure_delays(scenario, home, policy, box, progress))
        capacity = find_capacity(delays[-1].within(scenario), policy, progress)
        capacities.append(capacity)
        for load in loads:
            asked = scaled(scenario, policy, load * capacity.rps / capacity.own_rps)
            where = home / f"{load:g}"
            checks += _compared(asked, where, policy, repeats, delays[-1], progress, box, load)
    return _judged(checks, delays[0], capacities)


def _judged(checks: list[Check], delays: MeasuredDelays, capacities: list[Capacity]) -> Validation:
    words, code = verdict(checks)
    return Validation(words, code, checks, delays, capacities)


def _compared(
    scenario: Scenario, out: Path, policy: str, repeats: int, delays: MeasuredDelays,
    progress: Progress | None, box: Box, load: float | None,
) -> list[Check]:  # fmt: skip
    """Repeated live runs of one load beside its simulation."""
    live = [out / f"live-{i + 1}" for i in range(repeats)]
    for directory in live:

        def report(label: str, share: float, name: str = directory.name) -> None:
            if progress is not None:
                at = f" at {load:.0%}" if load is not None else ""
                progress(f"{label}{at}, {name}", share)

        (done,) = run_live(scenario, directory, [policy], report, box=box)
        if done.summary.interrupted:
            raise ScenarioError(f"{directory} was interrupted; there is nothing to compare")
    run(delays.within(scenario), out / "simulated", [policy], progress)
    free_core = (os.cpu_count() or 1) > scenario.spec.cluster.gpus + 1
    label = scenario.choose([policy])[0].label
    return compare(live, out / "simulated", free_core=free_core, policy=label, load=load)


def measure(scenario: Scenario, out: Path, box: Box, progress: Progress | None) -> list[str]:
    """Measure the scenario's real models on this device, at the batch sizes that it knows, with
    rests as long as a GPU of the scenario has between requests.

    Returns the overrides that have it use OUT/profile.toml; none where all its models spin.
    Raises ProfileError, and ScenarioError where `out` is there already.
    """
    from mainspring.profiling import profile

    if out.exists():
        raise ScenarioError(f"{out} is there already; choose another --out")
    names = {model.runs for model in scenario.models} - {SPIN}
    if not names:
        return []
    sizes = {
        batch for model in scenario.models if model.runs in names
        for batch in model.profile.batch_sizes
    }  # fmt: skip
    requests = sum(len(times) for times, _, _ in arrivals(scenario).chunks)
    gap_s = scenario.spec.duration_s * scenario.spec.cluster.gpus / max(1, requests)
    file = out / "profile.toml"
    done = profile(
        sorted(names), sorted(sizes), file,
        box=box, quantile=MEASURED_QUANTILE, loads=MEASURED_LOADS, rest_s=gap_s,
        progress=progress,
    )  # fmt: skip
    if names - {one.name for one in done}:
        raise ScenarioError(f"interrupted; {file} has what was measured")
    return [
        f"models.{i}.profile={file}/{models.model}"
        for i, models in enumerate(scenario.spec.models)
        if models.model in names
    ]
