"""Whether a fleet meets a target, and how sure that is.

A trial runs one fleet with seed after seed until a one-sided bound decides: the mean over the
seeds less its t reach is at least the target (it meets it), or the mean and its reach are below it
(it fails). Requests of one run depend on each other, so they are never counted for themselves.
A trial is looked at up to three times; each look takes a third of the doubt (Bonferroni), so that
what is stated at 95 % holds at 95 %. All fleets get the same seeds, and so the same arrivals.
Not here: which fleets are tried (mainspring.plan).
"""

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from mainspring.document import Document, ScenarioError
from mainspring.points import Failed, Outcome, Point, Store, Workers, make_point
from mainspring.scenario import Count, PolicyChoice, Positive, Scenario, build_scenario
from mainspring.sweep import Progress, numbers_of
from mainspring.world import arrivals
from results import Summary
from results.intervals import Mean, one_sided
from scheduler.records import FOREVER

LOOKS: Final = (5, 10, 20)
"""Seeds after which a trial is looked at."""


class Verdict(StrEnum):
    """What a trial has shown."""

    MEETS = "meets"
    FAILS = "fails"
    UNDECIDED = "undecided"


class GpuKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of GPU that can be had. profile: the store, or file, with what the models cost on
    it. pages: its room for weights, if not the scenario's."""

    kind: str
    profile: str
    price_per_hour: Positive
    pages: Count | None = None


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of prices. currency: what they are in."""

    gpu: list[GpuKind]
    currency: str = "USD"


def load_prices(path: Path) -> Prices:
    """Read a table of prices. Paths in it start from its folder. Raises ScenarioError."""
    document = Document.read(path)
    prices = document.decode(Prices)
    if not prices.gpu:
        raise document.error((), "no GPUs; add a table [[gpu]] with a kind and its price_per_hour")
    kinds = [gpu.kind for gpu in prices.gpu]
    for i, gpu in enumerate(prices.gpu):
        if kinds.index(gpu.kind) < i:
            raise document.error(("gpu", i, "kind"), f'= "{gpu.kind}"; it is there twice')
    located = [
        msgspec.structs.replace(gpu, profile=str((path.parent / gpu.profile).resolve()))
        if gpu.profile.endswith(".toml")
        else gpu
        for gpu in prices.gpu
    ]
    return msgspec.structs.replace(prices, gpu=located)


class Target(NamedTuple):
    """What has to be met: the share of the requests that are answered in time, and perhaps the
    99th percentile of the answers' latency, each with that confidence."""

    attainment: float
    p99_ms: float | None
    confidence: float


class Variant(NamedTuple):
    """The scenario with something changed, but for the number of GPUs. name: for tables."""

    name: str = "as given"
    kind: GpuKind | None = None
    policy: str | None = None
    traffic: float = 1.0
    slo: float = 1.0
    all_fit: bool = False
    """Memory for all models on every GPU."""
    no_delays: bool = False


class Trial(NamedTuple):
    """What a fleet has shown. Shares are from 0 to 1, means over the seeds.

    executing: of the time that a GPU executes. cold: of the requests that found their model on
    no GPU. loads_rps: loads a second, of all GPUs.
    """

    variant: Variant
    gpus: int
    verdict: Verdict
    attainment: Mean
    p99_ms: Mean | None
    executing: float
    cold: float
    loads_rps: float
    rejected: float
    points: tuple[Point, ...]


class Lab:
    """Tries fleets, and keeps what they have shown."""

    def __init__(
        self,
        scenario: Scenario,
        policy: PolicyChoice,
        target: Target,
        store: Store,
        progress: Progress | None,
        first_seed: int = 1,
    ) -> None:
        self.scenario = scenario
        self.policy = policy
        self.target = target
        self.store = store
        self.trials: dict[tuple[Variant, int], Trial] = {}
        self.stage = ""
        self.workers: Workers | None = None
        self._progress = progress
        self._first_seed = first_seed
        self._outcomes: dict[str, Outcome] = {}

    def try_all(self, asks: Sequence[tuple[Variant, int]]) -> list[Trial]:
        """Try fleets side by side, as long as it takes to decide on each."""
        undecided = [ask for ask in dict.fromkeys(asks) if ask not in self.trials]
        for n in LOOKS:
            points = {ask: tuple(self._point(*ask, seed) for seed in range(n)) for ask in undecided}
            self._run([point for each in points.values() for point in each])
            for ask, each in points.items():
                self.trials[ask] = self._trial(*ask, each)
            undecided = [ask for ask in undecided if self.trials[ask].verdict is Verdict.UNDECIDED]
        return [self.trials[ask] for ask in asks]

    def again(self, variant: Variant, fleets: Sequence[int], seeds: int) -> list[Trial]:
        """Try fleets on seeds that no trial has seen, so many, and look once.

        A fleet that a search has found may owe that to its seeds; on others it has no such luck.
        """
        fresh = variant._replace(name=f"{variant.name}, {seeds} new seeds")
        points = {
            (fresh, n): tuple(self._point(fresh, n, max(LOOKS) + i) for i in range(seeds))
            for n in fleets
        }
        self._run([point for each in points.values() for point in each])
        for ask, each in points.items():
            self.trials[ask] = self._trial(*ask, each, looks=1)
        return [self.trials[fresh, n] for n in fleets]

    def rows(self) -> Iterator[dict[str, Any]]:
        """All that has been run, a row each."""
        for trial in self.trials.values():
            for point in trial.points:
                outcome = self._outcomes[point.address]
                yield {
                    "variant": trial.variant.name,
                    "gpus": trial.gpus,
                    "policy": point.choice.label,
                    "seed": point.seed,
                    "verdict": str(trial.verdict),
                    "error": outcome.error if isinstance(outcome, Failed) else None,
                    "directory": f"points/{point.address}",
                    "digest": outcome.digest if isinstance(outcome, Summary) else None,
                    **numbers_of(outcome),
                }

    def outcomes(self, of: Callable[[Variant], bool]) -> list[Outcome]:
        """What all runs of such variants came to."""
        return [
            self._outcomes[point.address]
            for (variant, _), trial in self.trials.items()
            if of(variant)
            for point in trial.points
        ]

    def _point(self, variant: Variant, gpus: int, seed: int) -> Point:
        scenario, choice = changed(self.scenario, self.policy, variant, gpus)
        return make_point(scenario, choice, self._first_seed + seed)

    def _run(self, points: Sequence[Point]) -> None:
        todo = [point for point in points if point.address not in self._outcomes]
        total = len(self._outcomes) + len({point.address for point in todo})

        def report(point: Point, outcome: Outcome) -> None:
            if isinstance(outcome, Failed):  # no fleet can be judged by the others
                raise ScenarioError(
                    f"{point.choice.label} on {point.scenario.spec.cluster.gpus} GPUs, "
                    f"seed {point.seed}: {outcome.error}"
                )
            self._outcomes[point.address] = outcome
            if self._progress is not None:
                self._progress(self.stage, len(self._outcomes), total)

        assert self.workers is not None, "a lab works with its workers"
        self.store.run(todo, self.workers, report)

    def _trial(
        self, variant: Variant, gpus: int, points: tuple[Point, ...], looks: int = len(LOOKS)
    ) -> Trial:
        summaries = [self._outcomes[point.address] for point in points]
        whole = [summary for summary in summaries if isinstance(summary, Summary)]
        confidence = 1 - (1 - self.target.confidence) / looks
        shares = [s.share_in_time for s in whole if s.share_in_time is not None]
        if len(shares) < len(whole):
            raise ScenarioError(
                "no request with an SLO arrives after the warm-up; a longer duration_s, or a "
                "higher rate, is needed"
            )
        attainment = one_sided(shares, confidence)
        verdicts = [_verdict(attainment, self.target.attainment, more_is_better=True)]
        p99_ms = None
        if self.target.p99_ms is not None:
            tails = [s.latency.quantiles_ms["p99"] for s in whole]
            known = [tail for tail in tails if tail is not None]
            if len(known) == len(tails):
                p99_ms = one_sided(known, confidence)
                verdicts.append(_verdict(p99_ms, self.target.p99_ms, more_is_better=False))
            elif Verdict.FAILS not in verdicts and all(
                s.outcomes["ok"] > s.arrivals * 0.99 for s in whole
            ):
                raise ScenarioError(
                    f"a run has some {whole[0].arrivals:,} requests, too few for a 99th "
                    "percentile (1,000); a longer duration_s is needed for --p99-ms"
                )
            else:
                verdicts.append(Verdict.UNDECIDED)
        return Trial(
            variant=variant,
            gpus=gpus,
            verdict=_worst(verdicts),
            attainment=attainment,
            p99_ms=p99_ms,
            executing=_mean([s.mean_gpu_utilisation or 0.0 for s in whole]),
            cold=_mean([s.cold_requests / max(1, s.arrivals) for s in whole]),
            loads_rps=_mean([s.loads_rps or 0.0 for s in whole]),
            rejected=_mean([s.outcomes["rejected"] / max(1, s.arrivals) for s in whole]),
            points=points,
        )


def _verdict(mean: Mean, target: float, *, more_is_better: bool) -> Verdict:
    assert mean.low is not None
    assert mean.high is not None
    sure, possible = (mean.low, mean.high) if more_is_better else (-mean.high, -mean.low)
    wanted = target if more_is_better else -target
    if sure >= wanted:
        return Verdict.MEETS
    return Verdict.FAILS if possible < wanted else Verdict.UNDECIDED


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    order = (Verdict.FAILS, Verdict.UNDECIDED, Verdict.MEETS)
    return min(verdicts, key=order.index)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


# -- the scenario, changed -------------------------------------------------------------------------


def changed(
    scenario: Scenario, policy: PolicyChoice, variant: Variant, gpus: int
) -> tuple[Scenario, PolicyChoice]:
    """The scenario with one policy on so many GPUs, with something changed."""
    choice = scenario.choose([variant.policy])[0] if variant.policy else policy
    table = tomllib.loads(scenario.to_toml([choice]))
    cluster = table["cluster"]
    cluster["gpus"] = gpus
    notes = [f"cluster.gpus={gpus}"]
    if variant.kind is not None:
        del table["inputs"]  # other profiles
        for models in table["models"]:
            models["profile"] = f"{variant.kind.profile}/{_pattern(models['profile'])}"
        cluster["pages"] = variant.kind.pages or cluster["pages"]
    if variant.all_fit:
        page_bytes = scenario.spec.cluster.page_mib * 2**20
        cluster["headroom"] = 0.0
        cluster["pages"] = sum(model.profile.pages(page_bytes) for model in scenario.models)
    if variant.no_delays:
        cluster["delays_us"] = {}
    for workload in table["workload"]:
        _scale_traffic(workload, variant.traffic)
        if "slo_ms" in workload:
            workload["slo_ms"] *= variant.slo
    for place in (table, *table["models"]):
        if "slo_ms" in place:
            place["slo_ms"] *= variant.slo
    if variant.name != Variant().name:
        notes.append(f"({variant.name})")
    built = build_scenario(table)
    (chosen,) = built.choose([choice.label])
    written = scenario.written | {("cluster", "gpus")}
    overrides = (*scenario.overrides, *notes)
    return msgspec.structs.replace(built, written=written, overrides=overrides), chosen


def _pattern(profile: str) -> str:
    """The part of a profile's name that says which models."""
    file, dot_toml, model = profile.partition(".toml")
    return (model if dot_toml else file.partition("/")[2]).removeprefix("/") or "*"


def _scale_traffic(workload: dict[str, Any], factor: float) -> None:
    """So many times the requests. A recording is played faster, or more often where it counts."""
    if factor == 1.0:
        return
    if workload["kind"] == "closed":
        workload["concurrency"] = math.ceil(workload["concurrency"] * factor)
        return
    for key in ("rate_rps", "from_rps", "to_rps", "rate_scale"):
        if key in workload:
            workload[key] *= factor


# -- what no fleet can do --------------------------------------------------------------------------


class Asked(NamedTuple):
    """The requests of one run in the measured span, of a stream and model together each.

    n: how many. slo_ns: FOREVER without. fastest_ns: the least time in which one is answered, on
    an idle GPU that holds the model. work_ns: the least time that a GPU works for one, its share
    of the best batch in time.
    """

    model: str
    n: int
    slo_ns: int
    fastest_ns: int
    work_ns: float


def asked(scenario: Scenario) -> list[Asked]:
    """What the open-loop streams of a scenario ask for; nothing for closed loops.

    Raises WorkloadError where a recording cannot be read.
    """
    spec = scenario.spec
    stream = arrivals(scenario)
    counts = np.zeros((len(stream.slo_ns), len(scenario.models)), dtype=np.int64)
    for times_ns, models, streams in stream.chunks:
        late = times_ns >= round(spec.warmup_s * 1e9)
        np.add.at(counts, (streams[late], models[late]), 1)
    messages_ns = 1e3 * _messages_us(scenario)
    found = []
    for i, model in enumerate(scenario.models):
        least = {batch: times.estimate_ns(0.0) for batch, times in model.profile.exec.items()}
        fastest_ns = round(min(least.values()) + messages_ns)
        for j in np.flatnonzero(counts[:, i]):
            slo_ns = stream.slo_ns[int(j)][i]
            shares = [ns / batch for batch, ns in least.items() if ns + messages_ns <= slo_ns]
            work_ns = min(shares, default=math.inf)
            found.append(Asked(model.name, int(counts[j, i]), slo_ns, fastest_ns, work_ns))
    return found


def _messages_us(scenario: Scenario) -> float:
    """What messages take for a request, at the least."""
    least = {name: min(us) for name, us in scenario.spec.cluster.delays_us.each().items()}
    ways = ("client_to_controller", "controller_to_worker", "worker_to_controller")
    return sum(least[way] for way in ways) + 2 * least["poll"] + least["controller_to_client"]


def fewest_by_work(asks: Sequence[Asked], target: Target, scenario: Scenario) -> int:
    """So many GPUs at least, for the work alone: no scheduler can do with fewer.

    Of the requests the cheapest are served, each in its best batch, and the GPUs are never idle
    from the end of the warm-up to the last deadline.
    """
    spec = scenario.spec
    with_slo = sorted((ask for ask in asks if ask.slo_ns < FOREVER), key=lambda ask: ask.work_ns)
    if not with_slo or spec.cluster.lanes > 1:  # containers that share a GPU may do more together
        return 1
    to_serve = math.floor(sum(ask.n for ask in with_slo) * target.attainment)
    work_ns = 0.0
    for ask in with_slo:
        n = min(ask.n, to_serve)
        to_serve -= n
        work_ns += n * ask.work_ns if n else 0.0
    span_ns = (spec.duration_s - spec.warmup_s) * 1e9 + max(ask.slo_ns for ask in with_slo)
    return max(1, math.ceil(work_ns / span_ns))


def impossible(asks: Sequence[Asked], target: Target) -> str | None:
    """Why no fleet of any size can meet the target, and the nearest ask that one could."""
    with_slo = [ask for ask in asks if ask.slo_ns < FOREVER]
    total = sum(ask.n for ask in with_slo)
    late = [ask for ask in with_slo if ask.fastest_ns > ask.slo_ns]
    share = 1 - sum(ask.n for ask in late) / total if total else 1.0
    if share < target.attainment:
        worst = max(late, key=lambda ask: ask.n)
        names = sorted({ask.model for ask in late})
        others = f" and {len(names) - 1} other models" if len(names) > 1 else ""
        need_ns = _quantile([(ask.fastest_ns, ask.n) for ask in with_slo], target.attainment)
        ask_less = f", or --target-attainment {math.floor(share * 1e4) / 1e4:g}" if share else ""
        return (
            f"no number of GPUs meets this: {worst.model}{others} cannot be answered within "
            f"{worst.slo_ns / 1e6:g} ms, for that takes {worst.fastest_ns / 1e6:.4g} ms on an idle "
            f"GPU, messages included; that is {1 - share:.2%} of the requests. "
            f"The nearest ask that is not ruled out: slo_ms = {_up(need_ns)}{ask_less}"
        )
    if target.p99_ms is not None and asks:
        need_ns = _quantile([(ask.fastest_ns, ask.n) for ask in asks], 0.99)
        if need_ns > target.p99_ms * 1e6:
            return (
                f"no number of GPUs meets this: on idle GPUs 1% of the requests take "
                f"{need_ns / 1e6:.4g} ms or more. The nearest ask that is not ruled out: "
                f"--p99-ms {_up(need_ns)}"
            )
    return None


def _quantile(weighted: Sequence[tuple[int, int]], share: float) -> int:
    """The value that a share of the weight does not exceed."""
    total = sum(n for _, n in weighted)
    seen = 0
    for value, n in sorted(weighted):
        seen += n
        if seen >= share * total:
            return value
    return max(value for value, _ in weighted)


def _up(ns: int) -> str:
    """Milliseconds, rounded up to a number that people would ask for."""
    return f"{math.ceil(ns / 1e4) / 100:g}"
