"""Play recorded instants: a part of them, faster or slower, again and again, or thinned out.

What is done to a recording, in this order: slice_s cuts a part out, keep throws requests away at
random, rate_scale changes the speed, repeat plays the part several times.
Not here: where the instants come from.
"""

import json
from collections.abc import Callable, Iterator

import numpy as np

from workloads.common import (
    AGAIN,
    CHUNK,
    Chunk,
    WorkloadError,
    require_positive,
    warn_of_early_end,
)
from workloads.spread import Spread


class Recorded(Spread, frozen=True, kw_only=True):
    """The fields of recorded workloads.

    path: relative to the scenario file. slice_s: only the requests of [from, to), in seconds of
    the recording; its beginning becomes start_s. keep: the share of the requests that is kept,
    each by chance. rate_scale: multiplies the rate by playing faster: with 2 all gaps are halved.
    Deadlines and durations are not scaled. repeat: how often it is played, one after the other;
    it needs slice_s where the recording does not say how long it is.
    """

    path: str
    slice_s: tuple[float, float] | None = None
    keep: float = 1.0
    rate_scale: float = 1.0
    repeat: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_scale", self.rate_scale, "a factor")
        if not 0 < self.keep <= 1:
            raise WorkloadError(f"keep = {self.keep}; expected a share, above 0 and at most 1")
        if self.repeat < 1:
            raise WorkloadError(f"repeat = {self.repeat}; expected how often, at least 1")
        if self.slice_s is not None and not 0 <= self.slice_s[0] < self.slice_s[1] <= 1e9:
            raise WorkloadError(
                f"slice_s = {list(self.slice_s)}; expected the first second and the end, "
                "such as [0, 600]"
            )

    def refuse_weights(self, instead: str) -> None:
        """Raise WorkloadError if weights are given where something else decides on the models."""
        if self.weights != "uniform":
            raise WorkloadError(
                f"weights = {json.dumps(self.weights)}; the models follow from {instead} here; "
                "expected no weights"
            )

    def play(
        self,
        read: Callable[[], Iterator[Chunk]],
        name: str,
        duration_ns: int,
        rng: np.random.Generator,
        length_ns: int | None = None,
        hint: str = "",
    ) -> Iterator[Chunk]:
        """The recording from start_s to the end of the run, which is not included.

        read: gives the recording in its own time, from 0; called once for each repetition.
        name: of the file. length_ns: how long the recording is, if it is known. hint: what may
        help if it has no request within the run.
        Raises WorkloadError if no request is within the run, and warns if the run's end is empty.
        """
        from_ns, to_ns = 0, length_ns
        if self.slice_s is not None:
            from_ns, to_ns = (round(second * 1e9) for second in self.slice_s)
        if self.repeat > 1 and to_ns is None:
            raise WorkloadError(
                f"repeat = {self.repeat}; {name} does not say how long it is; "
                "expected slice_s beside it, such as slice_s = [0, 600]"
            )
        empty = True
        end_ns = self.start_ns
        for turn in range(self.repeat):
            base_ns = self.start_ns
            if to_ns is not None:
                base_ns += round(turn * (to_ns - from_ns) / self.rate_scale)
            if base_ns >= duration_ns and turn:
                return
            seen = False
            for chunk in read():
                low = int(np.searchsorted(chunk.times_ns, from_ns))
                high = len(chunk.times_ns)
                if self.slice_s is not None and to_ns is not None:
                    high = int(np.searchsorted(chunk.times_ns, to_ns))
                done = high < len(chunk.times_ns)
                times_ns, chosen = chunk.times_ns[low:high] - from_ns, chunk.models[low:high]
                seen = seen or len(times_ns) > 0
                if self.keep < 1:
                    kept = rng.random(len(times_ns)) < self.keep
                    times_ns, chosen = times_ns[kept], chosen[kept]
                if self.rate_scale != 1:
                    times_ns = np.rint(times_ns / self.rate_scale).astype(np.int64)
                times_ns = times_ns + base_ns
                n = int(np.searchsorted(times_ns, duration_ns))
                if empty and n == 0 and len(times_ns):
                    raise WorkloadError(
                        f"{name}: the first request comes at {times_ns[0] / 1e9:g} s, and the "
                        f"run ends at {duration_ns / 1e9:g} s{hint}"
                    )
                for i in range(0, n, CHUNK):
                    yield Chunk(times_ns[i : min(i + CHUNK, n)], chosen[i : min(i + CHUNK, n)])
                empty = empty and n == 0
                end_ns = int(times_ns[-1]) if len(times_ns) else end_ns
                if n < len(times_ns):
                    return
                if done:
                    break
            if not seen and self.slice_s is not None:
                raise WorkloadError(
                    f"slice_s = {list(self.slice_s)}; {name} has no request in it; "
                    "expected seconds since its beginning"
                )
            if length_ns is not None and to_ns is not None:  # quiet ends are part of it
                end_ns = base_ns + round((min(to_ns, length_ns) - from_ns) / self.rate_scale)
        unit = "; is time_unit right?" if hint else ""
        warn_of_early_end(name, end_ns, self.start_ns, duration_ns, f"{AGAIN}{unit}")
