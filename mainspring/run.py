"""Run a scenario: one simulated cluster per policy, on the same arrivals.

    OUT/run.json          what ran, with which versions, when
    OUT/scenario.toml     the scenario, complete; `mainspring run OUT` runs it again
    OUT/outcomes.parquet, actions.parquet, summary.json, ... and pictures

With several policies each has such a directory, OUT/LABEL, and OUT a picture that compares them.
"""

import json
import platform
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mainspring.document import ScenarioError
from mainspring.scenario import PolicyChoice, Scenario
from mainspring.world import build_world
from results import RunWriter, Summary
from scheduler.records import Refusal

Progress = Callable[[str, float], None]
"""Called with a policy's label and the share of its simulated time that is done, 0 to 1."""

PACKAGES = ("numpy", "scipy", "simpy", "msgspec", "pyarrow", "hdrhistogram", "matplotlib")
"""What a run's numbers and pictures come from."""

TIMELINE_NS = 250_000_000
"""How much of a run the picture of its GPUs shows: what the eye can still tell apart."""


def run(
    scenario: Scenario,
    out: str | Path,
    policies: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> list[Summary]:
    """Run a scenario with each of its policies, and leave everything in the directory `out`.

    policies: labels of the scenario, names of our policies, or `file.py:Class`; by default all of
    the scenario. Raises ScenarioError, before anything runs, where `out` is not empty or there is
    no such policy. On Ctrl-C the run under way ends early and is marked as interrupted; it is the
    last in the list.
    """
    out = Path(out)
    chosen = scenario.choose(policies or ())
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ScenarioError(f"{out} is not empty; choose another --out, or remove it")
    _write_record(scenario, chosen, out)
    summaries: list[Summary] = []
    with _stop_on_ctrl_c() as stopped:
        for choice in chosen:
            directory = out if len(chosen) == 1 else out / choice.label
            if directory != out:
                _write_record(scenario, [choice], directory)
            summaries.append(_run_one(scenario, choice, directory, progress, stopped))
            if stopped.is_set():
                break
    _draw(summaries, chosen, out)
    return summaries


def default_out(scenario: Scenario) -> Path:
    """Where a run goes that was not told where."""
    return Path("runs") / f"{scenario.spec.name}-{datetime.now():%Y%m%d-%H%M%S}"


class _StopRun(Exception):
    """The user wants the run to end."""


def _run_one(
    scenario: Scenario,
    choice: PolicyChoice,
    directory: Path,
    progress: Progress | None,
    stopped: threading.Event,
) -> Summary:
    spec = scenario.spec
    end_ns = round(spec.duration_s * 1e9)
    drain_ns = round(spec.drain_s * 1e9)
    page_bytes = spec.cluster.page_mib * 2**20
    with RunWriter(
        directory,
        models=[model.name for model in scenario.models],
        pages_of_model=[model.profile.pages(page_bytes) for model in scenario.models],
        pages_of_gpu=[spec.cluster.pages] * spec.cluster.gpus,
        warmup_ns=round(spec.warmup_s * 1e9),
        end_ns=end_ns,
        name=choice.label,
        about={"scenario": spec.name, "policy": choice.name, "seed": str(spec.seed)},
    ) as writer:
        world = build_world(scenario, choice.build(), writer)

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
        try:
            world.run(end_ns, drain_ns)
        except _StopRun:
            interrupted = True
        else:
            interrupted = False
            if progress is not None:
                progress(choice.label, 1.0)
        refusals = dict(zip(Refusal, world.controller.out.refusals, strict=True))
        return writer.close(
            arrivals=world.arrived,
            interrupted=interrupted,
            stopped_ns=int(world.env.now) if interrupted else None,
            refusals=refusals,
        )


@contextmanager
def _stop_on_ctrl_c() -> Iterator[threading.Event]:
    """Set the event on the first Ctrl-C. The second one is Python's own KeyboardInterrupt."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped  # only the main thread may handle signals
        return

    def stop(number: int, frame: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _write_record(scenario: Scenario, policies: Sequence[PolicyChoice], directory: Path) -> None:
    """Write down what is about to run, so that it can be run again."""
    from mainspring import __version__

    record = {
        "mainspring": __version__,
        "scenario": scenario.spec.name,
        "policies": [choice.label for choice in policies],
        "seed": scenario.spec.seed,
        "overrides": list(scenario.overrides),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        text = scenario.to_toml(policies)
        (directory / "scenario.toml").write_text(text, encoding="utf-8")
    except OSError as error:
        raise ScenarioError(
            f"{directory}: cannot be written ({error.strerror}); choose another --out"
        ) from None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _draw(summaries: Sequence[Summary], chosen: Sequence[PolicyChoice], out: Path) -> None:
    """Draw each run, and all of them side by side."""
    from results import plots  # matplotlib takes a second to import; errors should not wait for it

    runs = {
        choice.label: out if len(chosen) == 1 else out / choice.label
        for choice, _ in zip(chosen, summaries, strict=False)  # fewer after Ctrl-C
    }
    for (label, directory), summary in zip(runs.items(), summaries, strict=True):
        plots.comparison({label: directory}, directory / "overview")
        plots.gpu_timeline(
            directory,
            directory / "timeline",
            start_ns=min(summary.warmup_ns, summary.end_ns),
            length_ns=TIMELINE_NS,
        )
    if len(runs) > 1:
        plots.comparison(runs, out / "comparison")
