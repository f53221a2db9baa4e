"""Run a scenario: one simulated cluster per policy, on the same arrivals.

    OUT/run.json          what ran, with which versions, when
    OUT/scenario.toml     the scenario, complete; `mainspring run OUT` runs it again
    OUT/outcomes.parquet, actions.parquet, summary.json, ... and pictures

With several policies each has such a directory, OUT/LABEL, and OUT a picture that compares them.
A run that fails is removed, so that the same command can be given again; one that was unsound
(InvariantError) or killed stays for a look, and looks like what it is: it has no summary.
Not here: how that is kept (mainspring.directory), and looking at finished runs
(mainspring.runs).
"""

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

from mainspring.directory import claimed, default_out, write_record
from mainspring.document import ScenarioError
from mainspring.journal import JournalWriter, header_of
from mainspring.policies import policy_file
from mainspring.runs import Run, Runs
from mainspring.scenario import PolicyChoice, Scenario
from mainspring.world import build_world, open_writer, quiet_collector, warn_of_storms
from results import ResultsError, Summary
from scheduler.journal import Recorder
from scheduler.records import Refusal
from workloads import WorkloadWarning

Progress = Callable[[str, float], None]
"""Called with a policy's label and the share of its simulated time that is done, 0 to 1."""


def run(
    scenario: Scenario,
    out: str | Path | None = None,
    policies: Sequence[str] | None = None,
    progress: Progress | None = None,
    *,
    journal: bool = False,
) -> Runs:
    """Run a scenario with each of its policies, and leave everything in the directory `out`.

    out: `runs/NAME-TIME` by default. policies: labels of the scenario, names of our policies, or
    `file.py:Class`; by default all of the scenario. journal: keep what went into each policy and
    what came out, for `mainspring replay`. Raises ScenarioError, before anything runs,
    where `out` is not empty or there is no such policy. On Ctrl-C the run under way ends early and
    is marked as interrupted; it is the last of those that come back.
    """
    out = default_out(scenario) if out is None else Path(out)

    def run_one(choice: PolicyChoice, directory: Path, stopped: threading.Event) -> Run:
        summary = _run_one(scenario, choice, directory, progress, stopped, journal)
        return Run(choice.label, directory, summary)

    runs = Runs(each_policy(scenario, out, policies, run_one))
    _draw(runs, out)
    return runs


T = TypeVar("T")


def each_policy(
    scenario: Scenario,
    out: Path,
    policies: Sequence[str] | None,
    run_one: Callable[[PolicyChoice, Path, threading.Event], T],
) -> list[T]:
    """Run each policy in a directory of its own, until Ctrl-C; what `run` and `run_live` share.

    run_one: gets the policy, its directory, and an event that is set when the run should end.
    """
    chosen = scenario.choose(policies or ())
    done: list[T] = []
    with claimed(out) as finished, stop_on_ctrl_c() as stopped:
        write_record(scenario, chosen, out)
        for choice in chosen:
            directory = out if len(chosen) == 1 else out / choice.label
            if directory != out:
                write_record(scenario, [choice], directory)
            done.append(run_one(choice, directory, stopped))
            finished.append(directory)
            if stopped.is_set():
                break
    return done


def run_alone(scenario: Scenario, choice: PolicyChoice, directory: Path) -> Summary:
    """Run one policy into a new directory: no pictures, no progress, and Ctrl-C is the caller's."""
    write_record(scenario, [choice], directory)
    return _run_one(scenario, choice, directory, None, threading.Event(), journal=False)


class _StopRun(Exception):
    """The user wants the run to end."""


def _run_one(
    scenario: Scenario,
    choice: PolicyChoice,
    directory: Path,
    progress: Progress | None,
    stopped: threading.Event,
    journal: bool,
) -> Summary:
    spec = scenario.spec
    end_ns = round(spec.duration_s * 1e9)
    drain_ns = round(spec.drain_s * 1e9)
    with open_writer(scenario, choice, directory) as writer, ExitStack() as stack:
        book = stack.enter_context(JournalWriter(directory)) if journal else None
        world = build_world(scenario, choice.build(), writer, book.write if book else None)
        if book:
            book.write(header_of(scenario, choice, world.controller))

        def watch() -> Generator[Any, None, None]:
            """Report progress and look for Ctrl-C between two events, where the books are right.

            It draws nothing and touches nothing, so a run is the same with it and without.
            """
            total_ns = end_ns + drain_ns
            step_ns = max(total_ns // 2_000, 100_000_000)
            while True:
                if stopped.is_set():
                    raise _StopRun
                if progress is not None:
                    progress(choice.label, world.env.now / total_ns)
                yield world.env.timeout(step_ns)

        world.env.process(watch())
        warned = stack.enter_context(_kept_warnings())
        try:
            with quiet_collector():
                world.run(end_ns, drain_ns)
        except _StopRun:
            interrupted = True
        except (Exception, SystemExit) as error:
            fault = policys_fault(choice, error, world.env.now)
            if fault is None:
                raise
            raise fault from error
        else:
            interrupted = False
            if progress is not None:
                progress(choice.label, 1.0)
        warn_of_storms(scenario, world.turned_away, world.arrived)
        if isinstance(world.controller, Recorder) and book:
            book.write(world.controller.footer())
        refusals = dict(zip(Refusal, world.controller.out.refusals, strict=True))
        return writer.close(
            arrivals=world.arrived,
            interrupted=interrupted,
            stopped_ns=int(world.env.now) if interrupted else None,
            refusals=refusals,
            warnings=warned,
        )


@contextmanager
def _kept_warnings() -> Iterator[list[str]]:
    """Collect what workloads warn of, and pass it on: who sees the run later should see it too."""
    kept: list[str] = []
    show = warnings.showwarning

    def keep(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
        if issubclass(category, WorkloadWarning):
            if str(message) in kept:
                return
            kept.append(str(message))
        show(message, category, *args, **kwargs)

    with warnings.catch_warnings():
        warnings.simplefilter("always", WorkloadWarning)
        warnings.showwarning = keep
        yield kept


def policys_fault(choice: PolicyChoice, error: BaseException, now_ns: int) -> ScenarioError | None:
    """In one line what went wrong in a user's own policy; None if it was not there."""
    file = policy_file(choice.name)
    lines = [
        frame.lineno for frame in extract_tb(error.__traceback__) if Path(frame.filename) == file
    ]
    if not lines:
        return None
    return ScenarioError(
        f"policy {choice.label}: {file}, line {lines[-1]}: {type(error).__name__}: {error}; "
        f"that was {now_ns / 1e6:g} ms into the run"
    )


@contextmanager
def stop_on_ctrl_c() -> Iterator[threading.Event]:
    """Set the event on the first Ctrl-C. The second one is Python's own KeyboardInterrupt."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped  # only the main thread may handle signals
        return

    def stop(number: int, frame: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, before)
        print("\nstopping here; Ctrl-C again stops at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _draw(runs: Runs, out: Path) -> None:
    """Draw each run, and all of them side by side."""
    from results.plots import MAX_RUNS  # matplotlib takes a second; errors should not wait for it

    try:
        for run in runs:
            Runs([run]).plot().save(run.directory / "overview")
            run.plot_gpus().save(run.directory / "timeline")
        if 1 < len(runs) <= MAX_RUNS:
            runs.plot().save(out / "comparison")
        elif len(runs) > MAX_RUNS:
            warnings.warn(
                f"no picture of all {len(runs)} runs, which could not be told apart; "
                f"mainspring report draws up to {MAX_RUNS}",
                stacklevel=2,
            )
    except ResultsError as error:
        error.add_note(f"(the runs themselves are finished: mainspring report {out})")
        raise
