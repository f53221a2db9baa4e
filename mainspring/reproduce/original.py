"""The original Clockwork controller, run with its own emulated GPUs, beside ours.

The tolerances are set before the run and hold for every row.
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mainspring.document import ScenarioError
from mainspring.reproduce.rows import Row
from mainspring.scenario import Scenario, load_scenario
from mainspring.world import build_world
from scheduler.records import Outcome

ORIGINAL_SCENARIO = Path(__file__).parent / "original.toml"

LEAD_IN_S = 5.0
"""What the recorded runs leave out at their start, counted from the first answer."""


class Quantity(NamedTuple):
    """What is compared, and how far off it may be: relative, or absolute, whichever is more."""

    name: str
    column: str
    relative: float
    absolute: float = 0.0


QUANTITIES = (
    Quantity("goodput (req/s)", "goodput_rps", 0.02),
    Quantity("share in time", "satisfaction", 0.02),
    Quantity("p50 (ms)", "lat_p50", 0.05, 0.5),
    Quantity("mean batch", "mean_batch", 0.05),
)


def original(data: Path, policy: str = "artifact") -> Iterator[Row]:
    """The rows of set-up C that offer 15 copies a Poisson load at an SLO of 100 ms, by rate.

    data: the folder with summary.csv. policy: a label of original.toml. Raises ScenarioError
    where the data are not there.
    """
    for run in sorted(_recorded(data), key=lambda run: float(run["offered_rps"])):
        obtained = simulate(run, policy)
        for quantity in QUANTITIES:
            reference = float(run[quantity.column])
            yield _row(run["run"], quantity, reference, obtained[quantity.column])


def simulate(run: dict[str, str], policy: str) -> dict[str, float]:
    """Run a recorded run again; the columns of summary.csv that are compared."""
    _, models, rate = run["workload"].split()
    window_s = float(run["window_s"])
    scenario = load_scenario(
        ORIGINAL_SCENARIO,
        [
            f"models.0.copies={models}",
            f"workload.0.rate_rps={rate}",
            f"cluster.gpus={run['gpus']}",
            f"cluster.pages={run['pages_per_gpu']}",
            f"duration_s={math.ceil(LEAD_IN_S + window_s + 2)}",
        ],
    )
    return _measure(_fates(scenario, policy), window_s)


class _Fates:
    """A sink that keeps what is compared."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, int]] = []
        self.batches: list[tuple[int, int]] = []

    def request(self, row: tuple[Any, ...]) -> None:
        """Keep arrival, end and outcome."""
        self.requests.append((row[3], row[5], row[6]))

    def action(self, row: tuple[Any, ...]) -> None:
        """Keep end and size of a batch that was run."""
        if row[1] == "infer" and row[13] == 0:
            self.batches.append((row[11], row[4]))


def _fates(scenario: Scenario, policy: str) -> _Fates:
    fates = _Fates()
    (choice,) = scenario.choose([policy])
    world = build_world(scenario, choice.build(), fates)
    world.run(round(scenario.spec.duration_s * 1e9), round(scenario.spec.drain_s * 1e9))
    return fates


def _measure(fates: _Fates, window_s: float) -> dict[str, float]:
    """The recorded runs measure by departure, from LEAD_IN_S after the first."""
    arrival, end, outcome = np.array(fates.requests, dtype=np.int64).T
    start_ns = end.min() + LEAD_IN_S * 1e9
    stop_ns = start_ns + window_s * 1e9
    inside = (end >= start_ns) & (end < stop_ns)
    answered = inside & (outcome <= Outcome.LATE)
    in_time = inside & (outcome == Outcome.OK)
    batches = np.array([size for at, size in fates.batches if start_ns <= at < stop_ns])
    return {
        "goodput_rps": float(in_time.sum() / window_s),
        "satisfaction": float(in_time.sum() / inside.sum()),
        "lat_p50": float(np.median((end - arrival)[answered]) / 1e6)
        if answered.any()
        else math.inf,
        "mean_batch": float(batches.mean()) if len(batches) else 0.0,
    }


def _recorded(data: Path) -> Iterator[dict[str, str]]:
    file = data / "summary.csv"
    if not file.is_file():
        raise ScenarioError(
            f"{file}: no such file; give the folder of the recorded runs with --data"
        )
    with file.open(newline="", encoding="utf-8") as stream:
        for run in csv.DictReader(stream):
            if run["run"].startswith("e1c_r") and "rep" not in run["run"]:
                yield run


def _row(figure: str, quantity: Quantity, reference: float, obtained: float) -> Row:
    allowed = max(quantity.relative * reference, quantity.absolute)
    tolerance = f"{quantity.relative:.0%}"
    if quantity.absolute:
        tolerance += f" or {quantity.absolute:g}"
    holds = abs(obtained - reference) <= allowed
    return Row(
        figure=figure,
        quantity=quantity.name,
        reference=reference,
        source="run of the original",
        obtained=obtained,
        difference=obtained / reference - 1,
        tolerance=tolerance,
        verdict="holds" if holds else "falls short",
    )
