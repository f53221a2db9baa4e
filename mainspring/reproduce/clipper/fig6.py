"""Figure 6: replicas on several machines, over a link of 10 Gbps or of 1 Gbps.

A TensorFlow network on MNIST, batches of 512, the first replica local, the others behind the
frontend's egress link (`sim/sender.py`). What a batch takes is the published throughput of one
replica at 10 Gbps; Clipper's own work to encode a query is the gap that figure 4 gave for the same
inputs (`mnist.py`). Everything else is predicted.
Two batches are under way at each replica, as figure 11's latencies say, so that a replica computes
while the next batch is on its way. All replicas are saturated, so how one is chosen for a query
does not matter.
Not comparable: latencies, since it is not known how many queries were under way at most.
"""

from typing import NamedTuple

from mainspring.reproduce.clipper.containers import (
    Container,
    Line,
    run_containers,
    served,
)
from mainspring.reproduce.clipper.mnist import common
from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, compared, fitted, shape, told
from results.plots import COLOURS, GREY, Picture
from sim.sender import PAYLOAD_SHARE, Linked, Network
from sim.shared import SharedGpu

PUBLISHED_RPS = {
    10: (19_477.0, 38_538.0, 57_631.0, 77_122.0),
    1: (19_728.0, 35_456.0, 38_721.0, 38_524.0),
}
"""Link in Gbps; queries a second in all with 1, 2, 3 and 4 replicas."""

REMOTE_RPS = (0.0, 15_600.0, 18_700.0, 18_700.0)
"""Of those at 1 Gbps, what the remote replicas got together."""

QUERY_BITS = 784 * 8 * 8
BATCH = 512
UNDER_WAY = 2
BATCH_US = 1e6 * BATCH / PUBLISHED_RPS[10][0]
SOURCE = "published"

CAUSES = (
    "1 Gbps, two replicas: one remote replica does not fill the link, for its sender encodes a "
    "batch (4.7 ms) before it sends it (27 ms); two remote ones take turns.",
)
"""Why rows are as they are."""


class Point(NamedTuple):
    """One size of the cluster."""

    gbps: int
    replicas: int
    length_s: float


class Measured(NamedTuple):
    """Queries a second, of the local replica and of the others together."""

    local_rps: float
    remote_rps: float


LEAD_IN_S = 16.0
"""AIMD grows by 2 a batch, to 512."""


def points(*, full: bool) -> list[Point]:
    """Full: ten times as long."""
    length_s = 40.0 if full else 4.0
    return [Point(gbps, n, length_s) for n in (4, 3, 2, 1) for gbps in PUBLISHED_RPS]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    return f"{40 if full else 4} s of simulated time; batches are all alike: 1% at the most"


def measure(point: Point) -> Measured:
    """Run one cluster."""
    network = Network(
        bits_per_s=point.gbps * 1e9 * PAYLOAD_SHARE,
        query_bits=QUERY_BITS,
        encode_ns=1e3 * common().gap_per_query_us,
    )
    length_s = LEAD_IN_S + point.length_s
    # A batch under way is a container of its own, and those of one replica share its device.
    one = Container("mnist", Line(BATCH_US, 0.0), Line(0.0, 0.0))
    log, _ = run_containers(
        "clipper-nsdi-aimd",
        {"max_batch": BATCH, "wait_ms": 0.0, "defaults": False, "slo_ms": 1e5},
        [one] * (UNDER_WAY * point.replicas),
        clients=[2 * BATCH] * (UNDER_WAY * point.replicas),
        length_s=length_s,
        largest=BATCH,
        gpu_kind=Linked(SharedGpu, network),
        gpus=point.replicas,
    )
    rates = [0.0, 0.0]
    for i in range(UNDER_WAY * point.replicas):
        rates[i % point.replicas > 0] += served(log, i, LEAD_IN_S, length_s).rate_rps
    return Measured(*rates)


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts."""
    made = []
    totals = {}
    for point, found in sorted(results, key=lambda each: (-each[0].gbps, each[0].replicas)):
        total_rps = totals[point.gbps, point.replicas] = found.local_rps + found.remote_rps
        name = f"{point.gbps} Gbps, {point.replicas} replicas: throughput (req/s)"
        reference = PUBLISHED_RPS[point.gbps][point.replicas - 1]
        if (point.gbps, point.replicas) == (10, 1):
            made.append(fitted("fig6", name, reference, SOURCE, total_rps))
            continue
        made.append(compared("fig6", name, reference, SOURCE, total_rps, relative=0.03))
        if point.gbps == 1 and point.replicas > 1:
            made.append(
                told(
                    "fig6", f"1 Gbps, {point.replicas} replicas: of it, remote (req/s)",
                    found.remote_rps, reference=REMOTE_RPS[point.replicas - 1], source=SOURCE,
                )
            )  # fmt: skip
    if (10, 1) in totals and (10, 4) in totals:
        gain = totals[10, 4] / totals[10, 1]
        made.append(
            shape(
                "fig6", "10 Gbps: throughput of 4 replicas over 1", "3.8 to 4", gain,
                holds=3.8 <= gain <= 4.0 + 1e-9,
                reference=PUBLISHED_RPS[10][3] / PUBLISHED_RPS[10][0],
            )
        )  # fmt: skip
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """Throughput over replicas."""
    title = "Figure 6: replicas behind a link"
    with drawn((6.0, 4.2), title, full=full) as figure:
        axes = figure.add_subplot()
        for (gbps, published), colour in zip(
            PUBLISHED_RPS.items(), (SYSTEM, COLOURS[1]), strict=True
        ):
            ours = sorted(
                (point.replicas, sum(found)) for point, found in results if point.gbps == gbps
            )
            axes.plot(*zip(*ours, strict=True), "o-", color=colour, label=f"{gbps} Gbps")
            axes.plot(range(1, 5), published, "D", color=GREY, mfc="white", zorder=3)
        axes.plot([], [], "D", color=GREY, mfc="white", label="published")
        axes.set_xticks(range(1, 5))
        axes.set_ylim(0, 85_000)
        axes.set_xlabel("replicas")
        axes.set_ylabel("throughput (req/s)")
        axes.grid(visible=True)
        axes.legend()
    return figure
