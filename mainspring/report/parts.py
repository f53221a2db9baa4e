"""When requests were missed, and whose: windows of time, clients, models.

Not here: how the numbers are made (results.breakdown).
"""

from collections.abc import Sequence
from typing import Final

from mainspring.report.cases import Case
from mainspring.report.page import Bar, Cell, Item, Lines, Section, Table, chart
from mainspring.report.words import n, quantile, rate, share, slo, words
from results import breakdown_plots
from results.breakdown import WINDOWS, Exposure, Part, Window, together
from results.table import NONE, percent

MOST_MODELS: Final = 20
"""Models of one run that are shown by name: those with the most misses."""
FEW_MODELS: Final = 4
"""So many models need no figure to be seen at once."""

SIZE: Final = (4.8, 3.6)
"""Of a figure, in inches: legible on a telephone, and not too large beside another one."""


def tall(panels: int) -> tuple[float, float]:
    """The size of a figure with so many panels below each other."""
    return SIZE[0], max(SIZE[1], 1.2 + 1.15 * panels)


# -- when ------------------------------------------------------------------------------------------


def worst_windows(cases: Sequence[Case]) -> Section:
    """The windows of time with the most misses, for each run."""
    items: list[Item] = []
    spared = [case.label for case in cases if not case.parts.worst]
    for case in cases:
        worst, windows = case.parts.worst, len(case.parts.starts_ns)
        if not worst:
            continue
        missed = case.summary.slo_requests - case.summary.slo_in_time
        held = percent(sum(window.missed for window in worst) / missed, 0)
        what = n(len(worst), "window")
        items.append(
            Table(
                f"{case.label}: {what} of {windows} with {held}% of {n(missed, 'miss', 'misses')}",
                ["arrived (s)", "req/s", "in time (%)", "missed", "of all misses (%)",
                 "what became of the others", "most misses of"],
                [_window(window, missed) for window in worst],
                words=(5, 6),
                folded=len(cases) > 3,
            )
        )  # fmt: skip
    if spared:
        items.append(Lines([f"{label}: no request with an SLO was missed." for label in spared]))
    width_s = cases[0].parts.width_ns / 1e9
    minutes = width_s == 60
    return Section(
        "worst",
        "The worst minutes" if minutes else "The worst windows",
        f"The measured time in {'minutes' if minutes else f'windows of {width_s:g} s'}: those in "
        "which most of the requests arrived that were missed.",
        items,
    )


def _window(window: Window, all_missed: int) -> list[Cell]:
    length_s = (window.end_ns - window.start_ns) / 1e9
    in_time = window.slo_in_time / window.slo_requests
    others = [f"{count:,} {words(of)}" for of, count in window.outcomes.items() if count]
    return [
        f"{window.start_ns / 1e9:,.10g} to {window.end_ns / 1e9:,.10g}",
        rate(window.arrivals / length_s),
        Bar(percent(in_time, 2), in_time),
        f"{window.missed:,}",
        percent(window.missed / all_missed, 1),
        ", ".join(text for text in others if not text.endswith(" ok")),
        f"{window.worst_model} ({window.worst_model_missed:,})",
    ]


# -- whose: clients --------------------------------------------------------------------------------


def by_client(cases: Sequence[Case]) -> Section:
    """How each client is served, and whether the others show in it."""
    key, title = "clients", "By client, and how they are kept apart"
    if max(len(case.parts.clients) for case in cases) < 2:
        only = next((part.name for case in cases for part in case.parts.clients), "nobody")
        return Section(
            key,
            title,
            f"All requests come from one stream, {only}, so there is nothing to keep apart. "
            "Each [[workload]] of a scenario is a client here.",
            [],
        )
    parts = {case.label: case.parts for case in cases}
    items: list[Item] = []
    picture = breakdown_plots.by_client(parts, size=tall(len(cases)))
    if picture is not None:
        items.append(chart("Share in time of each client, over time", picture, "clients-time"))
    items.append(Lines([_conclusion(case) for case in cases], "What can be concluded", beside=True))
    items.append(_client_table(cases))
    if any(case.parts.exposures for case in cases):
        items.append(_exposure_table(cases))
    lead = (
        "Each [[workload]] of the scenario is a client. It is isolated if it is served as well "
        "when the others ask for much as when they ask for little."
    )
    return Section(key, title, lead, items)


def _conclusion(case: Case) -> str:
    shares = [part for part in case.parts.clients if part.share_in_time is not None]
    if len(shares) < 2:
        return f"{case.label}: fewer than two clients have an SLO, so there is nothing to compare."
    if not case.summary.slo_in_time:
        return f"{case.label}: no client gets anything in time, so none can lose."
    ranked = sorted(shares, key=lambda part: -(part.share_in_time or 0.0))
    best, worst = ranked[0], ranked[-1]
    text = (
        f"{case.label}: {_key(best.name)} has {share(best.share_in_time)} in time, "
        f"{_key(worst.name)} {share(worst.share_in_time)}"
    )
    if not case.parts.exposures:
        return (
            f"{text}. Whether they harm each other cannot be told: that takes {WINDOWS} windows "
            "of time."
        )
    harmed = [
        f"{_key(e.client)} loses {-100 * e.difference:.1f} points when the others ask for the "
        f"most (95%: {-100 * e.high:.1f} to {-100 * e.low:.1f}): it is not isolated"
        for e in case.parts.exposures
        if e.high < 0
    ]
    spared = [_key(e.client) for e in case.parts.exposures if e.high >= 0]
    if spared:
        harmed.append(f"for {', '.join(spared)} no loss is shown beyond chance")
    return f"{text}; {'; '.join(harmed)}."


def _key(client: str) -> str:
    return client.partition(" (")[0]


def _client_table(cases: Sequence[Case]) -> Table:
    rows: list[list[Cell]] = []
    for name in dict.fromkeys(part.name for case in cases for part in case.parts.clients):
        for case in cases:
            for part in case.parts.clients:
                if part.name == name:
                    beside = _points(part, case.summary.share_in_time)
                    rows.append([name, case.label, slo(part.slo_ms), *_part(part, case), beside])
    for case in cases:
        whole = together(case.parts.clients, "all")
        rows.append(["all", case.label, slo(whole.slo_ms), *_part(whole, case), ""])
    head = ["client", "run", "SLO (ms)", *_PART_HEAD, "beside all (points)"]
    return Table("Each client", head, rows, words=(1,), total=len(cases))


def _points(part: Part, overall: float | None) -> str:
    if part.share_in_time is None or overall is None:
        return NONE
    return f"{100 * (part.share_in_time - overall):+.2f}"


def _exposure_table(cases: Sequence[Case]) -> Table:
    found = sorted(
        ((e, case) for case in cases for e in case.parts.exposures), key=lambda pair: pair[0].client
    )
    first, case = found[0]
    note = (
        f"Of {first.windows} windows of {case.parts.width_ns / 1e9:g} s, the {first.busy_windows} "
        "in which the others ask for the most are held against the rest (otherwise → then). The "
        "interval takes windows for independent. What goes together need not be the cause: a "
        "client whose own rate is higher then may owe its loss to itself. What it would have alone "
        "shows in a run with its [[workload]] only."
    )
    return Table(
        "When the others ask for the most",
        ["client", "run", "others (req/s)", "own (req/s)",
         "in time otherwise (%)", "in time then (%)", "difference (points)", "95% interval",
         "verdict"],
        [[e.client, case.label, *_exposure(e)] for e, case in found],
        note,
        words=(1, 8),
    )  # fmt: skip


def _exposure(e: Exposure) -> list[Cell]:
    if e.high < 0:
        verdict = "loses"
    elif e.low > 0:
        verdict = "gains"
    else:
        verdict = "no difference shown"
    return [
        f"{rate(e.others_rps)} → {rate(e.others_busy_rps)}",
        f"{rate(e.own_rps)} → {rate(e.own_busy_rps)}",
        Bar(percent(e.share, 2), e.share),
        Bar(percent(e.share_busy, 2), e.share_busy),
        f"{100 * e.difference:+.2f}",
        f"{100 * e.low:+.1f} to {100 * e.high:+.1f}",
        verdict,
    ]


# -- whose: models ---------------------------------------------------------------------------------


def by_model(cases: Sequence[Case]) -> Section:
    """How each model's requests are served; of many models those with the most misses."""
    items: list[Item] = []
    if max(len(case.parts.models) for case in cases) > FEW_MODELS:
        parts = {case.label: case.parts for case in cases}
        picture = breakdown_plots.by_model(parts, size=SIZE)
        if picture is not None:
            items.append(
                chart(
                    "Popular models and rare ones",
                    picture,
                    "models-share",
                    "Each dot is a model; those to the left are asked for rarely.",
                )
            )
    items.append(
        Lines(
            [f"{case.label}: {_concentration(case.parts.models)}." for case in cases],
            "Where the misses lie",
            beside=True,
        )
    )
    items += [_model_table(case, folded=i > 0) for i, case in enumerate(cases)]
    lead = (
        "A mean over all models hides which of them are served badly. Cold are requests that "
        "found their model on no GPU."
    )
    return Section("models", "By model", lead, items)


def _model_table(case: Case, *, folded: bool) -> Table:
    parts = sorted(case.parts.models, key=lambda part: (-part.missed, -part.arrivals))
    shown = parts if len(parts) <= MOST_MODELS + 1 else parts[:MOST_MODELS]
    rest = parts[len(shown) :]
    others = [together(rest, f"{len(rest)} others")] if rest else []
    which = "each model"
    if rest:
        which = "the models that miss the most" if parts[0].missed else "the most popular models"
    return Table(
        f"{case.label}: {which}",
        ["model", "SLO (ms)", *_PART_HEAD, "cold (%)"],
        [
            [part.name, slo(part.slo_ms), *_part(part, case), _cold(part)]
            for part in (*shown, *others, together(parts, "all"))
        ],
        total=1,
        folded=folded,
    )


def _concentration(parts: Sequence[Part]) -> str:
    """How the misses lie over the models, in words."""
    missed = sum(part.missed for part in parts)
    models = n(len(parts), "model")
    if not missed:
        return f"{models}, none of which misses a request"
    if len(parts) == 1:
        return f"1 model with {n(missed, 'miss', 'misses')}"
    missing = sorted((part.missed for part in parts if part.missed), reverse=True)
    seen = most = 0
    while 2 * seen < missed:
        seen += missing[most]
        most += 1
    return (
        f"{len(missing)} of {models} miss something; {n(most, 'model')} "
        f"{'has' if most == 1 else 'have'} {percent(seen / missed, 0)}% of all misses"
    )


def _cold(part: Part) -> str:
    return percent(part.cold_requests / part.arrivals, 1) if part.arrivals else NONE


# -- both ------------------------------------------------------------------------------------------

_PART_HEAD: Final = (
    "requests", "req/s", "in time (%)", "missed", "of all misses (%)", "p50 (ms)", "p99 (ms)",
)  # fmt: skip


def _part(part: Part, case: Case) -> list[Cell]:
    """A part's cells. The whole has the summary's latency; several together have none."""
    summary = case.summary
    missed = summary.slo_requests - summary.slo_in_time
    latency = summary.latency if part.arrivals == summary.arrivals else part.latency
    answers = part.outcomes["ok"] + part.outcomes["late"]
    several = latency.n == 0 and answers > 0
    return [
        f"{part.arrivals:,}",
        rate(part.offered_rps),
        Bar(percent(part.share_in_time, 2), part.share_in_time),
        f"{part.missed:,}",
        percent(part.missed / missed, 1) if missed else NONE,
        "" if several else quantile(latency, "p50"),
        "" if several else quantile(latency, "p99"),
    ]
