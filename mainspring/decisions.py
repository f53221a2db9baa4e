"""What a decision costs: the wall time that a policy spends on an event, on this machine.

A scenario is run in simulation with a clock around the policy's handlers, so that nothing of the
simulation is counted; what the policy writes into the controller's books is. The cost is split
into one part for each event and one for each action or answer that comes of it, by least squares:
these two are the scenario's keys `cluster.delays_us.decision_per_event` and `decision_per_action`.
Not here: what a controller of that cost can carry (figure 11 of `mainspring reproduce clockwork`).
"""

import time
from array import array
from collections.abc import Hashable
from typing import Any

import msgspec
import numpy as np

from mainspring.run import policys_fault
from mainspring.scenario import PolicyChoice, Scenario
from mainspring.world import build_world, quiet_collector
from results.table import plain_table
from scheduler.ledger import Actions
from scheduler.policy import Policy
from scheduler.records import GpuInfo, ModelInfo, Request, Result


class Kind(msgspec.Struct, frozen=True):
    """Events of one kind: how many, and what one costs in microseconds."""

    events: int
    mean_us: float
    p50_us: float
    p99_us: float


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's decisions.

    per_request_us: all that a request costs, its results and wakes included. per_event_us,
    per_action_us: the least-squares split. max_rps: what a controller that does nothing else could
    carry, on one core. timer_us: what reading the clock adds to each event, included above.
    """

    policy: str
    requests: int
    kinds: dict[str, Kind]
    per_request_us: float
    per_event_us: float
    per_action_us: float
    max_rps: float
    timer_us: float


class Timed:
    """A policy with a clock around its handlers."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.took_ns = {kind: array("q") for kind in ("request", "result", "wake")}
        self.emitted = {kind: array("q") for kind in self.took_ns}
        """Actions and answers that came of each event."""

    def __getattr__(self, name: str) -> Any:
        """What else a policy may hear of, which is rare and not timed."""
        return getattr(self._policy, name)

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        self._policy.on_start(now_ns, gpus, models, rng, out)

    def on_request(self, now_ns: int, request: Request, out: Actions) -> None:
        start_ns = time.perf_counter_ns()
        self._policy.on_request(now_ns, request, out)
        self._note("request", time.perf_counter_ns() - start_ns, out)

    def on_result(self, now_ns: int, result: Result, out: Actions) -> None:
        start_ns = time.perf_counter_ns()
        self._policy.on_result(now_ns, result, out)
        self._note("result", time.perf_counter_ns() - start_ns, out)

    def on_wake(self, now_ns: int, key: Hashable, out: Actions) -> None:
        start_ns = time.perf_counter_ns()
        self._policy.on_wake(now_ns, key, out)
        self._note("wake", time.perf_counter_ns() - start_ns, out)

    def _note(self, kind: str, took_ns: int, out: Actions) -> None:
        self.took_ns[kind].append(took_ns)
        self.emitted[kind].append(len(out.sent) + len(out.ended))


def measure_decisions(scenario: Scenario, choice: PolicyChoice) -> Decisions:
    """Run the scenario once and time each of the policy's decisions.

    The machine should do nothing else meanwhile; a busy one gives too much.
    """
    timed = Timed(choice.build())
    world = build_world(scenario, timed, _Nothing())
    try:
        with quiet_collector():
            world.run(round(scenario.spec.duration_s * 1e9), round(scenario.spec.drain_s * 1e9))
    except (Exception, SystemExit) as error:
        fault = policys_fault(choice, error, world.env.now)
        if fault is None:
            raise
        raise fault from error
    took = {kind: np.array(ns, dtype=np.float64) for kind, ns in timed.took_ns.items()}
    all_ns = np.concatenate(list(took.values()))
    emitted = np.concatenate([np.array(n, dtype=np.float64) for n in timed.emitted.values()])
    requests = len(took["request"])
    per_event_ns, per_action_ns = _split(all_ns, emitted)
    per_request_ns = float(all_ns.sum()) / max(requests, 1)
    return Decisions(
        policy=choice.label,
        requests=requests,
        kinds={kind: _kind(ns) for kind, ns in took.items() if len(ns)},
        per_request_us=per_request_ns / 1e3,
        per_event_us=per_event_ns / 1e3,
        per_action_us=per_action_ns / 1e3,
        max_rps=1e9 / per_request_ns if per_request_ns else 0.0,
        timer_us=_timer_ns() / 1e3,
    )


def _kind(took_ns: np.ndarray) -> Kind:
    p50_ns, p99_ns = np.quantile(took_ns, [0.5, 0.99])
    return Kind(len(took_ns), float(took_ns.mean()) / 1e3, float(p50_ns) / 1e3, float(p99_ns) / 1e3)


def _split(took_ns: np.ndarray, emitted: np.ndarray) -> tuple[float, float]:
    """The cost of an event and of what comes of it; neither below 0, their sum as measured.

    An event that the machine interrupted would draw the line to itself, so what takes longer than
    the 99.9th percentile is left out of its slope.
    """
    if not len(took_ns):
        return 0.0, 0.0
    usual = took_ns <= np.quantile(took_ns, 0.999)
    x, y = emitted[usual], took_ns[usual]
    spread = float(x.var())
    slope = float(((x - x.mean()) * (y - y.mean())).mean()) / spread if spread else 0.0
    most = float(took_ns.mean() / emitted.mean()) if emitted.any() else 0.0
    slope = min(max(slope, 0.0), most)
    return float(took_ns.mean() - slope * emitted.mean()), slope


def _timer_ns() -> float:
    """What two readings of the clock, one behind the other, are apart."""
    apart = [-(time.perf_counter_ns() - time.perf_counter_ns()) for _ in range(2_000)]
    return float(np.median(apart))


class _Nothing:
    """A sink that keeps nothing."""

    def request(self, row: tuple[Any, ...]) -> None:
        """Forget it."""

    def action(self, row: tuple[Any, ...]) -> None:
        """Forget it."""

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        """Forget it."""


def as_text(found: Decisions) -> str:
    """The table, and the lines for a scenario."""
    rows = [
        [
            kind,
            f"{each.events:,}",
            f"{each.mean_us:.2f}",
            f"{each.p50_us:.2f}",
            f"{each.p99_us:.2f}",
        ]
        for kind, each in found.kinds.items()
    ]
    table = plain_table(["event", "n", "mean (us)", "p50 (us)", "p99 (us)"], rows)
    return (
        f"{found.policy}: {found.per_request_us:.2f} us of deciding a request, so at most "
        f"{found.max_rps:,.0f} req/s on one core of this machine\n\n{table}\n\n"
        f"reading the clock adds {found.timer_us:.2f} us to each; as keys of a scenario:\n\n"
        f"[cluster.delays_us]\ndecision_per_event = {found.per_event_us:.2f}\n"
        f"decision_per_action = {found.per_action_us:.2f}"
    )
