"""Figures of means over replications: curves with bands, and their differences.

A band is a mean's interval. Left the numbers themselves, right what each differs from the first,
seed by seed: where a band there does not touch zero, the difference is more than chance.
Not here: how the intervals are made (intervals.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from results.errors import ResultsError
from results.plots import COLOURS, GREY, MAX_RUNS, Picture, Size, styled

TITLE_CHARACTERS: Final = 52
LEGEND_CHARACTERS: Final = 70
"""How long a line may be on one panel, so that nothing is cut off or overlaps."""


class Curve(NamedTuple):
    """Means over x, each with its interval. x: numbers, or else names in their order.

    Where there is no mean or no interval, None.
    """

    x: Sequence[Any]
    mean: Sequence[float | None]
    low: Sequence[float | None]
    high: Sequence[float | None]


def bands(
    curves: Mapping[str, Curve],
    differences: Mapping[str, Curve],
    *,
    baseline: str,
    title: str,
    x_label: str,
    y_label: str,
    note: str = "",
) -> Picture:
    """Draw curves with bands; beside them, if there are any, the differences to the baseline.

    title: what is drawn; y_label: its unit. A key has the same colour on both sides. Raises
    ResultsError for more curves than can be told apart.
    """
    colours = _colours(curves)
    with styled((10.5 if differences else 6.4, 4.2), "") as figure:
        panels = figure.subplots(1, 2 if differences else 1, squeeze=False)[0]
        panels[0].set_title(_folded(title))
        _draw_all(panels[0], curves, colours, x_label)
        if differences:
            panels[1].set_title(_folded(f"difference to {baseline}"))
            panels[1].axhline(0, color=GREY, linewidth=1)
            _draw_all(panels[1], differences, colours, x_label)
        for axes in panels:
            axes.set_ylabel(y_label)
        handles, _ = panels[0].get_legend_handles_labels()
        longest = max(map(len, curves))
        columns = max(1, min(len(curves), LEGEND_CHARACTERS * len(panels) // (longest + 6)))
        legend = figure.legend(
            handles=handles, loc="outside lower left", ncols=columns, title=note or None,
            title_fontsize=7.5, alignment="left",
        )  # fmt: skip
        legend.get_title().set_color(GREY)
    return figure


def _folded(title: str) -> str:
    """In as many lines as it takes beside another one."""
    return "\n".join(wrap(title, TITLE_CHARACTERS)) or title


def panel(
    curves: Mapping[str, Curve],
    *,
    names: Iterable[str],
    x_label: str,
    size: Size,
    line_at: float | None = None,
) -> Picture:
    """Draw one half of `bands` by itself. names: of all curves of both, for their colours.

    line_at: where a horizontal line goes. Raises ResultsError for too many names.
    """
    colours = _colours(names)
    with styled(size, "") as figure:
        axes = figure.add_subplot()
        if line_at is not None:
            axes.axhline(line_at, color=GREY, linewidth=1)
        _draw_all(axes, curves, colours, x_label)
        handles, _ = axes.get_legend_handles_labels()
        if len(colours) > 1:
            figure.legend(handles=handles, loc="outside lower left", ncols=3)
    return figure


def _colours(names: Iterable[str]) -> dict[str, str]:
    found = list(names)
    if not 0 < len(found) <= MAX_RUNS:
        raise ResultsError(
            f"{len(found)} curves cannot be told apart in one figure; expected 1 to {MAX_RUNS}"
        )
    return dict(zip(found, COLOURS, strict=False))


def _draw_all(
    axes: Axes, curves: Mapping[str, Curve], colours: Mapping[str, str], x_label: str
) -> None:
    for name, curve in curves.items():
        _draw(axes, name, curve, colours[name], list(curves))
    axes.grid(visible=True, axis="y")
    axes.set_xlabel(x_label)


def _draw(axes: Axes, name: str, curve: Curve, colour: str, names: Sequence[str]) -> None:
    x, labels = _positions(curve.x)
    mean, low, high = (
        np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        for values in (curve.mean, curve.low, curve.high)
    )
    if labels is None:
        axes.plot(x, mean, color=colour, marker="o", markersize=3.5, linewidth=1.4, label=name)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8))
        return
    # Names have no distances: points with bars, side by side.
    if labels == [name]:  # a curve of its own name, a point
        x = x + names.index(name)
        labels = list(names)
    else:
        x = x + (names.index(name) - (len(names) - 1) / 2) * min(0.15, 0.8 / len(names))
    reach = np.nan_to_num(np.stack([mean - low, high - mean]))
    axes.errorbar(x, mean, reach, color=colour, fmt="o", markersize=4, capsize=4, label=name)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlim(-0.6, len(labels) - 0.4)


def _positions(x: Sequence[Any]) -> tuple[np.ndarray, list[str] | None]:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in x):
        return np.array(x, dtype=np.float64), None
    return np.arange(len(x), dtype=np.float64), [str(value) for value in x]
