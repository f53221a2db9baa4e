"""The commands that run many runs: sweep, compare, plan."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from mainspring.sweep import Progress, Sweep

INTERRUPTED: Final = 130
FAILED: Final = 1
EVERY_S: Final = 15.0
"""How often there is a line on the progress where there is no terminal."""

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only where the results are.")]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Processes of this machine; as many as processors by default."),
]
Dask = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Run on this Dask cluster instead.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(sweep)


def sweep(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="What to run.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory for the results; runs/sweep-NAME by default.")
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    quiet: Quiet = False,
) -> None:
    """Run a scenario with many values of its keys; go on where the same command stopped."""
    from mainspring.sweep import TABLE
    from mainspring.sweep import sweep as run_sweep

    with showing(quiet) as progress:
        done = run_sweep(study, out, jobs=jobs, dask=dask, progress=progress)
    if quiet:
        print(done.directory)
    else:
        print(f"points:  {done.table.num_rows:,}")
        print(f"table:   {done.directory / TABLE}")
        if not done.interrupted:
            print(f"compare: mainspring compare {done.directory}")
    end(done, f"mainspring sweep {study}")


def end(done: Sweep, command: str) -> None:
    """Say what is missing, and exit accordingly."""
    if failed := done.failed:
        print(
            f"mainspring: {len(failed)} of {done.table.num_rows} points failed; the first: "
            f"{failed[0]['error']}",
            file=sys.stderr,
        )
    if done.interrupted:
        print(f"interrupted: the same command goes on: {command}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(FAILED)


@contextmanager
def showing(quiet: bool) -> Iterator[Progress | None]:
    """A bar with the time that is left; without a terminal, a line now and then."""
    console = Console(stderr=True)
    if quiet:
        yield None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Bars(*columns, TimeRemainingColumn(), console=console) as bars:
            task = bars.add_task("points", total=None)

            def draw(done: int, total: int, failed: int) -> None:
                text = f"points, {failed} failed" if failed else "points"
                bars.update(task, completed=done, total=total, description=text)

            yield draw
    else:
        start_s = last_s = time.monotonic()
        first: int | None = None

        def say(done: int, total: int, failed: int) -> None:
            nonlocal last_s, first
            first = done if first is None else first
            now_s = time.monotonic()
            if now_s - last_s < EVERY_S or done == first:
                return
            last_s = now_s
            left_s = (now_s - start_s) / (done - first) * (total - done)
            text = f"{done} of {total} points, {failed} failed, about {left_s:.0f} s left"
            print(text, file=sys.stderr)

        yield say
