"""How large may the next batch be? Clipper's controllers, each as its source has it.

    Aimd        the prototype behind the NSDI'17 figures (batching.rs)
    Quantile    the same while it samples, then a line through the 99th percentile, frozen
    Explore     releases 0.3 to 0.4.1 (containers.cpp): explore up to what was seen, then estimate
    Average     releases 0.1 and 0.2: average throughput times the time that is left

Each is told the size and the latency of a batch once it is back, and is asked for a limit. They
know no queue and no clock. Sources: the facts on Clipper, sections 2 to 4.
"""

import math
from typing import Final

import numpy as np

INCREASE: Final = 2
BACKOFF: Final = 0.9
DEAD_BAND: Final = 0.1


class Aimd:
    """Additive increase, multiplicative decrease, on the size that a batch really had.

    So a queue that runs empty shrinks the limit to that batch and two more: growth needs full
    batches. slo_ns: what a batch may take. cap: never more than this.
    """

    def __init__(self, slo_ns: int, cap: int) -> None:
        self.slo_ns = slo_ns
        self.cap = cap
        self.backoffs = 0
        """How often it shrank; 0 says that the cap was the limit and not the controller."""
        self._limit = 1
        self._band_ns = -(-slo_ns // 10)

    def limit(self, budget_ns: int) -> int:
        """The most that the next batch may hold."""
        return self._limit

    def done(self, batch: int, latency_ns: int) -> None:
        """A batch came back. latency_ns: without the wait in the queue."""
        if latency_ns < self.slo_ns - self._band_ns:
            batch += INCREASE
        elif latency_ns >= self.slo_ns:
            batch = max(1, math.floor(batch * BACKOFF))
            self.backoffs += 1
        self._limit = min(batch, self.cap)


class Quantile:
    """AIMD for `samples` batches, then the size at which the p99 line meets the SLO, for good."""

    def __init__(self, slo_ns: int, cap: int, samples: int) -> None:
        self.frozen: int | None = None
        self._aimd = Aimd(slo_ns, cap)
        self._wanted = samples
        self._seen: list[tuple[int, int]] = []

    def limit(self, budget_ns: int) -> int:
        """The most that the next batch may hold."""
        return self._aimd.limit(budget_ns) if self.frozen is None else self.frozen

    def done(self, batch: int, latency_ns: int) -> None:
        """A batch came back."""
        if self.frozen is not None:
            return
        self._aimd.done(batch, latency_ns)
        self._seen.append((batch, latency_ns))
        if len(self._seen) >= self._wanted:
            sizes, latencies = np.array(self._seen[1:], dtype=float).T  # the first one is cold
            slope, base = quantile_line(sizes, latencies, 0.99)
            cap, slo_ns = self._aimd.cap, self._aimd.slo_ns
            # A line that does not rise says nothing of a limit.
            size = cap if slope <= 0 else round((slo_ns - base) / slope)
            self.frozen = min(max(size, 1), cap)
            self._seen.clear()


def quantile_line(x: np.ndarray, y: np.ndarray, q: float) -> tuple[float, float]:
    """Slope and base of the line below which a share q of the points lies, by linear programming.

    Minimises q times what is above plus (1 - q) times what is below (Koenker and Bassett, 1978).
    """
    from scipy.optimize import linprog  # takes a while to import, and few policies fit a line

    n = len(x)
    scale = max(float(np.max(np.abs(y))), 1.0)  # HiGHS's tolerances are absolute
    ones = np.ones(n)
    cost = np.concatenate([np.zeros(2), np.full(n, q), np.full(n, 1 - q)])
    rows = np.hstack([np.column_stack([x, ones]), np.eye(n), -np.eye(n)])
    bounds = [(None, None)] * 2 + [(0, None)] * (2 * n)
    solved = linprog(cost, A_eq=rows, b_eq=y / scale, bounds=bounds, method="highs")
    assert solved.success, f"no quantile line through {n} points: {solved.message}"
    slope, base = solved.x[:2]
    return float(slope) * scale, float(base) * scale


class Explore:
    """Releases 0.3 to 0.4.1: explore while the budget is above all that was seen, else estimate.

    The estimate is a ridge regression of the size on the latency, one point for each size seen,
    at its mean plus three pooled standard deviations. We penalise the slope by `RIDGE`, where
    the release lets dlib's trainer choose by cross-validation.
    """

    BUDGET_SHARE: Final = 0.92
    SAMPLES: Final = 5
    Z: Final = 3.0
    RIDGE: Final = 1e-3

    def __init__(self, cap: int, rng: np.random.Generator) -> None:
        self.cap = cap
        self.exploring = True
        """Whether the last limit was one to explore; a short batch is then padded to it."""
        self._rng = rng
        self._max_batch = 1
        self._slowest_ns = 0
        self._sizes: dict[int, tuple[int, float, float]] = {}  # count, mean, sum of squares
        self._line: tuple[float, float] | None = None

    def limit(self, budget_ns: int) -> int:
        """The most that the next batch may hold. budget_ns: until the first deadline."""
        budget = self.BUDGET_SHARE * budget_ns
        self.exploring = budget > self._slowest_ns
        size = self._explore() if self.exploring else self._estimate(budget)
        size = min(size, self.cap)
        self._max_batch = max(self._max_batch, size)
        return size

    def done(self, batch: int, latency_ns: int) -> None:
        """A batch came back. batch: its executed size, padding included."""
        self._slowest_ns = max(self._slowest_ns, latency_ns)
        count, mean, squares = self._sizes.get(batch, (0, 0.0, 0.0))
        step = latency_ns - mean  # Welford
        mean += step / (count + 1)
        self._sizes[batch] = (count + 1, mean, squares + step * (latency_ns - mean))
        self._line = None

    def _explore(self) -> int:
        largest = self._max_batch
        if self._sizes.get(largest, (0,))[0] < self.SAMPLES:
            return largest
        if largest < 10:
            return largest + 1
        return math.floor((1 + max(0.0, self._rng.normal(0.1, 0.05))) * largest)

    def _estimate(self, budget_ns: float) -> int:
        if self._line is None:
            self._line = self._fit()
        slope, base = self._line
        return max(1, math.floor(slope * budget_ns * 1e-6 + base))

    def _fit(self) -> tuple[float, float]:
        known = [stats for stats in self._sizes.values() if stats[0] >= self.SAMPLES]
        freedom = sum(count - 1 for count, _, _ in known)
        pooled = math.sqrt(sum(squares for _, _, squares in known) / freedom) if freedom else 0.0
        y = np.array(list(self._sizes), dtype=float)
        x = np.array([mean + self.Z * pooled for _, mean, _ in self._sizes.values()]) * 1e-6
        dx = x - x.mean()
        slope = float(dx @ (y - y.mean()) / (dx @ dx + self.RIDGE))
        return slope, float(y.mean() - slope * x.mean())


class Average:
    """Releases 0.1 and 0.2: what the average throughput gets done until the first deadline."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self._queries = 0
        self._busy_ns = 0

    def limit(self, budget_ns: int) -> int:
        """The most that the next batch may hold. budget_ns: until the first deadline."""
        if not self._busy_ns:
            return 1
        return min(max(1, self._queries * budget_ns // self._busy_ns), self.cap)

    def done(self, batch: int, latency_ns: int) -> None:
        """A batch came back."""
        self._queries += batch
        self._busy_ns += max(latency_ns, 1)
