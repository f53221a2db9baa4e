"""GPUs whose times vary and whose clock changes, and what Clockwork makes of them."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from mainspring import build_scenario
from mainspring.document import ScenarioError
from mainspring.world import build_world
from profiles.durations import Quantiles
from scheduler.records import NOMINAL_MHZ, Outcome
from scheduler.view import EngineView
from sim.gpu import SimGpu
from sim.varying import V100, VaryingGpu
from tests.worlds import MS, Sink, World, model, policy, run


def world(clocks: list[tuple[int, int]], arrivals: list[float], **params: Any) -> World:
    kind = partial(VaryingGpu, clocks=clocks)
    return run(policy("clockwork", **params), [(ms, 0) for ms in arrivals], gpu_kind=kind, end_s=9)


def batches(world: World) -> list[Any]:
    return [row for row in world.actions if row.type == "infer"]


def table(**cluster: Any) -> dict[str, Any]:
    return {
        "name": "noisy",
        "duration_s": 4.0,
        "slo_ms": 100.0,
        "cluster": {"pages": 1376, "gpus": 2} | cluster,
        "models": [{"profile": "clockwork_docs/resnet50_v2", "copies": 4}],
        "workload": [{"kind": "poisson", "rate_rps": 500}],
        "policy": {"clockwork": {}},
    }


def played(**cluster: Any) -> Sink:
    scenario = build_scenario(table(**cluster))
    sink = Sink()
    built = build_world(scenario, scenario.policies[0].build(), sink)
    built.run(4 * 10**9, 10**9)
    return sink


def test_a_batch_takes_its_time_at_the_nominal_clock_and_a_load_knows_no_clock() -> None:
    """2.73 ms at 1380 MHz are 5.46 ms at 690; 8.31 ms of copying stay."""
    rows = world([(50 * MS, 690)], [0, 60]).actions
    assert [(row.type, row.duration_ns, row.clock_mhz) for row in rows] == [
        ("load", 8_310_000, NOMINAL_MHZ),
        ("infer", 2_730_000, NOMINAL_MHZ),
        ("infer", 5_460_000, 690),
    ]


def test_the_estimate_follows_the_clock_from_the_first_result_on() -> None:
    """What was measured at one clock is right at another: no need to measure anew."""
    rows = batches(world([(50 * MS, 690), (250 * MS, 1380)], [0, 100, 200, 300, 400]))
    assert [row.expected_ns / MS for row in rows] == [2.73, 2.73, 5.46, 5.46, 2.73]
    assert [row.duration_ns / MS for row in rows] == [2.73, 5.46, 5.46, 2.73, 2.73]


def test_what_is_outstanding_is_reckoned_anew_when_the_clock_changes() -> None:
    """Two batches of 2.73 were sent at 1380 MHz; the first comes back from 690: the second is
    expected to take 5.46 from then on, so the engine is free 5.46 after it."""
    engine = EngineView(future_ns=0, lag_ns=10 * MS)
    engine.add(0, 1, 2_730_000)
    engine.add(0, 2, 2_730_000)
    engine.remove(1, 5_460_000)
    engine.rescale(1380, 690)
    assert engine.end_ns == 5_460_000 + 5_460_000
    engine.remove(2, 10_920_000)
    assert engine.end_ns == 10_920_000


@pytest.mark.parametrize("variant", ["infer4", "infer5"])
def test_a_slow_gpu_is_given_what_it_can_do_in_time(variant: str) -> None:
    """At half the clock two batches of 8, of 19.86 ms, fit in 45 ms; at the nominal clock all 24
    would. Estimated at the clock there are no late answers and no missed windows."""
    rows = world(
        [(50 * MS, 690)], [0, 60, *([100.0] * 24)], variant=variant, max_batch=8,
    )  # fmt: skip
    slow = [row for row in batches(rows) if row.start_ns >= 100 * MS]
    assert all(row.expected_ns == row.duration_ns for row in slow)
    assert not rows.sink.ended(Outcome.LATE)


def test_estimates_are_of_each_gpu_by_its_own_clock() -> None:
    kinds = [VaryingGpu, partial(VaryingGpu, clocks=[(0, 690)])]
    done = run(
        policy("clockwork", faults=["load_satisfied"]),
        [(ms * 2.0, 0) for ms in range(400)],
        gpus=2,
        gpu_kind=kinds,
    )
    late = [row for row in batches(done) if row.start_ns > 200 * MS]
    assert {(row.gpu, row.batch, row.expected_ns == row.duration_ns) for row in late} >= {
        (0, 1, True),
        (1, 1, True),
    }
    assert all(row.expected_ns == row.duration_ns for row in late)


def test_noise_is_that_of_an_exclusive_v100() -> None:
    took = np.array([row.duration_ns for row in played(noise="v100").actions if row.batch == 1])
    off = took / (2.73 * MS) - 1
    assert len(took) > 1000
    assert np.abs(off).max() <= 3.0001e-4
    assert abs(np.median(off)) < 1e-5
    assert np.quantile(off, 0.9) == pytest.approx(1.034e-4, rel=0.15)


def test_quantiles_of_the_noise_are_quantiles() -> None:
    for factors in V100:
        assert list(factors.shares) == sorted(factors.shares)
        assert list(factors.factors) == sorted(factors.factors)
        assert factors.factors[factors.shares.index(0.5)] == 1


def test_without_noise_nothing_changes_and_a_further_gpu_changes_no_other_noise() -> None:
    """Clocks that are nominal make the varying GPU the plain one, action by action."""
    plain = played()
    assert played(clocks=[{"mhz": NOMINAL_MHZ}]).actions == plain.actions
    assert played(noise="v100").actions != plain.actions
    assert played(noise="v100").actions == played(noise="v100").actions


def test_a_profile_with_a_distribution_of_its_own_gets_no_noise() -> None:
    """Of requests far apart: the load, a constant, is spread; the batches are not."""
    spec = model()._replace(exec={1: Quantiles((0.0, 1.0), (2 * MS, 4 * MS))})
    noisy = partial(VaryingGpu, noise=V100, noise_rngs=[np.random.default_rng(i) for i in (1, 2)])
    arrivals = [(ms * 50.0, 0) for ms in range(20)]
    (load, *took), (noisy_load, *noisy_took) = (
        [
            row.duration_ns
            for row in run("clockwork", arrivals, models=[spec], gpu_kind=kind).actions
        ]
        for kind in (SimGpu, noisy)
    )
    assert noisy_took == took
    assert len(set(took)) == 20
    assert noisy_load != load


def test_clocks_of_gpus_that_are_not_there_and_noise_of_shared_ones_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"cluster\.clocks\.0\.gpu = 2; expected a GPU from 0"):
        build_scenario(table(clocks=[{"gpu": 2, "mhz": 1200}]))
    with pytest.raises(ScenarioError, match=r"cluster\.noise: is for GPUs with one lane"):
        build_scenario(table(lanes=2, noise="v100"))
