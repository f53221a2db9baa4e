"""How the reproduced figures look: the style of `results.plots`, and what they have in common."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from results.plots import COLOURS, GREY, Picture, styled

SYSTEM: Final = COLOURS[0]
"""The colour of what we obtain; references are grey or black."""


@contextmanager
def drawn(size: tuple[float, float], title: str, *, full: bool) -> Iterator[Picture]:
    """A picture to be drawn on, which says at its foot if time was shortened."""
    with styled(size, title) as figure:
        yield figure
        if not full:
            figure.supxlabel(
                "simulated, time shortened; --full is longer",
                x=0.99, ha="right", fontsize=7, color=GREY,
            )  # fmt: skip


def tail_axis(axes: Axes, most: float) -> None:
    """A vertical axis that counts nines, from 0 to `most`."""
    axes.set_yscale("function", functions=(_nines, _share))
    ticks = [0.0, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999]
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if tick <= most + 1e-12]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.10g}%"))
    axes.set_ylim(0, most)
    axes.set_ylabel("share of answers")
    axes.grid(visible=True)


def _nines(share):  # type: ignore[no-untyped-def]  # matplotlib gives arrays of any shape
    import numpy as np

    return -np.log10(np.maximum(1 - np.asarray(share), 1e-9))


def _share(nines):  # type: ignore[no-untyped-def]
    import numpy as np

    return 1 - 10 ** -np.asarray(nines, dtype=float)
