"""The commands that run many runs: sweep, compare, plan."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mainspring.bars import counts
from mainspring.document import ScenarioError
from mainspring.sweep import Sweep

INTERRUPTED: Final = 130
FAILED: Final = 1
SEEDS: Final = 10
"""Replications of a comparison that is not told how many."""

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only where the results are.")]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Processes of this machine; as many as processors by default."),
]
Dask = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Run on this Dask cluster instead.")
]

Confidence = Annotated[float, typer.Option(min=0.5, max=0.9999)]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change the scenario; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(sweep)
    app.command()(compare)
    app.command()(plan)


def sweep(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="What to run.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory for the results; runs/sweep-NAME by default.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE.py:CLASS", help="Instead of the study's; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="One value for all points, swept or not; repeatable."
        ),
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a scenario with many values of its keys; go on where the same command stopped."""
    from mainspring.sweep import TABLE
    from mainspring.sweep import sweep as run_sweep

    with counts(quiet or json) as progress:
        done = run_sweep(
            study,
            out,
            overrides=set_ or (),
            policies=policy or (),
            jobs=jobs,
            dask=dask,
            progress=progress,
        )
    if json:
        print(msgspec.json.format(msgspec.json.encode(done.rows()), indent=2).decode())
    elif quiet:
        print(done.directory)
    else:
        print(f"points:  {done.table.num_rows:,}")
        print(f"table:   {done.directory / TABLE}")
        if not done.interrupted:
            print(f"compare: mainspring compare {done.directory}")
    again = ["mainspring", "sweep", str(study), *(["--out", str(out)] if out else [])]
    again += [word for name in policy or () for word in ("--policy", name)]
    again += [word for change in set_ or () for word in ("--set", change)]
    end(done)
    if done.interrupted:
        print(f"interrupted: the same command goes on: {shlex.join(again)}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def compare(
    runs: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml|SWEEP_DIR", help="What to run, or was run.")
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE.py:CLASS", help="The first is the baseline; repeatable."),
    ] = None,
    over: Annotated[
        str | None, typer.Option(metavar="KEY", help="The swept key on the horizontal axis.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="goodput, attainment, p99, ..., or a column of the sweep's table.")
    ] = "goodput",
    between: Annotated[
        str, typer.Option(metavar="KEY", help="The swept key whose values are compared.")
    ] = "policy",
    baseline: Annotated[
        str | None, typer.Option(metavar="VALUE", help="What the others are compared with.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only points with that value; repeatable."),
    ] = None,
    confidence: Confidence = 0.95,
    seeds: Annotated[
        int | None, typer.Option(min=2, help=f"Replications of a scenario; {SEEDS} by default.")
    ] = None,
    set_: Changes = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to; the sweep's directory, or runs/compare-NAME, by default."),
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare policies on the same arrivals: differences, and how sure they are."""
    from mainspring.compare import compare as compare_runs
    from mainspring.compare import is_sweep

    of_sweep = is_sweep(runs)
    if of_sweep and set_:
        raise ScenarioError("--set changes a scenario; a sweep has been run, use --where")
    if of_sweep and seeds is not None:
        raise ScenarioError("--seeds is for a scenario; a sweep has its seeds already")
    with counts(quiet or json) as progress, _resumable():
        came = compare_runs(
            runs,
            policy,
            over=over,
            metric=metric,
            between=between,
            baseline=baseline,
            where=dict(_pair(text, "--where") for text in where or ()),
            confidence=confidence,
            seeds=seeds or SEEDS,
            overrides=set_ or (),
            out=None if of_sweep else out,
            jobs=jobs,
            dask=dask,
            progress=progress,
        )
    files = came.save(out if of_sweep else None)
    if json:
        print(msgspec.json.format(msgspec.json.encode(came.table.to_pylist()), indent=2).decode())
    elif quiet:
        print(*files, sep="\n")
    else:
        print(came)
        for file in files:
            print(f"{'picture' if file.suffix in ('.png', '.svg') else 'table'}:  {file}")
    end(came.sweep)


def plan(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="What to serve.")],
    target_attainment: Annotated[
        float, typer.Option(help="Share of the requests that must be answered in time.")
    ] = 0.999,
    p99_ms: Annotated[
        float | None, typer.Option(help="And a 99th percentile of the latency, at most this.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="The scenario's first by default.")
    ] = None,
    max_gpus: Annotated[int, typer.Option(min=1, help="The largest fleet that may be.")] = 64,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Kinds of GPU and their prices.")
    ] = None,
    confidence: Confidence = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="The first of the seeds.")] = 1,
    confirm: Annotated[
        int,
        typer.Option(
            metavar="SEEDS", help="Try the fleet, one fewer and one more again, on new seeds."
        ),
    ] = 0,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the evidence; runs/plan-NAME by default.")
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the fewest GPUs that answer in time, what binds, and how much headroom there is.

    Exit code 1: no fleet is known to meet the target.
    """
    from mainspring.plan import plan as make_plan

    with counts(quiet or json) as progress:
        came = make_plan(
            scenario,
            target_attainment,
            p99_ms=p99_ms,
            policy=policy,
            max_gpus=max_gpus,
            prices=prices,
            confidence=confidence,
            first_seed=seed,
            confirm=confirm,
            overrides=set_ or (),
            out=out,
            jobs=jobs,
            dask=dask,
            progress=progress,
        )
    if json:
        print(came.to_json().decode())
    elif quiet:
        print(came.directory)
    else:
        print(came)
        print(f"evidence: {came.directory}")
    if came.answer.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not came.answer.feasible:
        raise typer.Exit(FAILED)


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ScenarioError(f"{option} {text}: expected KEY=VALUE")
    return key.strip(), value.strip()


def end(done: Sweep) -> None:
    """Say which points failed, and exit accordingly; an interrupted sweep is the caller's."""
    if failed := done.failed:
        print(
            f"mainspring: {len(failed)} of {done.table.num_rows} points failed; the first: "
            f"{failed[0]['error']}",
            file=sys.stderr,
        )
    if failed and not done.interrupted:
        raise typer.Exit(FAILED)


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C is not silent: what is done is kept."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where this one stopped", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
