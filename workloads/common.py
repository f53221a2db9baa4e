"""What all workloads share: their fields, the chunks they give, and their errors.

A workload says which models it asks for, and when. Open-loop kinds give their arrivals in chunks
of arrays, so that a long run needs little memory and a request costs little time.
Not here: the sizes of inputs, and what becomes of a request.
"""

import math
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

CHUNK: Final = 16_384
"""Arrivals in a chunk, about: enough to make numpy cheap, few enough to stay in the cache."""

LARGEST: Final = 1e9
"""No rate, scale or factor that means anything is larger."""

LONGEST_MS: Final = 1e12
"""Longer than any run (31 years), and far from the end of the integers in nanoseconds."""

ENDS_EARLY: Final = 0.9
"""A recording that has ended before this share of its part of the run is not what was meant."""

AGAIN: Final = "set duration_s, or repeat, which plays it again"
"""What helps against that."""


class WorkloadError(ValueError):
    """A workload or its file is wrong. One line: the key or place, the value, the way out."""


class WorkloadWarning(UserWarning):
    """A workload's file is odd, and is used as the message says."""


class Chunk(NamedTuple):
    """Some arrivals of one workload, in order.

    times_ns: int64, shape (n,), never falling, also from one chunk to the next; since the start
    of the run. models: int32, shape (n,), index of the model that each asks for.
    """

    times_ns: npt.NDArray[np.int64]
    models: npt.NDArray[np.int32]


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every workload.

    models: names of the models that it asks for, with fnmatch wildcards. slo_ms: the time in
    which its requests want their answer, instead of the scenario's. slo_factor: the same as a
    multiple of what a batch of one takes by the model's profile. start_s: when it begins.
    Raises WorkloadError, as every workload does, if a value makes no sense.
    """

    models: list[str] | str = "*"
    slo_ms: float | None = None
    slo_factor: float | None = None
    start_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.models:
            raise WorkloadError('models is empty; expected names or patterns, such as "resnet*"')
        if self.slo_ms is not None and not 1e-6 <= self.slo_ms <= LONGEST_MS:
            raise WorkloadError(f"slo_ms = {self.slo_ms}; expected milliseconds above 0")
        if self.slo_factor is not None:
            require_positive("slo_factor", self.slo_factor, "a multiple of a batch of one's time")
            if self.slo_ms is not None:
                raise WorkloadError(
                    f"slo_factor = {self.slo_factor} beside slo_ms = {self.slo_ms}; expected one"
                )
        require_time("start_s", self.start_s, longest=LONGEST_MS / 1e3)

    @property
    def slo_ns(self) -> int | None:
        """The workload's own SLO, if it has one."""
        return None if self.slo_ms is None else round(self.slo_ms * 1e6)

    @property
    def start_ns(self) -> int:
        """When the workload begins, since the start of the run."""
        return round(self.start_s * 1e9)

    def select(self, model_names: Sequence[str]) -> list[int]:
        """Indices, ascending, of the models that this workload asks for.

        model_names: the name of every model of the run. A pattern that is itself the name of a
        model means that one alone. Raises WorkloadError for a pattern that matches none.
        """
        index = {name: model for model, name in enumerate(model_names)}
        chosen: set[int] = set()
        for pattern in [self.models] if isinstance(self.models, str) else self.models:
            if pattern in index:
                found = [index[pattern]]
            else:
                found = [m for m, name in enumerate(model_names) if fnmatchcase(name, pattern)]
            if not found:
                raise WorkloadError(
                    f'models = "{pattern}" matches no model{close_to(pattern, model_names)}; '
                    f"expected one of {shortened(model_names)}, or a pattern"
                )
            chosen.update(found)
        return sorted(chosen)


def require_time(key: str, value: float, longest: float) -> None:
    """Raise WorkloadError unless `value` is a finite time of at least 0."""
    if not 0 <= value <= longest:
        raise WorkloadError(f"{key} = {value}; expected a finite time, at least 0")


def require_positive(key: str, value: float, what: str) -> None:
    """Raise WorkloadError unless `value` is finite and above 0. `what`: what it should be."""
    if not (math.isfinite(value) and 0 < value <= LARGEST):
        limit = f"at most {LARGEST:g}" if LARGEST < value < math.inf else "finite and above 0"
        raise WorkloadError(f"{key} = {value}; expected {what}, {limit}")


def warn_of_early_end(name: str, end_ns: int, start_ns: int, duration_ns: int, so: str) -> None:
    """Warn where a recording leaves the end of a run empty: idle GPUs make every share look good.

    name: of the file. end_ns: of its last request, or of the recording where that is known;
    start_ns: its beginning; both since the start of the run, whose end is duration_ns. so: what
    may help. A run that is longer than any asks where the recording ends, and is not warned.
    """
    if duration_ns > LONGEST_MS * 1e6:
        return
    if end_ns - start_ns < ENDS_EARLY * (duration_ns - start_ns):
        warnings.warn(
            f"{name}: it ends at {end_ns / 1e9:.4g} s, and the run at {duration_ns / 1e9:g} s: "
            f"nothing is asked in between; {so}",
            WorkloadWarning,
            stacklevel=3,
        )


def require_choice(key: str, value: str, choices: Sequence[str]) -> None:
    """Raise WorkloadError unless `value` is one of `choices`.

    msgspec would check a Literal itself, but does not say what the choices are.
    """
    if value not in choices:
        quoted = ", ".join(f'"{choice}"' for choice in choices)
        raise WorkloadError(f'{key} = "{value}"; expected one of {quoted}')


def close_to(name: str, names: Sequence[str]) -> str:
    """` (did you mean ...?)`, or nothing if no name is close."""
    close = get_close_matches(name, names)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def shortened(names: Sequence[str]) -> str:
    """The first few names and how many more there are."""
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown}, ... ({len(names)} in all)"
