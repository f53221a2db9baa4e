"""One seed a run, split by purpose; the collector."""

import gc

import numpy as np
import pytest

from mainspring import load_scenario
from mainspring.world import FROZEN_MODULES, Purpose, build_world, generator, quiet_collector
from scheduler.memory import Contiguous
from scheduler.records import FOREVER


def draws(seed, purpose, *index):
    return generator(seed, purpose, *index).integers(2**62, size=4).tolist()


def test_purposes_workloads_and_gpus_have_streams_of_their_own():
    streams = [
        draws(1, Purpose.POLICY),
        *(draws(1, Purpose.ARRIVALS, workload) for workload in range(3)),
        *(draws(1, Purpose.DURATIONS, gpu) for gpu in range(3)),
        draws(2, Purpose.POLICY),
    ]
    assert len({tuple(stream) for stream in streams}) == len(streams)


def test_a_stream_never_changes_from_one_version_to_the_next():
    # From numpy's SeedSequence(1, spawn_key=(0, 0)) and PCG64, whose streams numpy keeps.
    sequence = np.random.SeedSequence(1, spawn_key=(0, 0))
    expected = np.random.Generator(np.random.PCG64(sequence)).integers(2**62, size=4).tolist()
    assert draws(1, Purpose.ARRIVALS, 0) == expected
    assert [purpose.value for purpose in Purpose] == [0, 1, 3, 4, 5, 6]


class Sink:
    """Keeps the outcomes."""

    def __init__(self):
        self.requests = []

    def request(self, row):
        self.requests.append(row)

    def action(self, row):
        pass


def arrivals(scenario, label):
    """Who asked for what, when, and by when."""
    (choice,) = scenario.choose([label])
    sink = Sink()
    build_world(scenario, choice.build(), sink).run(2_000_000_000, 1_000_000_000)
    return sorted(row[:5] for row in sink.requests)


def test_the_policy_and_the_number_of_gpus_change_no_arrival(write):
    scenario_file = write()
    expected = arrivals(load_scenario(scenario_file), "clockwork")
    assert len(expected) > 300
    assert arrivals(load_scenario(scenario_file), "fifo") == expected
    assert arrivals(load_scenario(scenario_file, ["cluster.gpus=3"]), "clockwork") == expected
    assert arrivals(load_scenario(scenario_file, ["seed=2"]), "clockwork") != expected


def test_a_workloads_slo_goes_before_its_models(write):
    scenario_file = write(
        ("slo_ms = 100.0\n", ""),
        (
            "rate_rps = 200",
            'rate_rps = 200\n[[workload]]\nkind = "closed"\nconcurrency = 2\nslo_ms = 9',
        ),
    )
    rows = arrivals(load_scenario(scenario_file), "fifo")
    open_loop = [row for row in rows if row[2] == 0]
    closed = [row for row in rows if row[2] > 0]
    assert {row[4] for row in open_loop} == {FOREVER}
    assert {row[4] - row[3] for row in closed} == {9_000_000}
    assert {row[2] for row in closed} == {2, 3, 4, 5, 6, 7}  # two clients a model, after the loops


def test_models_lie_in_one_piece_where_the_scenario_says_so(write):
    worlds = {
        memory: build_world(scenario, scenario.policies[0].build(), Sink())
        for memory in ("pages", "contiguous")
        for scenario in [load_scenario(write(), [f"cluster.memory={memory}"])]
    }
    kinds = {memory: type(world._gpus[0].worker._memory) for memory, world in worlds.items()}
    assert kinds == {"pages": type(None), "contiguous": Contiguous}


@pytest.mark.parametrize("frozen", [False, True])
def test_the_collector_is_left_as_it_was(frozen):
    """A process that makes many runs freezes its modules once; no run may thaw them."""
    gc.unfreeze()
    before = gc.get_threshold()
    try:
        if frozen:
            gc.freeze()
        count = gc.get_freeze_count()
        with quiet_collector():
            assert gc.get_freeze_count() > FROZEN_MODULES
            assert gc.get_threshold() != before
        assert gc.get_freeze_count() == count
        assert gc.get_threshold() == before
    finally:
        gc.unfreeze()
