"""One stream of arrivals from several workloads, in the order of time.

Arrivals at the same instant come in the order of the workloads, so that a run repeats itself.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.common import Chunk


class MergedChunk(NamedTuple):
    """Some arrivals of all workloads, in order.

    times_ns, models: as in Chunk. sources: int32, shape (n,), which workload each comes from.
    """

    times_ns: npt.NDArray[np.int64]
    models: npt.NDArray[np.int32]
    sources: npt.NDArray[np.int32]


def merge(streams: Sequence[Iterator[Chunk]]) -> Iterator[MergedChunk]:
    """Merge the chunks of `streams`; `sources` in the result are their places, from 0.

    Holds about two chunks of each stream at a time.
    """
    heads = [_Head(source, stream) for source, stream in enumerate(streams)]
    while heads := [head for head in heads if head.fill()]:
        # Up to the horizon every stream is known: whatever comes next, comes after it.
        horizon_ns = min(head.last_ns for head in heads)
        for head in heads:
            head.read_beyond(horizon_ns)
        parts = [head.take_to(horizon_ns) for head in heads]
        times_ns = np.concatenate([part.times_ns for part in parts])
        order = np.argsort(times_ns, kind="stable")
        yield MergedChunk(
            times_ns[order],
            np.concatenate([part.models for part in parts])[order],
            np.concatenate([part.sources for part in parts])[order],
        )


class _Head:
    """What has been read of one stream, and not been merged yet."""

    def __init__(self, source: int, stream: Iterator[Chunk]) -> None:
        self._source = source
        self._stream = stream
        self._chunk = Chunk(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32))

    @property
    def last_ns(self) -> int:
        return int(self._chunk.times_ns[-1])

    def fill(self) -> bool:
        """Have at least one arrival; False if the stream has ended."""
        while not len(self._chunk.times_ns):
            chunk = next(self._stream, None)
            if chunk is None:
                return False
            self._chunk = chunk
        return True

    def read_beyond(self, horizon_ns: int) -> None:
        """Read on while the next chunk may still begin at the horizon."""
        while self.last_ns <= horizon_ns:
            chunk = next(self._stream, None)
            if chunk is None:
                return
            self._chunk = Chunk(
                np.concatenate([self._chunk.times_ns, chunk.times_ns]),
                np.concatenate([self._chunk.models, chunk.models]),
            )

    def take_to(self, horizon_ns: int) -> MergedChunk:
        """Take out what arrives by the horizon."""
        times_ns, models = self._chunk
        n = int(np.searchsorted(times_ns, horizon_ns, side="right"))
        self._chunk = Chunk(times_ns[n:], models[n:])
        return MergedChunk(times_ns[:n], models[:n], np.full(n, self._source, dtype=np.int32))
