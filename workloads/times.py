"""Turn the times of a trace into whole nanoseconds.

Numbers have a unit that somebody has to say. Date stamps, as 2023-11-16 18:15:46.6805900, keep up
to nine digits of a second, and are never moved by the local time zone: a stamp with a zone is
converted to UTC, and one without is taken to be UTC.
"""

import warnings
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workloads.common import WorkloadWarning

UNIT_NS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
UNITS: Final = (*UNIT_NS, "stamp")

LARGEST_NS: Final = 2**62

ZONED: Final = r"(Z|[+-]\d\d:?(\d\d)?)$"


class StampReader:
    """Reads the stamps of one file, and warns once if only some of them have a time zone."""

    def __init__(self, file_name: str) -> None:
        self._file_name = file_name
        self._zoned: bool | None = None
        self._warned = False

    def read(self, column: Any) -> npt.NDArray[np.int64] | None:
        """Nanoseconds since 1970 in UTC; None if one of them is not a stamp."""
        if pa.types.is_timestamp(column.type):
            stamps = column.cast(pa.timestamp("ns", column.type.tz))
            return np.asarray(stamps.cast(pa.int64()).to_numpy(zero_copy_only=False))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if not pa.types.is_string(column.type):
            return None
        text = pc.utf8_trim_whitespace(column)
        zoned = pc.match_substring_regex(text, ZONED)
        has_date = pc.match_substring_regex(text, r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d|Z|$|[+-])")
        if not pc.all(has_date).as_py():
            return None
        zoned = zoned.to_numpy(zero_copy_only=False)
        self._warn_if_mixed(zoned)
        times_ns = np.empty(len(text), dtype=np.int64)
        try:
            for mask, zone in ((zoned, "UTC"), (~zoned, None)):
                if mask.any():
                    stamps = text.filter(pa.array(mask)).cast(pa.timestamp("ns", zone))
                    times_ns[mask] = stamps.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return None
        return times_ns

    def _warn_if_mixed(self, zoned: npt.NDArray[np.bool_]) -> None:
        before = zoned[:1] if self._zoned is None else [self._zoned]
        if not self._warned and (zoned != before[0]).any():
            self._warned = True
            warnings.warn(
                f"{self._file_name}: some time stamps have a time zone and some have none; "
                "those without are taken to be UTC",
                WorkloadWarning,
                stacklevel=2,
            )
        self._zoned = bool(zoned[-1])


def numbers_ns(column: Any, unit: str) -> npt.NDArray[np.int64] | None:
    """Numbers in a unit as nanoseconds; None if one is negative, not finite or far too large.

    Whole numbers are exact. Others go through float64: exact within 104 days of zero.
    """
    if pa.types.is_integer(column.type):
        whole = column.to_numpy(zero_copy_only=False)
        if whole.min() < 0 or int(whole.max()) * UNIT_NS[unit] >= LARGEST_NS:
            return None
        return np.asarray(whole.astype(np.int64) * UNIT_NS[unit])
    if not pa.types.is_floating(column.type):
        return None
    times = column.to_numpy(zero_copy_only=False).astype(np.float64) * UNIT_NS[unit]
    # Written so that not-a-number fails too.
    if not (times.min() >= 0 and times.max() < LARGEST_NS):
        return None
    return np.asarray(np.rint(times).astype(np.int64))


def is_time(cell: str, unit: str) -> bool:
    """Whether a cell is a time of that unit."""
    if unit == "stamp":
        return StampReader("").read(pa.array([cell])) is not None
    try:
        return 0 <= float(cell) * UNIT_NS[unit] < LARGEST_NS
    except ValueError:
        return False
