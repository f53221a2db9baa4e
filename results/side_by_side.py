"""Figures of the same arrivals in two worlds.

Not here: latencies side by side (plots.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from results.backlog import under_way
from results.plots import COLOURS, Picture, Size, styled
from results.reader import read_outcomes, read_summary

POINTS: Final = 400


def in_system(runs: Mapping[str, Path], *, size: Size = (6.4, 4.2)) -> Picture:
    """Draw how many requests are under way, over the measured time, a curve per run.

    runs: directories of finished runs, by the names to show; as many as there are colours. Raises
    ResultsError for a directory that is not a finished run.
    """
    with styled(size, "") as figure:
        axes = figure.add_subplot()
        for (label, path), colour in zip(runs.items(), COLOURS, strict=False):
            summary, outcomes = read_summary(path), read_outcomes(path)
            arrival_ns, end_ns = (
                outcomes[column].to_numpy() for column in ("arrival_ns", "end_ns")
            )
            grid_ns = np.linspace(summary.warmup_ns, summary.end_ns, POINTS)
            requests = under_way(arrival_ns, end_ns, grid_ns)
            axes.plot(grid_ns / 1e9, requests, color=colour, linewidth=1.0, label=label)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("requests")
        axes.grid(visible=True, axis="y")
        figure.legend(loc="outside lower left", ncols=2)
    return figure
