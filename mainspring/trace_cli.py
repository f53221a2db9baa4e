"""The command that shows a run in the Perfetto UI.

Not here: what is in a trace (results/trace.py).
"""

from pathlib import Path
from typing import Annotated

import typer

from mainspring.bars import counts
from mainspring.document import ScenarioError
from mainspring.runs import load_runs
from mainspring.sweep_cli import Quiet

NAME = "run.perfetto-trace"
UI = "https://ui.perfetto.dev"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(trace)


def trace(
    directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A finished run.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help=f"RUN_DIR/{NAME} by default.")
    ] = None,
    from_s: Annotated[
        float | None,
        typer.Option("--from", metavar="SECONDS", help="Only what is under way from then,"),
    ] = None,
    until_s: Annotated[
        float | None, typer.Option("--until", metavar="SECONDS", help="and before then.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a run as a trace for the Perfetto UI: engines, and each request from arrival to end."""
    from results.trace import write_trace

    runs = load_runs(directory)
    if len(runs) > 1:
        raise ScenarioError(
            f"{directory} holds {len(runs)} runs; expected one of them, such as {runs[0].directory}"
        )
    path = runs[0].directory / NAME if out is None else out
    with counts(quiet) as progress:
        came = write_trace(
            runs[0].directory,
            path,
            from_s=from_s,
            until_s=until_s,
            progress=None if progress is None else lambda done, of: progress("rows", done, of),
        )
    if quiet:
        print(path)
        return
    print(f"requests: {came.requests:,}")
    print(f"actions:  {came.slices:,} that ran, {came.unloads:,} unloads, {came.not_run:,} not run")
    print(f"trace:    {path}; open it in {UI}")
