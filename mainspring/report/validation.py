"""A page on a validation: the verdict, why, what to do, and live beside simulated in figures.

OUT/validate.html    the page
OUT/validate.json    the same in numbers, as `--json` prints it
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mainspring.agreement import ALONE, Check, Grade
from mainspring.report.page import Cell, Item, Lines, Page, Section, Table, chart, write_page
from mainspring.report.parts import SIZE
from mainspring.report.words import n, number
from mainspring.validate import Validation, heading_of
from results.files import write_whole
from results.plots import latency_cdf
from results.side_by_side import in_system
from results.table import NONE, percent

PAGE: Final = "validate.html"
DATA: Final = "validate.json"
GRADES: Final = {
    Grade.SHOWN: "shown only", Grade.GOOD: "good", Grade.CARE: "care", Grade.BAD: "bad",
}  # fmt: skip
RELATIVE: Final = (
    "Differences of rates, latencies and executions are relative; others are absolute."
)
BESIDE_ALONE: Final = (
    " Under simulated, executions of real models have what they took alone around the live runs; "
    "by what that was apart, they may be off as well."
)
ANSWERS: Final = {
    "trust": "Yes: within the tolerances, live and simulated agree on this machine.",
    "trust with care": "With care: live and simulated agree but for what is listed below.",
    "do not trust": "No: live and simulated differ by more than the tolerances.",
}


def write_validation(came: Validation, name: str, out: Path) -> Path:
    """Write page and JSON into the validation's directory; returns the page's path.

    name: the scenario's. Raises ResultsError where a run of it cannot be read.
    """
    write_whole(out / DATA, came.to_json())
    return write_page(validation_page(came, name, out), out / PAGE)


def validation_page(came: Validation, name: str, out: Path) -> Page:
    """What there is to say. out: where its runs are, as mainspring.validate leaves them."""
    groups: dict[str, list[Check]] = {}
    for check in came.checks:
        groups.setdefault(heading_of(check), []).append(check)
    judged = [check for check in came.checks if check.grade is not Grade.SHOWN]
    good = sum(check.grade is Grade.GOOD for check in judged)
    return Page(
        title=name,
        kind="A validation: live beside simulated",
        question=f"Can the simulation of {name} be trusted on this machine?",
        answer=ANSWERS[came.verdict],
        how_sure=f"{good} of {n(len(judged), 'judged check')} are good. What is physical is judged "
        "by a fixed tolerance, or by the spread of the repeated live runs where that is wider.",
        warnings=[*_when(came.times), *_warnings(came.checks)],
        sections=[
            *(_section(i, title, checks, out) for i, (title, checks) in enumerate(groups.items())),
            _given(came),
        ],
    )


def _warnings(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        if check.grade > Grade.GOOD:
            at = f"{heading}, " if (heading := heading_of(check)) else ""
            yield f"{at}{check.name}: {check.reason}. To do: {check.advice}."


def _when(times: Sequence[str]) -> list[str]:
    """Where live runs were taken at different times."""
    return [f"{times[0].capitalize()} ({'; '.join(times[1:])})."] if times else []


def _section(i: int, title: str, checks: Sequence[Check], out: Path) -> Section:
    first = checks[0]
    if first.load is not None:
        out = out / first.policy / f"{first.load:g}"
    live = sorted(out.glob("live-*"), key=lambda path: int(path.name.partition("-")[2]))
    runs = {"simulated": out / "simulated-1", "live": live[0]}
    key = f"load-{i}"
    items: list[Item] = [
        chart(
            "Latency: share of requests answered within a time",
            latency_cdf(runs, size=SIZE, title=""),
            f"{key}-latency",
            "The first live run beside its simulation, of the same arrivals.",
        ),
        chart(
            "Requests in the system, over time",
            in_system(runs, size=SIZE),
            f"{key}-backlog",
            "A curve that keeps growing is a server that cannot keep up.",
        ),
        Table(
            "Checks",
            ["check", "grade", "live", "simulated", "difference", "allowed", "spread of repeats",
             "live, 95%"],
            [_row(check) for check in checks],
            RELATIVE + BESIDE_ALONE * any(check.name == ALONE for check in checks),
            words=(1,),
        ),
    ]  # fmt: skip
    worst = max(check.grade for check in checks)
    what = n(len(live), "live run")
    return Section(key, title or "Live beside simulated", f"{what}: {GRADES[worst]}.", items)


def _row(check: Check) -> list[Cell]:
    relative = check.spread is not None
    interval = NONE if check.low is None else f"{number(check.low)} to {number(check.high)}"
    return [
        check.name,
        GRADES[check.grade],
        number(check.live),
        number(check.simulated),
        _part(check.difference, relative),
        _part(check.tolerance, relative),
        _part(check.spread, relative),
        interval,
    ]


def _part(value: float | None, relative: bool) -> str:
    return f"{percent(value, 1)}%" if relative and value is not None else number(value)


def _given(came: Validation) -> Section:
    lead = (
        "What the simulation was given: the profile, the arrivals of the live runs, and delays of "
        "this machine that were measured in other live runs than the one that is simulated."
    )
    given = [*map(repr, came.delays), *map(repr, came.capacities)]
    lines = [line for text in given for line in text.splitlines()]
    items: list[Item] = [Lines([line.strip() for line in lines])]
    for capacity in came.capacities:
        items.append(
            Table(
                f"{capacity.policy}: goodput at growing rates, simulated",
                ["offered (req/s)", "goodput (req/s)"],
                [[number(offered), number(goodput)] for offered, goodput in capacity.tried],
                folded=True,
            )
        )
    return Section("given", "What the simulation was given", lead, items)
