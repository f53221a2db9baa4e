"""Counts a run while it happens, a flush at a time, and turns the counts into its summary.

Memory grows with the run's length in seconds (one line of counts each, for the plots over time)
and with nothing else.
Not here: what the numbers mean (summary.py).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from results.columns import INFER, LOAD, UNLOAD, WORDS, Columns, Ints
from results.latency import Durations, signed_quantiles_ns
from results.summary import PredictionError, Summary, clopper_pearson
from scheduler.records import FOREVER, AnswerKind, Outcome, Reason, Status, Why

_SECOND_NS: Final = 10**9


class Tally:
    """Streaming counters of one run, whose measured span is [warmup_ns, end_ns)."""

    def __init__(self, *, gpus: int, warmup_ns: int, end_ns: int) -> None:
        self._warmup_ns, self._end_ns = warmup_ns, end_ns
        self.latency = Durations()
        self._seconds = np.zeros((64, len(Outcome)), np.int64)
        self._last_second = -1

        self._outcomes_whole_run = np.zeros(len(Outcome), np.int64)
        self._outcomes = np.zeros(len(Outcome), np.int64)
        self._reasons = np.zeros(len(Reason), np.int64)
        self._answers = np.zeros(len(AnswerKind), np.int64)
        self._slo_requests = self._slo_in_time = self._slo_open = self._cold = 0
        self._completed = self._backlog = self._sojourn_ns = 0
        self._shortest_slo_ns, self._longest_slo_ns = FOREVER, -1

        self._by_batch: dict[int, int] = {}
        self._tasks = self._tasks_squared = 0
        self._done = np.zeros(3, np.int64)
        self._status = np.zeros(len(Status), np.int64)
        self._why = np.zeros(len(Why), np.int64)
        self._busy_ns = np.zeros(gpus, np.int64)
        self.workers_lost = 0
        """In the whole run."""
        self._shorter, self._longer = Durations(), Durations()

    def requests(self, c: Columns) -> None:
        """Count requests that ended."""
        self._outcomes_whole_run += _histogram(c["outcome"], len(Outcome))
        self._count_seconds(c["arrival_ns"], c["outcome"])

        arrival_ns, end_ns = c["arrival_ns"], c["end_ns"]
        answered = (c["outcome"] == Outcome.OK) | (c["outcome"] == Outcome.LATE)
        ended_inside = (end_ns >= self._warmup_ns) & (end_ns < self._end_ns)
        self._completed += int((answered & ended_inside).sum())
        self._backlog += int(((arrival_ns < self._warmup_ns) & (end_ns > self._warmup_ns)).sum())

        inside = (arrival_ns >= self._warmup_ns) & (arrival_ns < self._end_ns)
        if not inside.all():
            c = {name: values[inside] for name, values in c.items()}
            answered = answered[inside]
        self._measured_requests(c, answered)

    def _measured_requests(self, c: Columns, answered: npt.NDArray[np.bool_]) -> None:
        outcome, sojourn_ns = c["outcome"], c["end_ns"] - c["arrival_ns"]
        self._outcomes += _histogram(outcome, len(Outcome))
        given_up = ~answered & (outcome != Outcome.UNFINISHED)
        self._reasons += _histogram(c["reason"][given_up], len(Reason))
        self._answers += _histogram(c["kind"][answered], len(AnswerKind))
        self._cold += int(c["cold"].sum())
        self._sojourn_ns += int(sojourn_ns.sum())

        # A default at the deadline is an answer, but not what was asked for.
        kind = c["kind"]
        predicted = (kind != AnswerKind.NONE) & (kind != AnswerKind.DEFAULT)
        slo = c["deadline_ns"] != FOREVER
        self._slo_requests += int(slo.sum())
        self._slo_in_time += int((slo & predicted & (outcome == Outcome.OK)).sum())
        open_ = slo & (outcome == Outcome.UNFINISHED) & (c["deadline_ns"] > c["end_ns"])
        self._slo_open += int(open_.sum())
        slo_ns = (c["deadline_ns"] - c["arrival_ns"])[slo]
        self._shortest_slo_ns = min(self._shortest_slo_ns, int(slo_ns.min(initial=FOREVER)))
        self._longest_slo_ns = max(self._longest_slo_ns, int(slo_ns.max(initial=-1)))
        self.latency.record(sojourn_ns[answered & predicted])

    def _count_seconds(self, arrival_ns: Ints, outcome: Ints) -> None:
        if not len(arrival_ns):
            return
        second = arrival_ns // _SECOND_NS
        self._last_second = max(self._last_second, int(second.max()))
        if self._last_second >= len(self._seconds):
            longer = np.zeros((2 * self._last_second, len(Outcome)), np.int64)
            longer[: len(self._seconds)] = self._seconds
            self._seconds = longer
        np.add.at(self._seconds, (second, outcome), 1)

    def seconds(self) -> Ints:
        """Requests by the second in which they arrived (lines) and by outcome, warm-up included."""
        return self._seconds[: self._last_second + 1]

    def actions(self, c: Columns) -> None:
        """Count actions that got their result."""
        start_ns, end_ns = c["start_ns"], c["end_ns"]
        infer = (c["type"] == INFER) & (c["status"] == Status.DONE)
        part_ns = np.minimum(end_ns, self._end_ns) - np.maximum(start_ns, self._warmup_ns)
        busy = infer & (part_ns > 0)
        np.add.at(self._busy_ns, c["gpu"][busy], part_ns[busy])

        inside = (start_ns >= self._warmup_ns) & (start_ns < self._end_ns)
        self._status += _histogram(c["status"][inside], len(Status))
        self._why += _histogram(c["why"][inside], len(Why))
        done = inside & (c["status"] == Status.DONE)
        self._done += _histogram(c["type"][done], 3)
        infer &= inside
        for size, n in zip(*np.unique(c["batch"][infer], return_counts=True), strict=True):
            self._by_batch[int(size)] = self._by_batch.get(int(size), 0) + int(n)
        tasks = c["tasks"][infer]
        self._tasks += int(tasks.sum())
        self._tasks_squared += int((tasks * tasks).sum())
        error_ns = (c["duration_ns"] - c["expected_ns"])[infer]
        self._shorter.record(-error_ns[error_ns < 0])
        self._longer.record(error_ns[error_ns >= 0])

    def summary(
        self,
        *,
        name: str,
        about: Mapping[str, str],
        interrupted: bool,
        end_ns: int,
        refusals: Mapping[str, int],
        unchecked_actions: int,
        digest: str,
        warnings: Sequence[str] = (),
    ) -> Summary:
        """The run's summary. end_ns: where the span really ended, no later than planned."""
        span_ns = max(0, end_ns - self._warmup_ns)
        arrivals = int(self._outcomes.sum())
        undecided = self._slo_open if interrupted else 0
        slo_requests = self._slo_requests - undecided
        executions = int(self._done[INFER])
        executed = sum(size * n for size, n in self._by_batch.items())
        utilisation = [_ratio(int(busy_ns), span_ns) for busy_ns in self._busy_ns]
        errors_ns = signed_quantiles_ns(self._shorter, self._longer, ("p50", "p99"))
        return Summary(
            name=name,
            about=dict(about),
            interrupted=interrupted,
            warmup_ns=self._warmup_ns,
            end_ns=end_ns,
            arrivals=arrivals,
            outcomes=_words("outcome", self._outcomes),
            reasons=_words("reason", self._reasons, all_of_them=False),
            answers=_words("kind", self._answers, all_of_them=False),
            offered_rps=_per_second(arrivals, span_ns),
            completed_rps=_per_second(self._completed, span_ns),
            goodput_rps=_per_second(self._slo_in_time, span_ns) if self._slo_requests else None,
            slo_requests=slo_requests,
            slo_in_time=self._slo_in_time,
            no_slo_requests=arrivals - self._slo_requests,
            share_in_time=_ratio(self._slo_in_time, slo_requests),
            share_in_time_95=clopper_pearson(self._slo_in_time, slo_requests),
            slo_ms=(self._shortest_slo_ns / 1e6, self._longest_slo_ns / 1e6)
            if self._slo_requests
            else None,
            backlog_at_start=self._backlog,
            mean_in_system=_ratio(self._sojourn_ns, span_ns),
            cold_requests=self._cold,
            latency=self.latency.summary(),
            executions=executions,
            executions_by_batch=dict(sorted(self._by_batch.items())),
            mean_batch_executed=_ratio(executed, executions),
            mean_batch_of_executions=_ratio(self._tasks, executions),
            mean_batch_of_requests=_ratio(self._tasks_squared, self._tasks),
            gpu_utilisation=utilisation,
            mean_gpu_utilisation=_ratio(int(self._busy_ns.sum()), span_ns * len(self._busy_ns)),
            loads=int(self._done[LOAD]),
            loads_rps=_per_second(int(self._done[LOAD]), span_ns),
            evictions=int(self._done[UNLOAD]),
            missed_actions=int(self._status[Status.MISSED]),
            failed_actions=int(self._status[Status.FAILED]),
            lost_actions=int(self._status[Status.LOST]),
            slo_undecided=undecided,
            workers_lost_whole_run=self.workers_lost,
            not_done_why={
                word: n
                for word, n in _words("why", self._why, all_of_them=False).items()
                if word != "nothing"
            },
            refusals=dict(refusals),
            prediction_error=PredictionError(
                n=executions,
                p50_us=_us(errors_ns["p50"]),
                p99_us=_us(errors_ns["p99"]),
            ),
            outcomes_whole_run=_words("outcome", self._outcomes_whole_run),
            unchecked_actions_whole_run=unchecked_actions,
            digest=digest,
            warnings=list(warnings),
        )


def _histogram(values: Ints, size: int) -> Ints:
    counts: Ints = np.bincount(values, minlength=size)
    assert len(counts) == size, f"{values.max()} is not one of {size} known values"
    return counts


def _words(column: str, counts: Ints, *, all_of_them: bool = True) -> dict[str, int]:
    pairs = zip(WORDS[column], counts.tolist(), strict=True)
    return {word: n for word, n in pairs if n or all_of_them}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _per_second(n: int, span_ns: int) -> float | None:
    return n * _SECOND_NS / span_ns if span_ns else None


def _us(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e3
