"""Containers on one GPU: the slow-down that `sim/shared.py` has, fitted again and predicted.

    contention   ParvaGPU, an A100 and 2 to 5 processes: slow-down = contention x demand, where each
                 process asks for the share of the GPU that its batch keeps busy; without resnet50,
                 which is predicted
    jitter       DISB, an RTX 3080 and three servers: how far the clients of one run are apart,
                 as the standard deviation of the logarithm of their slow-downs; without TensorRT
                 under workload D, which is predicted

Needs the two data sets; where they are not, the figure is empty and says so.
"""

import csv
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from mainspring.reproduce.drawing import SYSTEM, drawn
from mainspring.reproduce.rows import Row, compared, fitted, shape, told
from results.plots import COLOURS, GREY, Picture
from sim.shared import Sharing

DATA = Path("../shared/data/profiles")
LEFT_OUT = "resnet50"
LEFT_OUT_RUN = "trt.D"
WHOLE_GPU = "7"
"""ParvaGPU's column `Mig instance`: all seven slices."""

Array = npt.NDArray[np.float64]

CAUSES = (
    "bert, and the VGGs: their processes do not ask for what their throughput says. bert's gains "
    "next to nothing from larger batches, so each process seems to fill the GPU, and yet two fit "
    "beside each other; two VGGs take more than twice as long as one.",
    "DISB's spread is between models: large kernels crowd out small ones, so VGG-19 is hardly "
    "slowed down and DenseNet-201 nine times. Here it is drawn, and each batch may be unlucky.",
)
"""Why rows are as they are, where they are not as the reference has them."""


class Point(NamedTuple):
    """A data set. data: its folder."""

    name: str
    data: Path


class Measured(NamedTuple):
    """by_file: (predicted, measured) slow-downs, or (0, measured spread), by file."""

    fit: float
    by_file: dict[str, tuple[Array, Array]]


def points(*, full: bool) -> list[Point]:
    """The data sets that are there, whole in any case."""
    made = [Point(name, DATA / name) for name in ("parvagpu", "disb")]
    return [point for point in made if point.data.is_dir()]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    if not points(full=full):
        return f"left out: it needs the measurements of ParvaGPU and DISB in {DATA}"
    return "measurements of others, read and fitted: nothing is shortened"


def measure(point: Point) -> Measured:
    """Fit one number of `Sharing`."""
    return _contention(point.data) if point.name == "parvagpu" else _jitter(point.data)


# ---- ParvaGPU


def _contention(data: Path) -> Measured:
    files = {
        file.stem: slow_downs(file)
        for file in sorted(data.glob("*.csv"))
        if not file.stem.startswith("SLO")
    }
    train = [pair for name, pair in files.items() if name != LEFT_OUT]
    asked, slow = (np.concatenate(column) for column in zip(*train, strict=True))

    def off(contention: float) -> float:
        return float((np.log(np.maximum(1, contention * asked) / slow) ** 2).sum())

    fit = float(minimize_scalar(off, bounds=(0.3, 3.0), method="bounded").x)
    return Measured(
        fit, {name: (np.maximum(1, fit * demand), was) for name, (demand, was) in files.items()}
    )


def slow_downs(file: Path) -> tuple[Array, Array]:
    """What processes ask for together, and how much slower each is than alone, by row."""
    rates = {}
    with file.open(newline="", encoding="utf-8") as stream:
        for line in csv.DictReader(stream):
            if line["Mig instance"] == WHOLE_GPU and float(line["Throughput"]) > 0:
                key = int(line["Batch size"]), int(line["Workload Number"])
                rates[key] = float(line["Throughput"])  # of one process
    best = max(rate for (_, processes), rate in rates.items() if processes == 1)
    asked, slow = [], []
    for (batch, processes), rate in rates.items():
        if processes > 1 and (batch, 1) in rates:
            asked.append(processes * rates[batch, 1] / best)
            slow.append(rates[batch, 1] / rate)
    return np.array(asked), np.array(slow)


# ---- DISB


def _jitter(data: Path) -> Measured:
    runs = {file.stem: clients(file) for file in sorted((data / "results").glob("*.json"))}
    spreads = {name: np.log(slow) - np.log(slow).mean() for name, slow in runs.items()}
    apart = [spread for name, spread in spreads.items() if name != LEFT_OUT_RUN]
    freedom = sum(len(spread) - 1 for spread in apart)
    fit = float(np.sqrt(sum((spread**2).sum() for spread in apart) / freedom))
    return Measured(
        fit, {name: (np.full(len(slow), fit), slow) for name, slow in sorted(runs.items())}
    )


def clients(file: Path) -> Array:
    """How much slower each client was than alone."""
    found = []
    for client in json.loads(file.read_text(encoding="utf-8"))["results"]:
        (basic,) = [each for each in client["analyzers"] if each["type"] == "basic"]
        found.append(basic["avgTotalLatency(us)"] / basic["standAloneTotalLatency(us)"])
    return np.array(found)


def _spread(slow: Array) -> float:
    return float(np.log(slow).std(ddof=1))


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts on what was left out."""
    made = []
    for point, found in results:
        if point.name == "parvagpu":
            made += _contention_rows(found)
        else:
            made += _jitter_rows(found)
    return made


def _contention_rows(found: Measured) -> list[Row]:
    source = "our default, sim/shared.py"
    made = [fitted("sharing", "contention", Sharing().contention, source, found.fit)]
    for name, (said, was) in found.by_file.items():
        off = float(np.abs(np.log(said / was)).mean())
        quantity = f"ParvaGPU, {name}, {len(was)} rows: mean error of the slow-down"
        if name != LEFT_OUT:
            made.append(fitted("sharing", quantity, 0.0, "published (ParvaGPU)", off))
            continue
        nothing = float(np.abs(np.log(was)).mean())
        made.append(
            shape(
                "sharing", f"{quantity}, left out of the fit",
                f"less than half of {nothing:.2f}, which no slow-down at all would give", off,
                holds=off < nothing / 2, reference=None, source="published (ParvaGPU)",
            )
        )  # fmt: skip
        made.append(
            compared(
                "sharing", f"ParvaGPU, {name}: geometric mean of the slow-downs",
                float(np.exp(np.log(was).mean())), "published (ParvaGPU)",
                float(np.exp(np.log(said).mean())), relative=0.1,
            )
        )  # fmt: skip
    return made


def _jitter_rows(found: Measured) -> list[Row]:
    made = [fitted("sharing", "jitter", Sharing().jitter, "our default, sim/shared.py", found.fit)]
    for name, (_, slow) in found.by_file.items():
        if name == LEFT_OUT_RUN:
            made.append(
                compared(
                    "sharing", f"DISB, {name}, left out of the fit: spread of {len(slow)} clients",
                    _spread(slow), "published (DISB)", found.fit, relative=0.25,
                )
            )  # fmt: skip
        if name.endswith(".B"):  # two closed loops: always two in flight
            made.append(
                told(
                    "sharing", f"DISB, {name}: geometric mean of two clients' slow-downs",
                    2 * Sharing().contention, reference=float(np.exp(np.log(slow).mean())),
                    source="published (DISB)",
                )
            )  # fmt: skip
    return made


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """Left predicted over measured slow-downs, right how far clients are apart."""
    with drawn((10.0, 4.4), "Containers on one GPU", full=True) as figure:
        panels = np.atleast_1d(figure.subplots(1, len(results)))
        for axes, (point, found) in zip(panels, results, strict=True):
            if point.name == "parvagpu":
                for name, (said, was) in found.by_file.items():
                    look = SYSTEM if name == LEFT_OUT else GREY
                    axes.plot(was, said, ".", color=look, ms=6 if name == LEFT_OUT else 3)
                axes.plot([1, 6], [1, 6], color=GREY, lw=0.8)
                axes.set_xlabel(f"measured slow-down; colour: {LEFT_OUT}, left out of the fit")
                axes.set_ylabel("slow-down by the model")
                axes.set_title("ParvaGPU, A100", fontsize=9)
            else:
                names = list(found.by_file)
                spreads = [_spread(found.by_file[name][1]) for name in names]
                looks = [COLOURS[1] if name == LEFT_OUT_RUN else GREY for name in names]
                axes.barh(names, spreads, color=looks)
                axes.axvline(found.fit, color=SYSTEM)
                axes.set_xlabel("spread of clients; line: fitted; colour: left out of the fit")
                axes.set_title("DISB, RTX 3080", fontsize=9)
            axes.grid(visible=True)
    return figure
