"""No policy does better than one that knows the future, and Clockwork not much worse.

The optimum is an exact dynamic program for one GPU, one model and deadlines in the order of
arrival: F[i][k] is the earliest end of a schedule that serves exactly k of the first i requests,
and a batch whose last member is i may be taken as the consecutive requests that end at i.
"""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.records import Outcome
from tests.properties.cases import examples
from tests.worlds import MS, model, policy, run

NEVER = float("inf")


def optimum(arrivals: list[int], slo: int, exec_of_size: dict[int, int]) -> int:
    """The most requests that can be served in time."""
    n = len(arrivals)
    table = [[0.0] + [NEVER] * n]
    for i in range(1, n + 1):
        row = table[i - 1].copy()
        for size in range(1, min(i, max(exec_of_size)) + 1):
            time = min(t for b, t in exec_of_size.items() if b >= size)  # padded, if that is faster
            for k in range(size, i + 1):
                end = max(table[i - size][k - size], arrivals[i - 1]) + time
                if end <= arrivals[i - size] + slo:
                    row[k] = min(row[k], end)
        table.append(row)
    return max(k for k, end in enumerate(table[n]) if end < NEVER)


LOAD_MS = 1.0
EXEC = st.sampled_from([{1: 3}, {1: 3, 2: 4}, {1: 3, 2: 4, 4: 6}, {1: 2, 2: 4, 4: 8}, {1: 10}])
GAPS = st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 5, 20]), min_size=1, max_size=24)


def goodput(
    name: str, arrivals: list[int], slo: int, exec_ms: dict[int, int], **params: float
) -> int:
    """Requests served in time, of those that come once the model is there."""
    world = run(
        policy(name, **params),
        [(0.0, 0), *((50.0 + ms, 0) for ms in arrivals)],
        models=[model({b: float(t) for b, t in exec_ms.items()}, load_ms=LOAD_MS)],
        streams=[0] + [1] * len(arrivals),
        # The original's comparison is strict: it needs 1 ns of room. All else is in whole ms.
        slo_ns=[[1_000 * MS], [slo * MS + 1]],
    )
    return sum(row.outcome == Outcome.OK for row in world.requests[1:])


def times(gaps: list[int]) -> list[int]:
    return [sum(gaps[: i + 1]) for i in range(len(gaps))]


@examples(100)
@given(GAPS, st.integers(1, 60), EXEC)
def test_nobody_beats_the_optimum(gaps: list[int], slo: int, exec_ms: dict[int, int]) -> None:
    arrivals = times(gaps)
    most = optimum(arrivals, slo, exec_ms)
    assert goodput("fifo", arrivals, slo, exec_ms) <= most
    assert goodput("clockwork", arrivals, slo, exec_ms) <= most
    assert goodput("clockwork", arrivals, slo, exec_ms, buffer_ms=0.0, future_ms=0.0) <= most


@examples(100)
@given(GAPS, st.integers(1, 60), st.integers(1, 10))
def test_without_batches_clockwork_reaches_half_of_the_optimum(
    gaps: list[int], slo: int, exec_ms: int
) -> None:
    """Jobs of equal length on one machine, no preemption: whoever is never idle while there is
    work, and never starts a hopeless job, serves at least half of what is possible (Baruah,
    Haritsa, Sharma 1994; Goldman, Parwatikar, Suri 2000)."""
    arrivals = times(gaps)
    most = optimum(arrivals, slo, {1: exec_ms})
    got = goodput("clockwork", arrivals, slo, {1: exec_ms}, buffer_ms=0.0, future_ms=0.0)
    assert got >= most / 2
