"""By how much predictions were off, with numbers worked out by hand."""

from pathlib import Path

import pytest

from mainspring.predictions_cli import as_text
from results import ResultsError
from results.predictions import Errors, prediction_errors
from scheduler.records import Status
from tests.results.helpers import MS, action, writer


def errors_of(directory: Path, *rows: tuple[object, ...]) -> list[Errors]:
    with writer(directory, models=["a", "b"], pages_of_model=[1, 1]) as run:
        for row in rows:
            run.action(row)
        run.close(arrivals=0)
    return prediction_errors(directory)


def loaded(model: int = 0) -> tuple[object, ...]:
    return action(model, "load", model=model, start=model, end=model + 1, batch=0)


def batch(n: int, *, took: int, expected: int, ended: int = 0, model: int = 0, size: int = 1):  # type: ignore[no-untyped-def]
    """Batch n of ten ms each; ended: later than expected (ns)."""
    start = n * 10 * MS
    return action(
        10 + n, start=start, end=start + took, expected=expected, model=model, batch=size,
        tasks=size, expected_end=start + took - ended,
    )  # fmt: skip


def test_what_took_less_was_over_predicted_and_what_took_more_under(tmp_path: Path) -> None:
    rows = [
        loaded(),
        *(batch(n, took=3 * MS, expected=4 * MS, ended=2 * MS) for n in range(1, 26)),
        batch(26, took=5 * MS, expected=4 * MS),
    ]
    found = {(e.action, e.what): e for e in errors_of(tmp_path, *rows) if e.model is None}
    duration, completion = found["batch", "duration"], found["batch", "completion"]
    assert (duration.n, duration.over_ms["p50"], duration.most_over_ms) == (26, 1, 1)
    assert (duration.under_ms["p50"], duration.most_under_ms) == (0, 1)
    assert duration.over_ms["p90"] is None  # fewer than ten lie beyond
    assert (completion.under_ms["p50"], completion.most_over_ms) == (2, 0)
    assert ("load", "completion") not in found  # nobody said when that load would end


def test_each_model_and_batch_size_has_its_own_with_the_worst_first(tmp_path: Path) -> None:
    rows = [
        loaded(0),
        loaded(1),
        batch(1, took=3 * MS, expected=4 * MS),
        batch(2, took=6 * MS, expected=4 * MS, model=1, size=2),
        batch(3, took=5 * MS, expected=4 * MS, model=1),
    ]
    parts = [
        (e.model, e.batch, e.n, e.most_over_ms, e.most_under_ms)
        for e in errors_of(tmp_path, *rows)
        if e.model is not None and e.what == "duration" and e.action == "batch"
    ]
    assert parts == [("b", 2, 1, 0, 2), ("b", 1, 1, 0, 1), ("a", 1, 1, 1, 0)]


def test_what_did_not_run_was_not_predicted(tmp_path: Path) -> None:
    missed = action(11, start=20 * MS, end=20 * MS, expected=4 * MS, status=Status.MISSED)
    assert all(e.action == "load" for e in errors_of(tmp_path, loaded(), missed))


def test_the_table_says_where_n_is_too_small_and_what_is_left_out(tmp_path: Path) -> None:
    rows = [loaded(), *(batch(n, took=3 * MS, expected=4 * MS) for n in range(1, 30))]
    text = as_text(errors_of(tmp_path, *rows), 1)
    assert "batch: duration" in text
    assert "1.000" in text
    assert "2 more with --rows 3, or --json" in text
    assert as_text([], 1).startswith("this run predicted nothing")


def test_what_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="not the directory of a run"):
        prediction_errors(tmp_path)
