"""Serve a scenario's models over HTTP: a live run whose requests are other people's.

Cluster, models, policy and SLOs are the scenario's; its workload and its duration are not used.
What is left behind is a run like any other, from the first request to the last.
Not here: the requests themselves (executor/service.py, executor/front.py).
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from executor.models import SPIN
from mainspring.crew import Crew
from mainspring.directory import claimed, default_out, write_record
from mainspring.document import ScenarioError
from mainspring.journal import JournalWriter, header_of
from mainspring.live import Box, LiveRun, check, options_of, setups, write_punctuality
from mainspring.scenario import PolicyChoice, Scenario
from mainspring.world import Purpose, cluster_info, generator, open_writer
from scheduler.journal import Recorder
from scheduler.records import FOREVER, Refusal

UNTIL: Final = FOREVER // 2
"""The end of a run that has none, in nanoseconds."""


def run_serve(
    scenario: Scenario,
    out: str | Path | None = None,
    policy: str | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    waiting: int = 1_024,
    box: Box = Box(),  # noqa: B008, it is immutable
    on_start: Callable[[str], None] = print,
) -> LiveRun:
    """Serve until SIGINT or SIGTERM, answer what is in flight, and write the run to `out`.

    policy: a label of the scenario's or a name; may be left out where the scenario has one.
    waiting: requests in the system at most; more are refused. on_start: is told the address.
    Raises ScenarioError where the scenario can't be live, the address can't be had, or workers do
    not come up.
    """
    check(scenario, box)
    chosen = scenario.choose([policy] if policy else ())
    if len(chosen) > 1:
        labels = ", ".join(choice.label for choice in chosen)
        raise ScenarioError(f"the scenario has the policies {labels}; say --policy NAME")
    if real := next((model for model in scenario.models if model.runs != SPIN), None):
        raise ScenarioError(f"{real.name}: serve carries no inputs to real models yet; use spin")
    directory = default_out(scenario) if out is None else Path(out)
    with claimed(directory) as finished, _sigterm_as_ctrl_c():
        write_record(scenario, chosen, directory)
        run = _serve(scenario, chosen[0], directory, host, port, waiting, box, on_start)
        finished.append(directory)
    return run


def _serve(
    scenario: Scenario,
    choice: PolicyChoice,
    directory: Path,
    host: str,
    port: int,
    waiting: int,
    box: Box,
    on_start: Callable[[str], None],
) -> LiveRun:
    try:
        from executor.controller import LiveError
        from executor.counts import Counts
        from executor.front import Limits
        from executor.oip import ServedModel
        from executor.service import SPIN_INPUTS, SPIN_OUTPUTS, Service
    except ImportError as error:
        raise ScenarioError(
            f"serve needs {error.name}; install it with pip install 'mainspring[serve]'"
        ) from None

    spec = scenario.spec
    gpus, models = cluster_info(scenario)
    with open_writer(scenario, choice, directory, (0, UNTIL)) as writer, ExitStack() as stack:
        book = stack.enter_context(JournalWriter(directory))
        try:
            world = Service(
                served=[
                    ServedModel(
                        info.name, SPIN_INPUTS, SPIN_OUTPUTS, info.batch_sizes[-1], model.slo_ns
                    )
                    for info, model in zip(models, scenario.models, strict=True)
                ],
                sink=writer,
                counts=Counts(
                    [info.name for info in models],
                    [info.pages for info in models],
                    [gpu.pages for gpu in gpus],
                ),
                limits=Limits(waiting_requests=waiting),
                host=host,
                port=port,
                on_start=on_start,
                policy=choice.build(),
                gpus=gpus,
                models=models,
                setups=setups(scenario, box),
                policy_rng=generator(spec.seed, Purpose.POLICY),
                record=book.write,
                faults=spec.faults,
                kill=lambda fault: crew.kill(fault),
            )
        except OSError as error:
            raise ScenarioError(
                f"{host}:{port}: {error.strerror}; choose another --host or --port"
            ) from None
        crew: Crew = Crew(world.address, len(gpus), options_of(box), world.gone, world.fail)
        book.write(header_of(scenario, choice, world.controller))
        try:
            with crew:
                try:
                    world.serve(round(spec.drain_s * 1e9))
                finally:
                    world.close()
        except LiveError as error:
            raise ScenarioError(str(error)) from None
        assert isinstance(world.controller, Recorder)
        book.write(world.controller.footer())
        summary = writer.close(
            arrivals=world.arrived,
            stopped_ns=world.now_ns,
            refusals=dict(zip(Refusal, world.controller.out.refusals, strict=True)),
        )
    return LiveRun(choice.label, directory, summary, write_punctuality(world, directory))


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Until the server listens to signals itself, SIGTERM ends the command as Ctrl-C does."""

    def end(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def print_address(address: str) -> None:
    """On stderr, where it is seen at once."""
    print(f"serving at {address}; Ctrl-C answers what is in flight, and ends", file=sys.stderr)
