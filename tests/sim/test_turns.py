"""A GPU with one engine: loads and batches take turns."""

from itertools import pairwise

import numpy as np
import pytest

from mainspring import build_scenario
from mainspring.document import ScenarioError
from profiles.durations import Constant
from scheduler.records import FOREVER, Action, Infer, Load, Result, Status
from sim.clock import Clock
from sim.gpu import ModelCost, SimGpu
from tests.worlds import MS


def played(actions: list[tuple[int, Action]], gap_ns: int = 0) -> list[tuple[int, int, int]]:
    """Id, start and end of each, in ms; loads take 2 ms and batches 1."""
    clock = Clock()
    done: list[Result] = []
    costs = [ModelCost(1, Constant(2 * MS), {1: Constant(MS)})] * 6
    gpu = SimGpu(clock, 6, costs, gap_ns, np.random.default_rng(0), done.append, turns=True)
    for at_ns, action in actions:
        clock.call_in(at_ns, lambda now_ns, action=action: gpu.submit(now_ns, action))
    clock.run(10**9)
    assert all(result.status is Status.DONE for result in done)
    return [(one.action.id, one.start_ns, one.end_ns) for one in done]


def load(id: int, model: int, earliest_ns: int = 0) -> Load:
    return Load(id, 0, model, earliest_ns, FOREVER, 0)


def batch(id: int, earliest_ns: int = 0) -> Infer:
    return Infer(id, 0, 0, 1, (id,), earliest_ns, FOREVER, 0)


@pytest.mark.parametrize("gap_ns", [0, 100_000])
def test_one_at_a_time_and_whoever_has_waited_begins(gap_ns: int) -> None:
    first = [(0, load(0, 0))]
    loads = [(MS, load(i, i)) for i in range(1, 5)]
    batches = [(MS, batch(i)) for i in range(5, 9)]
    done = played([*first, *loads, *batches], gap_ns)
    assert [id for id, _, _ in done] == [0, 5, 1, 6, 2, 7, 3, 8, 4]
    assert all(start - end == gap_ns for (_, _, end), (_, start, _) in pairwise(done))


def test_what_may_not_begin_yet_does_not_hold_the_other_up() -> None:
    done = played([(0, load(0, 0)), (MS, load(1, 1, 9 * MS)), (MS, batch(2)), (MS, batch(3))])
    assert done == [
        (0, 0, 2 * MS), (2, 2 * MS, 3 * MS), (3, 3 * MS, 4 * MS), (1, 9 * MS, 11 * MS),
    ]  # fmt: skip


def test_a_window_that_opens_while_the_other_runs_waits_for_its_end() -> None:
    done = played([(0, load(0, 0)), (MS, load(1, 1)), (MS, batch(2, 3 * MS))])
    assert done == [(0, 0, 2 * MS), (1, 2 * MS, 4 * MS), (2, 4 * MS, 5 * MS)]


def test_one_engine_has_no_lanes() -> None:
    table = {
        "name": "x", "duration_s": 1.0, "slo_ms": 100.0, "policy": {"fifo": {}},
        "cluster": {"pages": 99, "engines": 1, "lanes": 2},
        "models": [{"profile": "clockwork_docs/resnet50_v2"}],
        "workload": [{"kind": "poisson", "rate_rps": 5}],
    }  # fmt: skip
    with pytest.raises(ScenarioError, match=r"cluster\.engines = 1 does not go with lanes = 2"):
        build_scenario(table)
