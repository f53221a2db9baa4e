"""Figure 7: how tight an SLO can be, with six GPUs, for few and many models and three loads."""

from typing import Any, NamedTuple

from mainspring.reproduce.drawing import drawn
from mainspring.reproduce.experiment import RESNET50, Log, play, wilson
from mainspring.reproduce.rows import Row, shape
from mainspring.reproduce.slo_sweep import FACTORS, GPUS, reaches, satisfaction, table
from profiles import find
from results.plots import COLOURS, GREY, Picture

COPIES = (12, 48)
RATES_RPS = (600, 1200, 2400)
LEVEL = 0.9
"""A curve is where it passes this share."""
CHANCE = 1.01
"""Of 4,800 requests a step a share of 90% is known to 0.9 points, and where a curve passes it to
about 1%."""


class Point(NamedTuple):
    """One curve. step_s: how long each SLO lasts."""

    copies: int
    rate_rps: int
    step_s: float


Measured = list[tuple[int, int]]
"""For each multiple, requests in time and requests."""


def points(*, full: bool) -> list[Point]:
    """Full: 30 s a step."""
    return [
        Point(copies, rate, 30.0 if full else 8.0)
        for rate in reversed(RATES_RPS)
        for copies in COPIES
    ]


def cost(*, full: bool) -> str:
    """What a shortened run gives away."""
    if full:
        return "30 s a step, as in the paper"
    return "8 s a step in place of 30: a share near one half is known to 1.4 points at 600 req/s"


def measure(point: Point) -> Measured:
    """Run one curve."""
    log = play(table("fig7", point.copies, point.copies, point.rate_rps, point.step_s, []), Log())
    return satisfaction(log.requests)


def _shares(found: Measured) -> list[float]:
    return [good / max(n, 1) for good, n in found]


def rows(results: list[tuple[Point, Measured]]) -> list[Row]:
    """Verdicts: the paper gives no numbers, so shapes."""
    made = []
    shares = {(point.copies, point.rate_rps): _shares(found) for point, found in results}
    for (copies, rate), share in sorted(shares.items()):
        name = f"N = {copies}, R = {rate:,}: share in time"
        made.append(shape("fig7", f"{name} at 1x", "at most 10%", share[0], holds=share[0] <= 0.1))
        made.append(
            shape("fig7", f"{name} at 11.4x", "at least 99%", share[6], holds=share[6] >= 0.99)
        )
    for rate in RATES_RPS:
        if (12, rate) in shares and (48, rate) in shares:
            few, many = (reaches(shares[copies, rate], LEVEL) for copies in COPIES)
            made.append(
                shape(
                    "fig7", f"R = {rate:,}: multiple at which 90% are in time, N = 48 to N = 12",
                    "N = 48 to the right of N = 12 by more than chance: above 1.01", many / few,
                    holds=many > CHANCE * few, cause=_same(rate),
                )
            )  # fmt: skip
    for copies in COPIES:
        if (copies, 600) in shares and (copies, 2400) in shares:
            low, high = (reaches(shares[copies, rate], LEVEL) for rate in (600, 2400))
            made.append(
                shape(
                    "fig7", f"N = {copies}: the same, R = 2,400 to R = 600",
                    "R = 2,400 to the right of R = 600: above 1", high / low, holds=high > low,
                )
            )  # fmt: skip
    return made


def _same(rate_rps: int) -> str:
    """Why it makes no difference how many models ask at a low rate; empty if it should."""
    each_rps, alone_rps = rate_rps / GPUS, 1e9 / find(RESNET50)[0].exec[1].mean_ns()
    if each_rps > alone_rps:
        return ""
    return (
        f"R = {rate_rps:,}: a GPU sees {each_rps:.0f} req/s, which batches of one serve "
        f"({alone_rps:.0f} req/s), and all models fit, so nothing is left that depends on N. "
        "Where batches are needed, at R = 2,400, 48 models fill them more slowly than 12. The "
        'shape is a reader\'s memory of the figure ("later for N = 48 and R = 2,400"), not '
        "published numbers."
    )


def draw(results: list[tuple[Point, Measured]], *, full: bool) -> Picture:
    """A panel a load, a curve a number of models."""
    with drawn((10.5, 3.6), "Figure 7: six GPUs, share in time over the SLO", full=full) as figure:
        panels = figure.subplots(1, len(RATES_RPS), sharey=True)
        for axes, rate in zip(panels, RATES_RPS, strict=True):
            for point, found in sorted(results):
                if point.rate_rps == rate:
                    colour = COLOURS[COPIES.index(point.copies)]
                    label = f"N = {point.copies}"
                    look: dict[str, Any] = {"ls": "-", "ms": 6}
                    if point.copies == COPIES[1]:  # the curves often lie on each other
                        look = {"ls": "--", "ms": 3.5}
                    axes.plot(
                        FACTORS, _shares(found), color=colour, marker="o", label=label, **look
                    )
                    bounds = [wilson(*each) for each in found]
                    low, high = zip(*bounds, strict=True)
                    axes.fill_between(FACTORS, low, high, color=colour, alpha=0.2, linewidth=0)
            axes.axvspan(5, 10, color="#EEEEEE", zorder=0, linewidth=0)
            axes.set_title(f"R = {rate:,} req/s")
            axes.set_xscale("log")
            axes.set_xticks(
                [1, 2.25, 5.1, 11.4, 25.6, 57.7], ["1", "2.25", "5.1", "11.4", "26", "58"]
            )
            axes.minorticks_off()
            axes.grid(visible=True, axis="y")
            axes.set_xlabel("SLO (multiples of a batch of one)")
        panels[0].set_ylabel("share in time")
        panels[0].set_ylim(0, 1.03)
        panels[0].legend(loc="lower right", fontsize=8)
        panels[2].text(10.5, 0.08, "paper: at 1 by\n5x to 10x (grey)", color=GREY, fontsize=8)
    return figure
