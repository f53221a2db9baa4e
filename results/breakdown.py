"""A run taken apart: by model, by client and by window of time, from the rows it left on disk.

The whole is the summary's: over the parts of each kind, arrivals, outcomes and requests in time add
up to its numbers. Requests count by the rules of results/summary.py; quantiles are exact here.
A client is a stream of requests, and what the others do to it shows where they ask the most: its
share in time there, less its share in the rest of the time, with an interval that takes windows,
and not requests, for independent.
Not here: which client is which workload, and pages made of this (mainspring).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import stdtrit

from results.columns import WORDS, Columns, Ints
from results.latency import QUANTILES, Latencies, rank_of
from results.reader import read_outcomes, read_summary
from results.summary import Summary
from scheduler.records import FOREVER, AnswerKind, Outcome

Floats = npt.NDArray[np.float64]

EXACT: Final = "exact, nearest rank"
WIDTHS_NS: Final = tuple(
    round(width_s * 1e9) for width_s in (60, 30, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05)
)
WINDOWS: Final = 20
"""A window is the longest of these widths of which the span has at least so many."""

BUSIEST: Final = 4
"""A client is looked at where the others ask the most: in one of so many windows."""

_COLUMNS: Final = ("model", "client", "arrival_ns", "deadline_ns", "end_ns", "outcome", "kind",
                   "cold")  # fmt: skip


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one model or client, or the rest of a table.

    Fields are those of `Summary` of the same name. latency: quantiles exact; None where fewer than
    ten answers lie beyond.
    """

    name: str
    arrivals: int
    outcomes: dict[str, int]
    slo_requests: int
    slo_in_time: int
    slo_ms: tuple[float, float] | None
    offered_rps: float | None
    goodput_rps: float | None
    cold_requests: int
    latency: Latencies

    @property
    def share_in_time(self) -> float | None:
        """Of slo_requests; None where there are none."""
        return self.slo_in_time / self.slo_requests if self.slo_requests else None

    @property
    def missed(self) -> int:
        """Requests with an SLO that were not answered in time."""
        return self.slo_requests - self.slo_in_time


class Window(NamedTuple):
    """What became of the requests that arrived in [start_ns, end_ns).

    worst_model: the one with the most misses; worst_model_missed: and how many.
    """

    start_ns: int
    end_ns: int
    arrivals: int
    outcomes: dict[str, int]
    slo_requests: int
    slo_in_time: int
    worst_model: str
    worst_model_missed: int

    @property
    def missed(self) -> int:
        """Requests with an SLO that were not answered in time."""
        return self.slo_requests - self.slo_in_time


class Exposure(NamedTuple):
    """One client in the quarter of the windows in which the others ask the most, and otherwise.

    Rates are in requests a second, shares from 0 to 1. difference: share in the busy windows less
    the share in the others; low, high: its 95 % interval, by the ratio estimator with windows as
    clusters (Cochran, Sampling Techniques, 1977, section 6.4) and Student's t.
    """

    client: str
    windows: int
    busy_windows: int
    others_rps: float
    others_busy_rps: float
    own_rps: float
    own_busy_rps: float
    share: float
    share_busy: float
    difference: float
    low: float
    high: float


class Breakdown(NamedTuple):
    """A run by model, by client, and by window of the measured span.

    models, clients: those that were asked for or asked, in the order of the run. starts_ns: where
    the windows begin, shape (windows,); all are width_ns long but the last, which ends with the
    span. slo_requests, slo_in_time: by window and client, shape (windows, clients).
    worst: the windows with the most misses, the worst first; none without misses.
    exposures: by client; empty where there are not enough windows, or only one client.
    """

    models: list[Part]
    clients: list[Part]
    width_ns: int
    starts_ns: Ints
    slo_requests: Ints
    slo_in_time: Ints
    worst: list[Window]
    exposures: list[Exposure]


def breakdown(
    directory: Path,
    clients: Mapping[int, int] | None = None,
    names: Sequence[str] | None = None,
    *,
    worst: int = 5,
) -> Breakdown:
    """Take the run in a directory apart.

    clients: what the rows' clients are parts of, as indices into `names`; each for itself by
    default. worst: so many windows, at most. Raises ResultsError where the directory is not a
    finished run.
    """
    summary = read_summary(directory)
    c, models = _measured(directory, summary)
    c["client"], names = _clients(c["client"], clients, names)
    span_ns = max(0, summary.end_ns - summary.warmup_ns)
    width_ns = next((width for width in WIDTHS_NS if span_ns >= WINDOWS * width), WIDTHS_NS[-1])
    starts_ns = np.arange(summary.warmup_ns, summary.end_ns, width_ns, dtype=np.int64)
    c["window"] = (c["arrival_ns"] - summary.warmup_ns) // width_ns
    cell = c["window"] * len(names) + c["client"]

    def grid(which: Ints) -> Ints:
        counts = _count(cell[which.astype(bool)], len(starts_ns) * len(names))
        return counts.reshape(len(starts_ns), len(names))

    arrivals = grid(np.ones_like(cell))
    asking = np.flatnonzero(arrivals.sum(axis=0))
    arrivals, slo, in_time = (
        counts[:, asking] for counts in (arrivals, grid(c["slo"]), grid(c["in_time"]))
    )
    whole = span_ns // width_ns  # a last window that is cut short is not like the others
    return Breakdown(
        models=_parts(c, c["model"], models, span_ns),
        clients=_parts(c, c["client"], names, span_ns),
        width_ns=width_ns,
        starts_ns=starts_ns,
        slo_requests=slo,
        slo_in_time=in_time,
        worst=_worst(c, models, starts_ns, summary.end_ns, worst),
        exposures=_exposures(
            [names[i] for i in asking], arrivals[:whole], slo[:whole], in_time[:whole], width_ns
        ),
    )


def together(parts: Sequence[Part], name: str) -> Part:
    """Parts as one, for the last line of a table. It has no latency: quantiles do not add up."""
    slos = [slo for part in parts if part.slo_ms for slo in part.slo_ms]
    rates = [part.goodput_rps for part in parts if part.goodput_rps is not None]
    return Part(
        name=name,
        arrivals=sum(part.arrivals for part in parts),
        outcomes={word: sum(part.outcomes[word] for part in parts) for word in WORDS["outcome"]},
        slo_requests=sum(part.slo_requests for part in parts),
        slo_in_time=sum(part.slo_in_time for part in parts),
        slo_ms=(min(slos), max(slos)) if slos else None,
        offered_rps=sum(part.offered_rps or 0.0 for part in parts),
        goodput_rps=sum(rates) if rates else None,
        cold_requests=sum(part.cold_requests for part in parts),
        latency=_latencies(np.empty(0, dtype=np.int64)),
    )


def _measured(directory: Path, summary: Summary) -> tuple[Columns, list[str]]:
    """The columns of the requests that are measured, as integers, and the models' names."""
    table = read_outcomes(directory, _COLUMNS)
    arrival_ns = table["arrival_ns"].to_numpy()
    inside = (arrival_ns >= summary.warmup_ns) & (arrival_ns < summary.end_ns)
    table = table.filter(pa.array(inside))
    model, models = _codes(table["model"])
    c: dict[str, Any] = {"model": model}
    for name in ("outcome", "kind"):
        found, words = _codes(table[name])
        places = np.array([WORDS[name].index(word) for word in words], dtype=np.int64)
        c[name] = places[found] if len(found) else found
    for name in ("client", "arrival_ns", "deadline_ns", "end_ns", "cold"):
        c[name] = table[name].to_numpy().astype(np.int64)
    answered = (c["outcome"] == Outcome.OK) | (c["outcome"] == Outcome.LATE)
    predicted = (c["kind"] != AnswerKind.NONE) & (c["kind"] != AnswerKind.DEFAULT)
    slo = c["deadline_ns"] != FOREVER
    if summary.interrupted:  # as Summary.slo_undecided
        slo &= (c["outcome"] != Outcome.UNFINISHED) | (c["deadline_ns"] <= c["end_ns"])
    c["slo"] = slo.astype(np.int64)
    c["in_time"] = c["slo"] * predicted * (c["outcome"] == Outcome.OK)
    c["timed"] = (answered & predicted).astype(np.int64)
    return c, models


def _codes(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """A column of words as places in a list of them."""
    chunks = column.unify_dictionaries().chunks
    if not chunks:
        return np.empty(0, dtype=np.int64), []
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks])
    return codes.astype(np.int64), chunks[0].dictionary.to_pylist()


def _clients(
    client: Ints, groups: Mapping[int, int] | None, names: Sequence[str] | None
) -> tuple[Ints, list[str]]:
    if groups is None or names is None:
        last = int(client.max(initial=0))
        return client, [f"client {i}" for i in range(last + 1)]
    place = np.full(max(int(client.max(initial=0)), *groups, 0) + 1, len(names), dtype=np.int64)
    place[list(groups)] = list(groups.values())
    found = place[client]
    unknown = ["others"] if (found == len(names)).any() else []
    return found, [*names, *unknown]


def _count(places: Ints, size: int) -> Ints:
    counts: Ints = np.bincount(places, minlength=size).astype(np.int64)
    return counts


def _parts(c: Columns, key: Ints, names: Sequence[str], span_ns: int) -> list[Part]:
    """One part for each value of a key that occurs."""
    size = len(names)
    slo, in_time, cold = (
        _count(key[c[which].astype(bool)], size) for which in ("slo", "in_time", "cold")
    )
    outcomes = _count(key * len(Outcome) + c["outcome"], size * len(Outcome))
    outcomes = outcomes.reshape(size, len(Outcome))
    arrivals = outcomes.sum(axis=1)
    with_slo = c["slo"].astype(bool)
    slo_ns = (c["deadline_ns"] - c["arrival_ns"])[with_slo]
    shortest, longest = np.full(size, FOREVER), np.full(size, -1)
    np.minimum.at(shortest, key[with_slo], slo_ns)
    np.maximum.at(longest, key[with_slo], slo_ns)

    timed = c["timed"].astype(bool)
    latency_ns, of = (c["end_ns"] - c["arrival_ns"])[timed], key[timed]
    latency_ns = latency_ns[np.lexsort((latency_ns, of))]
    ends = np.cumsum(_count(of, size))
    return [
        Part(
            name=names[i],
            arrivals=int(arrivals[i]),
            outcomes=dict(zip(WORDS["outcome"], outcomes[i].tolist(), strict=True)),
            slo_requests=int(slo[i]),
            slo_in_time=int(in_time[i]),
            slo_ms=(int(shortest[i]) / 1e6, int(longest[i]) / 1e6) if slo[i] else None,
            offered_rps=int(arrivals[i]) * 1e9 / span_ns if span_ns else None,
            goodput_rps=int(in_time[i]) * 1e9 / span_ns if span_ns and slo[i] else None,
            cold_requests=int(cold[i]),
            latency=_latencies(latency_ns[ends[i - 1] if i else 0 : ends[i]]),
        )
        for i in np.flatnonzero(arrivals).tolist()
    ]


def _latencies(ascending_ns: Ints) -> Latencies:
    n = len(ascending_ns)
    ranks = {quantile: rank_of(n, quantile) for quantile in QUANTILES}
    return Latencies(
        n=n,
        mean_ms=int(ascending_ns.sum()) / n / 1e6 if n else None,
        min_ms=int(ascending_ns[0]) / 1e6 if n else None,
        max_ms=int(ascending_ns[-1]) / 1e6 if n else None,
        quantiles_ms={
            quantile: None if rank is None else int(ascending_ns[rank - 1]) / 1e6
            for quantile, rank in ranks.items()
        },
        resolution=EXACT,
    )


def _worst(
    c: Columns, models: Sequence[str], starts_ns: Ints, end_ns: int, most: int
) -> list[Window]:
    """The windows with the most misses; of equals the earlier."""
    size = len(starts_ns)
    missed = (c["slo"] - c["in_time"]).astype(bool)
    misses = _count(c["window"][missed], size)
    found = []
    for i in np.argsort(-misses, kind="stable")[:most].tolist():
        if not misses[i]:
            break
        here = c["window"] == i
        outcomes = _count(c["outcome"][here], len(Outcome)).tolist()
        of_models = _count(c["model"][here & missed], len(models))
        found.append(
            Window(
                start_ns=int(starts_ns[i]),
                end_ns=int(starts_ns[i + 1]) if i + 1 < size else end_ns,
                arrivals=int(here.sum()),
                outcomes=dict(zip(WORDS["outcome"], outcomes, strict=True)),
                slo_requests=int(c["slo"][here].sum()),
                slo_in_time=int(c["in_time"][here].sum()),
                worst_model=models[int(of_models.argmax())],
                worst_model_missed=int(of_models.max()),
            )
        )
    return found


def _exposures(
    names: Sequence[str], arrivals: Ints, slo: Ints, in_time: Ints, width_ns: int
) -> list[Exposure]:
    """Each client where the others ask the most; windows by clients each."""
    windows = len(arrivals)
    if len(names) < 2 or windows < WINDOWS:
        return []
    found = []
    total = arrivals.sum(axis=1)
    for i, name in enumerate(names):
        others = total - arrivals[:, i]
        busy = np.zeros(windows, dtype=bool)
        busy[np.argsort(-others, kind="stable")[: windows // BUSIEST]] = True
        if not slo[busy, i].any() or not slo[~busy, i].any():
            continue  # on one side it asks for nothing that has an SLO
        share_busy, error_busy = _ratio(in_time[busy, i], slo[busy, i])
        share, error = _ratio(in_time[~busy, i], slo[~busy, i])
        freedom = min(busy.sum(), (~busy).sum()) - 1
        reach = float(stdtrit(freedom, 0.975)) * float(np.hypot(error, error_busy))
        per_s = 1e9 / width_ns
        found.append(
            Exposure(
                client=name,
                windows=windows,
                busy_windows=int(busy.sum()),
                others_rps=float(others[~busy].mean()) * per_s,
                others_busy_rps=float(others[busy].mean()) * per_s,
                own_rps=float(arrivals[~busy, i].mean()) * per_s,
                own_busy_rps=float(arrivals[busy, i].mean()) * per_s,
                share=share,
                share_busy=share_busy,
                difference=share_busy - share,
                low=share_busy - share - reach,
                high=share_busy - share + reach,
            )
        )
    return found


def _ratio(hits: Ints, n: Ints) -> tuple[float, float]:
    """A share over windows, and its standard error with windows as clusters."""
    total, m = int(n.sum()), len(n)
    share = int(hits.sum()) / total
    spread = hits - share * n
    return share, float(np.sqrt(m / (m - 1) * (spread**2).sum())) / total
