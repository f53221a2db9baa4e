"""How many GPUs it takes, what binds, how much headroom that leaves, and what to change next.

The answers come in this order, each from runs that are kept: DIR/plan.json, DIR/table.parquet with
every run, DIR/points/ with the runs themselves. The same call goes on where it stopped.

More GPUs do not always serve more in time, so no order is assumed: below the first fleet that
meets the target every smaller one is tried that the work alone does not rule out (or, where those
are many, a sample of them, which is said), and two beyond it.
Not here: how a fleet is judged (mainspring.trials).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from mainspring.document import ScenarioError
from mainspring.points import opened
from mainspring.runs import to_pandas
from mainspring.scenario import Scenario, build_scenario, load_scenario
from mainspring.sweep import TABLE, Progress, as_table, warnings_of, workers_of, write_table
from mainspring.trials import (
    GpuKind,
    Lab,
    Prices,
    Target,
    Trial,
    Variant,
    Verdict,
    asked,
    changed,
    fewest_by_work,
    impossible,
    load_prices,
)
from results.files import write_whole
from results.intervals import Mean
from results.table import percent, plain_table

PLAN: Final = "plan.json"
MOST: Final = 64
"""The largest fleet that is tried, unless the caller says otherwise."""
BETWEEN: Final = 12
"""So many fleets below the first that meets the target are tried; if there are more, a sample."""
BUSY: Final = 0.8
"""Above that share of its time an engine is what binds: what is left is waiting by chance."""
TRAFFIC: Final = (1.2, 2.0)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One fleet as it was tried. Shares are from 0 to 1; low and high are one-sided bounds."""

    variant: str
    gpus: int
    verdict: str
    seeds: int
    attainment: float
    attainment_low: float
    attainment_high: float
    p99_ms: float | None
    p99_ms_high: float | None
    executing: float
    cold: float
    loads_rps: float
    rejected: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan came to.

    feasible: whether a fleet meets the target; if not, why says what stands in the way.
    gpus, kind, price_per_hour: the fleet. survives_loss_with: GPUs with which it still meets the
    target when one is lost. binds, headroom, next: sentences. fleets: all that was tried.
    """

    scenario: str
    policy: str
    target_attainment: float
    target_p99_ms: float | None
    confidence: float
    feasible: bool
    interrupted: bool
    why: str
    kind: str
    gpus: int | None
    price_per_hour: float | None
    currency: str
    survives_loss_with: int | None
    fleet: list[str]
    binds: list[str]
    headroom: list[str]
    next: list[str]
    notes: list[str]
    fleets: list[Row]


class Plan:
    """An answer and where its evidence is. Printed, it is the four answers."""

    def __init__(self, directory: Path, answer: Answer) -> None:
        self.directory = directory
        self.answer = answer

    @property
    def gpus(self) -> int | None:
        """The fewest GPUs that meet the target; None if none do, or it is not known yet."""
        return self.answer.gpus

    def frame(self) -> Any:
        """Every fleet that was tried as a pandas DataFrame, a line each."""
        rows = [msgspec.to_builtins(row) for row in self.answer.fleets]
        return to_pandas(pa.Table.from_pylist(rows))

    def to_json(self) -> bytes:
        """The answer as JSON."""
        return msgspec.json.format(msgspec.json.encode(self.answer), indent=2)

    def __repr__(self) -> str:
        return "\n".join(_text(self.answer)) + "\n"


def plan(
    scenario: Scenario | str | Path | Mapping[str, Any],
    target_attainment: float = 0.999,
    *,
    p99_ms: float | None = None,
    policy: str | None = None,
    max_gpus: int = MOST,
    prices: str | Path | None = None,
    confidence: float = 0.95,
    first_seed: int = 1,
    confirm: int = 0,
    overrides: Sequence[str] = (),
    out: str | Path | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Find the fewest GPUs that meet a target, or the cheapest of several kinds.

    target_attainment: the share of the requests with an SLO that are answered in time. p99_ms:
    and the 99th percentile of the answers' latency. confidence: of each one-sided bound, over the
    seeds. policy: the scenario's first by default. prices: a TOML file with the kinds of GPU that
    can be had. first_seed: the others follow it. confirm: so many new seeds, 2 at least, on which
    the fleet that was found, one fewer and one more are tried again. Ctrl-C gives what is known
    until then. Raises ScenarioError where the question cannot be asked; a target that no fleet
    meets is an answer.
    """
    if confirm < 0 or confirm == 1:
        raise ScenarioError(f"--confirm {confirm}; expected 2 new seeds or more, for an interval")
    if not 0 < target_attainment <= 1:
        raise ScenarioError(
            f"--target-attainment {target_attainment}; expected a share above 0 and up to 1, "
            "as 0.999 for 99.9%"
        )
    if p99_ms is not None and not 0 < p99_ms < math.inf:
        raise ScenarioError(f"--p99-ms {p99_ms:g}; expected milliseconds above 0")
    if isinstance(scenario, Scenario):
        loaded = scenario
    elif isinstance(scenario, Mapping):
        loaded = build_scenario(scenario, overrides)
    else:
        loaded = load_scenario(scenario, overrides)
    if not any(model.slo_ns for model in loaded.models) and not any(
        workload.slo_ms for workload in loaded.spec.workload
    ):
        raise ScenarioError(f"{loaded.spec.name} has no SLO to attain; add slo_ms = ...")
    table = load_prices(Path(prices)) if prices is not None else None
    home = Path("runs") / f"plan-{loaded.spec.name}" if out is None else Path(out)
    choice = loaded.choose([policy] if policy else [])[0]
    target = Target(target_attainment, p99_ms, confidence)
    with opened(home) as store:
        lab = Lab(loaded, choice, target, store, progress, first_seed)
        planner = _Planner(lab, table, max_gpus, confirm)
        try:
            with workers_of(executor, jobs, dask) as lab.workers:
                planner.find()
        except KeyboardInterrupt:
            planner.interrupted = True
        answer = planner.answer()
        rows = list(lab.rows())
        if rows:
            keys = ("variant", "gpus", "policy", "verdict")
            write_table(as_table(rows, keys, {"plan": loaded.spec.name}), home / TABLE)
        came = Plan(home, answer)
        write_whole(home / PLAN, came.to_json() + b"\n")
    return came


def is_study(directory: Path) -> bool:
    """Whether a directory is that of a sweep or a plan: many runs, with a table of them."""
    return (directory / PLAN).is_file() or (directory / TABLE).is_file()


class _Planner:
    """The search, and what has come of it so far."""

    def __init__(self, lab: Lab, prices: Prices | None, max_gpus: int, confirm: int) -> None:
        self.lab = lab
        self._confirm = confirm
        self.interrupted = False
        self._prices = prices
        self._max_gpus = max_gpus
        self._base = Variant()
        self._best: Trial | None = None
        self._why = ""
        self._survives: int | None = None
        self._binds: list[str] = []
        self._headroom: list[str] = []
        self._next: list[str] = []
        self._notes: list[str] = []
        self._lines: list[str] = []
        self._confirmed: list[str] = []

    # ---- what fleet

    def find(self) -> None:
        """Answer the four questions in their order."""
        for kind in self._prices.gpu if self._prices else [None]:
            self._find_of(kind)
        if self._best is None:
            return
        self._base = self._best.variant
        self._around()
        self._on_new_seeds()
        self._what_binds()
        self._how_much_headroom()

    def _find_of(self, kind: GpuKind | None) -> None:
        variant = Variant(name=kind.kind if kind else "as given", kind=kind)
        name = f"{kind.kind}: " if kind else ""
        self.lab.stage = f"{name}fewest GPUs"
        asks = asked(self._scenario(variant))
        if (reason := impossible(asks, self.lab.target)) is not None:
            self._lines.append(name + reason)
            self._why = self._why or name + reason
            return
        least = fewest_by_work(asks, self.lab.target, self._scenario(variant))
        most = self._max_gpus
        if kind and self._best and self._best.variant.kind:
            paid = self._best.gpus * self._best.variant.kind.price_per_hour
            most = min(most, math.ceil(paid / kind.price_per_hour) - 1)
        if least > most:
            reason = f"{name}the work alone takes {least} GPUs, more than the {most} that may be"
            if kind and self._best:
                reason = f"{name}its work alone takes {least} GPUs, dearer than {self._name()}"
            self._lines.append(reason)
            self._why = self._why or reason
            return
        found = self._fewest(variant, least, most)
        if found is None:
            tried = self._tried(variant)
            best = max(tried, key=lambda trial: trial.attainment.mean or 0.0)
            reason = (
                f"{name}no fleet of {least} to {most} GPUs has been seen to meet it; the best was "
                f"{best.gpus} GPUs with {_share(best.attainment)} in time"
            )
            self._lines.append(reason)
            self._why = self._why or reason
            return
        if kind is None or self._best is None or _price(found) < _price(self._best):
            self._best = found

    def _fewest(self, variant: Variant, least: int, most: int) -> Trial | None:
        """The smallest fleet that meets the target, looking further than the first."""
        n = least
        while self.lab.try_all([(variant, n)])[0].verdict is not Verdict.MEETS:
            if n == most:
                return self._smallest(variant)
            n = min(most, max(n + 1, n * 3 // 2))
        low = max([t.gpus for t in self._tried(variant) if t.gpus < n], default=least - 1)
        if n - least > BETWEEN:
            while n - low > 1:  # the boundary first, then a sample of what is below
                middle = (low + n) // 2
                if self.lab.try_all([(variant, middle)])[0].verdict is Verdict.MEETS:
                    n = middle
                else:
                    low = middle
            step = math.ceil((n - least) / BETWEEN)
            below = list(range(least, n, step))
            if step > 1:
                self._notes.append(
                    f"between {least} and {n} GPUs every {_th(step)} fleet was tried, not all"
                )
        else:
            below = list(range(least, n))
        self.lab.try_all([(variant, gpus) for gpus in below])
        found = self._smallest(variant)
        assert found is not None
        beyond = [found.gpus + i for i in (1, 2) if found.gpus + i <= self._max_gpus]
        for trial in self.lab.try_all([(variant, gpus) for gpus in beyond]):
            if trial.verdict is not Verdict.MEETS:
                self._notes.append(
                    f"not monotone: {found.gpus} GPUs meet the target, {trial.gpus} have not been "
                    f"seen to ({_share(trial.attainment)} in time)"
                )
        return found

    def _around(self) -> None:
        """One fewer, one more, and the fleet that stands the loss of one."""
        best = self._best
        assert best is not None
        self.lab.stage = "one fewer, one more"
        asks = [(self._base, n) for n in (best.gpus - 1, best.gpus + 1) if n >= 1]
        self.lab.try_all(asks)
        n = best.gpus + 1
        while n <= best.gpus + 4:
            pair = self.lab.try_all([(self._base, n - 1), (self._base, n)])
            if all(trial.verdict is Verdict.MEETS for trial in pair):
                self._survives = n
                break
            n += 1

    def _on_new_seeds(self) -> None:
        """What the fleet, one fewer and one more do on seeds that took no part in the search."""
        best = self._best
        assert best is not None
        if not self._confirm:
            return
        self.lab.stage = "new seeds"
        fleets = [n for n in (best.gpus - 1, best.gpus, best.gpus + 1) if n >= 1]
        trials = self.lab.again(self._base, fleets, self._confirm)
        self._confirmed = [
            f"on {self._confirm} new seeds {_gpus(trial.gpus)}: {_does(trial)}" for trial in trials
        ]

    # ---- what binds

    def _what_binds(self) -> None:
        """Try the fleet that is one too small with one thing at a time made better."""
        best, base = self._best, self._base
        assert best is not None
        self.lab.stage = "what binds"
        small, where = self._too_small()
        if small is None:
            self._binds = ["nothing binds: one GPU meets the target at twice the traffic, too"]
            return
        pages = sum(model.profile.pages(self._page_bytes) for model in self._models(base))
        have = self._scenario(small.variant).spec.cluster.usable_pages
        delays = self._scenario(small.variant).spec.cluster.delays_us
        reliefs: dict[str, Variant] = {}
        if pages > have:
            reliefs["memory"] = small.variant._replace(name="all models fit", all_fit=True)
        if delays.any():
            reliefs["messages"] = small.variant._replace(name="no delays", no_delays=True)
        reliefs["SLO"] = small.variant._replace(name="twice the SLO", slo=2.0)
        for choice in self.lab.scenario.policies:
            if choice.label != self.lab.policy.label:
                reliefs[f"policy {choice.label}"] = small.variant._replace(
                    name=f"policy {choice.label}", policy=choice.label
                )
        trials = dict(
            zip(
                reliefs,
                self.lab.try_all([(variant, small.gpus) for variant in reliefs.values()]),
                strict=True,
            )
        )
        helps = [name for name, trial in trials.items() if trial.verdict is Verdict.MEETS]
        pcie = self._copying(small)
        figures = (
            f"on {where} the GPUs execute {small.executing:.0%} of the time and copy weights "
            f"{pcie:.0%} of it; {small.cold:.1%} of the requests find their model on no GPU; "
            f"{pages:,} pages of weights meet {have:,} a GPU"
        )
        memory = trials.get("memory")
        if memory is not None and (memory.attainment.low or 0.0) > (small.attainment.high or 0.0):
            # So it helps, beyond chance: weights have to come and go, over PCIe.
            what = "PCIe" if pcie > BUSY else "memory"
            text = (
                f"{what} binds: with room for all models on every GPU {_gpus(small.gpus)} would "
                f"answer {_share(memory.attainment)} in time, not {_share(small.attainment)}"
            )
        elif "messages" in helps:
            text = f"the network binds: without any delay {small.gpus} would meet the target"
        elif small.executing > BUSY:
            text = "execution binds"
        elif pcie > BUSY:
            text = "PCIe binds: the copying of weights"
        elif "SLO" in helps:
            text = (
                "execution binds, in bursts: the GPUs are idle part of the time, but what comes "
                f"at once cannot be done within the SLO; with twice the SLO {small.gpus} would do"
            )
        else:
            text = "no single resource binds: nothing that was tried helps by itself"
        self._binds = [text, figures, *self._slo_beside_batch()]
        self._what_next(trials, small, where)

    def _too_small(self) -> tuple[Trial | None, str]:
        best, base = self._best, self._base
        assert best is not None
        if best.gpus > 1:
            (trial,) = self.lab.try_all([(base, best.gpus - 1)])
            return trial, f"{_gpus(trial.gpus)}, one fewer,"
        for traffic in TRAFFIC:
            (trial,) = self.lab.try_all([(_at(base, traffic), 1)])
            if trial.verdict is not Verdict.MEETS:
                return trial, f"1 GPU at {traffic:g} times the traffic"
        return None, ""

    def _slo_beside_batch(self) -> Iterator[str]:
        """Where the SLO leaves no room for a batch, say so."""
        tight = [
            ask
            for ask in asked(self._scenario(self._base))
            if ask.fastest_ns <= ask.slo_ns < 2 * ask.fastest_ns
        ]
        if tight:
            worst = max(tight, key=lambda ask: ask.fastest_ns / ask.slo_ns)
            yield (
                f"the SLO is close to the time of a batch of one: {worst.model} takes "
                f"{worst.fastest_ns / 1e6:.4g} of {worst.slo_ns / 1e6:g} ms with messages, so "
                "there is no room to wait or to batch"
            )

    def _copying(self, trial: Trial) -> float:
        """The share of the time that a GPU copies weights, in the trial's first run."""
        from results import read_actions

        directory = self.lab.store.directory(trial.points[0])
        actions = read_actions(directory)
        spec = trial.points[0].scenario.spec
        from_ns, to_ns = round(spec.warmup_s * 1e9), round(spec.duration_s * 1e9)
        loads = actions.filter(actions["type"].cast("string").to_numpy() == "load")
        start = loads["start_ns"].to_numpy(zero_copy_only=False)
        end = loads["end_ns"].to_numpy(zero_copy_only=False)
        inside = (end.clip(from_ns, to_ns) - start.clip(from_ns, to_ns))[start >= 0]
        return float(inside.clip(0).sum()) / ((to_ns - from_ns) * trial.gpus)

    # ---- how much headroom, and what next

    def _how_much_headroom(self) -> None:
        best, base = self._best, self._base
        assert best is not None
        for traffic in TRAFFIC:
            self.lab.stage = f"headroom at {traffic:g} times the traffic"
            variant = _at(base, traffic)
            (trial,) = self.lab.try_all([(variant, best.gpus)])
            text = f"{traffic:g} times the traffic: {_gpus(best.gpus)}, {_does(trial)}"
            if trial.verdict is not Verdict.MEETS:
                need = self._upward(variant, best.gpus + 1)
                text += f"; it takes {need.gpus}" if need else f"; nor do {self._max_gpus}"
            self._headroom.append(text)
        if best.gpus > 1:
            (lost,) = self.lab.try_all([(base, best.gpus - 1)])
            text = f"one GPU lost: {_gpus(lost.gpus)} left, {_does(lost)}"
        else:
            text = "one GPU lost: none is left"
        if self._survives:
            text += f"; {self._survives} GPUs stand it (N+1)"
        self._headroom.append(text)

    def _upward(self, variant: Variant, least: int) -> Trial | None:
        """The first fleet that meets the target, from there upward, one by one near it."""
        floor = fewest_by_work(
            asked(self._scenario(variant)), self.lab.target, self._scenario(variant)
        )
        n, failed = max(least, floor), max(least, floor) - 1
        while n <= self._max_gpus:
            if self.lab.try_all([(variant, n)])[0].verdict is Verdict.MEETS:
                self.lab.try_all([(variant, gpus) for gpus in range(failed + 1, n)])
                return self._smallest(variant, least)
            failed = n
            n = max(n + 1, n * 5 // 4)
        return None

    def _what_next(self, trials: Mapping[str, Trial], small: Trial, where: str) -> None:
        changes = {
            "memory": "room for all models on every GPU",
            "messages": "no delays at all",
            "SLO": "twice the SLO",
        }
        for name, trial in sorted(
            trials.items(), key=lambda item: -(item[1].attainment.mean or 0.0)
        ):
            what = changes.get(name, name)
            self._next.append(
                f"{what}: {where} {_share(trial.attainment)} in time, {trial.verdict}"
            )
        self._next.append(f"unchanged: {where} {_share(small.attainment)} in time, {small.verdict}")

    # ---- helpers

    def _scenario(self, variant: Variant) -> Scenario:
        return changed(self.lab.scenario, self.lab.policy, variant, 1)[0]

    def _models(self, variant: Variant) -> Sequence[Any]:
        return self._scenario(variant).models

    @property
    def _page_bytes(self) -> int:
        return self.lab.scenario.spec.cluster.page_mib * 2**20

    def _tried(self, variant: Variant) -> list[Trial]:
        return [trial for (of, _), trial in self.lab.trials.items() if of == variant]

    def _smallest(self, variant: Variant, least: int = 1) -> Trial | None:
        meets = [
            trial
            for trial in self._tried(variant)
            if trial.verdict is Verdict.MEETS and trial.gpus >= least
        ]
        return min(meets, key=lambda trial: trial.gpus, default=None)

    def _name(self) -> str:
        assert self._best is not None
        kind = self._best.variant.kind
        return f"{self._best.gpus} x {kind.kind}" if kind else _gpus(self._best.gpus)

    def answer(self) -> Answer:
        """What is known."""
        lab, best = self.lab, self._best
        kind = best.variant.kind if best else None
        if best:
            self._lines.insert(0, f"{self._name()}: {_does(best)}")
            near = {trial.gpus: trial for trial in self._tried(best.variant)}
            for n, word in ((best.gpus - 1, "one fewer"), (best.gpus + 1, "one more")):
                if n in near:
                    self._lines.append(f"{word}, {_gpus(n)}: {_does(near[n])}")
            self._lines += self._confirmed
        if self.interrupted:
            self._notes.append(
                "interrupted: this is what is known so far; the same command goes on"
            )
        cluster = self._scenario(best.variant if best else Variant()).spec.cluster
        if cluster.kept_pages:
            self._notes.append(
                f"of a GPU's {cluster.pages:,} pages weights may take {cluster.usable_pages:,}; "
                f"{cluster.kept_pages:,} are kept back (cluster.headroom)"
            )
        # More traffic than given plays a recording faster, so that it has to end early.
        self._notes += warnings_of(lab.outcomes(lambda variant: variant.traffic == 1))
        if lab.trials:
            self._notes.append(
                f"bounds: Student's t over {_range([t.attainment.n for t in lab.trials.values()])} "
                f"seeds, one-sided, {lab.target.confidence:.0%} over up to three looks (Bonferroni)"
            )
            if self._confirmed:
                self._notes.append("the bounds on new seeds are of one look")
            trials = lab.trials.values()
            same = sum(trial.attainment.low == trial.attainment.high for trial in trials)
            if same:
                self._notes.append(
                    f"for {same} of {len(trials)} fleets all seeds gave the same share: a bound "
                    "without width says that these seeds show no difference, not that it is sure"
                )
        return Answer(
            scenario=lab.scenario.spec.name,
            policy=lab.policy.label,
            target_attainment=lab.target.attainment,
            target_p99_ms=lab.target.p99_ms,
            confidence=lab.target.confidence,
            feasible=best is not None,
            interrupted=self.interrupted,
            why="" if best else self._why,
            kind=kind.kind if kind else ", ".join(_devices(lab.scenario)),
            gpus=best.gpus if best else None,
            price_per_hour=best.gpus * kind.price_per_hour if best and kind else None,
            currency=self._prices.currency if self._prices else "",
            survives_loss_with=self._survives,
            fleet=self._lines,
            binds=self._binds,
            headroom=self._headroom,
            next=self._next,
            notes=self._notes,
            fleets=[_row(trial) for trial in lab.trials.values()],
        )


def _text(answer: Answer) -> Iterator[str]:
    p99 = f" and a p99 of {answer.target_p99_ms:g} ms" if answer.target_p99_ms else ""
    yield (
        f"{answer.scenario}, {answer.policy}: {answer.target_attainment:.4%} in time{p99}, "
        f"with {answer.confidence:.0%} confidence"
    )
    price = ""
    if answer.price_per_hour is not None:
        price = f", {answer.price_per_hour:g} {answer.currency} an hour"
    if answer.gpus:
        yield f"\n1. What fleet? {_gpus(answer.gpus)} of {answer.kind}{price}"
    else:
        yield f"\n1. What fleet? {'none' if answer.why else 'not found out yet'}"
        yield from [f"   {answer.why}"] if answer.why else []
    questions = (
        ("", answer.fleet if answer.feasible else answer.fleet[1:]),
        ("\n2. What binds?", answer.binds),
        ("\n3. How much headroom?", answer.headroom),
        ("\n4. What to change next?", answer.next),
    )
    for question, lines in questions:
        if question and lines:
            yield question
        yield from (f"   {line}" for line in lines)
    if answer.fleets:
        yield "\nWhat was tried:"
        head = (
            "variant",
            "GPUs",
            "in time (%)",
            "at least (%)",
            "at most (%)",
            "executing (%)",
            "seeds",
            "verdict",
        )
        yield plain_table(
            head,
            [
                (
                    row.variant,
                    f"{row.gpus}",
                    percent(row.attainment, 4),
                    percent(row.attainment_low, 4),
                    percent(row.attainment_high, 4),
                    percent(row.executing, 1),
                    f"{row.seeds}",
                    row.verdict,
                )
                for row in sorted(answer.fleets, key=lambda row: (row.variant, row.gpus))
            ],
        )
    yield from (f"note: {note}" for note in answer.notes)


def _row(trial: Trial) -> Row:
    attainment = trial.attainment
    assert attainment.mean is not None
    assert attainment.low is not None
    assert attainment.high is not None
    return Row(
        variant=trial.variant.name,
        gpus=trial.gpus,
        verdict=str(trial.verdict),
        seeds=attainment.n,
        attainment=attainment.mean,
        attainment_low=max(0.0, attainment.low),
        attainment_high=min(1.0, attainment.high),
        p99_ms=trial.p99_ms.mean if trial.p99_ms else None,
        p99_ms_high=trial.p99_ms.high if trial.p99_ms else None,
        executing=trial.executing,
        cold=trial.cold,
        loads_rps=trial.loads_rps,
        rejected=trial.rejected,
    )


def _at(variant: Variant, traffic: float) -> Variant:
    name = "" if variant.kind is None else f"{variant.name}, "
    return variant._replace(name=f"{name}{traffic:g} times the traffic", traffic=traffic)


def _does(trial: Trial) -> str:
    words = {
        Verdict.MEETS: "meets the target",
        Verdict.FAILS: "fails it",
        Verdict.UNDECIDED: "is too close to tell",
    }
    low, high = trial.attainment.low or 0.0, trial.attainment.high or 0.0
    bound = f"at most {min(1.0, high):.4%}"
    if trial.verdict is not Verdict.FAILS:
        bound = f"at least {max(0.0, low):.4%}"
    tail = f", p99 {trial.p99_ms.mean:.4g} ms" if trial.p99_ms and trial.p99_ms.mean else ""
    return f"{words[trial.verdict]}: {_share(trial.attainment)} in time, {bound}{tail}"


def _share(mean: Mean) -> str:
    assert mean.mean is not None
    return f"{mean.mean:.4%}"


def _price(trial: Trial) -> float:
    assert trial.variant.kind is not None
    return trial.gpus * trial.variant.kind.price_per_hour


def _gpus(n: int) -> str:
    return "1 GPU" if n == 1 else f"{n} GPUs"


def _devices(scenario: Scenario) -> list[str]:
    return sorted({model.profile.device for model in scenario.models})


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


def _th(n: int) -> str:
    return f"{n}{'nd' if n == 2 else 'rd' if n == 3 else 'th'}"
