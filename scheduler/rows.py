"""What a world writes down: a row for each request that ended and each action that did.

Both worlds write the same rows, in the order of REQUEST_COLUMNS and ACTION_COLUMNS.
Not here: where they go (a `Sink`, such as results.RunWriter).
"""

from collections.abc import Iterable
from typing import Final, Protocol

from scheduler.ledger import Ended
from scheduler.records import (
    OUTCOME_OF,
    Action,
    AnswerKind,
    Infer,
    Load,
    Outcome,
    Reason,
    Request,
    Result,
    Unload,
)


class Sink(Protocol):
    """Where outcomes go; `results.RunWriter` is one."""

    def request(self, row: tuple[int, ...]) -> None:
        """A request ended. The row is in the order of REQUEST_COLUMNS."""

    def action(self, row: tuple[object, ...]) -> None:
        """An action ended. The row is in the order of ACTION_COLUMNS."""

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        """A GPU's worker is gone, and what was on it."""


def write_ended(sink: Sink, ended: Iterable[Ended], end_ns: int) -> None:
    """Requests that the policy ended. end_ns: when that is with their clients."""
    write = sink.request
    for request, kind, reason, gpu, batch, action in ended:
        deadline_ns = request.deadline_ns
        if kind is AnswerKind.NONE:
            outcome = OUTCOME_OF[reason]
        else:
            outcome = Outcome.OK if end_ns <= deadline_ns else Outcome.LATE
        write(
            (
                request.id, request.model, request.client, request.arrival_ns, deadline_ns,
                end_ns, outcome, reason, kind, gpu, batch, request.cold, action,
            )
        )  # fmt: skip


def write_unfinished(sink: Sink, requests: Iterable[Request], now_ns: int) -> None:
    """Requests that were under way when the run stopped."""
    for request in requests:
        sink.request(
            (
                request.id, request.model, request.client, request.arrival_ns,
                request.deadline_ns, now_ns, Outcome.UNFINISHED, Reason.NOTHING,
                AnswerKind.NONE, -1, 0, request.cold, -1,
            )
        )  # fmt: skip


def write_action(sink: Sink, result: Result, gpu: int, sent_ns: int) -> None:
    """An action that got its result. sent_ns: when the controller sent it."""
    action = result.action
    batch = tasks = 0
    if type(action) is Infer:
        batch, tasks = action.batch, len(action.tasks)
    sink.action(
        (
            action.id, _TYPES[type(action)], gpu, action.model, batch, tasks,
            action.earliest_ns, action.latest_ns, action.expected_ns, sent_ns,
            result.start_ns, result.end_ns, result.duration_ns, result.status, result.why,
            action.expected_end_ns, result.clock_mhz,
        )
    )  # fmt: skip


_TYPES: Final[dict[type[Action], str]] = {Load: "load", Unload: "unload", Infer: "infer"}
