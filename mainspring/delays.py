"""What messages and loops cost on this machine, from a short live run of its own.

    OUT/calibration     that run: the scenario's models, another seed, at low load
    OUT/delays.toml     what was measured, as `cluster.delays_us` of a scenario takes it

It is never the run that is judged: another seed gives other arrivals, and only a share of them is
asked. Medians are taken, for the simulation's delays are constant.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import tomli_w

from mainspring.document import ScenarioError
from mainspring.live import Box, run_timed
from mainspring.run import Progress
from mainspring.scenario import DelaysUs, Scenario

OTHER_SEED: Final = 1_000_003
"""Added to the scenario's seed."""
LOAD: Final = 0.25
"""The share of the GPUs' time that the calibration asks for, if it is less than the scenario's."""
LONGEST_S: Final = 5.0
FEWEST: Final = 10
"""With fewer samples a delay counts as not measured, and is 0."""


class MeasuredDelays(msgspec.Struct, frozen=True):
    """delays_us: for the simulation. samples: of how many events each is the median; see
    executor/timed.py. over_us: how much longer loads and batches took than their profiles say, by
    batch size; it is shown, and not given to the simulation.
    """

    how: str
    seed: int
    delays_us: DelaysUs
    samples: dict[str, int]
    over_us: dict[str, float]

    def __repr__(self) -> str:
        """In lines for a terminal."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"delays of this machine, in microseconds: {self.how}"
        given = msgspec.to_builtins(self.delays_us)
        for name in given:
            n = self.samples.get(name, 0)
            yield f"    {name} {given[name]:g}" + (f" (n = {n:,})" if n else " (not measured)")
        for key, us in self.over_us.items():
            what = "loads" if key == "load" else f"batches of {key}"
            yield f"    {what} take {us:+g} beyond their profile; the simulation does not know it"

    def within(self, scenario: Scenario) -> Scenario:
        """The scenario with these delays."""
        spec = scenario.spec
        cluster = msgspec.structs.replace(spec.cluster, delays_us=self.delays_us)
        given = msgspec.to_builtins(self.delays_us)
        return msgspec.structs.replace(
            scenario,
            spec=msgspec.structs.replace(spec, cluster=cluster),
            overrides=(
                *scenario.overrides,
                *(f"cluster.delays_us.{name}={us:g}" for name, us in given.items()),
            ),
            written=scenario.written | {("cluster", "delays_us", name) for name in given},
        )


def measure_delays(
    scenario: Scenario, out: Path, policy: str, box: Box = Box(), progress: Progress | None = None  # noqa: B008
) -> MeasuredDelays:  # fmt: skip
    """Run the scenario live for a few seconds with another seed, and see what took how long.

    Raises ScenarioError as `run_live` does, and where the run was interrupted.
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
    timings, interrupted = run_timed(other, out / "calibration", policy, LOAD, progress, box)
    if interrupted:
        raise ScenarioError(f"{out / 'calibration'} was interrupted; no delays were measured")
    event = timings.costs[0]
    per_action = [
        (ns - _median(event)) / n for n, costs in timings.costs.items() if n for ns in costs
    ]
    handled, woken, back = (_median(ns) for ns in (timings.handled, timings.woken, timings.back))
    # The simulation has `poll` before requests, wakes and results alike; a wake has nothing else.
    poll = min(woken, *(ns for ns in (handled, back) if ns)) if woken else 0.0
    samples: dict[str, Sequence[float]] = {
        "client_to_controller": timings.handled,
        "poll": timings.woken,
        "controller_to_worker": timings.there,
        "worker_gap": timings.gap,
        "worker_to_controller": timings.back,
        "decision_per_event": event,
        "decision_per_action": per_action if len(event) >= FEWEST else [],
    }
    delays = {name: _median(ns) for name, ns in samples.items()}
    delays |= {
        "client_to_controller": max(handled - poll, 0.0),
        "poll": poll,
        "worker_to_controller": max(back - poll, 0.0),
    }
    came = MeasuredDelays(
        how=f"medians of a live run of its own, {duration_s:g} s, seed {seed}, "
        f"at most {LOAD:.0%} of the GPUs' time",
        seed=seed,
        delays_us=DelaysUs(**{name: round(max(ns, 0.0) / 1e3, 1) for name, ns in delays.items()}),
        samples={name: len(ns) for name, ns in samples.items() if len(ns) >= FEWEST},
        over_us={
            key: round(_median(ns) / 1e3, 1)
            for key, ns in sorted(timings.over.items())
            if len(ns) >= FEWEST
        },
    )
    table = msgspec.to_builtins(came)
    (out / "delays.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
    return came


def _median(ns: Sequence[float]) -> float:
    """0 where there are too few."""
    return float(np.median(ns)) if len(ns) >= FEWEST else 0.0
