"""Rows in a few words, for the stories of these tests."""

from pathlib import Path
from typing import Any

from results import RunWriter
from scheduler.records import (
    FOREVER,
    NOMINAL_MHZ,
    UNKNOWN,
    AnswerKind,
    Outcome,
    Reason,
    Status,
    Why,
)

MS = 1_000_000
SECOND = 1_000_000_000


def request(
    id: int, *, at: int = 0, slo: int | None = 100 * MS, end: int = 10 * MS, **other: Any
) -> tuple[int, ...]:
    """A request that arrives `at` and ends at `end` (ns), answered with a prediction if not told
    otherwise; ok or late as its times say."""
    deadline = FOREVER if slo is None else at + slo
    outcome = other.get("outcome", Outcome.OK if end <= deadline else Outcome.LATE)
    answered = outcome in (Outcome.OK, Outcome.LATE)
    kind = other.get("kind", AnswerKind.PREDICTION if answered else AnswerKind.NONE)
    reason = other.get("reason", Reason.NOTHING)
    gpu, batch = (0, 1) if answered else (-1, 0)
    action = other.get("action", id if kind == AnswerKind.PREDICTION else -1)
    cold = other.get("cold", False)
    model, client = other.get("model", 0), other.get("client", 0)
    return (id, model, client, at, deadline, end, outcome, reason, kind, gpu, batch, cold, action)


def action(
    id: int, type: str = "infer", *, start: int = 0, end: int = 10, **other: Any
) -> tuple[Any, ...]:
    """An action that was done from `start` to `end` (ns)."""
    batch = other.get("batch", 1)
    return (
        id, type, other.get("gpu", 0), other.get("model", 0), batch, other.get("tasks", batch),
        other.get("earliest", 0), other.get("latest", FOREVER), other.get("expected", end - start),
        start, start, end, end - start, other.get("status", Status.DONE),
        other.get("why", Why.NOTHING), other.get("expected_end", UNKNOWN), NOMINAL_MHZ,
    )  # fmt: skip


def writer(directory: Path, **other: Any) -> RunWriter:
    """A run of one second, of one model of one page on one GPU with room for two."""
    about: dict[str, Any] = {
        "models": ["resnet50"], "pages_of_model": [1], "pages_of_gpu": [2],
        "warmup_ns": 0, "end_ns": SECOND,
    }  # fmt: skip
    return RunWriter(directory, **(about | other))
