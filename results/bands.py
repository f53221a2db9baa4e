"""Figures of means over replications: curves with bands, and their differences.

A band is a mean's interval. Left the numbers themselves, right what each differs from the first,
seed by seed: where a band there does not touch zero, the difference is more than chance.
Not here: how the intervals are made (intervals.py).
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from results.errors import ResultsError
from results.plots import COLOURS, GREY, MAX_RUNS, Picture, styled

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
    if not 0 < len(curves) <= MAX_RUNS:
        raise ResultsError(
            f"{len(curves)} curves cannot be told apart in one figure; expected 1 to {MAX_RUNS}"
        )
    colours = dict(zip(curves, COLOURS, strict=False))
    with styled((10.5 if differences else 6.4, 4.2), "") as figure:
        panels = figure.subplots(1, 2 if differences else 1, squeeze=False)[0]
        panels[0].set_title(_folded(title))
        for name, curve in curves.items():
            _draw(panels[0], name, curve, colours[name], list(curves))
        if differences:
            panels[1].set_title(_folded(f"difference to {baseline}"))
            panels[1].axhline(0, color=GREY, linewidth=1)
            for name, curve in differences.items():
                _draw(panels[1], name, curve, colours[name], list(differences))
        for axes in panels:
            axes.grid(visible=True, axis="y")
            axes.set_xlabel(x_label)
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
