"""Requests at a rate that somebody wrote down: a peak, a plan, a day in steps.

The steps are in the scenario, or in a CSV file with one row a step.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from workloads.common import Chunk, WorkloadError, require_positive
from workloads.csvfile import header, require_columns, rows
from workloads.spread import Floats
from workloads.stretch import Stretched

DAY_S: Final = 86_400.0


class Steps(Stretched, frozen=True, kw_only=True, tag_field="kind", tag="steps"):
    """Open-loop arrivals at a rate that changes in steps.

    steps: [second, rate_rps] for each step, the first one at second 0; a rate is over all models
    together and holds until the next step, the last one to the end of the run.
    path: a CSV file (.csv or .csv.gz) with the columns start_s and rate_rps instead, relative to
    the scenario file. rate_scale: multiplies all rates. period_s: begin anew after so long.
    """

    steps: list[tuple[float, float]] = msgspec.field(default_factory=list)
    path: str | None = None
    rate_scale: float = 1.0
    period_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.steps) == (self.path is not None):
            raise WorkloadError(
                "expected either steps, such as [[0, 10], [60, 200]], or the path of a CSV file "
                "with the columns start_s and rate_rps"
            )
        require_positive("rate_scale", self.rate_scale, "a factor")
        if self.period_s is not None:
            require_positive("period_s", self.period_s, "seconds")
        places = [f"steps = {list(step)}" for step in self.steps]
        self._check(list(self.steps), places)

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """Arrivals from start_s to the end of the run, which is not included.

        models: what `select` gave. model_names: of all models of the run (not used here).
        A longer run has the arrivals of a shorter one, and more.
        Raises WorkloadError if the file cannot be read or a step makes no sense.
        """
        times = self.through_knots(self._knots(), duration_ns, rng)
        return self.spread(times, models, duration_ns, rng)

    def read(self) -> list[tuple[float, float]]:
        """The steps, as [second, rate_rps], before rate_scale."""
        if self.path is None:
            return list(self.steps)
        path = Path(self.path)
        require_columns(path, header(path), ("start_s", "rate_rps"))
        steps, places = [], []
        for line, cells in rows(path):
            place = f"{path.name}, line {line}"
            try:
                steps.append((float(cells["start_s"]), float(cells["rate_rps"])))
            except ValueError:
                raise WorkloadError(
                    f"{place}: start_s {cells['start_s'] or 'is empty'}, rate_rps "
                    f"{cells['rate_rps'] or 'is empty'}; expected two numbers"
                ) from None
            places.append(place)
        self._check(steps, places)
        return steps

    def _check(self, steps: Sequence[tuple[float, float]], places: Sequence[str]) -> None:
        """Raise WorkloadError at the first step that makes no sense. places: names of the steps."""
        for (start_s, rate_rps), place in zip(steps, places, strict=True):
            if not 0 <= start_s < math.inf:
                raise WorkloadError(f"{place}: {start_s} is not a time; expected seconds from 0 on")
            if not 0 <= rate_rps < math.inf:
                raise WorkloadError(
                    f"{place}: {rate_rps} is not a rate; expected requests a second, at least 0"
                )
        if steps and steps[0][0] != 0:
            raise WorkloadError(
                f"{places[0]}: the first step is at {steps[0][0]:g} s; expected one at 0, "
                "such as [0, 0] for an idle beginning"
            )
        for i, ((start_s, _), (next_s, _)) in enumerate(pairwise(steps)):
            if next_s <= start_s:
                raise WorkloadError(
                    f"{places[i + 1]}: {next_s:g} s comes after {start_s:g} s; "
                    "expected rising times, one step each"
                )
        if steps and self.period_s is not None and steps[-1][0] >= self.period_s:
            raise WorkloadError(
                f"period_s = {self.period_s}; expected more than the time of the last step, "
                f"{steps[-1][0]:g} s"
            )
        if steps and not any(rate_rps for _, rate_rps in steps):
            raise WorkloadError(f"{places[0]}: all rates are 0; expected one above 0")

    def _knots(self) -> Iterator[tuple[Floats, Floats]]:
        steps = np.array(self.read())
        starts_s, rates = steps[:, 0], steps[:, 1] * self.rate_scale
        repeated = self.period_s is not None
        end_s = self.period_s if self.period_s is not None else float(starts_s[-1]) + DAY_S
        ends_s = np.append(starts_s[1:], end_s)
        arrivals = np.cumsum(rates * (ends_s - starts_s))
        yield ends_s, arrivals
        at_s, expected = end_s, float(arrivals[-1])
        while True:
            if repeated:
                yield at_s + ends_s, expected + arrivals
                at_s, expected = at_s + end_s, expected + float(arrivals[-1])
            else:
                at_s, expected = at_s + DAY_S, expected + float(rates[-1]) * DAY_S
                yield np.array([at_s]), np.array([expected])
