"""The command line.

A mistake of the user's is one line on stderr and exit code 2; an interrupted run ends with 130.
Results go to stdout, everything else to stderr.
Not here: what the commands do (mainspring.run).
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from mainspring import __version__, load_scenario
from mainspring import run as run_scenario
from mainspring.document import ScenarioError
from mainspring.run import Progress as Report
from mainspring.run import default_out
from profiles import ProfileError
from results import ResultsError, Summary
from workloads import WorkloadError

USER_ERRORS = (ScenarioError, ProfileError, WorkloadError, ResultsError)
INTERRUPTED = 130

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    warnings.showwarning = _show_warning
    command = typer.main.get_command(app)
    try:
        code = command.main(args, prog_name="mainspring", standalone_mode=False)
    except USER_ERRORS as error:
        code = _fail(str(error))
    except typer.Abort:  # the second Ctrl-C
        code = INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _fail(error.format_message())
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mainspring {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Compare schedulers of DNN inference on a simulated GPU cluster."""


@app.command()
def run(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml|RUN_DIR", help="What to run, or run again.")
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As workload.0.rate_rps=800; repeatable."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE.py:CLASS", help="Instead of all of them; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the results; runs/NAME-TIME by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the scenario's.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Run a scenario with each of its policies and compare them."""
    from results.table import print_runs

    overrides = [*(set_ or []), *([f"seed={seed}"] if seed is not None else [])]
    loaded = load_scenario(scenario, overrides)
    out = out or default_out(loaded)
    with _progress(quiet) as report:
        summaries = run_scenario(loaded, out, policy, report)
    print_runs(summaries)
    _print_where(out, summaries)
    if any(summary.interrupted for summary in summaries):
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _progress(quiet: bool) -> Iterator[Report | None]:
    """A bar for each policy, with the time that is left."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bars:
        tasks: dict[str, Any] = {}

        def report(label: str, share: float) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label, total=1.0)
            bars.update(tasks[label], completed=share)

        yield report


def _print_where(out: Path, summaries: Sequence[Summary]) -> None:
    pictures = sorted(path for path in out.rglob("*.png") if path.parent == out)
    print(f"\nresults:  {out}")
    for picture in pictures:
        print(f"picture:  {picture}")
    if summaries[-1].interrupted:
        print(f"interrupted: {summaries[-1].name} is not complete", file=sys.stderr)


def _fail(message: str) -> int:
    print(f"mainspring: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _show_warning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
    """A warning in one line, without the line of code that it came from."""
    print(f"mainspring: warning: {' '.join(str(message).split())}", file=sys.stderr)
