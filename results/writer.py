"""Where a world puts the fate of every request and action while it runs.

A row costs an `extend` of a flat list. Every 32,768 rows the list becomes columns, and the columns
go to the files, the digest, the counters and the audit at once. So memory does not grow with the
number of requests, and Python touches no row one by one.
Files carry `.part` until `close` has seen that the run is sound; the summary comes last. A process
that is killed leaves nothing that looks whole.
Not here: what the numbers mean (summary.py) and what a sound run is (audit.py).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from results.audit import Audit
from results.columns import WORDS, Columns, action_columns, named, request_columns
from results.errors import ResultsError
from results.files import (
    ACTIONS,
    LATENCY,
    OUTCOMES,
    SECONDS,
    SUMMARY,
    naming,
    part_of,
    publish,
    write_whole,
)
from results.summary import Summary
from results.tally import Tally
from scheduler.records import ACTION_COLUMNS, REQUEST_COLUMNS, Refusal

FLUSH_ROWS: Final = 32_768
"""Rows in a row group. The digest takes the same groups, so it depends on this number."""

_NARROW: Final = {"model": pa.int32(), "client": pa.int32(), "gpu": pa.int32(), "batch": pa.int32(),
                  "tasks": pa.int32(), "cold": pa.bool_()}  # fmt: skip
_RISING: Final = "DELTA_BINARY_PACKED"  # 12 bytes a request instead of 36, in half the time


class RunWriter:
    """The sink of one run. As a context manager it aborts where `close` was not reached.

    directory: is made if need be. models: their names, by index. pages_of_model, pages_of_gpu: by
    index. warmup_ns, end_ns: requests that arrive in [warmup_ns, end_ns) are measured.
    name: what tables and plots call the run. about: kept with it (policy, seed, scenario).
    resident: (gpu, model) pairs that are loaded before the run.
    exclusive: whether a GPU executes one batch at a time.
    overwrite: whether a finished run in the directory may go.

    Raises ResultsError where a file cannot be written, InvariantError where the run is unsound;
    both at the latest in `close`, or in any call before it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        models: Sequence[str],
        pages_of_model: Sequence[int],
        pages_of_gpu: Sequence[int],
        exclusive: bool = True,
        warmup_ns: int,
        end_ns: int,
        name: str = "",
        about: Mapping[str, str] | None = None,
        resident: Iterable[tuple[int, int]] = (),
        overwrite: bool = False,
    ) -> None:
        self.directory = directory
        self._name, self._about = name or directory.name, dict(about or {})
        self._end_ns = end_ns
        self._tally = Tally(gpus=len(pages_of_gpu), warmup_ns=warmup_ns, end_ns=end_ns)
        self._audit = Audit(
            pages_of_model=pages_of_model,
            pages_of_gpu=pages_of_gpu,
            resident=resident,
            exclusive=exclusive,
        )
        self._digest = hashlib.sha256(" ".join(REQUEST_COLUMNS).encode())

        _clear(directory, overwrite=overwrite)
        self._outcomes = _Table(directory / OUTCOMES, REQUEST_COLUMNS, models)
        self._actions = _Table(directory / ACTIONS, ACTION_COLUMNS, models)
        self._request_values: list[int] = []
        self._action_values: list[Any] = []
        self._open = True

    def request(self, row: tuple[int, ...]) -> None:
        """Note how a request ended. row: in the order of REQUEST_COLUMNS."""
        values = self._request_values
        values.extend(row)
        if len(values) >= FLUSH_ROWS * len(REQUEST_COLUMNS):
            self._flush_requests()

    def action(self, row: tuple[Any, ...]) -> None:
        """Note what became of an action. row: in the order of ACTION_COLUMNS."""
        values = self._action_values
        values.extend(row)
        if len(values) >= FLUSH_ROWS * len(ACTION_COLUMNS):
            self._flush_actions()

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        """Note that a GPU's worker is gone."""
        self._audit.worker_lost(gpu, at_ns)
        self._tally.workers_lost += 1

    def close(
        self,
        *,
        arrivals: int,
        interrupted: bool = False,
        stopped_ns: int | None = None,
        refusals: Mapping[Refusal, int] | None = None,
        warnings: Sequence[str] = (),
    ) -> Summary:
        """Finish the run: audit it, give the files their names, and write the summary.

        arrivals: how many requests arrived in the whole run. interrupted: whether it stopped
        early; stopped_ns: and when. refusals: how many actions the world refused, and why.
        warnings: what was odd about the workloads or the devices, to be kept with the run.
        """
        assert self._open, "this run has been closed or aborted"
        try:
            self._flush_requests()
            self._flush_actions()
            self._audit.finish(arrivals)
            self._outcomes.finish()
            self._actions.finish()
            self._write_seconds()
            write_whole(self.directory / LATENCY, self._tally.latency.encode())
            end_ns = self._end_ns if stopped_ns is None else min(stopped_ns, self._end_ns)
            summary = self._tally.summary(
                name=self._name,
                about=self._about,
                interrupted=interrupted,
                end_ns=end_ns,
                refusals={why.name.lower(): n for why, n in sorted((refusals or {}).items()) if n},
                unchecked_actions=self._audit.unchecked,
                digest=self._digest.hexdigest(),
                warnings=warnings,
            )
            summary.write(self.directory / SUMMARY)
        finally:
            self.abort()
        return summary

    def abort(self) -> None:
        """Stop without a result. What was flushed stays readable under `.part`."""
        if self._open:
            self._open = False
            self._outcomes.abandon()
            self._actions.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()

    def _flush_requests(self) -> None:
        assert self._open, "this run has been closed or aborted"
        matrix = request_columns(self._request_values)
        self._request_values.clear()
        self._digest.update(matrix.astype("<i8").tobytes())
        columns = named(matrix, REQUEST_COLUMNS)
        self._outcomes.write(columns)
        self._tally.requests(columns)
        self._audit.requests(columns)

    def _flush_actions(self) -> None:
        assert self._open, "this run has been closed or aborted"
        matrix = action_columns(self._action_values)
        self._action_values.clear()
        columns = named(matrix, ACTION_COLUMNS)
        self._actions.write(columns)
        self._tally.actions(columns)
        self._audit.actions(columns)

    def _write_seconds(self) -> None:
        seconds = self._tally.seconds()
        table = pa.table(
            {"second": range(len(seconds)), "arrivals": seconds.sum(axis=1)}
            | dict(zip(WORDS["outcome"], seconds.T, strict=True))
        )
        path = self.directory / SECONDS
        with naming(path):
            pq.write_table(table, part_of(path))
        publish(path)


class _Table:
    """A Parquet file that grows by row groups under its `.part` name."""

    def __init__(self, path: Path, columns: Sequence[str], models: Sequence[str]) -> None:
        self._path = path
        self._schema = pa.schema(
            [(name, _type_of(name)) for name in columns],
            metadata={"models": json.dumps(list(models))},
        )
        short = [name for name in columns if _type_of(name) != pa.int64()]
        long = [name for name in columns if _type_of(name) == pa.int64()]
        with naming(path):
            self._file: pq.ParquetWriter | None = pq.ParquetWriter(
                part_of(path),
                self._schema,
                use_dictionary=[name for name in short if name != "cold"],
                column_encoding=dict.fromkeys(long, _RISING),
            )

    def write(self, columns: Columns) -> None:
        """Add a row group."""
        assert self._file is not None
        arrays = [_array(columns[name], name) for name in self._schema.names]
        with naming(self._path):
            self._file.write_batch(pa.record_batch(arrays, schema=self._schema))

    def finish(self) -> None:
        """Make it whole."""
        self._close()
        publish(self._path)

    def abandon(self) -> None:
        """Leave it as it is. Called after failures too, so a second one is no news."""
        try:
            self._close()
        except ResultsError:
            self._file = None

    def _close(self) -> None:
        if self._file is not None:
            with naming(self._path):
                self._file.close()
            self._file = None


def _type_of(column: str) -> pa.DataType:
    if column in WORDS:
        return pa.dictionary(pa.int8(), pa.string())
    return _NARROW.get(column, pa.int64())


def _array(values: Any, column: str) -> pa.Array:
    if column in WORDS:
        return pa.DictionaryArray.from_arrays(values.astype("i1"), list(WORDS[column]))
    return pa.array(values).cast(_type_of(column))


def _clear(directory: Path, *, overwrite: bool) -> None:
    """Make the directory ready. The old summary goes first: without it the rest is no run."""
    if (directory / SUMMARY).exists() and not overwrite:
        raise ResultsError(
            f"{directory} already holds a finished run; choose another directory or remove it"
        )
    with naming(directory / SUMMARY):
        directory.mkdir(parents=True, exist_ok=True)
        for name in (SUMMARY, OUTCOMES, ACTIONS, SECONDS, LATENCY):
            (directory / name).unlink(missing_ok=True)
