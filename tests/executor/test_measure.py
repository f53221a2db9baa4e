"""Measuring: what counts, in which order, and what is said when it goes wrong."""

import time
from itertools import pairwise

import pytest

from executor.device import DeviceError, DeviceState, Done
from executor.measure import WARM_UP, measure
from scheduler.worker import Engine

LOAD_NS, EXEC_NS = 7_000, 100


class Scripted:
    """A device that says at once how long it took: a batch of n takes n * EXEC_NS."""

    contiguous = True

    wakes = None

    def __init__(self, wrong_at=None):
        self.done = {}
        self.places = []
        self.lies = {}
        self.models = []
        self.batches = []
        self.wrong_at = wrong_at

    def begin_load(self, model, place):
        assert not any(set(place) & set(other) for other in self.lies.values()), "not free"
        self.lies[model] = place
        self.places.append(place)
        self.done[Engine.COPY] = Done(0, LOAD_NS, LOAD_NS)

    def begin_infer(self, model, batch, inputs):
        assert model in self.lies, "not loaded"
        self.models.append(model)
        self.batches.append(batch)
        error = "broken" if len(self.batches) == self.wrong_at else ""
        self.done[Engine.EXEC] = Done(0, 0, batch * EXEC_NS, error)

    def poll(self, engine):
        return self.done.pop(engine, None)

    def unload(self, model):
        self.lies.pop(model, None)

    def state(self):
        return DeviceState("scripted", 0, 0)


def test_warm_up_does_not_count_and_everything_else_does():
    device = Scripted()
    came = measure(device, 1, 2, [4, 1], runs=100, loads=10)
    assert came.load_ns == [LOAD_NS] * 10
    assert came.exec_ns == {1: [EXEC_NS] * 100, 4: [4 * EXEC_NS] * 100}
    assert len(device.places) == WARM_UP + 10
    assert len(device.batches) == 2 * (WARM_UP + 100)


class Tuned(Scripted):
    """The first run of each batch size takes 2.3 s, for it is tuned then; the others 40 ms, and
    0.1 ms a request."""

    def begin_infer(self, model, batch, inputs):
        first = batch not in self.batches
        super().begin_infer(model, batch, inputs)
        took_ns = 2_300_000_000 if first else 40_000_000 + batch * 100_000
        self.done[Engine.EXEC] = Done(0, 0, took_ns)


def test_bug_prf_01_the_slow_first_run_of_every_size_is_warm_up():
    """Sizes 1, 2, 4, 8 and 5 samples each: all within 40.1 to 40.8 ms."""
    came = measure(Tuned(), 1, 1, [1, 2, 4, 8], runs=5, loads=1)
    assert came.exec_ns == {n: [40_000_000 + n * 100_000] * 5 for n in (1, 2, 4, 8)}


def test_every_load_goes_to_a_new_place_and_batches_come_in_random_order():
    device = Scripted()
    measure(device, 3, 2, [1, 2, 4], runs=50, loads=10)
    assert {tuple(place) for place in device.places} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert all(one != other for one, other in pairwise(device.places))
    counted = device.batches[3 * WARM_UP :]
    assert len({tuple(counted[i : i + 3]) for i in range(0, len(counted), 3)}) > 3
    assert min(device.models.count(copy) for copy in range(3)) > 30


def test_more_loads_than_runs():
    came = measure(Scripted(), 1, 1, [1], runs=5, loads=20)
    assert (len(came.load_ns), len(came.exec_ns[1])) == (20, 5)


def test_what_was_stopped_is_whole_if_shorter():
    came = measure(Scripted(), 2, 1, [1, 2], 100, 10, stop=lambda share: share >= 0.5)
    assert {batch: len(ns) for batch, ns in came.exec_ns.items()} == {1: 50, 2: 50}


def test_a_failure_says_where():
    with pytest.raises(DeviceError, match="batch 2: broken"):
        measure(Scripted(wrong_at=2), 1, 1, [1, 2], 10, 10)


def test_a_device_that_never_ends_is_given_up(monkeypatch):
    device = Scripted()
    device.poll = lambda engine: None
    clock = iter(range(0, 10**13, 10**10))
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(clock))
    with pytest.raises(DeviceError, match="its load did not end within 60 s"):
        measure(device, 1, 1, [1], 10, 10)


def test_a_rest_comes_before_every_batch(monkeypatch):
    rests = []
    monkeypatch.setattr(time, "sleep", rests.append)
    device = Scripted()
    measure(device, 1, 1, [1, 2], 200, 10, rest_s=0.02)
    assert len(rests) == len(device.batches)
    assert sum(rests) / len(rests) == pytest.approx(0.02, rel=0.2)
