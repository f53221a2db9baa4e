"""Read CSV files, plain or gzipped, and say where they are wrong.

pyarrow reads them fast but reports errors by block; so when it fails, the file is read again
slowly, row by row, to name the line. Line numbers count from 1, the header included.
"""

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from workloads.common import WorkloadError, close_to, shortened


def header(path: Path) -> list[str]:
    """Names of the columns.

    Raises WorkloadError if there are none, one is there twice, or no row comes below them.
    """
    with reading(path):
        first_two = [cells for _, cells in islice(_lines(path), 2)]
    if not first_two:
        raise WorkloadError(f"{path.name} is empty; expected a line with the names of its columns")
    names = first_two[0]
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise WorkloadError(f"{path.name}: two columns are named {twice[0]}; rename one of them")
    if len(first_two) == 1:
        raise WorkloadError(f"{path.name} has no rows; expected at least one below its header")
    return names


def require_columns(path: Path, names: list[str], needed: Iterable[str]) -> None:
    """Raise WorkloadError if the file lacks one of the columns `needed`."""
    for column in needed:
        if column not in names:
            commas = any(mark in names[0] for mark in ";\t|") and len(names) == 1
            raise WorkloadError(
                f"{path.name} has no column {column}{close_to(column, names)}; "
                f"expected it beside {shortened(names)}"
                + ("; columns are to be parted by commas" if commas else "")
            )


def rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Each row slowly: its line, and its cells by the name of their column.

    Raises WorkloadError for a row that is shorter or longer than the header.
    """
    with reading(path):
        lines = _lines(path)
        _, names = next(lines)
        for line, cells in lines:
            if len(cells) != len(names):
                raise WorkloadError(
                    f"{path.name}, line {line}: {len(cells)} of {len(names)} cells; "
                    "expected one for each column of the header"
                )
            yield line, dict(zip(names, cells, strict=True))


def line_of(path: Path, row: int) -> int:
    """The line of a row, which counts from 0."""
    return next(line for i, (line, _) in enumerate(rows(path)) if i == row)


@contextmanager
def reading(
    path: Path, explain: Callable[[], None] | None = None, what: str = "a CSV file"
) -> Iterator[None]:
    """Turn what goes wrong while a file is read into one line.

    explain: looks at the file row by row, and raises WorkloadError at the first bad cell.
    what: the kind of file that was expected.
    """
    try:
        yield
    except (gzip.BadGzipFile, zlib.error, EOFError):
        raise _damaged(path) from None
    except UnicodeDecodeError:
        raise WorkloadError(f"{path.name} is not UTF-8 text; expected {what}") from None
    except csv.Error as error:
        raise WorkloadError(f"{path.name} is not a CSV file: {error}") from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | IsADirectoryError | PermissionError):
            raise WorkloadError(f"{path}: {error.strerror}; expected {what}") from None
        _require_sound_gzip(path)
        if explain is not None:
            explain()
        raise WorkloadError(f"{path.name}: {str(error).splitlines()[0]}") from None


def arrow_stream(path: Path) -> Any:
    """The file's bytes for pyarrow, unpacked if its name ends in .gz."""
    return pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None)


def _require_sound_gzip(path: Path) -> None:
    """Damage shows up as nonsense in some row; do not blame the row for it."""
    if path.suffix == ".gz":
        try:
            with gzip.open(path) as file:
                while file.read(2**20):
                    pass
        except (gzip.BadGzipFile, zlib.error, EOFError):
            raise _damaged(path) from None


def _damaged(path: Path) -> WorkloadError:
    return WorkloadError(
        f"{path.name}: the gzip data is torn or damaged; fetch or write the file again"
    )


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        for cells in reader:
            if cells:
                yield reader.line_num, cells
