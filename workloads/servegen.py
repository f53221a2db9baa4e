"""Arrivals as regular or bursty as those of real clients, window by window: ServeGen's rates.

ServeGen (Xiang et al., 2025) describes each client of a service by the rate, and the distribution
of gaps that fits best, in each window of ten minutes. Within a window a client's gaps are drawn
from that distribution's shape, scaled to the recorded rate. The first gap of a window is one that
is already under way (the equilibrium distribution): so the expected number of requests is exactly
rate x window, which a fresh start would miss by (cv**2 - 1) / 2 requests.
Not here: the numbers of tokens.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.common import (
    AGAIN,
    CHUNK,
    Chunk,
    Common,
    WorkloadError,
    require_choice,
    require_positive,
    warn_of_early_end,
)
from workloads.mapping import MAPPINGS, Order, mapped
from workloads.spread import Floats
from workloads.tables import Kind, blocks, cells, require_columns

COLUMNS: Final[dict[str, Kind]] = {
    "client": "text",
    "start_s": "number",
    "rate_rps": "number",
    "fit": "text",
    "param1": "number",
}

WINDOW_S: Final = 600
LARGEST_RPS: Final = 1e9


class Rates(NamedTuple):
    """What is known of C clients in W windows: arrays of shape (W, C).

    shape: of the gaps. weibull: whether they are Weibull's; else Gamma's (1 is exponential).
    """

    clients: list[str]
    rate_rps: Floats
    shape: Floats
    weibull: npt.NDArray[np.bool_]


class ServeGen(Common, frozen=True, kw_only=True, tag_field="kind", tag="servegen"):
    """Open-loop arrivals after the rates of clients (.csv or .csv.gz); a client is a model's user.

    path: relative to the scenario file; columns client, start_s, rate_rps, iat_cv, fit, param1,
    param2, one row a client and window of 600 s. rate_scale: multiplies all rates; the shapes of
    the gaps stay. windows: the first and the last window to play, from 0; all by default.
    repeat: how often. mapping: which model a client asks for (workloads/mapping.py).
    One window is held in memory at a time: at 1,000 requests a second, about 10 MB.
    """

    path: str
    rate_scale: float = 1.0
    windows: tuple[int, int] | None = None
    repeat: int = 1
    mapping: str = "by_volume"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("rate_scale", self.rate_scale, "a factor")
        require_choice("mapping", self.mapping, MAPPINGS)
        if self.repeat < 1:
            raise WorkloadError(f"repeat = {self.repeat}; expected how often, at least 1")
        if self.windows is not None and not 0 <= self.windows[0] <= self.windows[1]:
            raise WorkloadError(
                f"windows = {list(self.windows)}; expected the first and the last window, from 0"
            )

    def chunks(
        self,
        models: Sequence[int],
        model_names: Sequence[str],
        duration_ns: int,
        rng: np.random.Generator,
    ) -> Iterator[Chunk]:
        """Arrivals from start_s to the end of the run, which is not included.

        models: what `select` gave. model_names: of all models of the run (not used here).
        A longer run has the arrivals of a shorter one, and more.
        Raises WorkloadError if the file cannot be read or is not such a table.
        """
        rates = self.read()
        first, last = self.windows or (0, len(rates.rate_rps) - 1)
        if last >= len(rates.rate_rps):
            raise WorkloadError(
                f"windows = [{first}, {last}]; {Path(self.path).name} has windows 0 to "
                f"{len(rates.rate_rps) - 1}"
            )
        played = range(first, last + 1)
        model_of = mapped(self.mapping, rates.rate_rps[first : last + 1].sum(axis=0), models)
        for i in range(len(played) * self.repeat):
            start_ns = self.start_ns + i * WINDOW_S * 10**9
            if start_ns >= duration_ns:
                return
            window = played[i % len(played)]
            parts: list[npt.NDArray[np.int64]] = []
            chosen: list[np.int32] = []
            for client in np.flatnonzero(rates.rate_rps[window] > 0):
                times_s = _renewals(
                    float(rates.rate_rps[window, client]) * self.rate_scale,
                    float(rates.shape[window, client]),
                    bool(rates.weibull[window, client]),
                    rng,
                )
                parts.append((times_s * 1e9).astype(np.int64))
                chosen.append(model_of[client])
            for chunk in _merged(parts, chosen):
                times_ns = start_ns + chunk.times_ns
                n = int(np.searchsorted(times_ns, duration_ns))
                yield Chunk(times_ns[:n], chunk.models[:n])
                if n < len(times_ns):
                    return
        end_ns = self.start_ns + len(played) * self.repeat * WINDOW_S * 10**9
        warn_of_early_end(Path(self.path).name, end_ns, self.start_ns, duration_ns, AGAIN)

    def read(self) -> Rates:
        """The whole table."""
        path = Path(self.path)
        require_columns(path, list(COLUMNS))
        clients, fits = Order(), Order()
        parts = [
            (
                clients.of(client),
                start_s.to_numpy(),
                rate_rps.to_numpy(),
                fits.of(fit),
                shape.to_numpy(),
            )
            for client, start_s, rate_rps, fit, shape in blocks(path, COLUMNS, self._explain)
        ]
        client, start_s, rate_rps, fit, shape = map(np.concatenate, zip(*parts, strict=True))
        fitted = fit != fits.index.get("", -1)
        window = np.rint(np.nan_to_num(start_s / WINDOW_S, nan=-1)).astype(np.int64)
        good = (
            set(fits.index) <= {"Gamma", "Weibull", ""}
            and ((rate_rps >= 0) & (rate_rps < LARGEST_RPS)).all()
            and (window >= 0).all()
            and np.array_equal(window * WINDOW_S, start_s)
            and ((shape > 0) | ~fitted).all()
            and len(np.unique(window * len(clients.index) + client)) == len(client)
        )
        if not good:
            self._explain()
        table = (int(window.max()) + 1, len(clients.index))
        rates = Rates(
            list(clients.index), np.zeros(table), np.ones(table), np.zeros(table, dtype=bool)
        )
        rates.rate_rps[window, client] = rate_rps
        rates.shape[window, client] = np.where(fitted, shape, 1.0)
        rates.weibull[window, client] = fit == fits.index.get("Weibull", -1)
        return rates

    def notes(self) -> list[str]:
        """What a reader should know about the file, each in a line."""
        rates = self.read()
        total = float(rates.rate_rps.sum()) * WINDOW_S
        return [
            f"{len(rates.clients)} clients, {len(rates.rate_rps)} windows of {WINDOW_S} s, "
            f"{total:,.0f} requests expected before rate_scale"
        ]

    def _explain(self) -> None:
        path = Path(self.path)
        seen: dict[tuple[str, str], str] = {}
        for place, row in cells(path):
            where = f"{path.name}, {place}: {{}} {{}}"
            try:
                start_s, rate_rps, shape = (
                    float(row[column] or "nan") for column in ("start_s", "rate_rps", "param1")
                )
            except ValueError:
                raise WorkloadError(
                    where.format("start_s, rate_rps or param1", "is no number")
                ) from None
            if not (start_s >= 0 and start_s % WINDOW_S == 0):
                raise WorkloadError(
                    where.format(
                        "start_s", f"= {row['start_s']}; expected a multiple of {WINDOW_S}"
                    )
                )
            if not 0 <= rate_rps < LARGEST_RPS:
                raise WorkloadError(
                    where.format(
                        "rate_rps", f"= {row['rate_rps']}; expected requests a second, at least 0"
                    )
                )
            if row["fit"] not in ("Gamma", "Weibull", ""):
                raise WorkloadError(
                    where.format("fit", f"= {row['fit']}; expected Gamma, Weibull or nothing")
                )
            if row["fit"] and not shape > 0:
                raise WorkloadError(
                    where.format("param1", f"= {row['param1']}; expected a shape above 0")
                )
            key = (row["client"], row["start_s"])
            if key in seen:
                raise WorkloadError(
                    f"{path.name}, {place}: client {key[0]} at {key[1]} s is already on "
                    f"{seen[key]}; remove one of the rows"
                )
            seen[key] = place


def _renewals(rate_rps: float, shape: float, weibull: bool, rng: np.random.Generator) -> Floats:
    """One client's arrivals in a window, in seconds: a stationary renewal process."""
    mean_s = 1 / rate_rps
    if weibull:
        from scipy.special import gammaln  # takes a tenth of a second to import

        scale_s = mean_s / float(np.exp(gammaln(1 + 1 / shape)))
        # The gap that is under way is drawn in proportion to its length.
        long_s = scale_s * rng.gamma(1 + 1 / shape) ** (1 / shape)
    else:
        scale_s = mean_s / shape
        long_s = scale_s * rng.gamma(shape + 1)
    now_s = rng.random() * long_s
    parts = []
    while now_s < WINDOW_S:
        expected = (WINDOW_S - now_s) * rate_rps
        n = int(expected + 3 * expected**0.5) + 8
        gaps = scale_s * (rng.weibull(shape, n) if weibull else rng.standard_gamma(shape, n))
        times = now_s + np.concatenate([[0.0], np.cumsum(gaps)])
        parts.append(times[: min(int(np.searchsorted(times, WINDOW_S)), n)])
        now_s = float(times[n])
    return np.concatenate(parts) if parts else np.zeros(0)


def _merged(parts: Sequence[npt.NDArray[np.int64]], models: Sequence[np.int32]) -> Iterator[Chunk]:
    """The clients' arrivals in a window in order, a chunk for each of some equal stretches."""
    total = sum(map(len, parts))
    ends_ns = np.linspace(0, WINDOW_S * 10**9, total // CHUNK + 2)[1:]
    cuts = [np.searchsorted(part, ends_ns) for part in parts]
    before = [0] * len(parts)
    for i in range(len(ends_ns)):
        after = [int(cut[i]) for cut in cuts]
        pieces = [part[a:b] for part, a, b in zip(parts, before, after, strict=True)]
        before = after
        if any(map(len, pieces)):
            times_ns = np.concatenate(pieces)
            order = np.argsort(times_ns, kind="stable")
            yield Chunk(times_ns[order], np.repeat(models, list(map(len, pieces)))[order])
