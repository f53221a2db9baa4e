"""What published numbers allow at most, computed: why some rows cannot hold, and others need luck.

    Columns     figure 4: what any line through its first two columns says of the third
    agreement   figure 7: what the singles and the queries on which all five agree leave open for
                the rest, over all ensembles there could be (linear programs), and over those
                whose members err independently given how hard a query is

Not here: what was simulated. A bound holds for whatever is made of the same numbers.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from mainspring.reproduce.clipper.agreement import Ensemble
from mainspring.reproduce.clipper.containers import Line, line_through
from mainspring.reproduce.clipper.mnist import Published

# ---- figure 4


class Columns(NamedTuple):
    """A container's three published columns; the first two are what it is made of."""

    alone: Published
    quantile: Published
    aimd: Published

    @property
    def line(self) -> Line:
        """The one line of cycles (latency and gap) that the first two columns leave."""
        points = [(run.mean_batch, _cycle_us(run)) for run in self[:2]]
        return line_through(*points[0], *points[1])

    def rate_rps(self, batch: float) -> float:
        """Queries a second by that line."""
        return 1e6 * batch / self.line.at(batch)

    @property
    def gain(self) -> float:
        """AIMD's throughput over quantile regression's by that line, at the published batches."""
        return self.rate_rps(self.aimd.mean_batch) / self.rate_rps(self.quantile.mean_batch)

    @property
    def most_gain(self) -> float:
        """The same with the batch that suits it best, of any size from 1 on.

        Throughput over a line is monotone in the size, so the best one is 1 or has no end.
        """
        endless = 1e6 / self.line.per_query_us
        return max(endless, self.rate_rps(1)) / self.rate_rps(self.quantile.mean_batch)

    @property
    def steps_us(self) -> tuple[float, float]:
        """What a query more adds to a cycle: between the first two columns, and from quantile
        regression's batch to AIMD's."""
        beyond = line_through(
            self.quantile.mean_batch,
            _cycle_us(self.quantile),
            self.aimd.mean_batch,
            _cycle_us(self.aimd),
        )
        return self.line.per_query_us, beyond.per_query_us

    def least_off(self) -> float:
        """How far off the line is that is least off from all three columns: the largest relative
        error of a cycle, made as small as it gets (a linear program)."""
        sizes = np.array([run.mean_batch for run in self])
        cycles = np.array([_cycle_us(run) for run in self])
        scaled = np.column_stack([1 / cycles, sizes / cycles])
        worst = np.full((3, 1), -1.0)
        solved = _solve(
            [0.0, 0.0, 1.0],
            A_ub=np.block([[scaled, worst], [-scaled, worst]]),
            b_ub=np.concatenate([np.ones(3), -np.ones(3)]),
            bounds=[(None, None), (None, None), (0, None)],
        )
        assert solved.success, solved.message
        return float(solved.fun)


def _cycle_us(run: Published) -> float:
    return 1e6 * run.mean_batch / run.rate_rps


# ---- figure 7

RIGHT: Final = 0
"""The label of the truth; wrong ones are 1, 2, ..."""


def patterns(members: int, labels: int) -> npt.NDArray[np.int64]:
    """All that members can say to a query, shape (n, members): 0 is right, wrong labels are
    numbered in the order in which they come, for their names do not matter."""

    def longer(said: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(said) == members:
            yield said
            return
        for label in range(min(max(said, default=RIGHT) + 2, labels)):
            yield from longer((*said, label))

    return np.array(list(longer(())))


class Open(NamedTuple):
    """What the fitted numbers of an ensemble leave open. Each is the least and the most.

    share4: of the queries on which at least four agree, from the fitted numbers alone; error4: of
    these four, where that share is given, too; rest: of the ensemble on the others, where that
    share and the ensemble's error are given.
    """

    share4: tuple[float, float]
    error4: tuple[float, float]
    rest: tuple[float, float]


def left_open(ensemble: Ensemble, share4: float, error: float) -> Open | None:
    """What is open; None where no ensemble has the fitted numbers.

    share4: published share of the queries on which at least four agree; error: the ensemble's.
    """
    said = patterns(len(ensemble.errors), ensemble.labels)
    most, wrong = _majority(said)
    facts, values = _facts(ensemble, said)
    alone = _range((most >= 4).astype(float), facts, values)
    if alone is None:
        return None
    facts, values = [*facts, most >= 4], [*values, share4]
    joint = _range((wrong & (most >= 4)).astype(float), facts, values)
    if joint is None:
        return None
    low, high = (min(each, error) for each in joint)
    rest = ((error - high) / (1 - share4), min(1.0, (error - low) / (1 - share4)))
    return Open(alone, (joint[0] / share4, joint[1] / share4), rest)


def least_violation(ensemble: Ensemble) -> float:
    """By how much at least one of the fitted numbers is off in any ensemble, as a share of all
    queries: 0 where there is one that has them all."""
    said = patterns(len(ensemble.errors), ensemble.labels)
    facts, values = _facts(ensemble, said)
    matrix, wanted = np.array(facts, dtype=float), np.array(values)
    worst = np.full((len(wanted), 1), -1.0)
    n = len(said)
    solved = _solve(
        [*np.zeros(n), 1.0],
        A_ub=np.block([[matrix, worst], [-matrix, worst]]),
        b_ub=np.concatenate([wanted, -wanted]),
        A_eq=[[*np.ones(n), 0.0]],
        b_eq=[1.0],
    )
    assert solved.success, solved.message
    return float(solved.fun)


SPLITS: Final = 50
"""How often `most_four_right` splits a cell; each split is four linear programs."""


def most_four_right(ensemble: Ensemble) -> float:
    """The share of queries on which at least four of five can be right, at the most, where members
    err independently given how hard a query is, and each more likely the harder it is.

    Given are the members' errors and the share on which all are right. Let A be that the three best
    are right, and 4 and 5 that the others are wrong. Among A both go up with hardness, so by
    Chebyshev's inequality P(A) P(A, 4, 5) >= P(A, 4) P(A, 5). That is linear once P(A) and P(A, 4)
    are known, so what they can be is split into cells, the cell with the largest bound first; in a
    cell the inequality is weakened to its corners. It holds for any number of parameters.
    """
    wrong = np.array(list(product((0, 1), repeat=5)))
    order = np.argsort(ensemble.errors)
    best, a, b = wrong[:, order[:3]].sum(axis=1) == 0, wrong[:, order[3]], wrong[:, order[4]]
    alone, other, both = best * a, best * b, best * a * b
    four = (wrong.sum(axis=1) <= 1).astype(float)
    right5 = ensemble.agree5 * (1 - ensemble.wrong5)
    errors = np.array(ensemble.errors)

    def bound(cell: tuple[float, float, float, float]) -> float:
        low_a, high_a, low_b, high_b = cell
        solved = _solve(
            -four,
            A_eq=np.array([*wrong.T, wrong.sum(axis=1) == 0, np.ones(len(wrong))], dtype=float),
            b_eq=[*errors, right5, 1.0],
            A_ub=np.array([low_b * other - high_a * both, best, -1 * best, alone, -alone]),
            b_ub=[0.0, high_a, -low_a, high_b, -low_b],
        )
        return -float(solved.fun) if solved.success else 0.0

    whole = (0.0, 1.0, 0.0, 1.0)
    cells = [(-bound(whole), whole)]
    for _ in range(SPLITS):
        _, (low_a, high_a, low_b, high_b) = heappop(cells)
        middle_a, middle_b = (low_a + high_a) / 2, (low_b + high_b) / 2
        for part in product(
            ((low_a, middle_a), (middle_a, high_a)), ((low_b, middle_b), (middle_b, high_b))
        ):
            cell = (*part[0], *part[1])
            heappush(cells, (-bound(cell), cell))
    return -cells[0][0]


def _majority(said: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """How many say what the most say, and whether that is wrong."""
    counts = np.array([np.bincount(row, minlength=said.shape[1] + 1) for row in said])
    return counts.max(axis=1), counts.argmax(axis=1) != RIGHT


def _facts(ensemble: Ensemble, said: npt.NDArray[np.int64]) -> tuple[list[Any], list[float]]:
    """The fitted numbers as shares of all queries: which patterns they count, and what they are."""
    most, wrong = _majority(said)
    everyone = most == said.shape[1]
    facts = [*(said != RIGHT).T, everyone, everyone & wrong]
    return facts, [*ensemble.errors, ensemble.agree5, ensemble.agree5 * ensemble.wrong5]


def _range(
    target: npt.NDArray[np.float64], facts: Sequence[Any], values: Sequence[float]
) -> tuple[float, float] | None:
    """The least and the most of a share, over all ensembles that have the numbers."""
    matrix = np.array([*facts, np.ones(len(target))], dtype=float)
    ends = []
    for sign in (1, -1):
        solved = _solve(sign * target, A_eq=matrix, b_eq=[*values, 1.0])
        if not solved.success:
            return None
        ends.append(float(target @ solved.x))
    return ends[0], ends[1]


def _solve(cost: Any, **program: Any) -> Any:
    """A linear program, by scipy's HiGHS; variables are at least 0 unless it says otherwise."""
    from scipy.optimize import linprog  # takes a while to import

    return linprog(cost, method="highs", **program)
