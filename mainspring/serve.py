"""Serve a scenario's models over HTTP: a live run whose requests are other people's.

Cluster, models, policy and SLOs are the scenario's; its workload and its duration are not used.
What is left behind is a run like any other, from the first request to the last.
Not here: the requests themselves (executor/service.py, executor/front.py).
"""

import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, Final

from executor.models import SPIN, ModelError
from mainspring.directory import claimed, default_out, write_record
from mainspring.document import ScenarioError
from mainspring.live import Box, LiveRun, check, run_world
from mainspring.scenario import PolicyChoice, Scenario
from mainspring.served import with_served, write_served
from mainspring.world import cluster_info
from scheduler.records import FOREVER

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
    directory = default_out(scenario) if out is None else Path(out)
    with claimed(directory) as finished, _sigterm_as_ctrl_c():
        write_record(with_served(scenario), chosen, directory)
        run = _serve(scenario, chosen[0], directory, host, port, waiting, box, on_start)
        finished.append(directory)
        write_served(scenario, chosen, directory, run.summary.end_ns)
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
        from executor.callers import most
        from executor.counts import Counts
        from executor.front import Limits
        from executor.server import room_for
        from executor.service import Service
    except ImportError as error:
        raise ScenarioError(
            f"serve needs {error.name}; install it with pip install 'mainspring[serve]'"
        ) from None

    wanted, gpus = Limits().connections, scenario.spec.cluster.gpus
    connections = room_for(wanted, gpus if box.remote is None else most(gpus))
    if connections < wanted:
        why = "the limit of open files (ulimit -Hn) allows no more"
        if connections < 1:
            raise ScenarioError(f"serve has no room for connections: {why}; raise it")
        warnings.warn(
            f"{connections} connections at a time, not {wanted:,}: {why}; raise it", stacklevel=2
        )
    places, models = cluster_info(scenario)
    served = _served(scenario, box)

    def make(**run: Any) -> Service:
        try:
            return Service(
                served=served,
                real=[model.runs != SPIN for model in scenario.models],
                counts=Counts(
                    [info.name for info in models],
                    [info.pages for info in models],
                    [gpu.pages for gpu in places],
                ),
                limits=Limits(waiting_requests=waiting, connections=connections),
                host=host,
                port=port,
                on_start=on_start,
                **run,
            )
        except OSError as error:
            raise ScenarioError(
                f"{host}:{port}: {error.strerror}; choose another --host or --port"
            ) from None

    def go(world: Service) -> bool:
        world.serve(round(scenario.spec.drain_s * 1e9))
        return False

    return run_world(scenario, choice, directory, box, make, go, span_ns=(0, UNTIL))


def _served(scenario: Scenario, box: Box) -> list[Any]:
    """The models as clients see them: an executor.oip.ServedModel each. Raises ScenarioError."""
    from executor.oip import DATATYPES, ServedModel
    from executor.specs import specs_of
    from executor.wire import MAX_MESSAGE_BYTES

    try:
        specs = {
            name: specs_of(name, box.sources)
            for name in dict.fromkeys(model.runs for model in scenario.models)
        }
    except ModelError as error:
        raise ScenarioError(str(error)) from None
    served = []
    for model in scenario.models:
        most = model.profile.batch_sizes[-1]
        of = specs[model.runs]
        for side in of if model.runs != SPIN else ():
            size = most * sum(DATATYPES[one.datatype].itemsize * prod(one.shape) for one in side)
            if size > MAX_MESSAGE_BYTES // 2:
                raise ScenarioError(
                    f"{model.name}: a batch of {most} has tensors of {size:,} bytes, of which a "
                    f"message holds {MAX_MESSAGE_BYTES // 2:,}; use a profile of smaller batches"
                )
        served.append(ServedModel(model.name, of.inputs, of.outputs, most, model.slo_ns))
    return served


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
