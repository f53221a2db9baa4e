"""Files that are whole or not there: written beside their place, forced to disk, then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results.errors import ResultsError

SUMMARY = "summary.json"
OUTCOMES = "outcomes.parquet"
ACTIONS = "actions.parquet"
SECONDS = "seconds.parquet"
LATENCY = "latency.hdr"


def part_of(path: Path) -> Path:
    """Where a file stays until it is whole."""
    return path.with_name(path.name + ".part")


def publish(path: Path) -> None:
    """Give a finished `.part` its name. It survives a power cut from here on."""
    with naming(path):
        _force(part_of(path))
        part_of(path).replace(path)
        _force(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file, whole or not at all. Raises ResultsError."""
    with naming(path):
        part_of(path).write_bytes(content)
    publish(path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say which file could not be written, and what to do, where the system only says why."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise ResultsError(
            f"{path}: cannot be written ({why}); make room or choose another directory, "
            "then run again"
        ) from error


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
