"""What one model costs on one device.

Nothing is invented between measurements: a batch size that was not measured is an error.
Not here: the file format (profiles.reader) and where files are (profiles.store).
"""

import warnings
from itertools import pairwise

import msgspec

from profiles.durations import Durations
from profiles.errors import ProfileError, ProfileWarning


class Profile(msgspec.Struct, frozen=True):
    """One model on one device.

    weights_bytes: what a load copies to the device. input_bytes, output_bytes: one request's
    payload. load: copying the weights to the device. exec: running a batch, by its size,
    ascending. source, licence: who measured it and on what terms it is here. note: what a
    reader should know about it.
    Raises ProfileError if a size is negative, or exec is empty or not ascending. Warns where a
    larger batch is faster than a smaller one, and keeps both as they are.
    """

    name: str
    device: str
    weights_bytes: int
    input_bytes: int
    output_bytes: int
    load: Durations
    exec: dict[int, Durations]
    source: str = ""
    licence: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.weights_bytes < 1:
            raise ProfileError(f"weights_bytes = {self.weights_bytes}; expected bytes, above 0")
        for key in ("input_bytes", "output_bytes"):
            if getattr(self, key) < 0:
                raise ProfileError(f"{key} = {getattr(self, key)}; expected bytes, at least 0")
        if not self.exec:
            raise ProfileError("exec_ms is empty; expected at least one batch size, such as 1")
        if min(self.exec) < 1:
            raise ProfileError(f"batch {min(self.exec)} in exec_ms; expected sizes of at least 1")
        if list(self.exec) != sorted(self.exec):
            raise ProfileError(f"batches {list(self.exec)} in exec_ms; expected ascending sizes")
        self._warn_if_not_monotone()

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes that were measured, ascending."""
        return tuple(self.exec)

    def at_batch(self, batch: int) -> Durations:
        """How long a batch of that size takes. Raises ProfileError if it was not measured."""
        durations = self.exec.get(batch)
        if durations is None:
            have = ", ".join(map(str, self.exec))
            raise ProfileError(
                f"no profile for {self.name} at batch {batch} (have {have}); "
                "add it, or run a batch size that was measured"
            )
        return durations

    def pages(self, page_bytes: int) -> int:
        """Pages of `page_bytes` that the weights take, the last one perhaps in part."""
        return -(-self.weights_bytes // page_bytes)

    def _warn_if_not_monotone(self) -> None:
        """Policies that try larger batches until one is too slow stop early on such a profile."""
        if complaint := self.not_monotone():
            warnings.warn(f"{complaint}; used as measured", ProfileWarning, stacklevel=3)

    def not_monotone(self) -> str:
        """Where a larger batch is faster than a smaller one, in one line; else nothing."""
        means = [(batch, durations.mean_ns()) for batch, durations in self.exec.items()]
        falls = [
            f"batch {large} ({large_ns / 1e6:g} ms) is faster than batch {small} "
            f"({small_ns / 1e6:g} ms)"
            for (small, small_ns), (large, large_ns) in pairwise(means)
            if large_ns < small_ns
        ]
        if not falls:
            return ""
        more = f", and so {len(falls) - 1} more times" if len(falls) > 1 else ""
        return f"{self.name} on {self.device}: {falls[0]}{more}"
