"""The command that serves: serve."""

from pathlib import Path
from typing import Annotated

import typer

from mainspring.live_options import Device, Keys, Listen, Model, Wait, Weights, box_of


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(serve)


def serve(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml")],
    host: Annotated[str, typer.Option(help="Who may ask: by default this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME|FILE.py:CLASS", help="One of the scenario's.")
    ] = None,
    waiting: Annotated[
        int, typer.Option(min=1, help="Requests in the system at most; more get a 503.")
    ] = 1_024,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for run.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="runs/NAME-TIME by default.")] = None,
    device: Device = "cpu",
    model: Model = None,
    weights: Weights = None,
    listen: Listen = None,
    keys: Keys = None,
    wait: Wait = None,
) -> None:
    """Serve a scenario's models over HTTP: Open Inference Protocol v2, and /metrics.

    Ends on Ctrl-C or SIGTERM, answers everything in flight, and leaves a run's directory.
    """
    from mainspring import load_scenario
    from mainspring.live import as_runs, print_punctuality
    from mainspring.serve import print_address, run_serve
    from results.table import print_runs

    box = box_of(device, model, weights, listen, keys, wait)
    loaded = load_scenario(scenario, set_ or [])
    done = run_serve(
        loaded, out, policy, host=host, port=port, waiting=waiting, box=box, on_start=print_address
    )
    if any(done.summary.outcomes_whole_run.values()):
        print_runs(as_runs([done]).summaries)
        print_punctuality([done])
    else:
        print("no request came")
    print(f"\nresults:  {done.directory}")
