"""Numbers as pages write them, in cells and in sentences.

Not here: the rules for quantiles and percentages (results.table), which these follow.
"""

import math
from collections.abc import Sequence

from results.latency import Latencies
from results.table import NONE, TOO_SMALL, ms, percent


def share(value: float | None) -> str:
    """A share from 0 to 1, in a sentence."""
    if value in (0, 1):
        return "100%" if value else "none"
    return f"{percent(value, 2)}%"


def rate(value: float | None) -> str:
    """Requests a second, to three digits or whole ones."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 1 else f"{value:.3g}"


def slo(slo_ms: tuple[float, float] | None, unit: str = "") -> str:
    """The shortest and the longest SLO, or the only one."""
    if slo_ms is None:
        return NONE
    low, high = slo_ms
    span = f"{low:,.4g}" if math.isclose(low, high) else f"{low:,.4g} to {high:,.4g}"
    return f"{span}{unit}"


def quantile(latency: Latencies, name: str) -> str:
    """A quantile in ms, or why there is none."""
    value = latency.quantiles_ms[name]
    if value is None:
        return TOO_SMALL if latency.n else NONE
    return ms(value)


def number(value: float | None) -> str:
    """A number of any kind, to four digits."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def words(name: str) -> str:
    """A word of the records, such as `timed_out`, for people."""
    return name.replace("_", " ")


def n(count: int, one: str, many: str = "") -> str:
    """So many of something."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
