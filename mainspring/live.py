"""Run a scenario on live workers: real processes, real messages, real clocks.

The policy, its books, the worker's brain, the files and their audit are those of a simulated run;
what is different is who moves the time. Workers are processes of this machine, one a GPU, or are
started elsewhere (mainspring.remote); what they run is the scenario's models.N.model, on the device
that the command line names.
Not here: the processes themselves (executor).
"""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from executor.models import SPIN, Sources, known
from executor.watch import Watched, not_representative
from executor.wire import MAX_PAGES
from mainspring.crew import MOST, Crew
from mainspring.directory import default_out, kept
from mainspring.document import ScenarioError, show, suggest
from mainspring.journal import JournalWriter, header_of
from mainspring.remote import Remote, Roll
from mainspring.run import Progress, each_policy
from mainspring.runs import Run, Runs
from mainspring.scenario import PolicyChoice, Scenario
from mainspring.world import (
    Purpose,
    arrivals,
    closed_clients,
    cluster_info,
    generator,
    open_writer,
    warn_of_storms,
)
from results import ResultsError, read_summary
from results.files import write_whole
from scheduler.faults import WorkerKilled
from scheduler.journal import Recorder
from scheduler.records import Refusal
from workloads import Closed

if TYPE_CHECKING:
    from executor.controller import LiveCluster
    from executor.timed import Timings

LIVE: Final = "live.json"
"""What only a live run knows: how punctual it was, and what held for its processes."""

TIMINGS: Final = "timings.json"
"""Beside it, where they were kept: samples of how long messages and loops took."""

QUANTILES: Final = (0.5, 0.99, 0.999)


class Punctuality(msgspec.Struct, frozen=True):
    """How long after an action could begin it began, and what missed its window, and why.

    start_late_us: by quantile, over n actions. arrival_late_us: the same for requests, which
    reach the controller by its own timer. workers_away_ms: how long each worker was away that was
    lost and came back. stale_results: what lost workers said too late. hung_up_connections: those
    that were too many. devices: what each GPU's device told of itself.
    """

    n: int
    start_late_us: dict[str, float]
    arrival_late_us: dict[str, float]
    missed: dict[str, int]
    workers: list[dict[str, str]]
    clock_error_us: list[float]
    dropped_messages: int
    device_errors: dict[str, int] = {}
    workers_away_ms: list[float] = []
    stale_results: int = 0
    hung_up_connections: int = 0
    devices: list[Watched] = []


class Box(NamedTuple):
    """What the workers run on, the operator's own models, and where the workers are; None: here."""

    device: Literal["cpu", "cuda"] = "cpu"
    sources: Sources = Sources()
    remote: Remote | None = None


class LiveRun(Run, frozen=True):
    """One policy's live run."""

    punctuality: Punctuality


def run_live(
    scenario: Scenario,
    out: str | Path | None = None,
    policies: Sequence[str] | None = None,
    progress: Progress | None = None,
    *,
    journal: bool = True,
    box: Box = Box(),  # noqa: B008, it is immutable
) -> list[LiveRun]:
    """Run a scenario in real time, one policy after the other; arguments as for `run`.

    Raises ScenarioError where the scenario has what only the simulation can do, or workers do not
    come up.
    """
    check(scenario, box)
    for i, workload in enumerate(scenario.spec.workload):
        if isinstance(workload, Closed) and workload.link_gbit_per_s:
            raise ScenarioError(
                f"workload.{i}.link_gbit_per_s: only the simulation has it; leave the key out, or "
                "run it in simulation"
            )
    out = default_out(scenario) if out is None else Path(out)

    def run_one(choice: PolicyChoice, directory: Path, stopped: threading.Event) -> LiveRun:
        def watch(now_ns: int) -> bool:
            if progress is not None:
                progress(choice.label, min(now_ns / 1e9 / scenario.spec.duration_s, 1.0))
            return stopped.is_set()

        return _run_one(scenario, choice, directory, watch, journal, box)

    return each_policy(scenario, out, policies, run_one)


def run_timed(
    scenario: Scenario,
    out: Path,
    policy: str,
    progress: Callable[[float], None] | None,
    box: Box,
    *,
    share: float = 1.0,
) -> "tuple[LiveRun, Timings]":
    """A live run of one policy that keeps how long messages and loops took.

    share: of the requests that come, the others are left out at random. The timings are also left
    in OUT/timings.json, which comes last: where it is there, the run is whole and is not taken
    again. On Ctrl-C the run ends early, without it, and KeyboardInterrupt is raised. Raises as
    `run_live`, and ScenarioError where another run is there.
    """
    check(scenario, box)
    if any(isinstance(workload, Closed) for workload in scenario.spec.workload):
        raise ScenarioError(
            "a closed-loop workload asks when it is answered, so no two runs have the same "
            "arrivals to compare; use an open-loop workload"
        )
    _need_executor()
    from executor.timed import TimedCluster, Timings

    if kept(out, scenario, scenario.choose([policy]), TIMINGS):
        if progress is not None:
            progress(1.0)
        return _read_timed(out)
    ctrl_c = False
    timings = Timings()
    timed = partial(
        TimedCluster,
        timings=timings,
        share=share,
        rng=generator(scenario.spec.seed, Purpose.NOISE) if share < 1 else None,
    )

    def run_one(choice: PolicyChoice, directory: Path, stopped: threading.Event) -> LiveRun:
        def watch(now_ns: int) -> bool:
            if progress is not None:
                progress(min(now_ns / 1e9 / scenario.spec.duration_s, 1.0))
            return stopped.is_set()

        nonlocal ctrl_c
        done = _run_one(scenario, choice, directory, watch, True, box, timed)
        ctrl_c = stopped.is_set()
        if not done.summary.interrupted:
            write_whole(directory / TIMINGS, msgspec.json.encode(timings))
        return done

    (done,) = each_policy(scenario, out, [policy], run_one)
    if ctrl_c:
        raise KeyboardInterrupt
    return done, timings


def _read_timed(directory: Path) -> "tuple[LiveRun, Timings]":
    """A run that `run_timed` has left. Raises ResultsError."""
    from executor.timed import Timings

    try:
        timings = msgspec.json.decode((directory / TIMINGS).read_bytes(), type=Timings)
        punctuality = msgspec.json.decode((directory / LIVE).read_bytes(), type=Punctuality)
    except (OSError, msgspec.MsgspecError) as error:
        raise ResultsError(
            f"{directory}: {TIMINGS} or {LIVE} cannot be read ({error}); "
            "remove the directory, and the run is taken again"
        ) from None
    summary = read_summary(directory)
    return LiveRun(summary.name, directory, summary, punctuality), timings


def as_runs(done: Sequence[LiveRun]) -> Runs:
    """For the table."""
    return Runs(done)


def print_punctuality(done: Sequence[LiveRun]) -> None:
    """How punctual it was, on stdout."""
    print("\nlate starts of actions, and of requests' handling, in microseconds; missed windows")
    for one in done:
        p = one.punctuality
        starts = ", ".join(f"{q} {us:g}" for q, us in p.start_late_us.items()) or "-"
        handled = ", ".join(f"{q} {us:g}" for q, us in p.arrival_late_us.items())
        missed = ", ".join(f"{n:,} by {why}" for why, n in p.missed.items() if n) or "none"
        print(f"{one.label}: {starts} (n = {p.n:,}); requests {handled or '-'}; missed: {missed}")
        if p.workers_away_ms:
            away = ", ".join(f"{ms:,.0f}" for ms in p.workers_away_ms)
            print(f"{one.label}: workers lost and back after ms: {away}")
        for error, n in p.device_errors.items():
            print(f"{one.label}: {n:,} times on a device: {error}")
        for gpu, watched in enumerate(p.devices):
            if watched.clock_mhz is not None:
                print(f"{one.label}: {_in_words(gpu, watched)}")
        for warning in one.summary.warnings:
            print(f"mainspring: warning: {one.label}: {warning}", file=sys.stderr)


def check(scenario: Scenario, box: Box) -> None:
    """Raise ScenarioError where the cluster or a model is not one that can be live."""
    spec = scenario.spec
    cluster = spec.cluster
    given = {"noise": cluster.noise != "none", "clocks": cluster.clocks, "link": cluster.link}
    if key := next((key for key, value in given.items() if value), None):
        raise ScenarioError(
            f"cluster.{key}: a live run has the {key} of its machine; "
            "leave the key out, or run it in simulation"
        )
    if box.remote is None and cluster.gpus > MOST:
        raise ScenarioError(
            f"cluster.gpus = {cluster.gpus:,}; live, each GPU is a process of this machine, so "
            f"expected at most {MOST} (more in simulation, or on other machines: --listen)"
        )
    if cluster.stretch != 1:
        raise ScenarioError(
            f"cluster.stretch = {cluster.stretch:g}: a live run's batches take what they take; "
            "leave the key out, or --set it to 1"
        )
    only_simulated = {
        "answers": spec.answers is not None,
        "asks": spec.asks is not None,
        "cluster.lanes": cluster.lanes > 1,
    }
    if key := next((key for key, given in only_simulated.items() if given), None):
        raise ScenarioError(
            f"{key}: only the simulation has it; leave the key out, or run it in simulation"
        )
    if cluster.usable_pages > MAX_PAGES:
        raise ScenarioError(
            f"cluster.pages = {cluster.pages:,}: a live worker can have {MAX_PAGES:,}; "
            "take larger ones, cluster.page_mib"
        )
    for i, models in enumerate(spec.models):
        if models.model not in (names := known(box.sources)):
            raise ScenarioError(
                f"models.{i}.model = {show(models.model)}; {suggest(models.model, names)}; "
                f"code of your own: --model {models.model}=FILE.py:FUNCTION"
            )
        if models.model != SPIN and box.device == "cpu":
            on_a_cpu = f"models.{i}.model = {show(models.model)}: on a CPU"
            if cluster.memory == "pages":
                raise ScenarioError(
                    f"{on_a_cpu} a model lies in one piece; "
                    'set cluster.memory = "contiguous", which the simulation then has too'
                )
            if cluster.engines == 2:
                raise ScenarioError(
                    f"{on_a_cpu} one core loads and computes in turn; "
                    "set cluster.engines = 1, which the simulation then has too"
                )
    if box.remote is not None and any(isinstance(one, WorkerKilled) for one in spec.faults):
        raise ScenarioError(
            'faults of the kind "worker_killed" are for workers that are started here; '
            "leave --listen out, or kill the worker on its machine"
        )
    for name, us in spec.cluster.delays_us.each().items():
        if any(us):
            value = f"{us[0]:g}" if len(us) == 1 else f"[{us[0]:g}, ...]"
            raise ScenarioError(
                f"cluster.delays_us.{name} = {value}: a live run has the delays of its machine; "
                "leave the table out, or --set cluster.delays_us={}"
            )


def run_world(
    scenario: Scenario,
    choice: PolicyChoice,
    directory: Path,
    box: Box,
    make: "Callable[..., LiveCluster]",
    go: Callable[[Any], bool],
    *,
    journal: bool = True,
    span_ns: tuple[int, int] | None = None,
) -> LiveRun:
    """Put a world, its workers and its files together, let it go, and close all of it again.

    make: gets LiveCluster's arguments but the arrivals. go: runs what came of it, and says whether
    it was interrupted. span_ns: what the summary is about where the scenario does not say; such a
    run has no end but the moment at which it is stopped. Raises ScenarioError where workers do not
    come up.
    """
    from executor.controller import LiveError

    gpus, models = cluster_info(scenario)
    crew: Crew
    elsewhere: dict[str, Any] = {}
    if box.remote is not None:
        roll = Roll(box.remote, len(gpus), options_of(box))
        listen, keys, wait_s = box.remote
        elsewhere = {"listen": listen, "keys": keys, "wait_s": wait_s}
        elsewhere |= {"missing": roll.missing, "say": roll.say}
    with open_writer(scenario, choice, directory, span_ns) as writer, ExitStack() as stack:
        book = stack.enter_context(JournalWriter(directory)) if journal else None
        try:
            world = make(
                policy=choice.build(),
                gpus=gpus,
                models=models,
                setups=setups(scenario, box),
                sink=writer,
                policy_rng=generator(scenario.spec.seed, Purpose.POLICY),
                record=book.write if book else None,
                faults=scenario.spec.faults,
                kill=lambda fault: crew.kill(fault),
                **elsewhere,
            )
        except LiveError as error:  # an address or keys that cannot be had
            raise ScenarioError(str(error)) from None
        crew = Crew(world.address, len(gpus), options_of(box), world.gone, world.fail)
        if book:
            book.write(header_of(scenario, choice, world.controller))
        try:
            with crew if box.remote is None else nullcontext():
                try:
                    interrupted = go(world)
                finally:
                    world.close()
        except LiveError as error:
            raise ScenarioError(str(error)) from None
        if isinstance(world.controller, Recorder) and book:
            book.write(world.controller.footer())
        summary = writer.close(
            arrivals=world.arrived,
            interrupted=interrupted,
            stopped_ns=world.now_ns if interrupted or span_ns else None,
            refusals=dict(zip(Refusal, world.controller.out.refusals, strict=True)),
            warnings=[
                *not_representative(world.devices),
                *warn_of_storms(scenario, world.turned_away, world.arrived),
            ],
        )
    return LiveRun(choice.label, directory, summary, _write_punctuality(world, directory))


def _run_one(
    scenario: Scenario,
    choice: PolicyChoice,
    directory: Path,
    watch: Callable[[int], bool],
    journal: bool,
    box: Box,
    kind: "Callable[..., LiveCluster] | None" = None,
) -> LiveRun:
    _need_executor()
    from executor.controller import LiveCluster

    spec = scenario.spec
    asked = arrivals(scenario)

    def go(world: LiveCluster) -> bool:
        return world.run(round(spec.duration_s * 1e9), round(spec.drain_s * 1e9), watch)

    make = partial(
        kind or LiveCluster,
        chunks=asked.chunks,
        slo_ns=asked.slo_ns,
        clients=closed_clients(scenario),
    )
    return run_world(scenario, choice, directory, box, make, go, journal=journal)


def setups(scenario: Scenario, box: Box) -> list[Any]:
    """What each worker is to know: an executor.wire.Setup a GPU."""
    from executor.wire import Bill, Setup

    spec = scenario.spec
    gpus, models = cluster_info(scenario)
    bills = [
        Bill(info.pages, model.profile.load, model.profile.exec, model.runs)
        for info, model in zip(models, scenario.models, strict=True)
    ]
    return [
        Setup(
            gpu.pages,
            _seed_of(spec.seed, gpu.id),
            bills,
            box.device,
            spec.cluster.page_mib * 2**20,
            spec.cluster.memory == "contiguous",
            spec.cluster.engines,
        )
        for gpu in gpus
    ]


def options_of(box: Box) -> list[str]:
    """A worker's command line: the operator's own models."""
    options = [f"--model={name}={code}" for name, code in box.sources.code.items()]
    return options + [f"--weights={name}={file}" for name, file in box.sources.weights.items()]


def _write_punctuality(world: Any, directory: Path) -> Punctuality:
    """How punctual a run of LiveCluster was; it is written beside its results, too."""
    punctuality = _punctuality(world)
    text = msgspec.json.format(msgspec.json.encode(punctuality), indent=2)
    write_whole(directory / LIVE, text + b"\n")
    return punctuality


def _need_executor() -> None:
    try:
        import executor.controller  # noqa: F401
    except ImportError as error:
        raise ScenarioError(
            f"live runs need {error.name}; install it with pip install 'mainspring[executor]'"
        ) from None


def _seed_of(seed: int, gpu: int) -> int:
    """What a worker's durations are drawn from."""
    return int(generator(seed, Purpose.DURATIONS, gpu).integers(2**62))


def _punctuality(world: Any) -> Punctuality:
    return Punctuality(
        n=world.starts.n,
        start_late_us=_quantiles(world.starts),
        arrival_late_us=_quantiles(world.arrivals),
        missed={why: world.missed[why] for why in ("late message", "late start", "overrun")},
        workers=world.in_force,
        clock_error_us=[(ns or 0) / 1e3 for ns in world.clock_errors_ns],
        dropped_messages=world.dropped,
        device_errors=dict(world.device_errors),
        workers_away_ms=[ns / 1e6 for ns in world.away_ns],
        stale_results=world.stale,
        hung_up_connections=world.hung_up,
        devices=world.devices,
    )


def _in_words(gpu: int, watched: Watched) -> str:
    clock, heat = watched.clock_mhz, watched.temperature_c
    assert clock is not None
    text = f"GPU {gpu} at {clock.least:,} MHz"
    if clock.most > clock.least:
        text = f"GPU {gpu} at {clock.least:,} to {clock.most:,} MHz"
    if heat is not None:
        text += f", {heat.least} to {heat.most} degrees Celsius"
    return f"{text} ({watched.told:,} looks)"


def _quantiles(late: Any) -> dict[str, float]:
    """In microseconds, as far as at least 10 values lie beyond."""
    return {f"p{100 * q:g}": late.quantile_us(q) for q in QUANTILES if late.n * (1 - q) >= 10}
