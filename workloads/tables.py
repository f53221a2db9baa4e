"""Read a table with one row a request, block by block: CSV, JSON lines or Parquet.

The kind of file is told by its ending: .parquet, .jsonl (or .ndjson), anything else is CSV; all
but Parquet may be gzipped (.gz). Cells come as they are in the file; workloads/times.py turns
times into nanoseconds. When a block does not make sense the file is read again slowly, to name
the line, or in Parquet the row, which both count from 1.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from workloads import csvfile
from workloads.common import CHUNK, WorkloadError

Kind = Literal["number", "text"]

BLOCK_BYTES: Final = 2**18
"""What is read at a time of a CSV file: a chunk, if a row has some 16 bytes."""

JSON_LINES: Final = (".jsonl", ".ndjson")


def column_names(path: Path) -> list[str]:
    """Names of the columns. Raises WorkloadError if there is none, or no row."""
    if is_parquet(path):
        with _reading_parquet(path), pa.parquet.ParquetFile(path) as file:
            if file.metadata.num_rows == 0:
                raise WorkloadError(f"{path.name} has no rows; expected at least one")
            return list(file.schema_arrow.names)
    if _is_json(path):
        with csvfile.reading(path, what="a file of JSON lines"):
            first = next(_json_lines(path), None)
        if first is None:
            raise WorkloadError(f"{path.name} is empty; expected a JSON object on each line")
        return list(_json_object(path, *first))
    return csvfile.header(path)


def require_columns(path: Path, needed: Sequence[str]) -> None:
    """Raise WorkloadError if the file cannot be read or lacks one of the columns."""
    csvfile.require_columns(path, column_names(path), needed)


def blocks(
    path: Path, kinds: Mapping[str, Kind], explain: Callable[[], None]
) -> Iterator[list[Any]]:
    """The columns `kinds`, in that order, as pyarrow arrays, some rows at a time.

    A number is any numeric type, or in Parquet a timestamp; text is dictionary-encoded.
    explain: raises WorkloadError at the first bad cell.
    """
    if is_parquet(path):
        return _parquet_blocks(path, kinds)
    if _is_json(path):
        return _json_blocks(path, kinds, explain)
    return _csv_blocks(path, kinds, explain)


def cells(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row slowly: its place, as `line 3`, and its cells as text; "" for an empty one."""
    if is_parquet(path):
        row = 0
        with _reading_parquet(path), pa.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(CHUNK):
                for values in batch.to_pylist():
                    row += 1
                    yield f"row {row}", {name: _text(value) for name, value in values.items()}
    elif _is_json(path):
        with csvfile.reading(path, what="a file of JSON lines"):
            for number, line in _json_lines(path):
                values = _json_object(path, number, line)
                yield f"line {number}", {name: _text(value) for name, value in values.items()}
    else:
        for number, row_cells in csvfile.rows(path):
            yield f"line {number}", row_cells


def place_of(path: Path, row: int) -> str:
    """The place of a row, which counts from 0."""
    return next(islice(cells(path), row, None))[0]


def _csv_blocks(
    path: Path, kinds: Mapping[str, Kind], explain: Callable[[], None]
) -> Iterator[list[Any]]:
    types = {"number": pa.float64(), "text": pa.dictionary(pa.int32(), pa.string())}
    with csvfile.reading(path, explain), csvfile.arrow_stream(path) as stream:
        for batch in pa.csv.open_csv(
            stream,
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(kinds),
                column_types={name: types[kind] for name, kind in kinds.items()},
                null_values=[],
            ),
        ):
            if batch.num_rows:
                yield list(batch.columns)


def _parquet_blocks(path: Path, kinds: Mapping[str, Kind]) -> Iterator[list[Any]]:
    row = 0
    with _reading_parquet(path), pa.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(CHUNK, columns=list(kinds)):
            columns = []
            for name, kind in kinds.items():
                column = batch.column(name)
                if column.null_count:
                    empty = row + column.is_null().to_pylist().index(True) + 1
                    raise WorkloadError(
                        f"{path.name}, row {empty}: {name} is empty; expected a value"
                    )
                columns.append(_as_text(column) if kind == "text" else column)
            row += batch.num_rows
            if batch.num_rows:
                yield columns


def _as_text(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.string()).dictionary_encode()


def _reading_parquet(path: Path) -> Any:
    return csvfile.reading(path, what="a Parquet file")


def _json_blocks(
    path: Path, kinds: Mapping[str, Kind], explain: Callable[[], None]
) -> Iterator[list[Any]]:
    # Only the fields that are asked for are decoded: a trace may have long lists in the others.
    fields = [f"f{i}" for i in range(len(kinds))]
    row_type = msgspec.defstruct(
        "Row",
        [(field, Any) for field in fields],
        rename=dict(zip(fields, kinds, strict=True)),
    )
    decoder = msgspec.json.Decoder(row_type)
    with csvfile.reading(path, what="a file of JSON lines"):
        lines = _json_lines(path)
        while taken := list(islice(lines, CHUNK)):
            rows = []
            for number, line in taken:
                try:
                    rows.append(decoder.decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise _not_json(path, number, error) from None
            columns = []
            for field, kind in zip(fields, kinds.values(), strict=True):
                values = [getattr(row, field) for row in rows]
                if kind == "text":
                    columns.append(pa.array(map(_text, values), pa.string()).dictionary_encode())
                elif all(type(value) in (int, float) for value in values):
                    columns.append(pa.array(values))
                else:
                    explain()
                    raise AssertionError(f"{path.name}: a row is bad only when read in blocks")
            yield columns


def is_parquet(path: Path) -> bool:
    """Whether the file is read as Parquet."""
    return path.suffix == ".parquet"


def _is_json(path: Path) -> bool:
    return Path(path.stem if path.suffix == ".gz" else path.name).suffix in JSON_LINES


def _json_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _json_object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(path, number, error) from None


def _not_json(path: Path, number: int, error: Exception) -> WorkloadError:
    problem = str(error)
    if "missing required field" in problem:
        return WorkloadError(
            f"{path.name}, line {number}: no field {problem.split('`')[1]}; "
            "expected it on every line"
        )
    return WorkloadError(
        f"{path.name}, line {number}: not a JSON object ({problem}); "
        "expected one on each line; is the file whole?"
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)
