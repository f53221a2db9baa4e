"""Whether a simulation may be trusted: live runs beside the simulation of the same arrivals.

What must be exact is compared exactly; what is physical within a tolerance that is fixed here, or
within the spread of the repeated live runs where that is wider. Executions of real models are held
against what they took alone around the live runs, and may be off by what that was apart.
Not here: making the runs, and the delays that the simulation is given.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from executor.watch import CLOCK_CHANGED, together
from mainspring.journal import NAME as JOURNAL
from mainspring.journal import replay
from mainspring.live import LIVE, Punctuality
from results import read_actions, read_outcomes, read_summary
from results.backlog import under_way
from results.intervals import two_sided
from results.predictions import prediction_errors

GOODPUT_TOLERANCE: Final = 0.02
P50_TOLERANCE: Final = 0.05
P99_TOLERANCE: Final = 0.10
"""Judged only where a core is free for the worker."""
EXECUTION_TOLERANCE: Final = 0.10
"""Median execution over the profile's median, for each batch size."""
FEWEST_EXECUTIONS: Final = 10
"""A batch size that a live run has seen less often is only shown: large batches that are rare
form behind a stall, and share it."""
ALONE: Final = "batches alone around the live runs, over the profile"
"""The check that is there where executions are held against what models took alone."""
START_TOLERANCE_MS: Final = 1.0
"""How late an action may start at p99; judged only where a core is free for the worker."""
DRIFT: Final = 0.05
"""A backlog that grows by more than this share of the arrivals is a saturated server."""


Executions = dict[int, dict[str, list[float]]]
"""How long batches took, in ns, by batch size and model."""


class Grade(IntEnum):
    """What a check says. A verdict is the worst of them."""

    SHOWN = 0
    """For the eye; it decides nothing."""
    GOOD = 1
    CARE = 2
    BAD = 3


VERDICTS: Final = {
    Grade.GOOD: ("trust", 0),
    Grade.CARE: ("trust with care", 4),
    Grade.BAD: ("do not trust", 5),
}
"""In words, and the exit code."""


class Check(msgspec.Struct, frozen=True):
    """One comparison. tolerance: what `difference` may be; None where nothing is judged.

    advice: what to do where the grade is not good. policy, load: of what runs; load is a share of
    capacity, None for the scenario's own traffic. spread: of the repeated live runs, from the least
    to the most, over what was simulated. low, high: 95% interval of the mean of their values,
    by Student's t; None where there are not two of them.
    """

    name: str
    grade: Grade
    live: float | None = None
    simulated: float | None = None
    difference: float | None = None
    tolerance: float | None = None
    reason: str = ""
    advice: str = ""
    policy: str = ""
    load: float | None = None
    spread: float | None = None
    low: float | None = None
    high: float | None = None


def verdict(checks: Sequence[Check]) -> tuple[str, int]:
    """The verdict over all checks, and its exit code."""
    return VERDICTS[max((check.grade for check in checks), default=Grade.GOOD) or Grade.GOOD]


def compare(
    live: Sequence[Path], simulated: Sequence[Path], *, free_core: bool, policy: str = "",
    load: float | None = None, stretches: Sequence[float] = (), alone: Sequence[Executions] = (),
) -> list[Check]:  # fmt: skip
    """Compare live runs of one load with simulations of the same arrivals.

    live: directories of repeated runs, at least one; several give the spread. simulated: of one
    simulation, or of several with other delays, whose mean counts. free_core: whether a
    core was free for each worker. policy, load: as in Check; beyond a load of 1 a backlog that
    grows is what was asked for. stretches: each simulation's `cluster.stretch`, 1 by default;
    executions are held against the profiles, without it. alone: what models took alone around the
    live runs, once and again, where that was measured; executions of those are held against it, for
    the machine may have another speed than when the profile was taken. Raises ResultsError where a
    directory is not a finished run.
    """
    assert live, "nothing to compare"
    assert simulated, "nothing to compare with"
    runs, expected = [_Run(path) for path in live], [_Run(path) for path in simulated]
    checks = [
        *_exact(runs, expected),
        *_rates(runs, expected),
        *_latencies(runs, expected, free_core),
        *_executions(runs, _unstretched(expected, stretches or [1.0] * len(expected)), alone),
        *_predictions(runs, expected),
        *_punctuality(runs, free_core),
        *_devices(runs),
        _backlog(runs, expected, beyond=load is not None and load > 1),
    ]
    return [msgspec.structs.replace(check, policy=policy, load=load) for check in checks]


class _Run:
    """A finished run, of which every file is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.summary = read_summary(path)
        file = path / LIVE
        self.punctuality = (
            msgspec.json.decode(file.read_bytes(), type=Punctuality) if file.exists() else None
        )
        """None of a simulation."""
        outcomes = read_outcomes(path)
        self.arrival_ns, self.end_ns = (
            outcomes[name].to_numpy() for name in ("arrival_ns", "end_ns")
        )
        self.answered = np.isin(outcomes["outcome"].to_pylist(), ("ok", "late"))
        by_id = outcomes.select(["id", "model"]).sort_by("id")
        self.identity = list(zip(by_id["id"].to_pylist(), by_id["model"].to_pylist(), strict=True))
        """Which requests it got."""

    @property
    def inside(self) -> npt.NDArray[np.bool_]:
        """Which requests arrived in the measured span."""
        first_ns, end_ns = self.summary.warmup_ns, self.summary.end_ns
        return np.asarray((self.arrival_ns >= first_ns) & (self.arrival_ns < end_ns))

    @property
    def latency_ms(self) -> npt.NDArray[np.float64]:
        """Of the answers in the measured span."""
        return np.asarray((self.end_ns - self.arrival_ns)[self.answered & self.inside] / 1e6)

    def executions(self) -> Executions:
        """How long batches took."""
        actions = read_actions(self.path).to_pydict()
        done: Executions = {}
        rows: Any = zip(
            *(actions[key] for key in ("type", "status", "batch", "model", "duration_ns")),
            strict=True,
        )
        for kind, status, batch, model, ns in rows:
            if kind == "infer" and status == "done":
                done.setdefault(batch, {}).setdefault(model, []).append(ns)
        return done

    def missed(self) -> int:
        """Actions of the whole run that missed their windows."""
        return int(pc.sum(pc.equal(read_actions(self.path)["status"], "missed")).as_py() or 0)

    def under_ms(self) -> dict[str, float]:
        """By how much predictions were exceeded at p99, by what was predicted."""
        return {
            f"{errors.action} {errors.what}": tail
            for errors in prediction_errors(self.path)
            if errors.model is None and (tail := errors.under_ms["p99"]) is not None
        }

    def drift(self) -> float:
        """Requests in the system in the span's last quarter less its first, over arrivals."""
        grid_ns = np.linspace(self.summary.warmup_ns, self.summary.end_ns, 101)[1:]
        backlog = under_way(self.arrival_ns, self.end_ns, grid_ns)
        arrivals = max(1, int(self.inside.sum()))
        return float(backlog[-25:].mean() - backlog[:25].mean()) / arrivals


def _exact(live: Sequence[_Run], simulated: Sequence[_Run]) -> Iterator[Check]:
    """One check each over all repeats; the reason names the first that fails."""
    yield _exactly(
        "same arrivals",
        [
            f"{run.path.name} and {simulated[0].path.name} did not get the same requests"
            for run in (*live, *simulated)
            if run.identity != simulated[0].identity
        ],
        "run both from one scenario and seed, without an interruption",
    )
    journals = [run.path for run in live if (run.path / JOURNAL).exists()]
    if journals:
        replayed = {path.name: replay(path) for path in journals}
        yield _exactly(
            "replay",
            [
                f"{name}: the journal does not give the same actions again, or has no end"
                for name, came in replayed.items()
                if not (came.same and came.whole)
            ],
            "this is a fault of the policy (a clock or randomness of its own) or of mainspring",
        )
    yield _exactly(
        "order, pages, one fate each",
        [
            f"{run.path.name}: {unchecked} actions were reported too late for the audit"
            for run in live
            if (unchecked := run.summary.unchecked_actions_whole_run)
        ],
        "look for a worker that was paused",
    )


def _exactly(name: str, broken: Sequence[str], advice: str) -> Check:
    """broken: what does not hold, a sentence each."""
    if not broken:
        return Check(name, Grade.GOOD)
    return Check(name, Grade.BAD, reason=broken[0], advice=advice)


def _rates(live: Sequence[_Run], simulated: Sequence[_Run]) -> Iterator[Check]:
    summaries = [run.summary for run in live]
    expected = [run.summary for run in simulated]
    yield _within(
        "goodput, 1/s", [one.goodput_rps for one in summaries],
        [one.goodput_rps for one in expected], GOODPUT_TOLERANCE, Grade.BAD,
        "measure the profile again on the quiet machine; see the executions below",
    )  # fmt: skip
    yield _within(
        "answers, 1/s", [one.completed_rps for one in summaries],
        [one.completed_rps for one in expected], GOODPUT_TOLERANCE, Grade.BAD,
        "see whether the delays or the executions differ",
    )  # fmt: skip
    yield _within(
        "attainment, share in time", [one.share_in_time for one in summaries],
        [one.share_in_time for one in expected], None, Grade.SHOWN, "",
    )  # fmt: skip
    yield Check(
        "missed windows", Grade.SHOWN, float(np.mean([one.missed_actions for one in summaries])),
        float(np.mean([one.missed_actions for one in expected])),
    )  # fmt: skip


def _latencies(live: Sequence[_Run], simulated: Sequence[_Run], free_core: bool) -> Iterator[Check]:
    from scipy import stats  # takes half a second to import

    runs = [run.latency_ms for run in live]
    expected = [run.latency_ms for run in simulated]
    if not all(len(run) for run in (*runs, *expected)):
        yield Check("latency", Grade.BAD, reason="a run without an answer", advice="lower the load")
        return
    advice = "see whether the delays or the executions differ"
    for share, tolerance, grade in (
        (50, P50_TOLERANCE, Grade.BAD),
        (99, P99_TOLERANCE if free_core else None, Grade.CARE),
    ):
        values, simulated_ms = (
            [float(np.percentile(run, share)) for run in each] for each in (runs, expected)
        )
        yield _within(f"latency p{share}, ms", values, simulated_ms, tolerance, grade, advice)
    pooled, pooled_expected = np.concatenate(runs), np.concatenate(expected)
    distance = float(stats.ks_2samp(pooled, pooled_expected).statistic)
    yield Check("Kolmogorov-Smirnov distance", Grade.SHOWN, difference=distance)
    wasserstein = float(stats.wasserstein_distance(pooled, pooled_expected))
    yield Check("Wasserstein distance, ms", Grade.SHOWN, difference=wasserstein)


def _within(
    name: str, values: Sequence[float | None], simulated: Sequence[float | None],
    tolerance: float | None, grade: Grade, advice: str, why: str = "",
) -> Check:  # fmt: skip
    """Judge the mean of the repeated runs. tolerance: relative; None judges nothing. why: opens
    the reason where it is beyond."""
    known = [value for value in values if value is not None]
    predicted = [value for value in simulated if value is not None]
    if not known or not predicted:
        return Check(name, Grade.SHOWN)
    expected = float(np.mean(predicted))
    _, mean, low, high = two_sided(known)
    assert mean is not None, "there is one value at least"
    if not expected:  # nothing to be relative to
        good = not mean or tolerance is None
        return Check(
            name, Grade.SHOWN if tolerance is None else Grade.GOOD if good else grade,
            mean, expected, reason="" if good else "there is none in simulation",
            advice="" if good else advice, low=low, high=high,
        )  # fmt: skip
    difference = mean / expected - 1
    spread = (max(known) - min(known)) / expected
    if tolerance is None:
        return Check(
            name, Grade.SHOWN, mean, expected, difference, spread=spread, low=low, high=high
        )
    allowed = max(tolerance, spread)
    good = abs(difference) <= allowed
    reason = f"{difference:+.1%} where {allowed:.1%} is allowed (repeats spread by {spread:.1%})"
    return Check(
        name, Grade.GOOD if good else grade, mean, expected, difference, allowed,
        reason="" if good else f"{why}{reason}", advice="" if good else advice,
        spread=spread, low=low, high=high,
    )  # fmt: skip


def _unstretched(simulated: Sequence[_Run], stretches: Sequence[float]) -> Executions:
    """What the profiles say, as it was drawn."""
    said: Executions = {}
    for run, stretch in zip(simulated, stretches, strict=True):
        _pool(said, run.executions(), stretch)
    return said


def _pool(all_of_them: Executions, some: Executions, stretch: float = 1.0) -> None:
    for batch, models in some.items():
        for model, ns in models.items():
            said = [one / stretch for one in ns]
            all_of_them.setdefault(batch, {}).setdefault(model, []).extend(said)


def _executions(
    live: Sequence[_Run], said: Executions, alone: Sequence[Executions]
) -> Iterator[Check]:
    """By batch size: does the profile hold under load? Which models get large batches depends on
    chance, so both worlds are weighed alike: each model's median by its batches in the live run."""
    runs = [run.executions() for run in live]
    if alone:
        ratios = [_ratio(each, said, list(said)) for each in alone]
        _, mean, low, high = two_sided(ratios)
        yield Check(  # shown only: the simulation's stretch is of these minutes, too
            ALONE, Grade.SHOWN, live=mean, spread=max(ratios) - min(ratios), low=low, high=high
        )  # fmt: skip
    beside: Executions = {}
    for each in alone:
        _pool(beside, each)
    for batch in sorted(set(said).intersection(*runs)):
        expected = _medians({**said[batch], **beside.get(batch, {})})
        pairs = [_weighed(run[batch], expected) for run in runs]
        ratios = [_ratio(each, said, [batch]) for each in alone] or [1.0]
        apart = (max(ratios) - min(ratios)) / float(np.mean(ratios))
        fewest = min(sum(map(len, run[batch].values())) for run in runs)
        judged = fewest >= FEWEST_EXECUTIONS
        yield _within(
            f"execution of batch {batch}, ms", [ms for ms, _ in pairs], [ms for _, ms in pairs],
            max(EXECUTION_TOLERANCE, apart) if judged else None, Grade.BAD,
            "measure the profile again under load, or free the device",
            "the profile does not hold under load: ",
        )  # fmt: skip


def _ratio(alone: Executions, said: Executions, batches: Sequence[int]) -> float:
    """How much longer the batches of `said` would take by the medians of `alone`."""
    here = there = 0.0
    for batch in batches:
        measured = _medians(alone.get(batch, {}))
        for model, own in _medians(said[batch]).items():
            n = len(said[batch][model])
            here += n * measured.get(model, own)
            there += n * own
    return here / there


def _medians(models: dict[str, list[float]]) -> dict[str, float]:
    return {model: float(np.median(ns)) for model, ns in models.items()}


def _weighed(
    live: dict[str, list[float]], expected: dict[str, float]
) -> tuple[float, float] | tuple[None, None]:
    """Mean medians in ms, of the models that both know; None where there is none."""
    both = [model for model in live if model in expected]
    if not both:
        return None, None
    weights = [len(live[model]) for model in both]
    here, there = (
        float(np.average([medians[model] for model in both], weights=weights)) / 1e6
        for medians in (_medians(live), expected)
    )
    return here, there


def _predictions(live: Sequence[_Run], simulated: Sequence[_Run]) -> Iterator[Check]:
    """How far off the policy's own predictions were, in both worlds."""
    runs, expected = ([run.under_ms() for run in each] for each in (live, simulated))
    for what in sorted(set(expected[0]).intersection(*runs, *expected)):
        yield Check(
            f"{what} beyond prediction p99, ms", Grade.SHOWN,
            float(np.mean([run[what] for run in runs])),
            float(np.mean([run[what] for run in expected])),
        )  # fmt: skip


def _punctuality(live: Sequence[_Run], free_core: bool) -> Iterator[Check]:
    """How late actions started, and why windows were missed."""
    known = [(run, run.punctuality) for run in live if run.punctuality is not None]
    if not known:
        return
    for name in known[0][1].start_late_us:
        values = [p.start_late_us[name] / 1e3 for _, p in known if name in p.start_late_us]
        _, mean, low, high = two_sided(values)
        assert mean is not None, "the first has it"
        judged = free_core and name == "p99"
        good = mean <= START_TOLERANCE_MS
        yield Check(
            f"start after it could, {name}, ms",
            Grade.SHOWN if not judged else Grade.GOOD if good else Grade.CARE,
            live=mean, tolerance=START_TOLERANCE_MS if judged else None, low=low, high=high,
            reason="" if good or not judged else "actions start later than their windows open",
            advice="" if good or not judged else "leave a core to each worker, allow SCHED_FIFO",
        )  # fmt: skip
    for why in known[0][1].missed:
        mean = float(np.mean([p.missed[why] for _, p in known]))
        yield Check(f"missed windows by {why}", Grade.SHOWN, live=mean)
    yield _exactly(
        "every missed window has a cause",
        [
            f"{run.path.name}: {missed:,} were missed, {told:,} have a cause"
            for run, p in known
            if (told := sum(p.missed.values())) != (missed := run.missed())
        ],
        "this is a fault of mainspring",
    )


def _devices(live: Sequence[_Run]) -> Iterator[Check]:
    """Whether they were what was profiled: at one clock, and not slowed down."""
    by_gpu = list(zip(*(run.punctuality.devices for run in live if run.punctuality), strict=False))
    watched = list(chain(*by_gpu))
    merged = [together(devices) for devices in by_gpu]  # a clock may change between runs, too
    changes = [one.clock_change for one in merged if one.clock_change is not None]
    if changes:
        change = max(changes)
        good = change <= CLOCK_CHANGED
        yield Check(
            "change of a device's clock", Grade.GOOD if good else Grade.CARE, live=change,
            tolerance=CLOCK_CHANGED,
            reason="" if good else "durations change with the clock",
            advice="" if good else "fix it: nvidia-smi --lock-gpu-clocks, or the CPU's governor",
        )  # fmt: skip
    told = sum(device.told for device in watched)
    slow: Counter[str] = Counter()
    for device in watched:
        slow.update(device.throttled)
    if not changes and not slow:
        return  # devices that tell nothing, such as one that only spins
    yield Check(
        "looks at which a device was slowed down, share", Grade.CARE if slow else Grade.GOOD,
        live=sum(slow.values()) / told,
        reason=", ".join(f"{why}: {n:,} of {told:,} looks" for why, n in slow.items()),
        advice="cool it, lower its clock or raise its power limit; then profile it again"
        if slow else "",
    )  # fmt: skip


def _backlog(live: Sequence[_Run], simulated: Sequence[_Run], beyond: bool) -> Check:
    """A server that cannot keep up is no fault of the model, as long as both cannot.

    What grows by a share of the arrivals is served at a rate that is lower by that share, so the
    tolerance is that of rates.
    """
    drifts = [run.drift() for run in live]
    drift = float(np.mean(drifts))
    expected = float(np.mean([run.drift() for run in simulated]))
    difference, spread = drift - expected, max(drifts) - min(drifts)
    allowed = max(GOODPUT_TOLERANCE, spread)
    saturated, predicted = drift > DRIFT, expected > DRIFT
    grade, reason, advice = Grade.GOOD, "", ""
    if (saturated or predicted) and abs(difference) > allowed:
        grade = Grade.BAD
        if saturated and predicted:
            reason = "both fall behind, but not equally fast"
        else:
            which = "the live server" if saturated else "the simulation"
            reason = f"only {which} falls behind: the model of the server is wrong"
        advice = "look at the executions, and at the controller's own time"
    elif saturated or predicted:
        if beyond:
            reason = "both are saturated, as was asked for"
        else:
            grade = Grade.CARE
            reason = "both are saturated: latencies grow with the run's length"
            advice = "compare at a lower load, or only goodput"
    return Check(
        "growth of the backlog, share of arrivals", grade, drift, expected, difference, allowed,
        reason=reason, advice=advice,
    )  # fmt: skip
