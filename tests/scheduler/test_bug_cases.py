"""Public bug reports of other schedulers, each as a story of ours (area: policies).

The ids are those of our list. Stories about a greedy server are told by Clockwork with (almost) no
time ahead, which takes whatever waits when a GPU becomes idle.

Of the area core Clockwork has no batch timer (01), limits on queues (04, 05), preferred sizes (06),
clients that give up (16) and priorities (18, 19): test_dynamic_batching.py tells those; nor AIMD
(08), draws (09), a prediction cache (10, 11), Exp3 and Exp4 (12 to 14), an autoscaler (23, 24) and
sampled routing (25).
"""

from typing import Any

import pytest

from mainspring import build_scenario
from mainspring.document import ScenarioError
from profiles import Constant, ProfileError
from scheduler.records import FOREVER, Outcome
from tests.sim.test_cluster import Script
from tests.worlds import MS, World, model, policy, run

WARM_MS = 1_000.0


def greedy(arrivals_ms: list[float], exec_ms: dict[int, float], slo_ms: float = 1e6) -> World:
    """The requests, after one that loaded the model long before."""
    chosen = policy("clockwork", schedule_ahead_ms=2e-6, future_ms=0.0)
    arrivals = [(0.0, 0), *((WARM_MS + ms, 0) for ms in arrivals_ms)]
    return run(chosen, arrivals, models=[model(exec_ms)], slo_ms=slo_ms, end_s=2)


def ends_ms(world: World) -> list[float]:
    return [row.end_ns / MS - WARM_MS for row in world.requests[1:]]


def batches(world: World) -> list[int]:
    return [row.batch for row in world.actions if row.type == "infer"][1:]


def test_bug_cor_02_what_queued_during_an_execution_is_one_batch() -> None:
    """T(n) = 10 + 2n, at most 8. Arrivals 0, 1, 2, 3, 4: [1] at 0 and [4] at 12."""
    world = greedy([0, 1, 2, 3, 4], {n: 10.0 + 2 * n for n in range(1, 9)})
    assert batches(world) == [1, 4]
    assert ends_ms(world) == [12, 30, 30, 30, 30]


def test_bug_cor_03_a_padded_batch_costs_the_padded_size() -> None:
    """Sizes 1, 4, 8 take 5, 8, 12 ms. Three requests in a batch of 4 take 8, not 7."""

    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)

    def third(now_ns: int, request: Any, out: Any) -> None:
        if request.id == 2:
            out.infer(0, 0, 4, (0, 1, 2), now_ns, FOREVER, 0)

    world = run(Script(start, third), [(20, 0)] * 3, models=[model({1: 5.0, 4: 8.0, 8: 12.0})])
    assert [(row.batch, row.tasks, row.duration_ns // MS) for row in world.actions[1:]] == [
        (4, 3, 8)
    ]
    assert [row.end_ns for row in world.requests] == [28 * MS] * 3


def test_bug_cor_07_no_batch_is_larger_than_the_largest_size() -> None:
    """T(n) = n up to 8. 100 requests wait for a load of 5 ms: 12 batches of 8, one of 4, no 9."""
    world = run(
        "clockwork",
        [(0.0, 0)] * 100,
        models=[model({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, load_ms=5)],
        slo_ms=1e5,
    )
    sizes = [row.batch for row in world.actions if row.type == "infer"]
    assert sizes == [8] * 12 + [4]
    assert max(row.end_ns for row in world.requests) == (5 + 100) * MS


def test_bug_cor_15_the_last_request_is_not_forgotten() -> None:
    """At most 2, T = 10 ms, 5 at once, nothing after. The first goes alone, for nobody waits when
    it comes: 10, 20, 20, 30, 30."""
    world = greedy([0] * 5, {1: 10.0, 2: 10.0})
    assert ends_ms(world) == [10, 20, 20, 30, 30]


def test_bug_cor_17_what_has_not_arrived_keeps_nobody_waiting() -> None:
    """T = 4. Without haste at 0, urgent at 10: 0 to 4 and 10 to 14."""
    world = run(
        "clockwork",
        [(0.0, 0), (WARM_MS, 0), (WARM_MS + 10, 0)],
        models=[model({1: 4.0})],
        streams=[0, 0, 1],
        slo_ns=[[10_000 * MS], [15 * MS]],
        end_s=2,
    )
    starts = [row.start_ns / MS - WARM_MS for row in world.actions if row.type == "infer"][1:]
    assert starts == [0, 10]


def test_bug_cor_22_the_first_requests_are_not_refused_for_lack_of_measurements() -> None:
    """SLO 100 ms, T = 10 ms, 5 requests at 0..4 ms, nothing measured yet: the profile's estimate
    is used, and all are answered, at 10, 20, 30, 40, 50 ms after the load."""
    world = run(
        "clockwork", [(float(i), 0) for i in range(5)], models=[model({1: 10.0}, load_ms=5)]
    )
    assert [row.outcome for row in world.requests] == [Outcome.OK] * 5
    assert [row.end_ns // MS for row in world.requests] == [15, 25, 35, 45, 55]


def test_bug_cor_21_a_profile_in_which_a_larger_batch_is_faster_stalls_nobody() -> None:
    """(1 item, 10 ms), (8 items, 9 ms), a request every ms: somebody is served, the run ends, and
    who waits for the larger batch waits no longer than his deadline allows."""
    world = greedy([float(i) for i in range(10)], {1: 10.0, 8: 9.0}, slo_ms=40)
    assert batches(world) == [1, 8, 1]
    assert ends_ms(world) == [10] + [19] * 8 + [29]


def test_bug_cor_20_a_model_without_a_profile_is_an_error_and_no_estimate_is_zero() -> None:
    table = {
        "name": "s",
        "duration_s": 1.0,
        "slo_ms": 10.0,
        "cluster": {"pages": 1376},
        "models": [{"profile": "clockwork_docs/unmeasured"}],
        "workload": [{"kind": "poisson", "rate_rps": 1}],
        "policy": {"clockwork": {}},
    }
    with pytest.raises(ScenarioError, match=r"models\.0\.profile = .*unmeasured"):
        build_scenario(table)
    with pytest.raises(ProfileError, match="0 ns is not a duration"):
        Constant(0)


def test_bug_cor_26_with_fresh_information_nobody_herds() -> None:
    """4 GPUs, T = 10 ms, a request every ms from 0 to 39: 10 each, and the last ends at 103. The
    policy hears of each result at once, and reckons with what it has sent meanwhile."""
    chosen = policy("clockwork", faults=["load_satisfied"], schedule_ahead_ms=2e-6, future_ms=0.0)
    # Asked for at once by many, the model comes to all four, long before.
    warm = [(0.0, 0)] * 40
    world = run(
        chosen,
        [*warm, *((WARM_MS + ms, 0) for ms in range(40))],
        models=[model({1: 10.0})],
        gpus=4,
        slo_ms=1e6,
        end_s=2,
    )
    rows = [row for row in world.actions if row.type == "infer" and row.start_ns >= WARM_MS * MS]
    assert [sum(row.gpu == gpu for row in rows) for gpu in range(4)] == [10] * 4
    assert max(ends_ms(world)[39:]) == 103
