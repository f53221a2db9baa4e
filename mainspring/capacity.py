"""How much a policy can carry: the highest goodput that its simulation reaches as traffic grows.

Not a closed form: what one GPU carries depends on which models lie in its memory, on the SLO, and
on how large the policy's batches get. The offered rate grows in steps from far below what the
engines could carry to far beyond it, and the best step is then narrowed down.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from mainspring.document import ScenarioError
from mainspring.run import run_alone
from mainspring.scenario import Scenario
from mainspring.trials import Variant, changed
from mainspring.world import arrivals

FIRST: Final = 0.05
LAST: Final = 2.0
"""Of what engines that never wait carry with the best batch of every model."""
STEP: Final = 1.4
NARROWED: Final = 4
"""So often the space between the best step and the next one is halved."""
LONGEST_S: Final = 6.0


class Capacity(msgspec.Struct, frozen=True):
    """rps: the highest goodput. offered_rps: the rate that gave it. own_rps: the scenario's own.

    tried: offered rates and the goodput of each, by rate.
    """

    policy: str
    rps: float
    offered_rps: float
    own_rps: float
    tried: list[tuple[float, float]]

    def __repr__(self) -> str:
        return (
            f"capacity of {self.policy}: {self.rps:,.1f} requests a second, the highest simulated "
            f"goodput (offered {self.offered_rps:,.1f}; {len(self.tried)} rates tried)"
        )


def find_capacity(
    scenario: Scenario, policy: str, progress: Callable[[str, float], None] | None = None
) -> Capacity:
    """Simulate the scenario, with the delays that it has, at growing rates.

    Raises ScenarioError where nothing arrives, or no request is answered in time at any rate.
    """
    duration_s = min(scenario.spec.duration_s, LONGEST_S)
    spec = msgspec.structs.replace(
        scenario.spec,
        duration_s=duration_s,
        warmup_s=min(scenario.spec.warmup_s, duration_s / 4),
        faults=[],
    )
    short = msgspec.structs.replace(scenario, spec=spec)
    own_rps, engines_rps = _asked(short)
    tried: dict[float, float] = {}
    with TemporaryDirectory(prefix="mainspring-") as folder:

        def goodput(rate_rps: float) -> float:
            where = Path(folder) / str(len(tried))
            tried[rate_rps] = _goodput(short, policy, rate_rps / own_rps, where)
            if progress is not None:
                progress(f"{policy}: capacity", min(len(tried) / 16, 1.0))
            return tried[rate_rps]

        rate_rps = FIRST * engines_rps
        best, best_rps = 0.0, rate_rps
        while rate_rps <= LAST * engines_rps:
            if (came := goodput(rate_rps)) > best:
                best, best_rps = came, rate_rps
            elif came < best / 2:
                break
            rate_rps *= STEP
        high_rps = best_rps * STEP
        for _ in range(NARROWED):
            middle_rps = (best_rps * high_rps) ** 0.5
            if (came := goodput(middle_rps)) > best:
                best, best_rps = came, middle_rps
            else:
                high_rps = middle_rps
    if progress is not None:
        progress(f"{policy}: capacity", 1.0)
    if not best:
        raise ScenarioError(
            f"{policy} answers nothing in time in simulation, at {FIRST:.0%} of what the engines "
            "could carry or at more; give a longer slo_ms, or --loads own"
        )
    return Capacity(policy, best, best_rps, own_rps, sorted(tried.items()))


def scaled(scenario: Scenario, policy: str, factor: float) -> Scenario:
    """The scenario with so many times the requests, of one policy."""
    (choice,) = scenario.choose([policy])
    return changed(scenario, choice, Variant(traffic=factor), scenario.spec.cluster.gpus)[0]


def _goodput(scenario: Scenario, policy: str, factor: float, where: Path) -> float:
    where.mkdir()
    other = scaled(scenario, policy, factor)
    return run_alone(other, other.choose([policy])[0], where).goodput_rps or 0.0


def _asked(scenario: Scenario) -> tuple[float, float]:
    """Requests a second of the scenario, and how many such requests the engines could carry."""
    n, work_ns = 0, 0.0
    each_ns = [
        min(durations.mean_ns() / batch for batch, durations in model.profile.exec.items())
        for model in scenario.models
    ]
    for _, models, _ in arrivals(scenario).chunks:
        n += len(models)
        work_ns += sum(each_ns[model] for model in models.tolist())
    if not n:
        raise ScenarioError("no request arrives; give the workload a rate, or a longer duration_s")
    return n / scenario.spec.duration_s, scenario.spec.cluster.gpus * 1e9 * n / work_ns
