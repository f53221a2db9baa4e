"""Prediction cache: the throughput of a container over the share of hits.

The authors' sweep with a Spark SVM behind the cache. If a hit costs nothing, a container that
predicts T0 queries a second serves T0 / (1 - h) at a share h of hits; the one row at h = 0 is used
as the container's speed.
Not comparable: the headline of section 4.2 (1.6 times as many updates with feedback), for the
feedback path that it measures, learning included, is not simulated.
"""

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from mainspring.reproduce.clipper.containers import Container, Line, run_containers
from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, compared, fitted, told
from results.plots import GREY, Picture
from scheduler.cache import Lookup

PUBLISHED_RPS = {0.0: 7_800.0, 0.5: 14_800.0, 0.8: 38_200.0, 0.9: 80_100.0}
"""Share of hits, queries a second."""

SOURCE = "published (authors' sweep with the Spark SVM)"
CLIENTS = 50


class Point(NamedTuple):
    """One share of hits."""

    hits: float
    length_s: float


class Measured(NamedTuple):
    """hits: the share that the cache had, of what did not join a query under way."""

    rate_rps: float
    hits: float


def points(*, full: bool) -> list[Point]:
    """Full: ten times as long."""
    return [Point(hits, 20.0 if full else 2.0) for hits in reversed(PUBLISHED_RPS)]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    length_s = 20 if full else 2
    return f"{length_s} s of simulated time a share of hits, 15,000 queries or more each"


def measure(point: Point) -> Measured:
    """Run one share of hits."""
    log, policy = run_containers(
        "clipper-nsdi-aimd",
        {"max_batch": 1, "wait_ms": 0.0, "defaults": False, "cache_mib": 32.0},
        [Container("spark_svm", Line(1e6 / PUBLISHED_RPS[0.0], 0.0), Line(0.0, 0.0))],
        clients=[CLIENTS],
        length_s=point.length_s,
        largest=1,
        keys=_keys(point.hits),
    )
    answered = log.requests.where(log.requests.answered)
    counts = policy.cache.counts
    return Measured(
        rate_rps=len(answered.end) / point.length_s,
        hits=counts[Lookup.HIT] / (counts[Lookup.HIT] + counts[Lookup.MISS]),
    )


def _keys(hits: float) -> Iterator[int]:
    """A share `hits` asks for input 0, which is in the cache after its first time; all else is
    new."""
    rng = np.random.default_rng(4)
    fresh = count(1)
    while True:
        for again in (rng.random(4096) < hits).tolist():
            yield 0 if again else next(fresh)


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts."""
    made = []
    base = next((found.rate_rps for point, found in results if point.hits == 0), None)
    for point, found in sorted(results):
        name = f"{100 * point.hits:.0f}% hits: throughput (req/s)"
        reference = PUBLISHED_RPS[point.hits]
        if point.hits == 0:
            made.append(fitted("cache", name, reference, SOURCE, found.rate_rps))
            continue
        made.append(compared("cache", name, reference, SOURCE, found.rate_rps, relative=0.06))
        if base is not None:
            made.append(
                compared(
                    "cache", f"{100 * point.hits:.0f}% hits: beside T0 / (1 - h) (req/s)",
                    base / (1 - point.hits), "closed form", found.rate_rps, relative=0.06,
                )
            )  # fmt: skip
        made.append(
            told(
                "cache", f"{100 * point.hits:.0f}% asked twice: share of hits", found.hits,
                reference=point.hits, source="as asked",
            )
        )  # fmt: skip
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """Throughput over the share of hits."""
    title = "Prediction cache: throughput over the share of hits"
    with drawn((6.0, 4.0), title, full=full) as figure:
        axes = figure.add_subplot()
        shares = np.linspace(0, 0.92, 100)
        axes.plot(
            100 * shares, PUBLISHED_RPS[0.0] / (1 - shares), color=GREY, lw=0.8, ls="--",
            label="T0 / (1 - h)",
        )  # fmt: skip
        axes.plot(
            [100 * share for share in PUBLISHED_RPS], list(PUBLISHED_RPS.values()), "D",
            color=GREY, mfc="white", label="published",
        )  # fmt: skip
        axes.plot(
            [100 * point.hits for point, _ in results], [found.rate_rps for _, found in results],
            "o", color=SYSTEM, label="mainspring",
        )  # fmt: skip
        axes.set_yscale("log")
        axes.set_yticks([10_000, 100_000], ["10,000", "100,000"])
        axes.set_xlabel("hits (%)")
        axes.set_ylabel("throughput (req/s)")
        axes.grid(visible=True)
        axes.legend()
    return figure
