"""Pages on a sweep and on a plan: what was asked, the answer, every number behind it.

Not here: pages on runs (runs.py), and the numbers themselves (mainspring.sweep,
mainspring.compare, mainspring.plan).
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mainspring.compare import Comparison, compare
from mainspring.document import ScenarioError
from mainspring.plan import PLAN, Answer
from mainspring.report.basis import basis, versions
from mainspring.report.cases import cases_of
from mainspring.report.page import Bar, Cell, Code, Item, Lines, Page, Section, Table, chart
from mainspring.report.parts import SIZE
from mainspring.report.words import n, number
from mainspring.runs import load_runs
from mainspring.study import POLICY
from mainspring.sweep import ABOUT, PLACE, STUDY, TABLE, Sweep, load_sweep
from results.bands import Curve, panel
from results.intervals import two_sided
from results.table import NONE, percent

MOST_ROWS: Final = 200
"""Settings of a sweep that are shown; the table in its directory has them all."""


def study_page(directory: Path) -> Page:
    """The page of a sweep or a plan.

    Raises ScenarioError or ResultsError where its files cannot be used.
    """
    if (directory / PLAN).is_file():
        return plan_page(directory)
    return sweep_page(load_sweep(directory))


# -- a sweep ---------------------------------------------------------------------------------------


def sweep_page(sweep: Sweep) -> Page:
    """What a sweep shows: means over seeds, with intervals, for every setting."""
    rows = [row for row in sweep.table.to_pylist() if row["error"] is None]
    keys = [key for key in sweep.keys if len({str(row[key]) for row in rows}) > 1]
    seeds = len({row["seed"] for row in rows})
    metric = "attainment" if any(row.get("share_in_time") is not None for row in rows) else "p99"
    items: list[Item] = []
    lead = ""
    try:
        came = compare(sweep, metric=metric)
    except ScenarioError as error:
        if rows:
            answer, lead = f"{n(len(rows), 'run')}, whose numbers follow.", f"No figure: {error}."
        else:
            answer = "There is no answer: every run failed."
        how_sure = ""
    else:
        answer, how_sure = _best(came)
        items += _figures(came)
    items.append(_settings(sweep, rows))
    study = sweep.directory / STUDY
    return Page(
        title=json.loads(sweep.table.schema.metadata[ABOUT]).get("study", sweep.directory.name),
        kind="A sweep over simulations of DNN inference",
        question=(
            f"What do {' and '.join(keys) or 'the seeds'} change? {n(len(rows), 'run')}, "
            f"{n(seeds, 'seed')} for every setting, and so the same arrivals for every policy."
        ),
        answer=answer,
        how_sure=how_sure,
        warnings=[
            f"{n(len(sweep.failed), 'run')} failed; the first: {row['error']}"
            for row in sweep.failed[:1]
        ]
        + [f"{warning}." for warning in sweep.warnings],
        sections=[
            Section("numbers", "Every setting", lead, items),
            *_one_run(sweep.directory, rows[0][PLACE] if rows else None),
            _again(
                sweep.directory,
                f"mainspring sweep {shlex.quote(str(study))} --out NEW_DIR",
                study,
            ),
        ],
    )


def _figures(came: Comparison) -> Iterator[Item]:
    means, differences = came.curves()
    x_label = came.over or came.between
    if differences:
        picture = panel(means, names=means, x_label=x_label, size=SIZE)
        yield chart(came.title, picture, "means", came.method)
        picture = panel(differences, names=means, x_label=x_label, size=SIZE, line_at=0)
        title = f"The same, less that of {came.baseline}"
        note = "Where a band does not touch the line, the difference is more than chance."
        yield chart(title, picture, "differences", note)
    else:
        yield chart(came.title, panel(means, names=means, x_label=x_label, size=SIZE), "means")


def _best(came: Comparison) -> tuple[str, str]:
    """Which policy is ahead and where, and how many differences are more than chance."""
    rows = [row for row in came.table.to_pylist() if row["mean"] is not None]
    if not rows:
        return "No run gave a number to compare.", ""
    means = [row["mean"] for row in rows]
    if len({row[came.between] for row in rows}) == 1:
        low, high = number(min(means)), number(max(means))
        if low == high:
            return f"{came.metric} is {low} throughout.", came.method
        return f"{came.metric} lies between {low} and {high}.", came.method
    less_is_more = came.metric.startswith("p")
    ahead: Counter[Any] = Counter()
    shared: Counter[Any] = Counter()
    places: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        places.setdefault(row[came.over] if came.over else None, []).append(row)
    for here in places.values():
        best = (min if less_is_more else max)(row["mean"] for row in here)
        first = [row[came.between] for row in here if row["mean"] == best]
        (ahead if len(first) == 1 else shared).update(first)
    winner = max(dict.fromkeys([*ahead, *shared]), key=lambda name: (ahead[name], shared[name]))
    what = f"{'lowest' if less_is_more else 'highest'} {came.metric}"
    if not came.over:
        answer = f"{winner} has the {what}{', as have others' if shared[winner] else ''}."
    else:
        answer = f"{winner} has the {what} at {ahead[winner]} of {n(len(places), 'value')} of "
        answer += came.over
        answer += f", and shares it at {shared[winner]}." if shared[winner] else "."
    pairs = [row for row in rows if row["difference_low"] is not None]
    clear = sum(row["difference_low"] > 0 or row["difference_high"] < 0 for row in pairs)
    return answer, (
        f"{clear} of {n(len(pairs), 'difference')} to {came.baseline} are more than chance "
        f"({came.method})."
    )


def _settings(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> Table:
    metrics = {
        "in time (%)": "share_in_time",
        "goodput (req/s)": "goodput_rps",
        "p50 (ms)": "latency.quantiles_ms.p50",
        "p99 (ms)": "latency.quantiles_ms.p99",
        "GPU utilisation (%)": "mean_gpu_utilisation",
    }
    settings: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        settings.setdefault(tuple(str(row[key]) for key in sweep.keys), []).append(row)
    shown: list[list[Cell]] = [
        [*values, str(len(runs)), *(_mean(name, runs, metrics[name]) for name in metrics)]
        for values, runs in list(settings.items())[:MOST_ROWS]
    ]
    note = "Means over the seeds, with the reach of their 95% intervals (Student's t)."
    if len(settings) > MOST_ROWS:
        more = len(settings) - MOST_ROWS
        note += f" {n(more, 'more setting')} are in {sweep.directory / TABLE}."
    words = [i for i, key in enumerate(sweep.keys) if key == POLICY]
    return Table("All settings", [*sweep.keys, "runs", *metrics], shown, note, words)


def _mean(name: str, runs: Sequence[Mapping[str, Any]], column: str) -> Cell:
    """A mean with its reach; a share in percent."""
    mean = two_sided([row[column] for row in runs if row.get(column) is not None])
    if mean.mean is None:
        return NONE
    share = name.endswith("(%)")
    reach = "" if mean.half_width is None else f" ± {mean.half_width * (100 if share else 1):.2g}"
    if not share:
        return f"{number(mean.mean)}{reach}"
    return Bar(f"{percent(mean.mean)}{reach}", mean.mean)


# -- a plan ----------------------------------------------------------------------------------------


def plan_page(directory: Path) -> Page:
    """The four answers of a plan, and the fleets behind them."""
    path = directory / PLAN
    try:
        answer = msgspec.json.decode(path.read_bytes(), type=Answer)
    except (OSError, msgspec.MsgspecError) as error:
        raise ScenarioError(f"{path}: {error}; not a plan of this version, plan again") from None
    p99 = f" with a p99 of at most {answer.target_p99_ms:g} ms" if answer.target_p99_ms else ""
    questions = (
        ("fleet", "1. What fleet?", answer.fleet if answer.feasible else answer.fleet[1:]),
        ("binds", "2. What binds?", answer.binds),
        ("headroom", "3. How much headroom?", answer.headroom),
        ("next", "4. What to change next?", answer.next),
    )
    bounds = [note for note in answer.notes if note.startswith("bounds: ")]
    one = _point_of(directory, answer)
    scenario = shlex.quote(str(directory / one)) if one else "SCENARIO.toml"
    return Page(
        title=answer.scenario,
        kind="A capacity plan from simulations of DNN inference",
        question=(
            f"How many GPUs answer {_share(answer.target_attainment)} of the requests of "
            f"{answer.scenario} in time{p99}, under {answer.policy}, with {answer.confidence:.0%} "
            "confidence?"
        ),
        answer=_plan_answer(answer),
        how_sure=f"How sure: {bounds[0].removeprefix('bounds: ')}." if bounds else "",
        warnings=[f"{note[:1].upper()}{note[1:]}." for note in answer.notes if note not in bounds],
        sections=[
            *(Section(key, name, "", [Lines(lines)]) for key, name, lines in questions if lines),
            Section("tried", "What was tried", "", list(_tried(answer))),
            *_one_run(directory, one),
            _again(
                directory,
                f"mainspring plan {scenario} --target-attainment {answer.target_attainment:g}"
                + (f" --p99-ms {answer.target_p99_ms:g}" if answer.target_p99_ms else "")
                + f" --confidence {answer.confidence:g} --out NEW_DIR",
            ),
        ],
    )


def _plan_answer(answer: Answer) -> str:
    if not answer.feasible or answer.gpus is None:
        return f"No fleet is known to do: {answer.why or 'it has not been found out yet'}."
    text = f"{n(answer.gpus, 'GPU')} ({answer.kind}) will do"
    if answer.price_per_hour is not None:
        text += f", for {answer.price_per_hour:g} {answer.currency} an hour"
    if answer.survives_loss_with:
        text += f"; {answer.survives_loss_with} if one may be lost"
    return f"{text}."


def _base(answer: Answer) -> str:
    """The name of the scenario without changes, on the kind of GPU that was chosen."""
    variants = [row.variant for row in answer.fleets]
    return next((name for name in ("as given", answer.kind) if name in variants), variants[0])


def _tried(answer: Answer) -> Iterator[Item]:
    if not answer.fleets:
        yield Lines(["Nothing was run: the answer follows from the profiles."])
        return
    base = _base(answer)
    mine = sorted((row for row in answer.fleets if row.variant == base), key=lambda row: row.gpus)
    curve = Curve(
        [row.gpus for row in mine],
        [row.attainment * 100 for row in mine],
        [row.attainment_low * 100 for row in mine],
        [row.attainment_high * 100 for row in mine],
    )
    target = answer.target_attainment * 100
    picture = panel({base: curve}, names=[base], x_label="GPUs", size=SIZE, line_at=target)
    picture.axes[0].set_xticks([row.gpus for row in mine])
    note = f"The line is the target, {_share(answer.target_attainment)}; the band has the bounds."
    yield chart(f"In time (%) on fleets of different sizes, {base}", picture, "fleets", note)
    yield Table(
        "",
        ["scenario", "GPUs", "verdict", "in time (%)", "at least (%)", "at most (%)", "p99 (ms)",
         "executing (%)", "cold (%)", "rejected (%)", "seeds"],
        [
            [
                row.variant,
                str(row.gpus),
                row.verdict,
                Bar(percent(row.attainment), row.attainment),
                percent(row.attainment_low),
                percent(row.attainment_high),
                number(row.p99_ms),
                percent(row.executing, 1),
                percent(row.cold, 1),
                percent(row.rejected, 1),
                str(row.seeds),
            ]
            for row in [*mine, *(row for row in answer.fleets if row.variant != base)]
        ],
        words=(2,),
    )  # fmt: skip


def _point_of(directory: Path, answer: Answer) -> str | None:
    """A run of the scenario as it was given, on the fleet that was chosen or any other."""
    if not (directory / TABLE).is_file() or not answer.fleets:
        return None
    rows = load_sweep(directory).table.to_pylist()
    mine = [row for row in rows if row["variant"] == _base(answer)]
    mine.sort(key=lambda row: row["gpus"] != answer.gpus)
    return mine[0][PLACE] if mine else None


# -- both ------------------------------------------------------------------------------------------


def _one_run(directory: Path, place: str | None) -> Iterator[Section]:
    """What one of the runs rests on, and with that all of them."""
    if place is None:
        return
    cases = cases_of(load_runs(directory / place))
    one = f"Of one of the runs, {place}; the others differ from it in what the page names."
    rests = basis(cases)
    yield rests._replace(
        lead=one,
        items=[*rests.items, versions(cases), Code("Its scenario", cases[0].text, folded=True)],
    )


def _again(directory: Path, command: str, *files: Path) -> Section:
    items: list[Item] = [
        Code("", command),
        Lines(
            [
                f"Every run is in {directory / 'points'}, with its scenario and the fate of every "
                f"request; one row of {directory / TABLE} says which it is. mainspring report "
                "makes a page of any of them."
            ]
        ),
    ]
    items += [
        Code(file.name, file.read_text(encoding="utf-8"), folded=True)
        for file in files
        if file.is_file()
    ]
    return Section("again", "Run it again", "", items)


def _share(share: float) -> str:
    return f"{share * 100:.10g}%"
