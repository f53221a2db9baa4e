"""`mainspring workloads`: look at arrivals before a run is built on them.

What is shown of a scenario are the very arrivals that a run with its seed gets.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

from mainspring.document import Document
from mainspring.scenario import Scenario, load_scenario
from mainspring.world import Purpose, generator
from workloads import Chunk, Closed, OpenLoop, ServeGen, Steps, Workload, WorkloadError
from workloads.known import kind_of
from workloads.servegen import WINDOW_S

TENTHS: Final = 10
BINS: Final = 240
"""Of the picture: a trace of four minutes is shown by the second."""

BAR: Final = 40
FOREVER_NS: Final = 2**62

app = typer.Typer(rich_markup_mode=None, help="Look at arrivals before a run.")


class Shown(NamedTuple):
    """One stream of arrivals, counted in bins.

    counts: of each bin, expected ones where nothing is drawn. notes: lines about it.
    """

    name: str
    counts: npt.NDArray[np.float64]
    notes: list[str]


@app.callback()
def workloads() -> None:
    """Look at arrivals before a run."""


@app.command()
def show(
    target: Annotated[
        Path, typer.Argument(metavar="SCENARIO.toml|FILE", help="A scenario, or a trace.")
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="As workload.0.rate_rps=800 for a scenario; for a file a field of its kind, "
            "as kind=trace; repeatable.",
        ),
    ] = None,
    duration_s: Annotated[
        float | None, typer.Option(min=0, help="For a file: stop there; by default at its end.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="For a file whose arrivals are drawn.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The picture, .png or .svg; NAME-rate.png by default.")
    ] = None,
) -> None:
    """Show the rate over time: a table, and a picture."""
    if target.is_dir() or target.suffix == ".toml":
        scenario = load_scenario(target, set_ or ())
        name, end_s = scenario.spec.name, scenario.spec.duration_s
        streams = list(_of_scenario(scenario, end_s))
    else:
        name = target.name.partition(".")[0]
        end_s, stream = _of_file(target, set_ or (), duration_s, seed)
        streams = [stream]
    for stream in streams:
        _print(stream, end_s)
    picture = out or Path(f"{name}-rate.png")
    if any(stream.counts.any() for stream in streams):
        _draw([stream for stream in streams if stream.counts.any()], end_s, picture)
        print(f"picture:  {picture}")


# -- counting --------------------------------------------------------------------------------------


def _of_scenario(scenario: Scenario, end_s: float) -> Iterator[Shown]:
    names = [model.name for model in scenario.models]
    end_ns = round(end_s * 1e9)
    for i, workload in enumerate(scenario.spec.workload):
        kind = str(workload.__struct_config__.tag)
        models = workload.select(names)
        title = f"workload.{i}: {kind}, {_count(len(models), 'model')}"
        if isinstance(workload, Closed):
            clients = len(workload.clients(models))
            note = (
                f"{_count(clients, 'client')} that think for {workload.think_ms:g} ms, at least "
                f"{workload.retry_after_ms:g} ms where there is no answer: the rate follows from "
                "the latency"
            )
            yield Shown(title, np.zeros(BINS), [note])
            continue
        rng = generator(scenario.spec.seed, Purpose.ARRIVALS, i)
        counts, by_model = _counted(workload.chunks(models, names, end_ns, rng), end_ns)
        yield Shown(title, counts, _of_models(by_model, names))


def _of_file(
    path: Path, settings: Sequence[str], duration_s: float | None, seed: int
) -> tuple[float, Shown]:
    workload = _workload(path, settings)
    kind = str(workload.__struct_config__.tag)
    notes = workload.notes() if hasattr(workload, "notes") else []
    if isinstance(workload, ServeGen):
        rates = workload.read().rate_rps.sum(axis=1) * workload.rate_scale
        first, last = workload.windows or (0, len(rates) - 1)
        played = np.tile(rates[first : last + 1], workload.repeat) * WINDOW_S
        notes.append("expected counts: nothing is drawn")
        return len(played) * float(WINDOW_S), Shown(f"{path.name}: {kind}", played, notes)
    if isinstance(workload, Steps) and duration_s is None:
        raise WorkloadError(f"{path.name}: the last step has no end; give --duration-s")
    limit_ns = FOREVER_NS if duration_s is None else round(duration_s * 1e9)

    def chunks() -> Iterator[Chunk]:
        return workload.chunks([0], ["all"], limit_ns, np.random.default_rng(seed))

    end_ns = limit_ns if duration_s is not None else _last_ns(chunks) + 1
    counts, _ = _counted(chunks(), end_ns)
    return end_ns / 1e9, Shown(f"{path.name}: {kind}", counts, notes)


def _workload(path: Path, settings: Sequence[str]) -> OpenLoop:
    """The workload that plays a file: what is known of the file, and what the user says."""
    given = Document({}, settings, source=path.name, folder=Path()).data
    table = {"path": str(path)} if "kind" in given else kind_of(path)
    if given.get("kind") == "trace" and "model_column" in given:
        table["mapping"] = "round_robin"
    document = Document(table, settings, source=path.name, folder=Path())
    workload: Workload = document.decode(Workload)  # type: ignore[arg-type]
    if isinstance(workload, Closed):
        raise WorkloadError('kind = "closed" plays no file')
    return workload


def _last_ns(chunks: Callable[[], Iterator[Chunk]]) -> int:
    last_ns = 0
    for chunk in chunks():
        if len(chunk.times_ns):
            last_ns = int(chunk.times_ns[-1])
    return last_ns


def _counted(
    chunks: Iterator[Chunk], end_ns: int
) -> tuple[npt.NDArray[np.float64], dict[int, int]]:
    """Arrivals in each of BINS parts of the time, and for each model."""
    edges_ns = np.array([end_ns * i // BINS for i in range(1, BINS)], dtype=np.int64)
    counts = np.zeros(BINS)
    by_model: dict[int, int] = {}
    for chunk in chunks:
        counts += np.bincount(
            np.searchsorted(edges_ns, chunk.times_ns, side="right"), minlength=BINS
        )
        for model, n in zip(*np.unique(chunk.models, return_counts=True), strict=True):
            by_model[int(model)] = by_model.get(int(model), 0) + int(n)
    return counts, by_model


def _of_models(by_model: dict[int, int], names: Sequence[str]) -> list[str]:
    busiest = sorted(by_model.items(), key=lambda item: (-item[1], item[0]))[:4]
    shown = ", ".join(f"{names[model]} {n:,}" for model, n in busiest)
    more = f", ... ({_count(len(by_model), 'model')} asked for)" if len(by_model) > 4 else ""
    return [f"busiest: {shown}{more}"] if shown else []


# -- showing ---------------------------------------------------------------------------------------


def _print(stream: Shown, end_s: float) -> None:
    print(stream.name)
    total = float(stream.counts.sum())
    if total:
        peak = stream.counts.max() * len(stream.counts) / end_s
        print(
            f"  requests {total:,.0f}, {end_s:,.6g} s, mean {total / end_s:,.4g}/s, "
            f"busiest {end_s / len(stream.counts):,.3g} s {peak:,.4g}/s"
        )
        # A bin may lie in two tenths where they do not divide; it goes to that of its middle.
        bins = (np.arange(len(stream.counts)) * TENTHS + TENTHS // 2) // len(stream.counts)
        tenths = np.bincount(bins, stream.counts, minlength=TENTHS)
        widths = np.bincount(bins, minlength=TENTHS) * (end_s / len(stream.counts))
        ends = np.cumsum(widths)
        rates = tenths / np.maximum(widths, 1e-12)
        print(f"  {'from s':>12} {'to s':>12} {'requests':>14} {'a second':>12}")
        for i in range(TENTHS):
            if widths[i]:
                bar = "#" * round(BAR * rates[i] / rates.max())
                print(
                    f"  {ends[i] - widths[i]:12,.6g} {ends[i]:12,.6g} {tenths[i]:14,.0f} "
                    f"{rates[i]:12,.4g} {bar}"
                )
    for note in stream.notes:
        print(f"  {note}")


def _draw(streams: Sequence[Shown], end_s: float, path: Path) -> None:
    """The rate of each stream over time, one above the other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 1.2 + 2.0 * len(streams)), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(len(streams), 1, sharex=True, squeeze=False)[:, 0]
    for axes, stream in zip(all_axes, streams, strict=True):
        edges = np.linspace(0, end_s, len(stream.counts) + 1)
        rates = stream.counts * len(stream.counts) / end_s
        axes.stairs(rates, edges, fill=True, color="#0072B2", alpha=0.35)
        axes.stairs(rates, edges, color="#0072B2", linewidth=0.8)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, end_s)
        axes.set_ylabel("requests/s")
        axes.set_title(stream.name, loc="left", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#E4E4E4", linewidth=0.7)
        axes.set_axisbelow(True)
    all_axes[-1].set_xlabel("time, s")
    if path.suffix not in (".png", ".svg"):
        raise WorkloadError(f"--out {path}; expected a name that ends in .png or .svg")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise WorkloadError(f"--out {path}: {error.strerror}") from None


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


__all__ = ["app"]
