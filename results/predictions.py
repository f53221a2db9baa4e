"""By how much a policy's predictions were off: how long things take, and when they end.

What took less, or ended earlier, than was expected was over-predicted, what took more was
under-predicted. Both are told in the tail, of all batches and loads of a run and of each model and
batch size. An under-prediction makes answers late; an over-prediction leaves a GPU idle. This is
what figure 10 of the Clockwork paper shows.
A policy that says nothing of when an action ends (`expected_end_ns`) has no errors of completion.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.columns import Ints
from results.latency import QUANTILES, rank_of
from results.reader import read_actions
from scheduler.records import UNKNOWN

What = Literal["duration", "completion"]
TAIL: Final = ("p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "p99.9999")


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """How far off one kind of prediction was, over n actions.

    action: batch or load. model, batch: of which; None for all together.
    over_ms, under_ms: quantiles over all n, with 0 for an action that was off the other way; None
    where fewer than ten actions lie beyond. most_*: the largest.
    """

    action: Literal["batch", "load"]
    what: What
    model: str | None
    batch: int | None
    n: int
    over_ms: dict[str, float | None]
    under_ms: dict[str, float | None]
    most_over_ms: float
    most_under_ms: float


def prediction_errors(directory: Path) -> list[Errors]:
    """A finished run's errors: those of all actions first, then each model and batch size, the
    largest under-prediction first. Raises ResultsError where the directory is not a finished run.
    """
    table = read_actions(directory)
    done = table.filter(
        pc.and_(pc.equal(table["status"], "done"), pc.not_equal(table["type"], "unload"))
    )
    total: list[Errors] = []
    parts: list[Errors] = []
    for kind, action in (("infer", "batch"), ("load", "load")):
        some = done.filter(pc.equal(done["type"], kind))
        names = some.schema.field("model").type
        assert pa.types.is_dictionary(names), "read_actions gives models by name"
        models = some["model"].combine_chunks()
        which = _ints(models.indices)
        of_model = models.dictionary.to_pylist()
        batch = _ints(some["batch"])
        for what, error_ns, known in _errors(some):
            if not known.any():
                continue
            total.append(_told(action, what, None, None, error_ns[known]))
            keys = which[known] * (1 << 20) + batch[known]
            order = np.argsort(keys, kind="stable")
            found, starts = np.unique(keys[order], return_index=True)
            for key, part in zip(
                found.tolist(), np.split(error_ns[known][order], starts[1:]), strict=True
            ):
                model, size = divmod(key, 1 << 20)
                parts.append(_told(action, what, of_model[model], size or None, part))
    return [*total, *sorted(parts, key=lambda errors: -errors.most_under_ms)]


def _errors(some: pa.Table) -> list[tuple[What, Ints, np.ndarray]]:
    """What was expected less what came, in ns, and where anything was expected."""
    expected_ns, expected_end_ns = _ints(some["expected_ns"]), _ints(some["expected_end_ns"])
    return [
        ("duration", expected_ns - _ints(some["duration_ns"]), expected_ns > 0),
        ("completion", expected_end_ns - _ints(some["end_ns"]), expected_end_ns != UNKNOWN),
    ]


def _ints(column: pa.ChunkedArray | pa.Array) -> Ints:
    return np.asarray(column, dtype=np.int64)


def _told(action: str, what: What, model: str | None, batch: int | None, error_ns: Ints) -> Errors:
    over, under = np.sort(np.maximum(error_ns, 0)), np.sort(np.maximum(-error_ns, 0))
    return Errors(
        action="batch" if action == "batch" else "load",
        what=what,
        model=model,
        batch=batch,
        n=len(error_ns),
        over_ms=_tail(over),
        under_ms=_tail(under),
        most_over_ms=float(over[-1]) / 1e6,
        most_under_ms=float(under[-1]) / 1e6,
    )


def _tail(ascending: Ints) -> dict[str, float | None]:
    """Quantiles by the nearest rank."""
    assert set(TAIL) <= set(QUANTILES), "quantiles that the rest of a report knows"
    tail: dict[str, float | None] = {}
    for name in TAIL:
        rank = rank_of(len(ascending), name)
        tail[name] = None if rank is None else float(ascending[rank - 1]) / 1e6
    return tail
