"""Reads back what a finished run left: its rows with the models' names, and its numbers.

A directory without a summary is not a run: it was interrupted hard, failed, or is something else.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from results import summary
from results.columns import Ints
from results.errors import ResultsError
from results.files import ACTIONS, LATENCY, OUTCOMES, SECONDS, SUMMARY, part_of
from results.latency import decode
from results.summary import Summary


def read_summary(directory: Path) -> Summary:
    """A finished run's numbers. Raises ResultsError where the directory is not one."""
    if not directory.exists():
        raise ResultsError(f"{directory}: no such directory; expected the directory of a run")
    if not (directory / SUMMARY).is_file():
        what = (
            "the run did not finish; its rows so far are in the .part files"
            if part_of(directory / OUTCOMES).exists()
            else "not the directory of a run"
        )
        raise ResultsError(f"{directory}: no {SUMMARY}: {what}")
    return summary.load(directory / SUMMARY)


def read_outcomes(directory: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Every request's fate; `model` is the model's name, times are in ns.

    columns: only these; all by default. `gpu` is -1, `batch` 0 and `action` -1 where no GPU served
    the request; otherwise `action` is the `id` of its batch in `read_actions`. A `deadline_ns` of
    2**63 - 1 means that it had no SLO. Raises ResultsError where the directory is not a finished
    run.
    """
    read_summary(directory)
    return _with_names(_read(directory / OUTCOMES, columns=columns))


def read_models(directory: Path) -> list[str]:
    """The names of the run's models, asked for or not."""
    read_summary(directory)
    path = directory / OUTCOMES
    try:
        names: list[str] = json.loads(pq.read_schema(path).metadata[b"models"])
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(path, error) from error
    return names


def read_actions(
    directory: Path, *, start_ns: int | None = None, stop_ns: int | None = None
) -> pa.Table:
    """Every action's result, or those of which some part lies in [start_ns, stop_ns)."""
    read_summary(directory)
    keep = None
    if start_ns is not None:
        keep = pc.field("end_ns") >= start_ns
    if stop_ns is not None:
        before = pc.field("start_ns") < stop_ns
        keep = before if keep is None else keep & before
    return _with_names(_read(directory / ACTIONS, keep))


def read_seconds(directory: Path) -> dict[str, Ints]:
    """Requests by the second in which they arrived: `second`, `arrivals`, and one per outcome."""
    read_summary(directory)
    table = _read(directory / SECONDS)
    return {name: table[name].to_numpy() for name in table.column_names}


def read_latencies(directory: Path) -> tuple[npt.NDArray[np.float64], Ints]:
    """Latencies in ms, ascending, and how many answered requests had no longer one."""
    max_ms = read_summary(directory).latency.max_ms
    path = directory / LATENCY
    try:
        upper_ns, counts = decode(path.read_bytes(), round((max_ms or 0) * 1e6))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}; run it again") from error
    return upper_ns / 1e6, counts


class Blocks(NamedTuple):
    """The rows of a run's file, a block at a time. each: reads them, from the start."""

    columns: list[str]
    rows: int
    each: Callable[[], Iterator[pa.Table]]


def blocks(path: Path) -> Blocks:
    """A file of outcomes or actions, as the functions above give them. Raises ResultsError."""
    with _reading(path):
        file = pq.ParquetFile(path)

    def each() -> Iterator[pa.Table]:
        for i in range(file.num_row_groups):
            with _reading(path):
                table = file.read_row_group(i)
            yield _with_names(table)

    return Blocks(file.schema_arrow.names, file.metadata.num_rows, each)


def _read(
    path: Path, keep: pc.Expression | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    with _reading(path):
        return pq.read_table(path, filters=keep, columns=columns and list(columns))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ResultsError:
    return ResultsError(f"{path}: cannot be read ({error}); run it again")


def _with_names(table: pa.Table) -> pa.Table:
    if "model" not in table.column_names:
        return table
    names = pa.array(json.loads(table.schema.metadata[b"models"]), pa.string())
    chunks = [pa.DictionaryArray.from_arrays(chunk, names) for chunk in table["model"].iterchunks()]
    column = pa.chunked_array(chunks, pa.dictionary(pa.int32(), pa.string()))
    return table.set_column(table.schema.get_field_index("model"), "model", column)
