"""Pages on a sweep and on a plan: what was asked, the answer, every number behind it.

Not here: pages on runs (runs.py), and the numbers themselves (mainspring.sweep,
mainspring.compare, mainspring.plan).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mainspring.compare import Comparison, compare
from mainspring.document import ScenarioError
from mainspring.plan import PLAN, Answer
from mainspring.report.page import Bar, Cell, Code, Item, Lines, Page, Section, Table, chart
from mainspring.report.words import number
from mainspring.study import POLICY
from mainspring.sweep import STUDY, TABLE, Sweep, load_sweep
from results.bands import Curve, bands
from results.intervals import two_sided
from results.table import percent

MOST_ROWS: Final = 200
"""Settings of a sweep that are shown; the table in its directory has them all."""


def study_page(directory: Path) -> Page:
    """The page of a sweep or a plan. Raises ScenarioError where its files cannot be used."""
    if (directory / PLAN).is_file():
        return plan_page(directory)
    return sweep_page(load_sweep(directory))


# -- a sweep ---------------------------------------------------------------------------------------


def sweep_page(sweep: Sweep) -> Page:
    """What a sweep shows: means over seeds, with intervals, for every setting."""
    rows = [row for row in sweep.table.to_pylist() if row["error"] is None]
    name = sweep.directory.resolve().name
    keys = [key for key in sweep.keys if len({str(row[key]) for row in rows}) > 1]
    seeds = len({row["seed"] for row in rows})
    metric = "attainment" if any(row.get("share_in_time") is not None for row in rows) else "p99"
    came, why_not = _comparison(sweep, metric)
    answer, how_sure = _best(came) if came else (f"{len(rows)} runs, whose numbers follow.", "")
    items: list[Item] = []
    if came is not None:
        items.append(chart(f"{metric}, with 95% intervals", came.plot(), "figure", came.method))
    items.append(_settings(sweep, rows))
    failed = sweep.failed
    errors = dict.fromkeys(str(row["error"]) for row in failed)
    return Page(
        title=name,
        kind="Sweep of a simulation of DNN inference",
        question=(
            f"What do {' and '.join(keys) or 'the seeds'} change? {len(rows)} runs, "
            f"{seeds} {'seed' if seeds == 1 else 'seeds'} for every setting, and so the same "
            "arrivals for every policy."
        ),
        answer=answer,
        how_sure=how_sure,
        warnings=[f"{len(failed)} runs failed; the first: {next(iter(errors))}"] if failed else [],
        sections=[
            Section("numbers", "Every setting", why_not, items),
            _rerun(
                [sweep.directory / STUDY],
                f"mainspring sweep {sweep.directory / STUDY} --out NEW_DIR",
                f"Every run is in {sweep.directory / 'points'}, each with its scenario, and one "
                f"row of {sweep.directory / TABLE} says which. mainspring report makes a page of "
                "any of them.",
            ),
        ],
    )


def _comparison(sweep: Sweep, metric: str) -> tuple[Comparison | None, str]:
    """The policies side by side, or why that cannot be had without being told more."""
    try:
        return compare(sweep, metric=metric), ""
    except ScenarioError as error:
        return None, f"No figure: {error} (mainspring compare draws one)."


def _best(came: Comparison) -> tuple[str, str]:
    """Which policy is ahead, and where that is more than chance."""
    rows = came.table.to_pylist()
    ahead: dict[Any, int] = {}
    places = list(dict.fromkeys(row[came.over] if came.over else None for row in rows))
    down = came.metric.startswith("p")
    for place in places:
        here = [
            row
            for row in rows
            if (row[came.over] if came.over else None) == place and row["mean"] is not None
        ]
        if here:
            best = (min if down else max)(here, key=lambda row: row["mean"])[came.between]
            ahead[best] = ahead.get(best, 0) + 1
    if not ahead:
        return "No run gave a number to compare.", ""
    if len({row[came.between] for row in rows}) == 1:
        values = [row["mean"] for row in rows if row["mean"] is not None]
        low, high = min(values), max(values)
        return f"{came.metric} lies between {number(low)} and {number(high)}.", came.method
    winner = max(ahead, key=lambda name: ahead[name])
    of = f" at {ahead[winner]} of {len(places)} values of {came.over}" if came.over else ""
    clear = sum(
        row["difference_low"] is not None
        and (row["difference_low"] > 0 or row["difference_high"] < 0)
        for row in rows
    )
    pairs = sum(row["difference"] is not None for row in rows)
    return (
        f"{winner} has the {'lowest' if down else 'highest'} {came.metric}{of}.",
        f"{clear} of {pairs} differences to {came.baseline} are more than chance ({came.method}).",
    )


def _settings(sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> Table:
    metrics = {
        "in time (%)": ("share_in_time", 100.0),
        "goodput (req/s)": ("goodput_rps", 1.0),
        "p50 (ms)": ("latency.quantiles_ms.p50", 1.0),
        "p99 (ms)": ("latency.quantiles_ms.p99", 1.0),
        "GPU utilisation (%)": ("mean_gpu_utilisation", 100.0),
    }
    settings: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        settings.setdefault(tuple(str(row[key]) for key in sweep.keys), []).append(row)
    shown: list[list[Cell]] = []
    for values, runs in list(settings.items())[:MOST_ROWS]:
        cells: list[Cell] = [*values, str(len(runs))]
        for column, factor in metrics.values():
            found = [row[column] * factor for row in runs if row.get(column) is not None]
            mean = two_sided(found)
            text = number(mean.mean)
            if mean.half_width is not None:
                text += f" ± {number(mean.half_width)}"
            share = column == "share_in_time" and mean.mean is not None
            cells.append(Bar(text, (mean.mean or 0.0) / 100) if share else text)
        shown.append(cells)
    left_out = len(settings) - len(shown)
    note = "Means over the seeds, with the reach of their 95% intervals (Student's t)."
    if left_out:
        note += f" {left_out} more settings are in {sweep.directory / TABLE}."
    return Table(
        "All settings",
        [*sweep.keys, "runs", *metrics],
        shown,
        note,
        words=[i for i, key in enumerate(sweep.keys) if key == POLICY],
    )


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
    parts = [Section(key, title, "", [Lines(lines)]) for key, title, lines in questions if lines]
    return Page(
        title=answer.scenario,
        kind="Capacity plan from a simulation of DNN inference",
        question=(
            f"How many GPUs answer {_share(answer.target_attainment)} of the requests of "
            f"{answer.scenario} in time{p99}, under {answer.policy}, with {answer.confidence:.0%} "
            "confidence?"
        ),
        answer=_plan_answer(answer),
        how_sure=next((note for note in answer.notes if note.startswith("bounds:")), ""),
        warnings=list(_plan_warnings(answer)),
        sections=[
            *parts,
            Section("tried", "What was tried", "", list(_tried(answer))),
            _rerun(
                _one_scenario(directory),
                f"mainspring plan SCENARIO.toml --target-attainment {answer.target_attainment:g}"
                + (f" --p99-ms {answer.target_p99_ms:g}" if answer.target_p99_ms else "")
                + f" --policy {answer.policy} --confidence {answer.confidence:g}",
                f"Every run is in {directory / 'points'}, each with its scenario, and one row of "
                f"{directory / TABLE} says which.",
            ),
        ],
    )


def _plan_answer(answer: Answer) -> str:
    if not answer.feasible or answer.gpus is None:
        why = answer.why or "it has not been found out yet"
        return f"No fleet is known to do: {why}."
    price = ""
    if answer.price_per_hour is not None:
        price = f", for {answer.price_per_hour:g} {answer.currency} an hour"
    gpus = f"{answer.gpus} GPU{'' if answer.gpus == 1 else 's'}"
    loss = ""
    if answer.survives_loss_with:
        loss = f"; {answer.survives_loss_with} if one may be lost"
    return f"{gpus} of {answer.kind} will do{price}{loss}."


def _plan_warnings(answer: Answer) -> Iterator[str]:
    for note in answer.notes:
        if not note.startswith("bounds:"):
            yield f"{note[:1].upper()}{note[1:]}."


def _tried(answer: Answer) -> Iterator[Item]:
    rows = sorted(answer.fleets, key=lambda row: (row.variant, row.gpus))
    if not rows:
        yield Lines(["Nothing was run: the answer follows from the profiles."])
        return
    base = rows[0].variant if not any(r.variant == "as given" for r in rows) else "as given"
    mine = [row for row in rows if row.variant == base]
    curve = Curve(
        [row.gpus for row in mine],
        [row.attainment * 100 for row in mine],
        [row.attainment_low * 100 for row in mine],
        [row.attainment_high * 100 for row in mine],
    )
    picture = bands({base: curve}, {}, baseline=base, x_label="GPUs", y_label="in time (%)")
    picture.axes[0].axhline(answer.target_attainment * 100, color="#222222", linewidth=0.9)
    picture.axes[0].set_xticks([row.gpus for row in mine])
    note = f"The line is the target, {_share(answer.target_attainment)}; bands are the bounds."
    yield chart(f"Fleets of different sizes, {base}", picture, "figure", note)
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
            for row in rows
        ],
        words=(2,),
    )  # fmt: skip


def _one_scenario(directory: Path) -> list[Path]:
    return sorted(directory.glob("points/*/scenario.toml"))[:1]


# -- both ------------------------------------------------------------------------------------------


def _rerun(files: Sequence[Path], command: str, where: str) -> Section:
    """How to do it again, with the file that it came from."""
    items: list[Item] = [Code("Run it again", command), Lines([where])]
    for file in files:
        if file.is_file():
            items.append(Code(str(file), file.read_text(encoding="utf-8"), folded=True))
    return Section("again", "How to run it again", "", items)


def _share(share: float) -> str:
    return f"{share * 100:.10g}%"
