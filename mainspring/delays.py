"""What messages and loops cost on this machine, from live runs.

    OUT/calibration     a run of its own: the scenario's models, another seed, at low load
    OUT/delays.toml     what was measured, as `cluster.delays_us` of a scenario takes it

With those a policy's capacity is found. At each load the delays are measured again, in its live
runs; none is compared with a simulation that has its own (mainspring.validate).
Means and spreads are taken, not medians: a server that waits for its own messages is as fast as the
mean of its round trips.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import tomli_w

from mainspring.live import Box, run_timed
from mainspring.run import Progress
from mainspring.scenario import DelaysUs, Scenario
from mainspring.world import arrivals

if TYPE_CHECKING:
    from executor.timed import Timings

OTHER_SEED: Final = 1_000_003
"""Added to the scenario's seed."""
LOAD: Final = 0.25
"""The share of the GPUs' time that the calibration asks for, if it is less than the scenario's."""
LONGEST_S: Final = 5.0
FEWEST: Final = 10
"""With fewer samples a delay counts as not measured, and is 0."""
GROUPS: Final = 50
"""A spread is given as the means of so many groups of samples, of equal size, in order: the mean
of all stays what it was."""


class MeasuredDelays(msgspec.Struct, frozen=True):
    """how: where they come from. delays_us: for the simulation. samples: of how many events each
    comes; see executor/timed.py. load: a share of capacity, where they were measured at one.
    """

    how: str
    delays_us: DelaysUs
    samples: dict[str, int]
    policy: str = ""
    load: float | None = None
    stretch: float = 1.0
    """As `cluster.stretch` of a scenario: of profiles that were measured here."""

    def __repr__(self) -> str:
        """In lines for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        at = f", {self.policy} at {self.load:.0%} of capacity" if self.load is not None else ""
        yield f"delays of this machine{at}, in microseconds: {self.how}"
        for name, us in self.delays_us.each().items():
            n = self.samples.get(name, 0)
            if not n:
                yield f"    {name} 0 (not measured)"
            elif len(us) == 1:
                yield f"    {name} {us[0]:g} (mean of {n:,})"
            else:
                middle, mean, most = np.median(us), np.mean(us), us[-1]
                yield (
                    f"    {name} {middle:.4g}, mean {mean:.4g}, "
                    f"highest {1 / len(us):.0%} {most:.4g} (n = {n:,})"
                )

        if ran := self.samples.get("stretch"):
            yield f"    batches take {self.stretch:.3f} times what their profiles say (n = {ran:,})"

    def within(self, scenario: Scenario) -> Scenario:
        """The scenario with these delays."""
        spec = scenario.spec
        cluster = msgspec.structs.replace(
            spec.cluster, delays_us=self.delays_us, stretch=self.stretch
        )
        return msgspec.structs.replace(
            scenario,
            spec=msgspec.structs.replace(spec, cluster=cluster),
            overrides=(
                *scenario.overrides,
                "(cluster.delays_us and stretch as measured on this machine)",
            ),
            written=scenario.written
            | {("cluster", "delays_us", name) for name in self.delays_us.each()}
            | {("cluster", "stretch")},
        )

    def write(self, file: Path) -> None:
        """As a table, for scenarios. Raises OSError."""
        table = msgspec.to_builtins(self)
        told = table["delays_us"]
        table["delays_us"] = {name: us for name, us in told.items() if us is not None}
        file.write_text(
            tomli_w.dumps({key: of for key, of in table.items() if of is not None}),
            encoding="utf-8",
        )


def measure_delays(
    scenario: Scenario, out: Path, policy: str, box: Box = Box(), progress: Progress | None = None  # noqa: B008
) -> "tuple[MeasuredDelays, Timings]":  # fmt: skip
    """Run the scenario live for a few seconds with another seed, and see what took how long.

    Raises ScenarioError as `run_live` does, and KeyboardInterrupt where the run was interrupted.
    """
    spec = scenario.spec
    duration_s = min(spec.duration_s, LONGEST_S)
    seed = spec.seed + OTHER_SEED
    other = msgspec.structs.replace(
        scenario,
        spec=msgspec.structs.replace(
            spec, seed=seed, duration_s=duration_s, warmup_s=min(spec.warmup_s, duration_s / 2),
            faults=[],
        ),
    )  # fmt: skip
    report = None if progress is None else partial(progress, "delays")
    _, timings = run_timed(other, out / "calibration", policy, report, box, share=_share(other))
    how = f"a live run of its own, {duration_s:g} s, seed {seed}, {LOAD:.0%} of the GPUs' time"
    came = summed_up([timings], how)
    came.write(out / "delays.toml")
    return came, timings


def work(scenario: Scenario) -> tuple[float, int]:
    """What the scenario's requests take of GPUs, in ns, in batches of the smallest size, and how
    many there are."""
    work_ns, requests = 0.0, 0
    least_ns = [next(iter(model.profile.exec.values())).mean_ns() for model in scenario.models]
    for _, models, _ in arrivals(scenario).chunks:
        work_ns += sum(least_ns[model] for model in models.tolist())
        requests += len(models)
    return work_ns, requests


def _share(scenario: Scenario) -> float:
    """The share of the requests that keep the GPUs busy for LOAD of the time, in batches of the
    smallest size."""
    work_ns, _ = work(scenario)
    time_ns = LOAD * scenario.spec.duration_s * 1e9 * scenario.spec.cluster.gpus
    return min(time_ns / max(work_ns, 1.0), 1.0)


def sum_of(timings: "Iterable[Timings]") -> "Timings":
    """The samples of several runs together."""
    from executor.timed import Timings

    total = Timings()
    for each in timings:
        total.add(each)
    return total


def summed_up(
    timings: "Sequence[Timings]", how: str, policy: str = "", load: float | None = None
) -> MeasuredDelays:
    """timings: a delay comes of the first that has enough samples of it."""
    measured: dict[str, list[float] | float] = {}
    samples: dict[str, int] = {}
    for name in DelaysUs.__struct_fields__:
        ns = next((ns for each in timings if len(ns := _samples(each)[name]) >= FEWEST), ())
        if len(ns):
            samples[name] = len(ns)
            measured[name] = _mean_us(ns) if name.startswith("decision") else _spread_us(ns)
    delays_us = msgspec.convert(measured, DelaysUs)
    ran = next((each for each in timings if each.ran >= FEWEST), None)
    if ran is not None:
        samples["stretch"] = ran.ran
    stretch = 1.0 if ran is None else round(ran.ran_ns / ran.said_ns, 4)
    return MeasuredDelays(how, delays_us, samples, policy, load, stretch)


def _samples(timings: "Timings") -> Mapping[str, Sequence[float]]:
    """In ns, by the names of delays; what is missing is not there to be measured."""
    event = timings.costs.get(0, [])
    per_event = float(np.mean(event)) if event else 0.0
    per_action = [
        (ns - per_event) / emitted
        for emitted, costs in timings.costs.items()
        if emitted
        for ns in costs
    ]
    return {
        "client_to_controller": timings.handled,
        "wake": timings.woken,
        "controller_to_worker": timings.there,
        "worker_gap": timings.gap,
        "worker_to_controller": timings.back,
        "load_to_controller": timings.back_loads,
        "overrun": [ns for each in timings.over.values() for ns in each],
        "decision_per_event": event,
        "decision_per_action": per_action,
        "poll": (),
        "controller_to_client": (),
    }


def _mean_us(ns: Sequence[float]) -> float:
    return round(max(float(np.mean(ns)), 0.0) / 1e3, 1)


def _spread_us(ns: Sequence[float]) -> list[float]:
    """The means of GROUPS groups, ascending."""
    ascending = np.sort(np.array(ns, dtype=float))
    return [_mean_us(group.tolist()) for group in np.array_split(ascending, min(GROUPS, len(ns)))]
