"""Batching against closed forms. The ids are those of our list of policies, section 0.1.

A batch of b takes beta + alpha b; all units are ms. Clockwork with long SLOs, every batch size in
its profile and (almost) no time ahead is a plain greedy server: whenever the GPU is idle, it takes
all that wait.
"""

from collections import Counter, deque
from itertools import pairwise

import numpy as np
import pytest

from scheduler.records import FOREVER, Outcome, Status
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


# ---- a batch that waits for company: Clipper's delayed batching

WAIT_MS = 2.0
FULL = 4
LINE_MS = {b: 1.0 + b for b in range(1, FULL + 1)}


def delayed(arrivals_ms: list[float]) -> World:
    """At most 4 a batch, a wait of 2 ms. AIMD starts at 1 and grows by 2 a batch, so one request,
    and then three, come first."""
    first = [(START_MS, 0), *[(START_MS + 20.0, 0)] * 3]
    return run(
        policy("clipper-nsdi-aimd", max_batch=FULL, wait_ms=WAIT_MS, slo_ms=100.0),
        [*first, *((START_MS + 40.0 + at, 0) for at in arrivals_ms)],
        models=[model(LINE_MS, load_ms=1.0)],
        slo_ms=None,
        end_s=3.0,
    )


def test_q6_who_comes_alone_waits_for_company_and_then_runs() -> None:
    """Each sojourn is the wait and a batch of one, to the nanosecond."""
    apart_ms = WAIT_MS + LINE_MS[1] + 0.5
    world = delayed([apart_ms * i for i in range(200)])
    sojourns = {row.latency_ns for row in world.requests[4:]}
    assert sojourns == {round((WAIT_MS + LINE_MS[1]) * MS)}


@pytest.mark.parametrize("n", [1, 2, 3, FULL])
def test_q7_who_comes_together_waits_unless_the_batch_is_full(n: int) -> None:
    world = delayed([0.0] * n)
    wait_ms = 0.0 if n == FULL else WAIT_MS
    sojourns = {row.latency_ns for row in world.requests[4:]}
    assert sojourns == {round((wait_ms + LINE_MS[n]) * MS)}


# ---- several GPUs in turn


class InTurn:
    """Full batches, as soon as they are full, to one GPU after the other."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._waiting: deque[int] = deque()
        self._free: deque[int] = deque()

    def on_start(self, now_ns, gpus, models, rng, out) -> None:  # type: ignore[no-untyped-def]
        self._exec_ns = dict(zip(models[0].batch_sizes, models[0].exec_ns, strict=True))
        for gpu in gpus:
            out.load(gpu.lanes[0], 0, now_ns, FOREVER, models[0].load_ns)

    def on_request(self, now_ns, request, out) -> None:  # type: ignore[no-untyped-def]
        self._waiting.append(request.id)
        self._serve(now_ns, out)

    def on_result(self, now_ns, result, out) -> None:  # type: ignore[no-untyped-def]
        for task in getattr(result.action, "tasks", ()):
            out.answer(task)
        self._free.append(result.action.lane)
        self._serve(now_ns, out)

    def on_wake(self, now_ns, key, out) -> None:  # type: ignore[no-untyped-def]
        """It asks for none."""

    def _serve(self, now_ns, out) -> None:  # type: ignore[no-untyped-def]
        size = self._batch
        while self._free and len(self._waiting) >= size:
            tasks = tuple(self._waiting.popleft() for _ in range(size))
            lane = self._free.popleft()
            out.infer(lane, 0, size, tasks, now_ns, FOREVER, self._exec_ns[size])


def in_turn(gpus: int, batch: int, rate_rps: float) -> World:
    """10 batches a GPU at even distances; l(b) = 10 + b, SLO 100 ms."""
    sizes = {b: 10.0 + b for b in range(1, 101)}
    times = START_MS * MS + np.arange(10 * batch * gpus) * (1e9 / rate_rps)
    return run(
        InTurn(batch),
        (np.ceil(times).astype(np.int64), np.zeros(len(times), dtype=np.int32)),
        models=[model(sizes, load_ms=1.0)],
        gpus=gpus,
        slo_ms=100.0,
        end_s=10.0,
    )


@pytest.mark.parametrize(("gpus", "batch", "each_rps"), [(1, 40, 800), (4, 70, 875), (64, 88, 898)])
def test_q9_gpus_in_turn_let_batches_be_larger(gpus: int, batch: int, each_rps: float) -> None:
    """(1 + 1/N) l(b) <= L: the last of a batch starts it, the first came b/l(b)/N before. So
    b = L N / (N + 1) - beta, and N b / l(b) requests a second lose nothing.

    With a request more a batch, or at 2% more, some are late.
    """

    def rate_rps(size: int) -> float:
        return 1e3 * gpus * size / (10.0 + size)

    best = max(b for b in range(1, 101) if (1 + 1 / gpus) * (10.0 + b) <= 100.0)
    assert best == batch
    assert rate_rps(best) / gpus == pytest.approx(each_rps, abs=0.5)
    world = in_turn(gpus, best, rate_rps(best))
    assert {row.outcome for row in world.requests} == {Outcome.OK}
    longest_ms = max(row.latency_ns for row in world.requests) / MS
    gathered_ms = 1e3 * (best - 1) / rate_rps(best)
    assert longest_ms == pytest.approx(gathered_ms + 10.0 + best, abs=1e-3)
    larger = in_turn(gpus, best + 1, rate_rps(best + 1))
    faster = in_turn(gpus, best, 1.02 * rate_rps(best))
    for lossy in (larger, faster):
        assert Outcome.LATE in {row.outcome for row in lossy.requests}


@pytest.mark.parametrize(("share", "lossless"), [(1.0, True), (1.03, False)])
def test_q9_on_one_gpu_edf_sustains_the_same(share: float, lossless: bool) -> None:
    """800 requests a second in batches of 40, if early drop aims at half the SLO."""
    sizes = {b: 10.0 + b for b in range(1, 101)}
    arrivals = [(0.0, 0), *((START_MS + 1e3 * i / (800 * share), 0) for i in range(4_000))]
    chosen = policy("edf", max_batch=100, network_ms=0.0, target_share=0.5)
    world = run(chosen, arrivals, models=[model(sizes, load_ms=1.0)], slo_ms=100, end_s=8)
    assert (len(world.sink.ended(Outcome.OK)) == 4_001) == lossless


# ---- every run


@pytest.mark.parametrize("name", ["clockwork", "edf", "fifo", "clipper-0.3"])
def test_q10_requests_end_once_and_engines_do_one_thing_at_a_time(name: str) -> None:
    """Two GPUs with room for two of four models each, twice what they can do, stopped under way."""
    rng = np.random.default_rng(10)
    count = 2_000
    times_ms = np.sort(rng.uniform(0, 1_000, count))
    arrivals = list(zip(times_ms.tolist(), rng.integers(0, 4, count).tolist(), strict=True))
    gpus, end_s, drain_s = 2, 1.0, 0.01
    world = run(
        name, arrivals, models=[model()] * 4, gpus=gpus, pages=14, slo_ms=50, end_s=end_s,
        drain_s=drain_s,
    )  # fmt: skip
    ends = Counter(row.outcome for row in world.requests)
    assert sorted(row.id for row in world.requests) == list(range(count))
    assert sum(ends.values()) == count
    assert len(ends) > 1, "overload, so not all end alike"
    done = [row for row in world.actions if row.status == Status.DONE]
    for gpu in range(gpus):
        batches = sorted(
            (row.start_ns, row.end_ns) for row in done if row.gpu == gpu and row.type == "infer"
        )
        assert all(ended <= started for (_, ended), (started, _) in pairwise(batches))
        assert sum(end - start for start, end in batches) <= (end_s + drain_s) * 1e9
        held: set[int] = set()
        changes = sorted(
            (row.end_ns if row.type == "load" else row.start_ns, row.type != "load", row)
            for row in done
            if row.gpu == gpu
        )
        for _, _, row in changes:
            if row.type == "load":
                held.add(row.model)
            elif row.type == "unload":
                held.discard(row.model)
            else:
                assert row.model in held


@pytest.mark.parametrize("seed", range(40))
def test_q11_a_bucket_of_tokens_bounds_every_sojourn(seed: int) -> None:
    """Arrivals of at most sigma + rho t in any t, rho <= B / l(B), a greedy server with batches of
    at most B: no sojourn is beyond 2 l(B) + sigma l(B) / B (network calculus)."""
    rng = np.random.default_rng([11, seed])
    largest = int(rng.integers(1, 17))
    alpha, beta = rng.uniform(0.1, 2.0), rng.uniform(0.5, 10.0)
    full_ms = beta + alpha * largest
    rho = rng.uniform(0.3, 1.0) * largest / full_ms  # requests a ms
    sigma = float(rng.integers(1, 40))
    tokens, at_ms = sigma, 0.0
    arrivals: list[float] = []
    while len(arrivals) < 300:
        pause_ms = 0.0 if rng.random() < 0.6 else rng.exponential(3 * full_ms)
        tokens, at_ms = min(sigma, tokens + rho * pause_ms), at_ms + pause_ms
        if tokens < 1:  # wait until there is one
            at_ms += (1 - tokens) / rho
            tokens = 1.0
        tokens -= 1
        arrivals.append(at_ms)
    world = greedy(np.array(arrivals), alpha, beta, largest)
    rows = world.requests[1:]
    assert len(rows) == 300
    bound_ms = 2 * full_ms + sigma * full_ms / largest
    assert max(row.latency_ns for row in rows) / MS <= bound_ms
