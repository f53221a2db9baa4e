"""Figures of a run taken apart: each model, and each client over time.

Not here: the numbers (breakdown.py), and figures of whole runs (plots.py).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from results.breakdown import Breakdown, Floats
from results.plots import COLOURS, MAX_RUNS, Picture, Size, log_axis, styled

MAX_CLIENTS: Final = MAX_RUNS


def by_model(runs: Mapping[str, Breakdown], *, size: Size = (6.4, 4.2)) -> Picture | None:
    """Draw each model as a dot: how often it is asked for, and the share that is in time.

    runs: by the names to show. None where there are not two models with an SLO, where all have
    everything in time, or where there are too many runs.
    """
    dots: dict[str, tuple[Floats, Floats]] = {}
    for name, run in runs.items():
        parts = [part for part in run.models if part.slo_requests and part.offered_rps]
        rates = np.array([part.offered_rps for part in parts], dtype=np.float64)
        shares = np.array([part.share_in_time for part in parts], dtype=np.float64)
        dots[name] = rates, shares
    if not 0 < len(runs) <= MAX_RUNS or min(len(rates) for rates, _ in dots.values()) < 2:
        return None
    lowest = min(float(shares.min()) for _, shares in dots.values())
    if lowest == 1:
        return None
    with styled(size, "") as figure:
        axes = figure.add_subplot()
        for (name, (rates, shares)), colour in zip(dots.items(), COLOURS, strict=False):
            rates, shares = _apart(rates, shares)
            axes.plot(
                rates, shares, "o", color=colour, markersize=4.5, alpha=0.75, markeredgewidth=0,
                label=name, clip_on=False, zorder=3,
            )  # fmt: skip
        every = np.concatenate([rates for rates, _ in dots.values()])
        log_axis(axes, float(every.min()) / 1.2, float(every.max()) * 1.2)
        _share_axis(axes, lowest)
        axes.set_xlabel("requests for the model (1/s)")
        axes.set_ylabel("in time")
        if len(runs) > 1:
            figure.legend(loc="outside lower left", ncols=3, handletextpad=0.1)
    return figure


def by_client(runs: Mapping[str, Breakdown], *, size: Size = (6.4, 4.2)) -> Picture | None:
    """Draw the share in time of each client over time, a panel per run.

    A gap is a window in which the client had no request with an SLO. None where there is only one
    client, or more than can be told apart.
    """
    clients: Sequence[str] = list(
        dict.fromkeys(part.name for run in runs.values() for part in run.clients)
    )
    if not (1 < len(clients) <= MAX_CLIENTS and 0 < len(runs) <= MAX_RUNS):
        return None
    colours = dict(zip(clients, COLOURS, strict=False))
    with styled(size, "") as figure:
        panels = figure.subplots(len(runs), 1, squeeze=False, sharex=True)[:, 0]
        for axes, (name, run) in zip(panels, runs.items(), strict=True):
            at_s = (run.starts_ns + run.width_ns / 2) / 1e9
            for i, part in enumerate(run.clients):
                n = run.slo_requests[:, i]
                share = np.where(n > 0, run.slo_in_time[:, i] / np.maximum(n, 1), np.nan)
                axes.plot(
                    at_s, share, color=colours[part.name], linewidth=1.4, label=part.name,
                    clip_on=False,
                )  # fmt: skip
            axes.set_title(name)
            _share_axis(axes)
            axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
        panels[len(panels) // 2].set_ylabel("in time")
        panels[-1].set_xlabel("time of arrival (s)")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=2)
    return figure


def _apart(rates: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Of dots that lie on each other, one: there may be thousands of models."""
    cells = np.stack([np.round(np.log10(rates) * 100), np.round(shares * 250)])
    _, first = np.unique(cells, axis=1, return_index=True)
    return rates[first], shares[first]


def _share_axis(axes: Axes, lowest: float = 0.0) -> None:
    """From 0, or where that would press all to the top, from below the lowest share."""
    axes.grid(visible=True, axis="y")
    if lowest < 0.5:
        axes.set_ylim(0, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:.0f} %"))
        return
    reach = 1 - lowest
    axes.set_ylim(1 - 1.15 * reach, 1 + 0.03 * reach)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share * 100:.10g} %"))
