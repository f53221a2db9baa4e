"""What one run comes to: the numbers that people compare and quote.

Counts are over the requests that arrive in the measured span, from the end of the warm-up to the
end of the arrivals, wherever they end. A request that was dropped is in every denominator, and
requests without an SLO are in none of the shares; nor are those of an interrupted run that could
still have been in time, for what would have become of them nobody knows. What did not happen is
None, never NaN or 0.
`write` comes last in a run, so a directory with a summary holds a whole run.
Not here: how the numbers are counted (tally.py) and shown (table.py).
"""

from pathlib import Path
from typing import Final

import msgspec

from results.errors import ResultsError
from results.files import write_whole
from results.latency import Latencies

FORMAT: Final = 1


class PredictionError(msgspec.Struct, frozen=True, kw_only=True):
    """Measured minus expected duration of the done executions in the span, in microseconds.

    Below zero where an execution was shorter than the policy had believed. None where fewer than
    ten of the n errors lie beyond the quantile; within 1 us or 0.01 % of the exact value.
    """

    n: int
    p50_us: float | None
    p99_us: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run. Everything but the two `whole_run` fields is about the measured span.

    name: what tables and plots call the run. about: what the caller wants to be kept with it.
    interrupted: whether the run stopped before its planned end; `end_ns` is then where.

    arrivals: requests that arrived. outcomes: how they ended. reasons: why those were given up
    that were. answers: what stood behind the answers, by kind.
    offered_rps: arrivals a second.
    completed_rps: answers, late ones too, that were given in the span, a second.
    goodput_rps: predictions that came by their deadline, a second. None without SLOs.
    slo_requests: arrivals with an SLO, but for slo_undecided. slo_in_time: those that got a
    prediction by their deadline.
    slo_undecided: those in flight when the run was interrupted whose deadline had not passed.
    no_slo_requests: arrivals without. share_in_time: slo_in_time of slo_requests.
    share_in_time_95: its Clopper-Pearson interval. It takes requests for independent; those of one
    run are not, so the true uncertainty is larger. Compare policies over seeds, not by it.
    slo_ms: the shortest and the longest SLO.
    backlog_at_start: requests that arrived in the warm-up and ended after it.
    mean_in_system: requests under way, on average over time (Little: arrival rate times sojourn).
    cold_requests: arrivals whose model was on no GPU.
    latency: from arrival to answer of the answered requests (predictions, ok and late).

    executions, loads, evictions: that were done, by their start.
    executions_by_batch: by the executed size.
    mean_batch_executed: executed size, padding included, over executions.
    mean_batch_of_executions: requests carried, over executions.
    mean_batch_of_requests: the number carried together, over the requests that were.
    gpu_utilisation: share of the span in which each GPU executed; an execution across a border
    counts with its part inside. mean_gpu_utilisation: over the GPUs.
    missed_actions, failed_actions: that did not start. lost_actions: whose worker, or message, was
    lost. not_done_why: why they were not done.
    refusals: actions that the world refused, over the whole run.

    workers_lost_whole_run: how often a worker was lost.
    unchecked_actions_whole_run: reported too late for the audit to judge.
    warnings: what was odd about the workloads or the devices, a line each.
    digest: SHA-256 over the canonical columns of all outcomes: same seed, same digest.
    """

    format: int = FORMAT
    name: str
    about: dict[str, str]
    interrupted: bool
    warmup_ns: int
    end_ns: int

    arrivals: int
    outcomes: dict[str, int]
    reasons: dict[str, int]
    answers: dict[str, int]
    offered_rps: float | None
    completed_rps: float | None
    goodput_rps: float | None
    slo_requests: int
    slo_in_time: int
    no_slo_requests: int
    share_in_time: float | None
    share_in_time_95: tuple[float, float] | None
    slo_ms: tuple[float, float] | None
    backlog_at_start: int
    mean_in_system: float | None
    cold_requests: int
    latency: Latencies

    executions: int
    executions_by_batch: dict[int, int]
    mean_batch_executed: float | None
    mean_batch_of_executions: float | None
    mean_batch_of_requests: float | None
    gpu_utilisation: list[float | None]
    mean_gpu_utilisation: float | None
    loads: int
    loads_rps: float | None
    evictions: int
    missed_actions: int
    failed_actions: int
    not_done_why: dict[str, int]
    refusals: dict[str, int]
    prediction_error: PredictionError

    outcomes_whole_run: dict[str, int]
    unchecked_actions_whole_run: int
    digest: str

    slo_undecided: int = 0
    lost_actions: int = 0
    workers_lost_whole_run: int = 0
    warnings: list[str] = []

    @property
    def span_s(self) -> float:
        """Length of the measured span in seconds."""
        return max(0, self.end_ns - self.warmup_ns) / 1e9

    def write(self, path: Path) -> None:
        """Write as JSON, whole or not at all. Raises ResultsError if it cannot be."""
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def load(path: Path) -> Summary:
    """Read what `Summary.write` wrote. Raises ResultsError if it is not there or not that."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Summary)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}; is this a finished run?") from error
    except msgspec.MsgspecError as error:
        raise ResultsError(
            f"{path}: {error}; written by another version of mainspring? Run it again"
        ) from error


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float] | None:
    """The exact two-sided interval of a share; None where n is 0.

    0 of 10 gives (0, 0.3085): the end that was reached is certain, the other takes half of the
    remaining doubt, as in every two-sided interval.
    """
    if not n:
        return None
    from scipy.special import betaincinv  # takes a tenth of a second to import

    tail = (1 - confidence) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return low, high
