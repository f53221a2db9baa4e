"""Batching against closed forms. The ids are those of our list of policies, section 0.1.

A batch of b takes beta + alpha b; all units are ms. Clockwork with long SLOs, every batch size in
its profile and (almost) no time ahead is a plain greedy server: whenever the GPU is idle, it takes
all that wait.
"""

import numpy as np
import pytest

from scheduler.records import Outcome, Status
from tests.worlds import MS, RESNET50, ActionRow, World, model, policy, run

LONG_MS = 1e7
START_MS = 1_000.0
"""The model is loaded by then."""


def greedy(arrivals_ms: np.ndarray, alpha: float, beta: float, largest: int) -> World:
    sizes = {b: beta + alpha * b for b in range(1, largest + 1)}
    chosen = policy(
        "clockwork",
        schedule_ahead_ms=2e-6,
        future_ms=0.0,
        max_batch=largest,
        max_exec_ms=1e6,
        max_load_slo_ms=100.0,
    )
    return run(
        chosen,
        [(0.0, 0), *((START_MS + at, 0) for at in arrivals_ms)],
        models=[model(sizes, load_ms=1.0)],
        slo_ms=LONG_MS,
        end_s=START_MS / 1e3 + float(arrivals_ms[-1]) / 1e3 + 1,
        drain_s=10,
    )


def batches(world: World) -> list[ActionRow]:
    """What was executed, but for the request that loaded the model."""
    rows = [row for row in world.actions if row.type == "infer"][1:]
    assert all(row.status == Status.DONE for row in rows)
    return rows


@pytest.mark.parametrize("name", ["fifo", "clockwork"])
def test_q2_without_contention_every_sojourn_is_the_service(name: str) -> None:
    """D/D/1: one request every 3 ms, 2.73 ms each."""
    arrivals = [(0.0, 0)] + [(START_MS + 3.0 * i, 0) for i in range(300)]
    world = run(name, arrivals, end_s=3.0)
    sojourns = {row.latency_ns for row in world.requests[1:]}
    assert sojourns == {round(RESNET50[1] * MS)}


@pytest.mark.parametrize(
    ("rate", "alpha", "beta", "sizes"),
    [(0.5, 1.0, 10.0, {10}), (3.0, 0.2, 5.0, {37, 38})],
)
def test_q3_greedy_batches_settle_where_a_batch_is_what_came_during_the_last(
    rate: float, alpha: float, beta: float, sizes: set[int]
) -> None:
    """b = rate x (beta + alpha b), so b = rate beta / (1 - rate alpha): 10, and 37.5."""
    arrivals = np.arange(3_000) / rate
    rows = batches(greedy(arrivals, alpha, beta, 48))
    steady = [row.batch for row in rows[len(rows) // 2 : -2]]
    assert len(steady) > 30
    assert set(steady) == sizes
    assert np.mean(steady) == pytest.approx(rate * beta / (1 - rate * alpha), abs=0.1)


@pytest.mark.parametrize(
    ("rate", "alpha", "beta", "largest", "simulated"),
    [
        (0.2, 1.0, 2.0, 16, 4.235),
        (0.5, 1.0, 2.0, 32, 7.51),
        (0.5, 0.2, 5.0, 20, 8.48),
        (3.0, 0.2, 5.0, 96, 19.15),
    ],
)
def test_q4_greedy_batches_under_poisson_keep_inoues_bound(
    rate: float, alpha: float, beta: float, largest: int, simulated: float
) -> None:
    """Inoue 2021: the mean sojourn is at most the smaller of two closed forms. `simulated` is what
    an independent simulation of the same server gave. No batch reaches `largest`, which makes it as
    good as infinite."""
    rng = np.random.default_rng(4)
    count = 10_000
    world = greedy(np.cumsum(rng.exponential(1 / rate, count)), alpha, beta, largest)
    assert max(row.batch for row in world.requests) < largest
    sojourns = np.array([row.latency_ns / MS for row in world.requests[1:]])
    load = rate * alpha
    phi_0 = (
        (alpha + beta) / (2 * (1 - load)) * (1 + 2 * rate * beta + (1 - rate * beta) / (1 + load))
    )
    phi_1 = 1.5 * beta / (1 - load) + alpha / 2 * (load + 2) / (1 - load**2)
    assert len(sojourns) == count
    assert sojourns.mean() <= 1.01 * min(phi_0, phi_1)
    means = np.array([part.mean() for part in np.array_split(sojourns, 50)])
    error = means.std(ddof=1) / np.sqrt(50)
    assert abs(sojourns.mean() - simulated) < 3 * error + 0.005
    assert 3 * error < 0.05 * simulated


def test_q5_under_overload_a_gpu_does_full_batches_one_after_the_other() -> None:
    """100 batches of 16 at 17.33 ms: B / l(B) = 923 requests a second, to the nanosecond."""
    arrivals = [(0.0, 0)] + [(START_MS, 0)] * 1_600
    world = run("clockwork", arrivals, slo_ms=LONG_MS, end_s=2, drain_s=10)
    first, *rows = (row for row in world.actions if row.type == "infer" and row.batch == 16)
    # The first request finds an idle GPU and goes at once; the others wait a moment for it.
    assert len(rows) + 1 == 99
    assert rows[-1].end_ns - first.start_ns == 99 * round(RESNET50[16] * MS)


def test_q5_without_batches_a_gpu_is_never_idle_either() -> None:
    world = run("fifo", [(0.0, 0)] + [(START_MS, 0)] * 200, slo_ms=None, end_s=2)
    assert world.requests[-1].end_ns == START_MS * MS + 200 * round(RESNET50[1] * MS)


@pytest.mark.parametrize(("rate_rps", "lossless"), [(900.0, True), (1_015.0, False)])
def test_q8_a_rate_at_which_the_worst_phase_still_fits_loses_nothing(
    rate_rps: float, lossless: bool
) -> None:
    """Uniform arrivals, SLO L: every b with 2 l(b) <= L sustains b / l(b). At L = 100 that is 923
    requests a second, in batches of 16. A little less loses nothing; 10% more does.

    Not so at 20 ms, where 494 should be possible in batches of 2: Clockwork plans 10 ms ahead, so
    batches do not form (the original, too: 1.01 a batch at an SLO of 15 ms).
    """
    arrivals = [(0.0, 0)] + [(START_MS + 1e3 * i / rate_rps, 0) for i in range(3_000)]
    world = run("clockwork", arrivals, slo_ms=100, end_s=9)
    assert (len(world.sink.ended(Outcome.OK)) == 3_001) == lossless
