"""Rows as the worlds hand them over, turned into columns of 64-bit integers.

Rows wait in one flat list: `list.extend` copies a row without keeping its tuple, so a flush has no
thousands of small objects to walk and the garbage collector none to count. Everything that looks
at a run (files, digest, counters, audit) gets the same columns.
Not here: what the columns mean (scheduler.records).
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from results.errors import ResultsError
from scheduler.records import (
    ACTION_COLUMNS,
    REQUEST_COLUMNS,
    AnswerKind,
    Outcome,
    Reason,
    Status,
    Why,
)

Ints = npt.NDArray[np.int64]
Columns = dict[str, Ints]

ACTION_TYPES: Final = ("load", "unload", "infer")
LOAD, UNLOAD, INFER = range(3)
_CODE_OF_TYPE: Final = {name: code for code, name in enumerate(ACTION_TYPES)}


def names_of(enum: type[IntEnum]) -> tuple[str, ...]:
    """The members' names in lower case, at the positions of their values."""
    assert [member.value for member in enum] == list(range(len(enum))), f"{enum} has gaps"
    return tuple(member.name.lower() for member in enum)


WORDS: Final[dict[str, tuple[str, ...]]] = {
    "type": ACTION_TYPES,
    "outcome": names_of(Outcome),
    "reason": names_of(Reason),
    "kind": names_of(AnswerKind),
    "status": names_of(Status),
    "why": names_of(Why),
}
"""The columns that hold words; a row holds the position in this tuple (type: the word itself)."""


def request_columns(flat: Sequence[int]) -> Ints:
    """Requests' rows, laid end to end, as an array of one line per column."""
    return _matrix(flat, REQUEST_COLUMNS)


def action_columns(flat: list[Any]) -> Ints:
    """Actions' rows, laid end to end, as an array of one line per column. Changes `flat`."""
    at, width = ACTION_COLUMNS.index("type"), len(ACTION_COLUMNS)
    try:
        flat[at::width] = [_CODE_OF_TYPE[word] for word in flat[at::width]]
    except KeyError as error:
        raise ResultsError(
            f"{error.args[0]!r} is not a type of action; have {', '.join(ACTION_TYPES)}"
        ) from None
    return _matrix(flat, ACTION_COLUMNS)


def named(matrix: Ints, names: Sequence[str]) -> Columns:
    """The same columns by their names."""
    return dict(zip(names, matrix, strict=True))


def requests_of(rows: Iterable[tuple[int, ...]]) -> Columns:
    """A few requests' rows as columns."""
    return named(request_columns([value for row in rows for value in row]), REQUEST_COLUMNS)


def actions_of(rows: Iterable[tuple[Any, ...]]) -> Columns:
    """A few actions' rows as columns."""
    return named(action_columns([value for row in rows for value in row]), ACTION_COLUMNS)


def _matrix(flat: Sequence[int], names: Sequence[str]) -> Ints:
    width = len(names)
    if len(flat) % width:
        raise ResultsError(f"a row has not {width} values; expected {', '.join(names)}")
    values = np.fromiter(flat, np.int64, len(flat))
    return np.ascontiguousarray(values.reshape(-1, width).T)
