"""The command that writes keys for workers on other machines: keys."""

from pathlib import Path
from typing import Annotated

import typer

from mainspring.document import ScenarioError


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(keys)


def keys(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.")],
    workers: Annotated[int, typer.Option(min=1, max=10_000, help="One pair each.")] = 1,
) -> None:
    """Write CURVE keys for a controller and its workers."""
    try:
        from executor.keys import KeysError, make_keys
    except ImportError as error:
        raise ScenarioError(
            f"keys need {error.name}; install it with pip install 'mainspring[executor]'"
        ) from None
    try:
        make_keys(directory, workers)
    except KeysError as error:
        raise ScenarioError(str(error)) from None
    print(f"keys for a controller and {workers} workers in {directory}; worker-N goes to machine N")
