"""A GPU that containers share."""

from functools import partial

import numpy as np
import pytest

from profiles.durations import Constant
from scheduler.records import FOREVER, Infer, Load, Status, Unload, Why
from sim.clock import Clock
from sim.gpu import ModelCost
from sim.shared import SharedGpu, Sharing

MS = 1_000_000


class Bench:
    """One GPU by itself. Batches of 1 ask for half of it, batches of 2 for all of it."""

    def __init__(self, sharing: Sharing, pages: int = 10) -> None:
        exec = {1: Constant(10 * MS), 2: Constant(10 * MS)}
        self.clock = Clock()
        self.results = []
        costs = [ModelCost(1, Constant(MS), exec)] * 3
        self.gpu = SharedGpu(
            self.clock, pages, costs, 0, np.random.default_rng(1), self.results.append, sharing
        )
        for model in range(3):
            self.at(0, Load(100 + model, model, model, 0, FOREVER, 0))

    def at(self, ms: float, action) -> None:
        self.clock.call_in(round(ms * MS), lambda now_ns: self.gpu.submit(now_ns, action))

    def infer(self, ms: float, lane: int, batch: int, latest_ms: float = 1e6) -> None:
        action = Infer(lane, lane, lane, batch, (lane,), 0, round(latest_ms * MS), 0)
        self.at(ms, action)

    def ends(self) -> list[tuple[int, float]]:
        self.clock.run()
        done = [r for r in self.results if isinstance(r.action, Infer)]
        return [(r.action.lane, round(r.end_ns / MS, 3)) for r in done]


PLAIN = Sharing(contention=1.0, jitter=0.0)


def test_alone_a_batch_takes_the_profiles_time():
    bench = Bench(PLAIN)
    bench.infer(100, 0, 2)
    bench.infer(200, 1, 2)
    assert bench.ends() == [(0, 110), (1, 210)]


def test_two_that_fit_beside_each_other_do_not_wait():
    bench = Bench(PLAIN)
    bench.infer(100, 0, 1)
    bench.infer(100, 1, 1)
    assert bench.ends() == [(0, 110), (1, 110)]


def test_two_that_ask_for_all_of_it_take_twice_as_long():
    bench = Bench(PLAIN)
    bench.infer(100, 0, 2)
    bench.infer(100, 1, 2)
    assert bench.ends() == [(0, 120), (1, 120)]


def test_who_comes_later_slows_down_what_is_left():
    # 5 ms alone, then both at half speed: lane 0 has 5 left, which takes 10; lane 1 has 5 left
    # then, and runs alone.
    bench = Bench(PLAIN)
    bench.infer(100, 0, 2)
    bench.infer(105, 1, 2)
    assert bench.ends() == [(0, 115), (1, 120)]


def test_a_lane_runs_one_batch_after_the_other():
    bench = Bench(PLAIN)
    bench.at(100, Infer(0, 0, 0, 1, (0,), 0, FOREVER, 0))
    bench.at(100, Infer(1, 0, 0, 1, (1,), 0, FOREVER, 0))
    assert [end for _, end in bench.ends()] == [110, 120]


def test_jitter_has_mean_one_and_needs_company():
    alone, together = [], []
    for seed in range(300):
        bench = Bench(Sharing(1.0, 0.5))
        bench.gpu._rng = np.random.default_rng(seed)
        bench.infer(100, 0, 1)
        bench.infer(200, 1, 1)
        bench.infer(200, 2, 1)
        ends = dict(bench.ends())
        alone.append(ends[0] - 100)
        together += [ends[1] - 200, ends[2] - 200]
    assert set(alone) == {10.0}
    assert np.mean(together) == pytest.approx(10, rel=0.08)
    assert np.std(np.log(together)) == pytest.approx(0.5, rel=0.1)


def test_windows_and_missing_weights_are_as_on_an_exclusive_gpu():
    bench = Bench(PLAIN, pages=2)  # the third model does not fit
    bench.infer(100, 2, 1)
    bench.infer(100, 0, 1)
    bench.at(101, Unload(7, 0, 0, 0, FOREVER, 0))
    bench.infer(200, 1, 1, latest_ms=150)
    bench.clock.run()
    said = {r.action.id: (r.status, r.why) for r in bench.results}
    assert said[102] == (Status.FAILED, Why.NO_PAGES)
    assert said[2] == (Status.FAILED, Why.NOT_LOADED)
    assert said[7] == (Status.FAILED, Why.IN_USE)
    assert said[1] == (Status.MISSED, Why.WINDOW)


def test_a_gap_keeps_the_lane_idle():
    bench = Bench(PLAIN)
    bench.gpu._gaps = [partial(int.__mul__, 3 * MS)] * 3
    bench.at(100, Infer(0, 0, 0, 2, (0,), 0, FOREVER, 0))
    bench.at(100, Infer(1, 0, 0, 1, (1,), 0, FOREVER, 0))
    assert [end for _, end in bench.ends()] == [110, 126]
