"""A page on finished runs side by side: the question, the answer, and the numbers.

Not here: windows, clients and models (parts.py), assumptions and repetition (basis.py).
"""

from collections.abc import Iterator, Sequence

from mainspring.report.basis import again, basis, devices
from mainspring.report.cases import Case, cases_of
from mainspring.report.page import Bar, Card, Cards, Cell, Item, Page, Section, Table, chart
from mainspring.report.parts import by_client, by_model, tall, worst_windows
from mainspring.report.words import listed, n, quantile, rate, share, slo, words
from mainspring.runs import Runs
from results import Summary
from results.plots import MAX_RUNS, latency_cdf, over_time
from results.table import NOTES, lines, ms, percent

MOST_GPUS = 16
"""GPUs that have a line each; of more the busiest and the least busy are shown."""

MOST_NAMES = 4
"""Runs that are named in one sentence."""


def runs_page(runs: Runs) -> Page:
    """What there is to say of these runs. Raises ScenarioError or ResultsError."""
    cases = cases_of(runs)
    summaries = runs.summaries
    alike = len({case.what for case in cases}) == 1
    live = all(case.live for case in cases)
    return Page(
        title=", ".join(dict.fromkeys(case.spec.name for case in cases)),
        kind="A live run of DNN inference" if live else "A simulation of DNN inference",
        question=_question(cases, alike),
        answer=_answer(summaries),
        how_sure=_how_sure(summaries, alike),
        warnings=list(_warnings(cases, alike)),
        sections=[
            _numbers(runs),
            worst_windows(cases),
            by_client(cases),
            by_model(cases),
            _gpus(summaries),
            basis(cases),
            again(cases),
        ],
    )


# -- question and answer ---------------------------------------------------------------------------


def _question(cases: Sequence[Case], alike: bool) -> str:
    if not alike:
        return f"{len(cases)} runs of different scenarios: how many requests are in time in each?"
    first = cases[0]
    s = first.summary
    per_s = f", {rate(s.offered_rps)} a second," if s.offered_rps else ""
    within = f" within {slo(s.slo_ms, ' ms')}" if s.slo_ms else ""
    return (
        f"{n(s.arrivals, 'request')}{per_s} for {n(len(first.parts.models), 'model')} meet "
        f"{n(len(s.gpu_utilisation), 'GPU')}{devices(first.spec)}. Which of them are answered"
        f"{within}, under {listed([case.label for case in cases])}?"
    )


def _answer(summaries: Sequence[Summary]) -> str:
    ranked = _ranked(summaries)
    if not ranked:
        p99s = [f"{s.name} {quantile(s.latency, 'p99')}" for s in summaries]
        return f"No request has an SLO; the p99 of the latency (ms) is {listed(p99s)}."
    best = ranked[0]
    if len(ranked) == 1:
        missed = best.slo_requests - best.slo_in_time
        what = f"{missed:,} of {best.slo_requests:,} are missed" if missed else "none is missed"
        return f"{best.name} answers {share(best.share_in_time)} of the requests in time: {what}."
    first = [s.name for s in ranked if s.share_in_time == best.share_in_time]
    rest = ranked[len(first) :]
    names = listed(first) if len(first) <= MOST_NAMES else f"{len(first)} runs"
    others = [f"{s.name} {share(s.share_in_time)}" for s in rest]
    if len(rest) > MOST_NAMES:
        low, high = share(rest[-1].share_in_time), share(rest[0].share_in_time)
        others = [f"the {len(rest)} others from {low} to {high}"]
    verb = "answers" if len(first) == 1 else "answer"
    answer = f"{names} {verb} {share(best.share_in_time)} of the requests in time"
    return f"{', '.join([answer, *others])}."


def _ranked(summaries: Sequence[Summary]) -> list[Summary]:
    """Those with SLOs, the best first."""
    with_slo = [s for s in summaries if s.share_in_time is not None]
    return sorted(with_slo, key=lambda s: -(s.share_in_time or 0.0))


def _how_sure(summaries: Sequence[Summary], alike: bool) -> str:
    best = next(iter(_ranked(summaries)), None)
    if best is None or best.share_in_time_95 is None:
        return ""
    low, high = (percent(end, 2) for end in best.share_in_time_95)
    each = " each" if len(summaries) > 1 else ""
    text = (
        f"One run{each}: the share of {best.name} may be {low}% to {high}% (Clopper-Pearson, 95%), "
        "and less surely than that, for the requests of one run depend on each other. "
    )
    if len(summaries) > 1 and alike:
        return f"{text}How sure a difference is takes several seeds: mainspring compare."
    return f"{text}mainspring compare and mainspring plan take several seeds."


def _warnings(cases: Sequence[Case], alike: bool) -> Iterator[str]:
    if not alike:
        yield "These are runs of different scenarios: they did not get the same requests."
    elif len({case.spec.seed for case in cases}) > 1:
        yield "These runs have different seeds: they did not get the same requests."
    for warning in dict.fromkeys(text for case in cases for text in case.summary.warnings):
        yield f"{warning}."
    for case in cases:
        s = case.summary
        if s.interrupted:
            yield f"{s.name} was interrupted after {s.end_ns / 1e9:,.1f} s.{_undecided(s)}"
        if refused := sum(s.refusals.values()):
            yield f"{n(refused, 'action')} of {s.name} made no sense and had to be refused."
        if unfinished := s.outcomes["unfinished"] - s.slo_undecided:
            yield (
                f"{n(unfinished, 'request')} of {s.name} had no answer when the run stopped. They "
                "count as missed, and latencies are those of the others: the true ones are longer."
            )
        if unchecked := s.unchecked_actions_whole_run:
            yield f"{n(unchecked, 'action')} of {s.name} came too late to be audited."


def _undecided(s: Summary) -> str:
    """What an interrupted run leaves open of its share in time."""
    if not s.slo_undecided:
        return ""
    asked = s.slo_requests + s.slo_undecided
    low, high = s.slo_in_time / asked, (s.slo_in_time + s.slo_undecided) / asked
    return (
        f" {n(s.slo_undecided, 'request')} could still have been in time and count in no share: "
        f"with them it would have been {share(low)} to {share(high)}."
    )


# -- numbers ---------------------------------------------------------------------------------------


def _numbers(runs: Runs) -> Section:
    summaries = runs.summaries
    names = [s.name for s in summaries]
    items: list[Item] = [Cards([_card(s, i) for i, s in enumerate(summaries, 1)])]
    if len(runs) <= MAX_RUNS:
        directories = {run.label: run.directory for run in runs}
        items.append(
            chart(
                "What became of the requests",
                over_time(directories, size=tall(len(runs)), title=""),
                "over-time",
            )
        )
        items.append(
            chart(
                "How long answers took, with the tail",
                latency_cdf(directories, size=tall(len(runs)), title=""),
                "latency",
                "The vertical axis counts nines. A request without an answer keeps its curve from "
                "the top; a curve ends where fewer than ten requests lie beyond.",
            )
        )
    rows: list[list[Cell]] = [
        [line[0].strip(), *(line[1](s) for s in summaries)] for line in lines(summaries) if line
    ]
    items.append(Table("All numbers", ["", *names], rows, NOTES, folded=True))
    if reasons := dict.fromkeys(reason for s in summaries for reason in s.reasons):
        why: list[list[Cell]] = [
            [words(reason), *(f"{s.reasons.get(reason, 0):,}" for s in summaries)]
            for reason in reasons
        ]
        title = "Why policies gave requests up"
        items.append(Table(title, ["reason", *names], why, folded=True))
    lead = ""
    if len(runs) > MAX_RUNS:
        lead = f"{len(runs)} runs cannot be told apart in a figure; up to {MAX_RUNS} can."
    return Section("numbers", "In numbers", lead, items)


def _card(s: Summary, i: int) -> Card:
    return Card(
        name=s.name,
        number=percent(s.share_in_time, 2) if s.slo_requests else ms(s.latency.mean_ms),
        unit="% in time" if s.slo_requests else "ms on average",
        lines=[
            ("offered (req/s)", rate(s.offered_rps)),
            ("goodput (req/s)", rate(s.goodput_rps)),
            ("latency p50 (ms)", quantile(s.latency, "p50")),
            ("latency p99 (ms)", quantile(s.latency, "p99")),
            ("GPU utilisation (%)", percent(s.mean_gpu_utilisation, 1)),
        ],
        run=i if i <= MAX_RUNS else 0,
    )


def _gpus(summaries: Sequence[Summary]) -> Section:
    head = ["", *(s.name for s in summaries)]

    def line(name: str, shares: Sequence[float | None]) -> list[Cell]:
        return [name, *(Bar(percent(share, 1), share) for share in shares)]

    gpus = max(len(s.gpu_utilisation) for s in summaries)
    every = [[x for x in s.gpu_utilisation if x is not None] for s in summaries]
    if gpus <= MOST_GPUS:
        padded = [[*s.gpu_utilisation, *[None] * gpus] for s in summaries]
        rows = [line(f"GPU {i}", [shares[i] for shares in padded]) for i in range(gpus)]
    else:
        rows = [
            line("the busiest", [max(shares, default=None) for shares in every]),
            line("the least busy", [min(shares, default=None) for shares in every]),
        ]
    rows.append(line("mean", [s.mean_gpu_utilisation for s in summaries]))
    batches: list[list[Cell]] = [
        [
            f"batch {size}",
            *(
                Bar(f"{(count := s.executions_by_batch.get(size, 0)):,}", count / s.executions)
                if s.executions
                else "0"
                for s in summaries
            ),
        ]
        for size in sorted({size for s in summaries for size in s.executions_by_batch})
    ]
    moves: list[list[Cell]] = [
        ["loads of weights", *(f"{s.loads:,}" for s in summaries)],
        ["evictions", *(f"{s.evictions:,}" for s in summaries)],
        ["requests that found their model cold", *(f"{s.cold_requests:,}" for s in summaries)],
        ["actions that missed their window", *(f"{s.missed_actions:,}" for s in summaries)],
        ["actions that failed", *(f"{s.failed_actions:,}" for s in summaries)],
    ]
    return Section(
        "gpus",
        "The GPUs",
        "Which share of the time each executes, in batches of what size, and how often weights "
        "came and went.",
        [
            Table("Utilisation (% of the time)", head, rows, total=1),
            Table("Executions by size", head, batches),
            Table("Weights and windows", head, moves),
        ],
        side_by_side=True,
    )
