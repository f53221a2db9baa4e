"""`mainspring validate`: a scenario live, the same in simulation, and whether they agree.

    OUT/profile.toml          what its real models cost here, where it has any
    OUT/calibration           a live run that measures delays (mainspring.delays)
    OUT/live-1, live-2, ...   the live runs; several give the spread
    OUT/alone-1, ...          its real models alone again, around each live run
    OUT/simulated-1, ...      each in simulation, with the delays of the other live runs
    OUT/delays.toml           those of all live runs together

    OUT/question.json         what was asked, and when the live runs were taken

At several loads each policy has its calibration and capacity.json in OUT/POLICY, and the rest in
OUT/POLICY/LOAD. The same call again goes on where the last one stopped: whatever is whole is kept.
Not here: the judgement (mainspring.agreement), how loads are found (mainspring.capacity), what
real models cost (mainspring.alone), and the page (mainspring.report.validation).
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring import alone
from mainspring.agreement import Check, compare, verdict
from mainspring.capacity import Capacity, find_capacity, scaled
from mainspring.delays import MeasuredDelays, measure_delays, sum_of, summed_up
from mainspring.directory import default_out, kept
from mainspring.live import TIMINGS, Box, run_timed
from mainspring.question import Asked, Part, asking, question
from mainspring.run import Progress, run_alone
from mainspring.scenario import Scenario
from results import ResultsError
from results.files import SUMMARY, write_whole

if TYPE_CHECKING:
    from executor.timed import Timings

CAPACITY: Final = "capacity.json"
LOADS: Final = (0.5, 0.9, 1.3)
"""Shares of capacity."""
POLICIES: Final = ("clockwork", "fifo", "edf")


class Validation(msgspec.Struct, frozen=True):
    """What came of it. exit_code: one a verdict, 0, 4 or 5."""

    verdict: str
    exit_code: int
    checks: list[Check]
    delays: list[MeasuredDelays]
    """What the simulations were given: those that found each policy's capacity, then those of each
    of its loads."""
    capacities: list[Capacity] = []
    """Of each policy, where loads were asked for."""
    parts: list[Part] = []
    """Of the live runs, more than one where the validation was interrupted."""

    def to_json(self) -> bytes:
        """The verdict and every check, with its grade in words."""
        table: Any = msgspec.to_builtins(self)
        for check, row in zip(self.checks, table["checks"], strict=True):
            row["grade"] = check.grade.name.lower()
        return msgspec.json.format(msgspec.json.encode(table), indent=2)

    def __repr__(self) -> str:
        """The delays, the capacities, every check in a line, when, then the verdict."""
        given = [*map(repr, self.delays), *map(repr, self.capacities)]
        when = ["", *times] if (times := self.times) else []
        return "\n".join([*given, *self._lines(), *when, "", self.verdict])

    @property
    def times(self) -> list[str]:
        """Where live runs were taken at different times: that it is so, and a line each."""
        if len(self.parts) < 2:
            return []
        return [
            "interrupted and gone on with: the live runs were taken at different times, and the "
            "machine may have been busy otherwise in each",
            *(f"from {part.first} on: {part.at}" for part in self.parts),
        ]

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
    *,
    measured: bool = False,
) -> Validation:
    """Run one policy live `repeats` times, each of them in simulation, and compare.

    A simulation is given the delays that were measured in the other live runs; where there is no
    other, those of a live run before, with another seed and at low load.

    out: `runs/NAME-TIME` by default; a new directory, or one that the same call has left: it goes
    on there. measured: measure the scenario's real models on this machine first. p99 is judged
    where the machine has a core for each worker beside the controller's. Raises ScenarioError where
    that cannot be done, and KeyboardInterrupt on Ctrl-C.
    """
    out = default_out(scenario) if out is None else Path(out)
    with asking(out, question(scenario, [policy], None, repeats, box, measured=measured)) as asked:
        if measured:
            scenario = alone.measure(scenario, out, box, progress, rests=True)
        if not _taken(out / "calibration"):
            asked.begin(out / "calibration")
        _, timings = measure_delays(scenario, out, policy, box, progress)
        came = _compared(
            scenario, out, policy, repeats, timings, progress, box, None, asked, measured
        )
        return _judged(came[0], [came[1]], [], asked)


def validate_loads(
    scenario: Scenario,
    out: str | Path | None = None,
    policies: Sequence[str] = ("clockwork",),
    loads: Sequence[float] = LOADS,
    repeats: int = 3,
    progress: Progress | None = None,
    box: Box = Box(),  # noqa: B008, it is immutable
    *,
    measured: bool = False,
) -> Validation:
    """As `validate`, at shares of each policy's own capacity, which is found by simulation with
    the delays that were measured. Raises ScenarioError as `validate` and `find_capacity` do.
    """
    out = default_out(scenario) if out is None else Path(out)
    homes = [out / choice.label for choice in scenario.choose(policies)]
    checks: list[Check] = []
    capacities: list[Capacity] = []
    delays: list[MeasuredDelays] = []
    with asking(out, question(scenario, policies, loads, repeats, box, measured=measured)) as asked:
        if measured:
            scenario = alone.measure(scenario, out, box, progress, rests=False)
        for policy, home in zip(policies, homes, strict=True):
            if not _taken(home / "calibration"):
                asked.begin(home / "calibration")
            calibrated, timings = measure_delays(scenario, home, policy, box, progress)
            delays.append(calibrated)
            delayed = calibrated
            if measured:  # back to back, as at capacity; the calibration's device was idle at times
                delayed = msgspec.structs.replace(calibrated, stretch=1.0)
            capacity = _capacity(delayed.within(scenario), policy, home / CAPACITY, progress)
            capacities.append(capacity)
            for load in loads:
                at = scaled(scenario, policy, load * capacity.rps / capacity.own_rps)
                where = home / f"{load:g}"
                came = _compared(
                    at, where, policy, repeats, timings, progress, box, load, asked, measured
                )
                checks += came[0]
                delays.append(came[1])
        return _judged(checks, delays, capacities, asked)


def _taken(live: Path) -> bool:
    """Whether a live run is there, whole, so that it is not run again."""
    return (live / TIMINGS).is_file()


def _capacity(scenario: Scenario, policy: str, file: Path, progress: Progress | None) -> Capacity:
    """What the policy can carry, as the file has it, if it is there."""
    if file.is_file():
        try:
            return msgspec.json.decode(file.read_bytes(), type=Capacity)
        except msgspec.MsgspecError as error:
            raise ResultsError(f"{file}: {error}; remove it, and it is found again") from None
    capacity = find_capacity(scenario, policy, progress)
    write_whole(file, msgspec.json.encode(capacity))
    return capacity


def _judged(
    checks: list[Check], delays: list[MeasuredDelays], capacities: list[Capacity], asked: Asked
) -> Validation:
    words, code = verdict(checks)
    return Validation(words, code, checks, delays, capacities, asked.parts)


def _compared(
    scenario: Scenario, out: Path, policy: str, repeats: int, calibration: "Timings",
    progress: Progress | None, box: Box, load: float | None, asked: Asked, measured: bool,
) -> tuple[list[Check], MeasuredDelays]:  # fmt: skip
    """Repeated live runs of one load beside its simulation.

    Each live run is simulated with the delays that the others had, and with those of the
    calibration where they tell too little, as where there is only one.
    """
    (choice,) = scenario.choose([policy])
    label = choice.label
    at = f" at {load:.0%}" if load is not None else ""

    def report(name: str, share: float) -> None:
        if progress is not None:
            progress(f"{label}{at}, {name}", share)

    live = [out / f"live-{i + 1}" for i in range(repeats)]
    *before, after = besides = [out / f"alone-{i + 1}.toml" for i in range(repeats + 1)]

    def measure_again(file: Path) -> None:
        if measured:
            alone.measure_again(
                scenario, file, box, lambda name, share: report(f"{name} alone", share)
            )

    took = []
    for directory, beside in zip(live, before, strict=True):
        if not _taken(directory):
            measure_again(beside)
            asked.begin(directory)
        _, timings = run_timed(scenario, directory, policy, partial(report, directory.name), box)
        took.append(timings)
    if not after.exists():
        measure_again(after)
    simulated = [out / f"simulated-{i + 1}" for i in range(repeats)]
    stretches = []
    for i, directory in enumerate(simulated):
        others = sum_of(timings for j, timings in enumerate(took) if j != i)
        delays = summed_up([others, calibration], f"the live runs but {live[i].name}")
        stretches.append(delays.stretch)
        report(directory.name, 0.0)
        delayed = delays.within(scenario)
        if not kept(directory, delayed, [choice], SUMMARY):
            run_alone(delayed, choice, directory)
        report(directory.name, 1.0)
    delays = summed_up(
        [sum_of(took), calibration],
        "all live runs; each was simulated with those of the others",
        label, load,
    )  # fmt: skip
    delays.write(out / "delays.toml")
    free_core = (os.cpu_count() or 1) > scenario.spec.cluster.gpus + 1
    checks = compare(
        live, simulated, free_core=free_core, policy=label, load=load, stretches=stretches,
        alone=alone.executions(scenario, besides),
    )  # fmt: skip
    return checks, delays
