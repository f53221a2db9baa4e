"""The command that measures what a policy's decisions cost on this machine."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from mainspring.decisions import as_text, measure_decisions
from mainspring.scenario import load_scenario


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(decisions)


def decisions(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml")],
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE.py:CLASS", help="Instead of all of them; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for run.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """What a decision costs: wall time of the policy, by kind of event, in a simulated run."""
    loaded = load_scenario(scenario, set_ or [])
    found = [measure_decisions(loaded, choice) for choice in loaded.choose(policy or ())]
    if json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        print("\n\n".join(as_text(each) for each in found))
