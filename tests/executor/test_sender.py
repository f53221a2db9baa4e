"""How the live controller sends an open loop's requests, on a clock that only the sender moves.

BUG-EXE-01 and BUG-EXE-02. A sleep takes what was asked for, a request what the sender is said to
work for it, and nothing else takes any time.
"""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from scheduler.records import FOREVER, ModelInfo, Reason
from tests.executor.scenarios import loaded

pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")

from executor import controller
from executor.controller import LiveCluster
from mainspring.live import run_live
from results import read_outcomes

MS = 1_000_000


class Clock:
    """In place of the module `time`."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


class Rejecting:
    """Rejects every request, which takes no worker. takes_ns: that it works for a request.
    start_ns: the same before the first."""

    def __init__(self, clock: Clock, takes_ns: int = 0, start_ns: int = 0) -> None:
        self._clock, self._takes_ns, self._start_ns = clock, takes_ns, start_ns
        self.handled_ns: list[int] = []

    def on_start(self, now_ns, gpus, models, rng, out):
        self._clock.now_ns += self._start_ns

    def on_request(self, now_ns, request, out):
        self.handled_ns.append(now_ns)
        out.reject(request.id, Reason.DEADLINE)
        self._clock.now_ns += self._takes_ns


class Rows:
    """A sink that keeps requests."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []

    def request(self, row):
        self.rows.append(row)


@pytest.fixture
def send(monkeypatch):
    """Send so many requests at a constant rate; returns the policy and the requests' rows."""
    clock = Clock()

    async def sleep(seconds: float) -> None:
        clock.sleep(seconds)

    def send(rate_rps: int, count: int, *, takes_ns=0, start_ns=0, ready_ns=0):
        every_ns = 10**9 // rate_rps
        times = np.arange(count, dtype=np.int64) * every_ns

        def chunks() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            yield times, np.zeros(count, np.int32), np.zeros(count, np.int32)

        policy, sink = Rejecting(clock, takes_ns, start_ns), Rows()
        model = ModelInfo(0, "m", 1, 1, (1,), (1,))
        world = LiveCluster(
            policy, (), (model,), [], chunks(), [[FOREVER]], sink, np.random.default_rng(1)
        )
        gather = world._gather

        async def ready_late(watch):
            clock.now_ns += ready_ns  # as long as workers take to come up
            return await gather(watch)

        monkeypatch.setattr(world, "_gather", ready_late)
        monkeypatch.setattr(controller, "time", clock)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        try:
            world.run(count * every_ns, 0)
        finally:
            world.close()
        return policy.handled_ns, sink.rows, world.arrivals

    return send


def test_bug_exe_01_the_senders_own_work_slows_it_by_nothing(send):
    """250/s, 2,500 sends of 0.4 ms each. A sender that sleeps the gaps comes to 227.3/s."""
    handled_ns, rows, lateness = send(250, 2_500, takes_ns=400_000)

    assert handled_ns == [4 * MS * k for k in range(2_500)]
    assert handled_ns[-1] == 9_996 * MS
    assert lateness.n == 2_500
    assert lateness.quantile_us(1.0) == 0
    assert len(rows) == 2_500


def test_bug_exe_01_a_real_run_sends_all_and_says_how_late(tmp_path, capsys):
    """250/s for 4 s, on real clocks and a worker that spins. What is planned is what comes, the
    lateness is shown, not judged: the machine may be busy."""
    scenario = loaded(
        tmp_path, "duration_s=4", "cluster.gpus=1", "cluster.pages=56", "workload.0.rate_rps=250",
        "workload.0.kind=constant",
    )  # fmt: skip
    (live,) = run_live(scenario, tmp_path / "live", ["edf"])

    arrivals_ns = sorted(read_outcomes(live.directory)["arrival_ns"].to_pylist())
    assert len(arrivals_ns) == live.summary.arrivals == 1_000
    assert set(np.diff(arrivals_ns)) == {4 * MS}
    late_us = live.punctuality.arrival_late_us
    with capsys.disabled():
        print(f"\n250/s: 1,000 of 1,000 sent, late by p99 {late_us['p99']:g} us")


def test_bug_exe_02_time_zero_is_when_all_are_ready(send):
    """40/s, and it takes 310 ms until all are ready: nothing is overdue by then."""
    handled_ns, rows, lateness = send(40, 40, ready_ns=310 * MS)

    assert handled_ns == [25 * MS * k for k in range(40)]
    assert lateness.quantile_us(1.0) == 0
    assert [row[3] for row in rows] == handled_ns


def test_bug_exe_02_what_is_overdue_is_late_by_the_plan(send):
    """What comes up to be 310 ms away after time zero finds 13 requests overdue. They are handled
    at once, and their latency counts from the plan; those after them are in time."""
    handled_ns, rows, lateness = send(40, 40, start_ns=310 * MS)

    late = [(at, row) for at, row in zip(handled_ns, rows, strict=True) if at > row[3]]
    assert [row[3] for _, row in late] == [25 * MS * k for k in range(13)]  # planned at 0..300 ms
    assert {at for at, _ in late} == {310 * MS}
    assert [row[5] - row[3] for _, row in late] == [(310 - 25 * k) * MS for k in range(13)]
    assert handled_ns[13:] == [25 * MS * k for k in range(13, 40)]
    assert lateness.n == 40
