"""Figures of runs, for a paper or a report: PNG and SVG, drawn from what a run left on disk.

Latency is shown with its tail: the vertical axis counts nines, and a request that got no answer
keeps its curve from ever reaching the top. Colours are those of Okabe and Ito, which the colour
blind can tell apart; curves carry their names, so no legend has to be looked up.
Every function gives a `Picture`, which a notebook shows and `save` writes.
Not here: interactive figures, and anything that needs a screen.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from results.errors import ResultsError
from results.files import naming
from results.latency import BEYOND
from results.reader import read_actions, read_latencies, read_seconds, read_summary
from results.summary import Summary

Floats = npt.NDArray[np.float64]
Size = tuple[float, float]

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#8A6D00", "#000000")
GREY: Final = "#6B6B6B"
FATES: Final = {
    "in time": (("ok",), "#A9C9E3"),
    "late": (("late",), "#E69F00"),
    "rejected": (("rejected",), "#DDDDDD"),
    "timed out": (("timed_out",), "#9E9E9E"),
    "failed or unfinished": (("failed", "unfinished"), "#4D4D4D"),
}
"""What becomes of requests, from the bottom of the stack to its top. Paler than the curves, whose
colours stand for runs."""

LOG_FROM: Final = 50
"""Latencies that span more than so many times the shortest are drawn on a logarithmic axis."""

MAX_GPUS: Final = 8
MAX_RUNS: Final = len(COLOURS)

STYLE: Final[Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.8,
    "axes.labelcolor": "#222222",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "svg.hashsalt": "mainspring",
    "text.parse_math": False,  # a name with two dollar signs is a name
}


class Picture(Figure):
    """A figure in our style, shown by a notebook as it is: no pyplot, no screen."""

    def save(self, path: Path) -> list[Path]:
        """Write it; returns the files. path: `.png` or `.svg`, or without an ending for both.

        Raises ResultsError where that cannot be done.
        """
        if path.suffix not in ("", ".png", ".svg"):
            raise ResultsError(
                f"{path}: cannot draw {path.suffix}; expected .png, .svg, or no ending"
            )
        endings = (path.suffix,) if path.suffix else (".png", ".svg")
        files = [path.with_suffix(ending) for ending in endings]
        for file in files:
            with naming(file), mpl.rc_context(STYLE):
                file.parent.mkdir(parents=True, exist_ok=True)
                # Without the date the same run gives the same bytes.
                self.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
        return files

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.savefig(stream, format="png", dpi=100)
        return stream.getvalue()


def latency_cdf(
    runs: Mapping[str, Path],
    *,
    slo_ms: float | None = None,
    size: Size = (6.4, 4.2),
    title: str | None = None,
) -> Picture:
    """Draw which share of the offered requests was answered within which time, a curve per run.

    runs: directories of finished runs, by the names to show. slo_ms: drawn as a line; by default
    the runs' own if they share one. size: in inches. title: what the runs have in common by
    default. Raises ResultsError for a directory that is not a finished run.
    """
    _check(runs)
    with styled(size, _common_to(runs) if title is None else title) as figure:
        _draw_cdf(figure.add_subplot(), runs, slo_ms)
    return figure


def over_time(
    runs: Mapping[str, Path], *, size: Size = (6.4, 4.2), title: str | None = None
) -> Picture:
    """Draw what became of the requests over time, a panel per run.

    Arguments and errors are those of `latency_cdf`.
    """
    _check(runs)
    with styled(size, _common_to(runs) if title is None else title) as figure:
        panels = figure.subplots(len(runs), 1, squeeze=False)[:, 0]
        figure.legend(
            handles=_draw_fates(list(panels), runs), loc="outside lower left", ncols=3,
            handlelength=1.2, columnspacing=1.4,
        )  # fmt: skip
    return figure


def comparison(runs: Mapping[str, Path], *, slo_ms: float | None = None) -> Picture:
    """Draw runs side by side: left what became of the requests over time, right their latency.

    Arguments and errors are those of `latency_cdf`.
    """
    _check(runs)
    size = (10.5, max(4.2, 0.9 + 1.35 * len(runs)))
    with styled(size, _common_to(runs)) as figure:
        grid = figure.add_gridspec(len(runs), 2, width_ratios=(1.0, 1.1))
        left = [figure.add_subplot(grid[i, 0]) for i in range(len(runs))]
        figure.legend(
            handles=_draw_fates(left, runs), loc="outside lower left", ncols=6,
            handlelength=1.2, columnspacing=1.4,
        )  # fmt: skip
        _draw_cdf(figure.add_subplot(grid[:, 1]), runs, slo_ms)
    return figure


def gpu_timeline(directory: Path, *, start_ns: int, length_ns: int) -> Picture:
    """Draw what each GPU executes and loads in [start_ns, start_ns + length_ns).

    The first eight GPUs that do something in it are drawn. Errors are those of `latency_cdf`.
    """
    stop_ns = start_ns + length_ns
    summary = read_summary(directory)
    of = len(summary.gpu_utilisation)
    table = read_actions(directory, start_ns=start_ns, stop_ns=stop_ns)
    c = {
        column: table[column].to_numpy()
        for column in ("gpu", "type", "status", "batch", "start_ns", "end_ns")
    }
    done = c["status"] == "done"
    c = {column: values[done] for column, values in c.items()}
    gpus = np.unique(c["gpu"])[:MAX_GPUS]
    which = f"{len(gpus)} of {of} GPUs" if len(gpus) < of else "all GPUs"
    title = f"{summary.name}: {which}, {start_ns / 1e9:,.3f} s to {stop_ns / 1e9:,.3f} s"
    with styled((8.0, 1.6 + 0.52 * max(1, len(gpus))), title) as figure:
        _draw_lanes(figure.add_subplot(), c, gpus, start_ns, length_ns)
    return figure


# -- latency ---------------------------------------------------------------------------------------


def _draw_cdf(axes: Axes, runs: Mapping[str, Path], slo_ms: float | None) -> None:
    summaries = [read_summary(directory) for directory in runs.values()]
    curves = [
        _curve(*read_latencies(directory), summary.arrivals)
        for directory, summary in zip(runs.values(), summaries, strict=True)
    ]
    slo_ms = _shared_slo_ms(summaries) if slo_ms is None else slo_ms
    x_all = np.concatenate([x for x, _ in curves])
    if not len(x_all):
        axes.text(0.5, 0.5, "too few answers to draw", ha="center", transform=axes.transAxes)
        return
    high = max(float(x_all.max()), slo_ms or 0)
    low = min(float(x[np.searchsorted(y, min(_nines(0.01), y[-1]))]) for x, y in curves if len(x))
    if high > LOG_FROM * low > 0:
        log_axis(axes, low / 1.3, high * 1.3)
    else:
        axes.set_xlim(0, high * 1.06)
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
    top = max(float(y.max(initial=0)) for _, y in curves)
    axes.set_ylim(0, max(1.15, top * 1.06))
    _nines_axis(axes, top)

    if slo_ms is not None:
        axes.axvline(slo_ms, color=GREY, linewidth=1, linestyle=(0, (4, 2)), zorder=1)
        at, _ = (axes.transScale + axes.transLimits).transform((slo_ms, 0))
        axes.annotate(
            f"SLO {slo_ms:g} ms", (slo_ms, 1), xycoords=("data", "axes fraction"),
            xytext=(0, 3), textcoords="offset points", color=GREY, fontsize=8,
            ha="left" if at < 0.1 else "center",  # on its left are the labels of the other axis
        )  # fmt: skip
    ends: list[tuple[float, str, str]] = []
    for (name, summary, (x, y)), colour in zip(
        zip(runs, summaries, curves, strict=True), COLOURS, strict=False
    ):
        if not len(x):
            ends.append((0.0, f"{name}\n0 % answered", colour))
            continue
        axes.plot(x, y, color=colour, linewidth=1.6, drawstyle="steps-post", zorder=3)
        axes.plot(x[-1], y[-1], "o", color=colour, markersize=4.5, zorder=4)
        answered = summary.latency.n / summary.arrivals
        label = name
        if summary.arrivals - summary.latency.n >= BEYOND:
            label += f"\n{_share(answered)} answered"
        axes.plot(
            [x[-1], axes.get_xlim()[1]], [y[-1], y[-1]],
            color=colour, linewidth=0.9, linestyle=(0, (1, 2)), zorder=2,
        )  # fmt: skip
        ends.append((float(y[-1]), label, colour))
    _label_ends(axes, ends)
    axes.set_xlabel("latency (ms)")
    axes.set_ylabel("share of offered requests answered within")
    axes.grid(visible=True)


def _curve(
    latency_ms: Floats, counts: npt.NDArray[np.int64], offered: int
) -> tuple[Floats, Floats]:
    """Latencies and nines, up to where fewer than ten offered requests lie beyond."""
    valid = offered - counts >= BEYOND
    x, y = latency_ms[valid], _nines(counts[valid] / max(1, offered))
    if len(x) < 2:
        return x, y
    # A curve has tens of thousands of points, of which the eye can tell a few hundred apart.
    last = len(x) - 1
    seen = np.stack([np.round(600 * x / x[last]), np.round(600 * y / max(float(y[last]), 1e-9))])
    keep = np.flatnonzero(np.any(np.diff(seen, prepend=-1) != 0, axis=0))
    keep = np.union1d(keep, [last])
    return x[keep], y[keep]


def _shared_slo_ms(summaries: Sequence[Summary]) -> float | None:
    slos = {slo for summary in summaries if summary.slo_ms for slo in summary.slo_ms}
    return slos.pop() if len(slos) == 1 else None


def log_axis(axes: Axes, low: float, high: float) -> None:
    """A logarithmic axis with as many labels as have room side by side."""
    decades = np.log10(high / low)
    labelled = (1, 2, 5) if decades < 2.3 else (1, 3) if decades < 3.8 else (1,)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=labelled))
    axes.xaxis.set_major_formatter(FuncFormatter(_number))
    axes.xaxis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=99))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(low, high)


def _number(value: float, _: int | None) -> str:
    """For a tick."""
    return f"{value:,.10g}"


def _nines_axis(axes: Axes, top: float) -> None:
    shares = {0.0: "0", float(_nines(0.5)): "50 %"}
    for nines in range(1, int(max(1.0, top)) + 2):
        digits = max(0, nines - 2)
        shares[float(nines)] = f"{100 - 10.0 ** (2 - nines):.{digits}f} %"
    axes.set_yticks(list(shares), list(shares.values()))


def _nines(share: Any) -> Any:
    """A share, or an array of them, on the axis: 0.9 is 1, 0.99 is 2."""
    return -np.log10(1 - share)


def _share(share: float) -> str:
    """A percentage with as many digits as it has nines."""
    digits = 1 if share <= 0.99 else min(6, int(_nines(share)))
    return f"{share * 100:.{digits}f} %"


def _label_ends(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Names beside the curves' ends, moved apart where they would touch."""
    bottom, top = axes.get_ylim()
    points = axes.get_window_extent().height * 72 / axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    line = 11.0 / max(points, 1) * (top - bottom)
    at = -np.inf
    for y, label, colour in sorted(ends, key=lambda end: end[0]):
        half = line * (label.count("\n") + 1) / 2
        at = max(y, at + half)
        axes.annotate(
            label, (1, at), xycoords=("axes fraction", "data"), xytext=(5, 0),
            textcoords="offset points", va="center", color=colour, fontsize=8.5,
            annotation_clip=False, linespacing=1.1,
        )  # fmt: skip
        at += half


# -- over time -------------------------------------------------------------------------------------


def _draw_fates(panels: Sequence[Axes], runs: Mapping[str, Path]) -> list[Any]:
    """Stack what became of the requests, a panel per run. Returns what the legend needs."""
    tops = []
    seen: set[str] = set()
    for axes, (name, directory), colour in zip(panels, runs.items(), COLOURS, strict=False):
        summary = read_summary(directory)
        at_s, offered, fates = _per_bin(directory, summary)
        fates = {fate: rate for fate, rate in fates.items() if rate.any()}
        seen |= set(fates)
        if fates:  # a run may have no requests at all
            colours = [FATES[fate][1] for fate in fates]
            axes.stackplot(at_s, list(fates.values()), colors=colours, linewidth=0, step="post")
            axes.step(at_s, offered, color="#222222", linewidth=0.9, where="post")
        if summary.warmup_ns:
            axes.axvspan(0, summary.warmup_ns / 1e9, color="white", alpha=0.55, linewidth=0)
            axes.axvline(summary.warmup_ns / 1e9, color=GREY, linewidth=0.7)
        axes.set_title(name, color=colour)
        axes.set_xlim(0, float(at_s[-1]) if len(at_s) > 1 else 1)
        axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
        axes.grid(visible=True, axis="y")
        tops.append(float(offered.max(initial=1)))
    for axes in panels:
        axes.set_ylim(0, 1.08 * max(tops))
        axes.yaxis.set_major_formatter(FuncFormatter(_number))
        axes.label_outer()
    panels[len(panels) // 2].set_ylabel("requests (1/s)")
    pale = any(read_summary(directory).warmup_ns for directory in runs.values())
    panels[-1].set_xlabel("time of arrival (s)" + (", warm-up pale" if pale else ""))
    return [
        *(Patch(facecolor=FATES[fate][1], label=fate) for fate in FATES if fate in seen),
        Line2D([], [], color="#222222", linewidth=0.9, label="offered"),
    ]


def _per_bin(directory: Path, summary: Summary) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Rates over whole bins of seconds: so many that a bin is wider than a dot."""
    c = read_seconds(directory)
    whole = min(len(c["second"]), max(1, summary.end_ns // 10**9))
    width = max(1, -(-whole // 240))
    bins = whole // width

    def rate(column: str) -> Floats:
        per_second = c[column][: bins * width].reshape(bins, width).mean(axis=1)
        # A step needs its right edge.
        return np.append(per_second, per_second[-1:]).astype(np.float64)

    fates = {
        fate: np.sum([rate(column) for column in columns], axis=0).astype(np.float64)
        for fate, (columns, _) in FATES.items()
    }
    at_s = (np.arange(bins + 1) * width).astype(np.float64)
    return at_s, rate("arrivals"), fates


# -- GPUs ------------------------------------------------------------------------------------------


def _draw_lanes(
    axes: Axes, c: Mapping[str, Any], gpus: npt.NDArray[np.int64], start_ns: int, length_ns: int
) -> None:
    """Two lanes per GPU: what it executes above, what it loads below, with a tick per unload."""
    begin_ms = np.maximum(c["start_ns"] - start_ns, 0) / 1e6
    end_ms = np.minimum(c["end_ns"] - start_ns, length_ns) / 1e6
    row = np.searchsorted(gpus, c["gpu"]).clip(max=max(0, len(gpus) - 1))
    drawn = np.isin(c["gpu"], gpus)
    infer, load, unload = (drawn & (c["type"] == type_) for type_ in ("infer", "load", "unload"))
    key: list[Any] = []

    def bars(which: npt.NDArray[np.bool_], top: float, height: float, **look: Any) -> None:
        for i in range(len(gpus)):
            mine = which & (row == i)
            if mine.any():
                spans = np.stack([begin_ms[mine], (end_ms - begin_ms)[mine]], axis=1)
                axes.broken_barh(spans.tolist(), (i + top, height), **look)

    sizes = np.unique(c["batch"][infer])
    for size, colour in zip(sizes, _shades(len(sizes)), strict=True):
        bars(infer & (c["batch"] == size), -0.40, 0.48,
             facecolor=colour, edgecolor="white", linewidth=0.3)  # fmt: skip
        key.append(Patch(facecolor=colour, label=f"batch {size}"))
    if load.any():
        look = {"facecolor": "#FBE9DC", "edgecolor": "#D55E00", "hatch": "/////", "linewidth": 0.6}
        bars(load, 0.14, 0.22, **look)
        key.append(Patch(label="load", **look))  # type: ignore[arg-type]
    if unload.any():
        axes.vlines(end_ms[unload], row[unload] + 0.10, row[unload] + 0.40,
                    color="#222222", linewidth=1)  # fmt: skip
        key.append(Line2D([], [], color="#222222", marker="|", markersize=8, linewidth=0,
                          label="unload"))  # fmt: skip
    axes.set_xlim(0, length_ns / 1e6)
    axes.set_ylim(max(1, len(gpus)) - 0.45, -0.55)
    axes.set_yticks(range(len(gpus)), [f"GPU {gpu}" for gpu in gpus])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("time since the window's start (ms)")
    if key:
        axes.legend(handles=key, loc="upper left", bbox_to_anchor=(1, 1), handlelength=1.4)
    else:
        axes.text(0.5, 0.5, "nothing ran", ha="center", transform=axes.transAxes)


def _shades(n: int) -> list[Any]:
    """Colours from light to dark, for small to large batches."""
    return [mpl.colormaps["YlGnBu"](x) for x in np.linspace(0.25, 0.95, n)]


# -- common ----------------------------------------------------------------------------------------


def _check(runs: Mapping[str, Path]) -> None:
    if not 0 < len(runs) <= MAX_RUNS:
        raise ResultsError(
            f"{len(runs)} runs cannot be told apart in one figure; expected 1 to {MAX_RUNS}"
        )


def _common_to(runs: Mapping[str, Path]) -> str:
    """What all of the runs are runs of, for a title."""
    abouts = [read_summary(directory).about for directory in runs.values()]
    shared = {
        key: value for key, value in abouts[0].items() if all(a.get(key) == value for a in abouts)
    }
    parts = [shared.get("scenario"), f"seed {shared['seed']}" if "seed" in shared else None]
    return ", ".join(part for part in parts if part)


@contextmanager
def styled(size: Size, title: str) -> Iterator[Picture]:
    """A picture to be drawn on in our style."""
    with mpl.rc_context(STYLE):
        figure = Picture(figsize=size, dpi=200, layout="constrained")
        FigureCanvasAgg(figure)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        yield figure
