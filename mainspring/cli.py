"""The command line.

A mistake of the user's is one line on stderr and exit code 2; a run that contradicts itself ends
with 3, an interrupted one with 130.
Results go to stdout, everything else to stderr.
Not here: what the commands do (mainspring.run, mainspring.runs, mainspring.parameters).
"""

import glob
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from executor.models import SPIN
from mainspring import (
    __version__,
    decisions_cli,
    keys_cli,
    load_scenario,
    predictions_cli,
    profile_cli,
    profiles_cli,
    serve_cli,
    sweep_cli,
    trace_cli,
    worker_cli,
    workloads_cli,
)
from mainspring import run as run_scenario
from mainspring.bars import bars
from mainspring.directory import default_out
from mainspring.document import ScenarioError
from mainspring.live_options import Device, Keys, Listen, Model, Wait, Weights, box_of
from mainspring.parameters import as_list, as_page, describe
from mainspring.plan import is_study
from mainspring.run import Progress as Report
from mainspring.runs import Runs, load_runs
from profiles import ProfileError
from results import InvariantError, ResultsError
from scheduler.policies import POLICIES
from workloads import WorkloadError

if TYPE_CHECKING:
    from mainspring.reproduce.figures import Made
    from mainspring.reproduce.rows import Row

USER_ERRORS = (ScenarioError, ProfileError, WorkloadError, ResultsError)
INTERRUPTED = 130
UNSOUND = 3
VALIDATED = Path("scenarios/live.toml")

FIRST = ("run", "report", "compare", "sweep", "plan")
"""What most people want; the help lists it before the others."""


class _Ordered(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return [*FIRST, *(name for name in names if name not in FIRST)]


app = typer.Typer(
    cls=_Ordered,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(workloads_cli.app, name="workloads")
app.add_typer(profiles_cli.app, name="profiles")
sweep_cli.register(app)
keys_cli.register(app)
predictions_cli.register(app)
trace_cli.register(app)
decisions_cli.register(app)
profile_cli.register(app)
serve_cli.register(app)
worker_cli.register(app)


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit."""
    warnings.showwarning = _show_warning
    _shown.clear()
    command = typer.main.get_command(app)
    if not (sys.argv[1:] if args is None else args):
        args = ["--help"]
    try:
        code = command.main(args, prog_name="mainspring", standalone_mode=False)
    except USER_ERRORS as error:
        code = _fail(" ".join([str(error), *getattr(error, "__notes__", [])]))
    except InvariantError as error:
        print(
            f"mainspring: this is a fault of mainspring or of the policy: {error}", file=sys.stderr
        )
        code = UNSOUND
    except MemoryError as error:
        code = _fail(f"{error or 'out of memory'}; expected fewer GPUs, models or requests")
    except typer.Abort:  # the second Ctrl-C
        code = INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        text = error.format_message()
        if number := re.fullmatch(r"No such option: (-\d+)\b.*", text):
            text = f"{number[1]} is no option, and below 0; expected a number of at least 0"
        code = _fail(text)
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


def _complete_scenario(incomplete: str) -> Iterator[str]:
    """Scenario files and directories that a path may go on with."""
    for path in sorted(glob.glob(f"{glob.escape(incomplete)}*")):  # noqa: PTH207, may be absolute
        if Path(path).is_dir():
            yield f"{path}/"
        elif path.endswith(".toml"):
            yield path


def _complete_policy(incomplete: str) -> list[str]:
    return [name for name in POLICIES if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command()
def replay(
    journal: Annotated[
        Path, typer.Argument(metavar="RUN_DIR|JOURNAL", help="What `run --journal` has kept.")
    ],
) -> None:
    """Feed a journal to a fresh policy: the same actions must come out, bit for bit."""
    from mainspring import replay as replay_journal
    from mainspring.journal import NAME

    inside = sorted(path.parent for path in journal.glob(f"*/{NAME}"))
    differs = False
    for path in [journal] if (journal / NAME).exists() or not inside else inside:
        came = replay_journal(path)
        if came.difference is None:
            print(
                f"{came.policy}: {came.steps:,} events, {came.actions:,} actions, all as recorded"
            )
            if not came.whole:
                print(
                    f"mainspring: warning: {path} has no end: its run was killed, or it is torn",
                    file=sys.stderr,
                )
            continue
        differs = True
        step, now_ns, recorded, obtained = came.difference
        print(f"{came.policy}: event {step:,}, at {now_ns:,} ns, came out otherwise")
        print(f"recorded:  {recorded}\nobtained:  {obtained}")
    if differs:
        raise typer.Exit(UNSOUND)


ReproducedPage = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE.html", help="Write a page with figures, rows and causes."),
]

reproduce_app = typer.Typer(help="Reproduce what others measured.", rich_markup_mode=None)
app.add_typer(reproduce_app, name="reproduce")


@reproduce_app.command()
def clockwork(
    figure: Annotated[
        str,
        typer.Argument(
            metavar="original|FIGURE|all",
            help="original: runs of the original controller; fig5, fig6, ...: of the paper; "
            "all: all of them.",
        ),
    ],
    data: Annotated[
        Path, typer.Option(help="Folder of the recorded runs, with summary.csv in it.")
    ] = Path("../shared/data/clockwork_original"),
    policy: Annotated[
        str,
        typer.Option(help="For original. artifact: with the artifact's faults; clockwork, fifo."),
    ] = "artifact",
    out: Annotated[Path, typer.Option(help="Folder for the pictures of figures.")] = Path(
        "runs/reproduce/clockwork"
    ),
    full: Annotated[
        bool, typer.Option("--full", help="The paper's own length; original always is.")
    ] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For original: write the page docs/fidelity.md."),
    ] = None,
    html: ReproducedPage = None,
    json: Json = False,
) -> None:
    """Compare our Clockwork with what others measured, row by row."""
    from mainspring.reproduce.fidelity import as_markdown
    from mainspring.reproduce.figures import chosen, make
    from mainspring.reproduce.original import LEFT_OUT, original

    wanted = [] if figure == "original" else chosen(figure)
    if html is not None and not wanted:
        raise ScenarioError(
            "--html: a page is made of figures, and original has none; give --markdown FILE"
        )
    write = _page("clockwork", figure, html)
    rows: list[Row] = []
    notes: list[str] = []
    if figure in ("original", "all"):
        with bars(json) as progress:
            rows += original(data, policy, _runs_done(progress))
        if markdown is not None:
            markdown.write_text(as_markdown(data, rows), encoding="utf-8")
            notes.append(f"page:     {markdown}")
        notes.append(f"left out: {', '.join(LEFT_OUT)} (mainspring.reproduce.original says why)")
    _print_figures(make(wanted, out, full=full), rows, notes, json, write)


@reproduce_app.command()
def clipper(
    figure: Annotated[
        str,
        typer.Argument(
            metavar="FIGURE|all",
            help="fig3, fig4, ...: of the paper; cache: its prediction cache; sharing: containers "
            "on one GPU; clockwork: beside Clockwork; all: all of them.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path(
        "runs/reproduce/clipper"
    ),
    full: Annotated[bool, typer.Option("--full", help="Longer runs and more trials.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page docs/clipper.md.")
    ] = None,
    html: ReproducedPage = None,
    json: Json = False,
) -> None:
    """Compare our Clippers with what their authors measured, row by row."""
    from mainspring.reproduce import clipper as paper
    from mainspring.reproduce.figures import chosen, make

    wanted = chosen(figure, paper.FIGURES, others=())
    figures = make(wanted, out, full=full, package=paper.__name__)
    _print_figures(figures, [], [], json, _page("clipper", figure, html, markdown))


def _page(
    paper: str, figure: str, html: Path | None, markdown: Path | None = None
) -> "Callable[[list[Made]], list[Path]]":
    """What writes the pages that were asked for, once the figures are made."""
    for path in filter(None, (html, markdown)):
        if path.is_dir():  # told before the minutes that figures take
            raise ScenarioError(f"{path}: it is a directory; expected a file to write")

    def write(figures: "list[Made]") -> list[Path]:
        from mainspring.report.page import write_page
        from mainspring.report.reproduction import reproduction_page
        from mainspring.reproduce.clipper.document import as_markdown
        from results.files import write_whole

        if html is not None:
            command = f"mainspring reproduce {paper} {figure} --html {html}"
            write_page(reproduction_page(paper.capitalize(), command, figures), html)
        if markdown is not None:
            write_whole(markdown, as_markdown(figures).encode())
        return [path for path in (html, markdown) if path is not None]

    return write


def _print_figures(
    figures: "Iterable[Made]",
    rows: "list[Row]",
    notes: list[str],
    json: bool,
    write: "Callable[[list[Made]], list[Path]]",
) -> None:
    """Print the rows of figures as they are made, behind those given, and what is to be said.

    write: makes pages of the figures. Ends with INTERRUPTED if one was not finished.
    """
    from mainspring.reproduce.rows import print_rows

    all_made = []
    for made in figures:
        all_made.append(made)
        rows += made.rows
        notes += [f"{made.name}, {made.took_s:.0f} s: {made.cost}"]
        notes += [f"  {cause}" for cause in made.causes]
        notes += [f"picture:  {picture}" for picture in made.pictures]
    notes += [f"page:     {page}" for page in write(all_made)]
    if json:
        _print_json(msgspec.json.encode({"rows": rows}))
    else:
        print_rows(rows)
        print("\n".join(notes))
    if not all(made.complete for made in all_made):
        raise typer.Exit(INTERRUPTED)


def _runs_done(progress: Report | None) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, of: progress("recorded runs", done / of)


@app.command()
def run(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO.toml|RUN_DIR",
            help="What to run, or run again.",
            autocompletion=_complete_scenario,
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As workload.0.rate_rps=800; repeatable."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE.py:CLASS",
            help="Instead of all of them; repeatable.",
            autocompletion=_complete_policy,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the results; runs/NAME-TIME by default.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Instead of the scenario's.")
    ] = None,
    journal: Annotated[
        bool, typer.Option("--journal", help="Keep a journal, for mainspring replay.")
    ] = False,
    json: Json = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only where the results are.")
    ] = False,
) -> None:
    """Run a scenario with each of its policies and compare them."""
    overrides = [*(set_ or []), *([f"seed={seed}"] if seed is not None else [])]
    loaded = load_scenario(scenario, overrides)
    out = out or default_out(loaded)
    with bars(quiet) as progress:
        runs = run_scenario(loaded, out, policy, progress, journal=journal)
    if json:
        _print_json(runs.to_json())
    elif quiet:
        print(out)
    else:
        _print_table(runs)
        print(f"\nresults:  {out}")
        for picture in sorted(out.glob("*.png")):
            print(f"picture:  {picture}")
    for one in runs:
        if refused := sum(one.summary.refusals.values()):
            print(
                f"mainspring: warning: {refused:,} actions of {one.label} were refused; "
                "the table says why",
                file=sys.stderr,
            )
    if runs[-1].summary.interrupted:
        _tell_interrupted(runs, [choice.label for choice in loaded.choose(policy or ())])
        raise typer.Exit(INTERRUPTED)


def _tell_interrupted(runs: Runs, labels: Sequence[str]) -> None:
    last = runs[-1]
    text = f"interrupted: {last.label} is not complete"
    if open_ := last.summary.outcomes["unfinished"]:
        text += f"; of its {open_:,} requests in flight {last.summary.slo_undecided:,} could still "
        text += "have been in time and count in no share"
    if left := labels[len(runs) :]:
        text += f"; not run: {', '.join(left)}"
    print(text, file=sys.stderr)


@app.command()
def validate(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.toml", help=f"{VALIDATED} by default.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Which; repeatable. Clockwork by default.")
    ] = None,
    loads: Annotated[
        str, typer.Option(help="Shares of capacity, or `own` for the scenario's own traffic.")
    ] = "0.5,0.9,1.3",
    full: Annotated[
        bool, typer.Option("--full", help="Clockwork, FIFO and EDF; takes five minutes or more.")
    ] = False,
    repeats: Annotated[int, typer.Option(min=1, max=20, help="Live runs of each load.")] = 3,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="runs/NAME-TIME by default; one that was interrupted goes on."),
    ] = None,
    device: Device = "cpu",
    model: Model = None,
    weights: Weights = None,
    listen: Listen = None,
    keys: Keys = None,
    wait: Wait = None,
    measured: Annotated[
        bool,
        typer.Option(
            "--measure/--no-measure",
            help="Profile the real models here first, or take the scenario's profiles.",
        ),
    ] = True,
    json: Json = False,
) -> None:
    """Run live and in simulation, compare, and say whether the simulation can be trusted here.

    Exit code 0: trust; 4: trust with care; 5: do not trust. After Ctrl-C the same command, with the
    same --out, goes on where it stopped.
    """
    from mainspring import validate as validate_scenario
    from mainspring.report.validation import DATA, write_validation
    from mainspring.validate import POLICIES, validate_loads

    if scenario is None and not VALIDATED.exists():
        raise ScenarioError(
            f"{VALIDATED}, which is validated by default, is not in this directory; "
            "give mainspring validate a SCENARIO.toml"
        )
    scenario = scenario or VALIDATED
    box = box_of(device, model, weights, listen, keys, wait)
    shares = None if loads == "own" else _loads(loads)
    if full and policy:
        raise ScenarioError("--full and --policy: give one of them")
    policies = policy or (list(POLICIES) if full else ["clockwork"])
    if shares is None and len(policies) > 1:
        raise ScenarioError("--loads own takes one policy; give --policy once, or loads")
    loaded = load_scenario(scenario, set_ or [])
    if box.remote is not None and measured and any(one.runs != SPIN for one in loaded.models):
        raise ScenarioError(
            "models would be measured on this machine, and run on others; run mainspring profile "
            "there, name its file in models.N.profile, and add --no-measure"
        )
    home = out or default_out(loaded)
    finished = (home / DATA).is_file()
    try:
        with bars(json) as progress:
            if shares is None:
                came = validate_scenario(
                    loaded, home, policies[0], repeats, progress, box, measured=measured
                )
            else:
                came = validate_loads(
                    loaded, home, policies, shares, repeats, progress, box, measured=measured
                )
    except KeyboardInterrupt:
        the_same = "the same command" if out else f"the same command with --out {quote(str(home))}"
        print(f"interrupted: {the_same} goes on where this one stopped", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if finished:
        print(
            f"{home} was finished, so nothing was run; choose another --out for new runs",
            file=sys.stderr,
        )
    page = write_validation(came, loaded.spec.name, home)
    if json:
        _print_json(came.to_json())
    else:
        print(came)
        print(f"page: {page}")
    raise typer.Exit(came.exit_code)


def _loads(text: str) -> list[float]:
    """Shares of capacity. Raises ScenarioError."""
    try:
        loads = [float(one) for one in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(0 < load <= 10 for load in loads) or len(set(loads)) < len(loads):
        raise ScenarioError(
            f"--loads {text}: expected different shares of capacity above 0 and at most 10, "
            "as in 0.5,0.9,1.3, or own"
        )
    return loads


@app.command()
def live(
    scenario: Annotated[
        Path,
        typer.Argument(metavar="SCENARIO.toml", autocompletion=_complete_scenario),
    ],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As for run.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE.py:CLASS", autocompletion=_complete_policy),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the results.")] = None,
    device: Device = "cpu",
    model: Model = None,
    weights: Weights = None,
    listen: Listen = None,
    keys: Keys = None,
    wait: Wait = None,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
) -> None:
    """Run a scenario in real time, on worker processes."""
    from mainspring.live import as_runs, print_punctuality, run_live

    box = box_of(device, model, weights, listen, keys, wait)
    loaded = load_scenario(scenario, set_ or [])
    out = out or default_out(loaded)
    with bars(quiet) as progress:
        done = run_live(loaded, out, policy, progress, box=box)
    if json:
        _print_json(msgspec.json.encode({"runs": done}, enc_hook=str))
    elif quiet:
        print(out)
    else:
        _print_table(as_runs(done))
        print_punctuality(done)
        print(f"\nresults:  {out}")
    if done[-1].summary.interrupted:
        raise typer.Exit(INTERRUPTED)


@app.command()
def report(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR...", help="Finished runs; for a page, a sweep or a plan."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="PICTURE", help="Draw them too: .png, .svg, or both.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE.html", help="Write a page to be forwarded."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare finished runs; make a page of them, or of a sweep or a plan."""
    studies = [directory for directory in directories if is_study(directory)]
    if studies and (html is None or out or json):
        raise ScenarioError(
            f"{studies[0]} is a sweep or a plan, of which report makes a page; "
            "expected --html FILE.html and nothing else"
        )
    page = [_write_page(directories, html)] if html else []
    if studies:
        print(f"page:     {page[0]}")
        return
    runs = load_runs(*directories)
    pictures = runs.plot().save(out) if out else []
    if json:
        _print_json(runs.to_json())
        return
    _print_table(runs)
    for picture in pictures:
        print(f"picture:  {picture}")
    for each in page:
        print(f"page:     {each}")


def _write_page(directories: Sequence[Path], path: Path) -> Path:
    from mainspring.report import report as write_report

    return write_report(directories, path)


@app.command()
def policies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE.py:CLASS",
            help="Which one; by default a list of ours.",
            autocompletion=_complete_policy,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the policies, or explain one and its parameters."""
    abouts = [describe(each) for each in ([name] if name else POLICIES)]
    if json:
        _print_json(msgspec.json.format(msgspec.json.encode(abouts), indent=2))
    else:
        print(as_page(abouts[0]) if name else as_list(abouts), end="")


def _print_table(runs: Runs) -> None:
    from results.table import print_runs

    print_runs(runs.summaries)


def _print_json(text: bytes) -> None:
    print(text.decode())


def _fail(message: str) -> int:
    print(f"mainspring: {' '.join(message.split())}", file=sys.stderr)
    return 2


_shown: set[str] = set()


def _show_warning(message: Warning | str, *args: Any, **kwargs: Any) -> None:
    """A warning in one line, once, without the line of code that it came from."""
    text = " ".join(str(message).split())
    if text not in _shown:
        _shown.add(text)
        print(f"mainspring: warning: {text}", file=sys.stderr)
