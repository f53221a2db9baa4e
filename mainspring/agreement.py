"""Whether a simulation may be trusted: live runs beside the simulation of the same arrivals.

What must be exact is compared exactly; what is physical within a tolerance that is fixed here, or
within the spread of the repeated live runs where that is wider.
Not here: making the runs, and the delays that the simulation is given.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from mainspring.journal import NAME as JOURNAL
from mainspring.journal import replay
from results import read_actions, read_outcomes, read_summary

GOODPUT_TOLERANCE: Final = 0.02
P50_TOLERANCE: Final = 0.05
P99_TOLERANCE: Final = 0.10
"""Judged only where a core is free for the worker."""
EXECUTION_TOLERANCE: Final = 0.10
"""Median execution over the profile's median in the simulation, for each batch size."""
DRIFT: Final = 0.05
"""A backlog that grows by more than this share of the arrivals is a saturated server."""


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

    advice: what to do where the grade is not good.
    """

    name: str
    grade: Grade
    live: float | None = None
    simulated: float | None = None
    difference: float | None = None
    tolerance: float | None = None
    reason: str = ""
    advice: str = ""


def verdict(checks: Sequence[Check]) -> tuple[str, int]:
    """The verdict over all checks, and its exit code."""
    return VERDICTS[max((check.grade for check in checks), default=Grade.GOOD) or Grade.GOOD]


def compare(live: Sequence[Path], simulated: Path, *, free_core: bool) -> list[Check]:
    """Compare live runs of one load with its simulation.

    live: directories of repeated runs, at least one; several give the spread. free_core: whether a
    core was free for each worker. Raises ResultsError where a directory is not a finished run.
    """
    assert live, "nothing to compare with"
    runs, expected = [_Run(path) for path in live], _Run(simulated)
    return [
        *_exact(runs, expected),
        *_rates(runs, expected),
        *_latencies(runs, expected, free_core),
        *_executions(runs, expected),
        _backlog(runs, expected),
    ]


class _Run:
    """A finished run, of which every file is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.summary = read_summary(path)
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

    def medians(self) -> dict[int, float]:
        """The median execution in ms, by batch size."""
        actions = read_actions(self.path).to_pydict()
        done: dict[int, list[int]] = {}
        rows: Any = zip(
            *(actions[key] for key in ("type", "status", "batch", "duration_ns")), strict=True
        )
        for kind, status, batch, ns in rows:
            if kind == "infer" and status == "done":
                done.setdefault(batch, []).append(ns)
        return {batch: float(np.median(ns)) / 1e6 for batch, ns in done.items()}

    def drift(self) -> float:
        """Requests in the system in the span's last quarter less its first, over arrivals."""
        arrival, end = np.sort(self.arrival_ns), np.sort(self.end_ns)
        grid = np.linspace(self.summary.warmup_ns, self.summary.end_ns, 101)[1:]
        backlog = np.searchsorted(arrival, grid) - np.searchsorted(end, grid)
        arrivals = max(1, int(self.inside.sum()))
        return float(backlog[-25:].mean() - backlog[:25].mean()) / arrivals


def _exact(live: Sequence[_Run], simulated: _Run) -> Iterator[Check]:
    for run in live:
        path = run.path
        yield _exactly(
            "same arrivals", run.identity == simulated.identity,
            f"{path.name} and {simulated.path.name} did not get the same requests",
            "run both from one scenario and seed, without an interruption",
        )  # fmt: skip
        if (path / JOURNAL).exists():
            came = replay(path)
            yield _exactly(
                "replay", came.same and came.whole,
                f"{path.name}: the journal does not give the same actions again, or has no end",
                "this is a fault of the policy (a clock or randomness of its own) or of mainspring",
            )  # fmt: skip
        unchecked = run.summary.unchecked_actions_whole_run
        yield _exactly(
            "order, pages, one fate each", not unchecked,
            f"{path.name}: {unchecked} actions were reported too late for the audit",
            "look for a worker that was paused",
        )  # fmt: skip


def _exactly(name: str, holds: bool, reason: str, advice: str) -> Check:
    return Check(name, Grade.GOOD) if holds else Check(
        name, Grade.BAD, reason=reason, advice=advice
    )  # fmt: skip


def _rates(live: Sequence[_Run], simulated: _Run) -> Iterator[Check]:
    summaries = [run.summary for run in live]
    expected = simulated.summary
    yield _within(
        "goodput, 1/s", [one.goodput_rps for one in summaries], expected.goodput_rps,
        GOODPUT_TOLERANCE, Grade.BAD,
        "measure the profile again on the quiet machine; see the executions below",
    )  # fmt: skip
    for name in ("share_in_time", "missed_actions"):
        values = [float(getattr(one, name) or 0) for one in summaries]
        yield Check(
            name.replace("_", " "), Grade.SHOWN, float(np.mean(values)),
            float(getattr(expected, name) or 0),
        )  # fmt: skip


def _latencies(live: Sequence[_Run], simulated: _Run, free_core: bool) -> Iterator[Check]:
    from scipy import stats  # takes half a second to import

    runs = [run.latency_ms for run in live]
    expected = simulated.latency_ms
    if not len(expected) or not all(len(run) for run in runs):
        yield Check("latency", Grade.BAD, reason="a run without an answer", advice="lower the load")
        return
    advice = "see whether the delays or the executions differ"
    for share, tolerance, grade in (
        (50, P50_TOLERANCE, Grade.BAD),
        (99, P99_TOLERANCE if free_core else None, Grade.CARE),
    ):
        values = [float(np.percentile(run, share)) for run in runs]
        simulated_ms = float(np.percentile(expected, share))
        yield _within(f"latency p{share}, ms", values, simulated_ms, tolerance, grade, advice)
    pooled = np.concatenate(runs)
    distance = float(stats.ks_2samp(pooled, expected).statistic)
    yield Check("Kolmogorov-Smirnov distance", Grade.SHOWN, difference=distance)
    wasserstein = float(stats.wasserstein_distance(pooled, expected))
    yield Check("Wasserstein distance, ms", Grade.SHOWN, difference=wasserstein)


def _within(
    name: str, values: Sequence[float | None], expected: float | None, tolerance: float | None,
    grade: Grade, advice: str,
) -> Check:  # fmt: skip
    """Judge the mean of the repeated runs. tolerance: relative; None judges nothing."""
    known = [value for value in values if value is not None]
    if not known or not expected:
        return Check(name, Grade.SHOWN)
    mean = float(np.mean(known))
    difference = mean / expected - 1
    if tolerance is None:
        return Check(name, Grade.SHOWN, mean, expected, difference)
    spread = (max(known) - min(known)) / expected
    allowed = max(tolerance, spread)
    if abs(difference) <= allowed:
        return Check(name, Grade.GOOD, mean, expected, difference, allowed)
    reason = f"{difference:+.1%} where {allowed:.1%} is allowed (repeats spread by {spread:.1%})"
    return Check(name, grade, mean, expected, difference, allowed, reason, advice)


def _executions(live: Sequence[_Run], simulated: _Run) -> Iterator[Check]:
    """By batch size: does the profile hold under load?"""
    expected = simulated.medians()
    runs = [run.medians() for run in live]
    for batch in sorted(set(expected).intersection(*runs)):
        yield _within(
            f"execution of batch {batch}, ms", [run[batch] for run in runs], expected[batch],
            EXECUTION_TOLERANCE, Grade.BAD,
            "the profile does not hold under load: measure it again under load, or free the device",
        )  # fmt: skip


def _backlog(live: Sequence[_Run], simulated: _Run) -> Check:
    """A server that cannot keep up is no fault of the model, as long as both cannot."""
    drift = float(np.mean([run.drift() for run in live]))
    expected = simulated.drift()
    name = "growth of the backlog, share of arrivals"
    saturated, predicted = drift > DRIFT, expected > DRIFT
    if saturated == predicted:
        if not saturated:
            return Check(name, Grade.GOOD, drift, expected, drift - expected)
        return Check(
            name, Grade.CARE, drift, expected, drift - expected,
            reason="both are saturated: latencies grow with the run's length",
            advice="compare at a lower load, or only goodput",
        )  # fmt: skip
    which = "the live server" if saturated else "the simulation"
    return Check(
        name, Grade.BAD, drift, expected, drift - expected,
        reason=f"only {which} falls behind: the model of the server is wrong",
        advice="look at the executions, and at the controller's own time",
    )  # fmt: skip
