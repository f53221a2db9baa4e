"""Pairs of simulated runs stand for live and simulated: what differs between them is known."""

from pathlib import Path

import msgspec
import pytest

from executor.watch import Span, Watched
from mainspring import build_scenario, run
from mainspring.agreement import Check, Grade, compare, verdict
from mainspring.live import LIVE, Punctuality
from results import read_summary

pytestmark = pytest.mark.usefixtures("without_pictures")

PROFILE = """\
schema = 1
device = "box"
source = "made up"
licence = "none"
[models.m]
weights_bytes = 1000
input_bytes = 0
output_bytes = 0
load_ms = 1.0
exec_ms = { 1 = 10.0 }
"""


def run_one(out: Path, exec_ms: float, rate_rps: float = 60, seed: int = 1) -> Path:
    profile = out.parent / f"{out.name}.toml"
    profile.write_text(PROFILE.replace("10.0", str(exec_ms)))
    table = {
        "name": out.name, "seed": seed, "duration_s": 8.0, "warmup_s": 1.0, "drain_s": 30.0,
        "slo_ms": 200.0, "cluster": {"pages": 4}, "models": [{"profile": f"{profile}/*"}],
        "workload": [{"kind": "poisson", "rate_rps": rate_rps}], "policy": {"fifo": {}},
    }  # fmt: skip
    run(build_scenario(table), out, journal=True)
    return out


def grades(checks: list[Check]) -> dict[str, Grade]:
    return {check.name: check.grade for check in checks}


def test_equal_runs_are_to_be_trusted(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10), run_one(tmp_path / "sim", 10)
    checks = compare([live], [simulated], free_core=True)
    assert verdict(checks) == ("trust", 0)
    assert grades(checks)["replay"] is Grade.GOOD


def test_a_device_slower_than_its_profile_is_named(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 12), run_one(tmp_path / "sim", 10)
    checks = compare([live], [simulated], free_core=True)
    assert verdict(checks) == ("do not trust", 5)
    execution = next(check for check in checks if check.name == "execution of batch 1, ms")
    assert execution.difference == pytest.approx(0.2)
    assert "profile does not hold under load" in execution.reason


def test_two_saturated_servers_agree_with_care(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10, 140), run_one(tmp_path / "sim", 10, 140)
    assert verdict(compare([live], [simulated], free_core=True)) == ("trust with care", 4)


def test_a_server_that_alone_falls_behind_is_a_wrong_model(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 16, 80), run_one(tmp_path / "sim", 10, 80)
    checks = compare([live], [simulated], free_core=True)
    (backlog,) = (check for check in checks if check.name.startswith("growth"))
    assert backlog.grade is Grade.BAD
    assert "only the live server" in backlog.reason


def test_a_server_at_the_edge_of_saturation_is_no_wrong_model(tmp_path: Path) -> None:
    """1% slower: on one side of the limit live, on the other in simulation."""
    live, simulated = run_one(tmp_path / "live", 10.1, 104), run_one(tmp_path / "sim", 10, 104)
    checks = compare([live], [simulated], free_core=True, policy="fifo", load=1.3)
    (backlog,) = (check for check in checks if check.name.startswith("growth"))
    assert backlog.live is not None
    assert backlog.simulated is not None
    assert backlog.live > 0.05 > backlog.simulated
    assert backlog.grade is Grade.GOOD


def test_two_servers_that_fall_behind_at_different_rates_are_told_apart(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 12, 140), run_one(tmp_path / "sim", 10, 140)
    checks = compare([live], [simulated], free_core=True, policy="fifo", load=1.3)
    (backlog,) = (check for check in checks if check.name.startswith("growth"))
    assert backlog.grade is Grade.BAD
    assert "not equally fast" in backlog.reason
    assert grades(checks)["answers, 1/s"] is Grade.BAD


def test_several_simulations_count_by_their_mean(tmp_path: Path) -> None:
    live = run_one(tmp_path / "live", 10)
    simulated = [run_one(tmp_path / f"sim-{ms}", ms) for ms in (9.5, 10.5)]
    checks = compare([live], simulated, free_core=True)
    (execution,) = (check for check in checks if check.name == "execution of batch 1, ms")
    assert execution.simulated == pytest.approx(10)


def test_a_load_beyond_capacity_is_saturated_as_was_asked_for(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10, 140), run_one(tmp_path / "sim", 10, 140)
    checks = compare([live], [simulated], free_core=True, policy="fifo", load=1.3)
    assert verdict(checks) == ("trust", 0)
    assert {(check.policy, check.load) for check in checks} == {("fifo", 1.3)}


def test_a_spread_of_repeats_that_is_wider_than_the_tolerance_is_what_is_allowed(
    tmp_path: Path,
) -> None:
    live = [run_one(tmp_path / f"live-{ms}", ms) for ms in (9.2, 11.2)]
    checks = compare(live, [run_one(tmp_path / "sim", 10)], free_core=True)
    (p50,) = (check for check in checks if check.name == "latency p50, ms")
    assert p50.spread is not None
    assert p50.spread > 0.05
    assert p50.tolerance == p50.spread
    assert p50.low is not None
    assert p50.live is not None
    assert p50.low < p50.live


def ten_models(out: Path, exec_ms: float) -> Path:
    """100 requests, each alone on the engine; 7 of the 10 models have more time than the others."""
    profile = out.parent / f"{out.name}.toml"
    one = PROFILE.replace("10.0", str(exec_ms))
    profile.write_text(one + one[one.index("[models.m]") :].replace("models.m", "models.hasty"))
    models = [
        {"profile": f"{profile}/{name}", "copies": copies, "slo_ms": slo_ms}
        for name, copies, slo_ms in (("m", 7, 2000.0), ("hasty", 3, 1200.0))
    ]
    table = {
        "name": out.name, "seed": 1, "duration_s": 400.0, "warmup_s": 0.0, "drain_s": 30.0,
        "cluster": {"pages": 20}, "models": models,
        "workload": [{"kind": "constant", "rate_rps": 0.25, "weights": "turns"}],
        "policy": {"fifo": {}},
    }  # fmt: skip
    run(build_scenario(table), out, journal=True)
    return out


def test_bug_exe_11_what_was_admitted_is_not_goodput_and_the_profile_does_not_hold(
    tmp_path: Path,
) -> None:
    """BUG-EXE-11: 100 admitted and 70 in time; 0.96 s predicted and 1.5 s measured."""
    live, simulated = ten_models(tmp_path / "live", 1500.0), ten_models(tmp_path / "sim", 960.0)
    summary = read_summary(live)
    assert (summary.arrivals, summary.slo_in_time) == (100, 70)
    for load in (0.5, 0.9):
        checks = compare([live], [simulated], free_core=True, policy="fifo", load=load)
        (execution,) = (check for check in checks if check.name == "execution of batch 1, ms")
        assert execution.load == load
        assert execution.difference == pytest.approx(1.5 / 0.96 - 1)
        assert execution.tolerance == 0.10
        assert execution.reason.startswith("the profile does not hold under load: +56")
        attainment = next(check for check in checks if check.name.startswith("attainment"))
        assert (attainment.live, attainment.simulated) == (0.7, 1.0)
        assert verdict(checks) == ("do not trust", 5)


def test_goodput_that_the_simulation_does_not_have_at_all_is_judged(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10), run_one(tmp_path / "sim", 300)
    checks = compare([live], [simulated], free_core=True)
    assert next(check for check in checks if check.name.startswith("goodput")).simulated == 0
    assert grades(checks)["goodput, 1/s"] is Grade.BAD
    both = compare([simulated], [simulated], free_core=True)
    assert grades(both)["goodput, 1/s"] is Grade.GOOD


def test_other_arrivals_are_no_comparison(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10, seed=2), run_one(tmp_path / "sim", 10)
    assert grades(compare([live], [simulated], free_core=True))["same arrivals"] is Grade.BAD


def test_p99_is_only_shown_where_no_core_is_free(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10.5), run_one(tmp_path / "sim", 10)
    checks = compare([live], [simulated], free_core=False)
    assert grades(checks)["latency p99, ms"] is Grade.SHOWN


def test_executions_are_held_against_the_profile_whatever_the_simulation_was_stretched_by(
    tmp_path: Path,
) -> None:
    live, simulated = run_one(tmp_path / "live", 12), run_one(tmp_path / "sim", 12)
    checks = compare([live], [simulated], free_core=True, stretches=[1.2])
    (execution,) = (check for check in checks if check.name == "execution of batch 1, ms")
    assert execution.simulated == pytest.approx(10)
    assert execution.grade is Grade.BAD


def test_a_machine_that_was_slower_alone_in_the_same_minutes_is_no_fault_of_the_profile(
    tmp_path: Path,
) -> None:
    live, simulated = run_one(tmp_path / "live", 12), run_one(tmp_path / "sim", 12)
    alone = [{1: {"m": [11_900_000.0] * 5}}, {1: {"m": [12_100_000.0] * 5}}]
    checks = compare([live], [simulated], free_core=True, stretches=[1.2], alone=alone)
    (execution,) = (check for check in checks if check.name == "execution of batch 1, ms")
    assert execution.simulated == pytest.approx(12)
    assert execution.grade is Grade.GOOD
    assert execution.tolerance == 0.10
    (drift,) = (check for check in checks if check.name.startswith("batches alone"))
    assert drift.live == pytest.approx(1.2)
    assert drift.spread == pytest.approx(0.02)
    assert drift.grade is Grade.SHOWN
    assert verdict(checks) == ("trust", 0)


@pytest.mark.parametrize(
    ("alone_ms", "tolerance", "grade"),
    [([10, 10], 0.10, Grade.BAD), ([9, 11], 0.20, Grade.GOOD), ([9.5, 10.5], 0.10, Grade.BAD)],
)
def test_a_live_run_may_be_off_by_what_the_machine_alone_was_apart(
    alone_ms: list[float], tolerance: float, grade: Grade, tmp_path: Path
) -> None:
    live, simulated = run_one(tmp_path / "live", 11.5), run_one(tmp_path / "sim", 11.5)
    checks = compare(
        [live], [simulated], free_core=True, stretches=[1.15],
        alone=[{1: {"m": [1e6 * ms] * 4}} for ms in alone_ms],
    )  # fmt: skip
    (execution,) = (check for check in checks if check.name == "execution of batch 1, ms")
    assert execution.difference == pytest.approx(0.15)
    assert execution.tolerance == pytest.approx(tolerance)
    assert execution.grade is grade


def test_a_batch_size_that_was_rare_is_only_shown(tmp_path: Path) -> None:
    live, simulated = (run_one(tmp_path / name, ms, 1) for name, ms in (("live", 12), ("sim", 10)))
    (execution,) = (
        check
        for check in compare([live], [simulated], free_core=True)
        if check.name == "execution of batch 1, ms"
    )
    assert execution.difference == pytest.approx(0.2)
    assert execution.grade is Grade.SHOWN


def test_executions_are_weighed_alike_where_the_worlds_ran_other_models(tmp_path: Path) -> None:
    """Which model gets a batch of some size depends on chance, and is no fault of the profile."""

    def mixed(out: Path, weights: list[float]) -> Path:
        profile = tmp_path / f"{out.name}.toml"
        slow = PROFILE[PROFILE.index("[models.m]") :].replace("10.0", "20.0")
        profile.write_text(PROFILE + slow.replace("models.m", "models.slow"))
        table = {
            "name": out.name, "seed": 1, "duration_s": 8.0, "warmup_s": 1.0, "drain_s": 30.0,
            "slo_ms": 200.0, "cluster": {"pages": 4}, "policy": {"fifo": {}},
            "models": [{"profile": f"{profile}/{name}"} for name in ("m", "slow")],
            "workload": [{"kind": "poisson", "rate_rps": 20, "weights": weights}],
        }  # fmt: skip
        run(build_scenario(table), out, journal=True)
        return out

    checks = compare(
        [mixed(tmp_path / "live", [0.8, 0.2])], [mixed(tmp_path / "sim", [0.2, 0.8])],
        free_core=True,
    )  # fmt: skip
    (execution,) = (check for check in checks if check.name == "execution of batch 1, ms")
    assert execution.live == execution.simulated == pytest.approx(12, abs=0.5)


def told(run: Path, *devices: Watched) -> Path:
    """The run with what a live one leaves beside its results."""
    punctuality = Punctuality(0, {}, {}, {}, [], [], 0, devices=list(devices))
    (run / LIVE).write_bytes(msgspec.json.encode(punctuality))
    return run


@pytest.mark.parametrize(
    ("devices", "clock", "slowed"),
    [
        ([Watched(9, Span(1_900, 1_980, 1_980))], Grade.GOOD, Grade.GOOD),
        ([Watched(9, Span(1_980, 1_980, 1_980)), Watched(9, Span(1_800, 1_980, 1_980))],
         Grade.CARE, Grade.GOOD),
        ([Watched(9, Span(1_980, 1_980, 1_980), throttled={"power limit": 1})],
         Grade.GOOD, Grade.CARE),
        ([Watched(9, throttled={"power limit": 1})], None, Grade.CARE),
        ([Watched(9)], None, None),
    ],
)  # fmt: skip
def test_a_device_that_is_not_steady_is_trusted_with_care(
    tmp_path: Path, devices: list[Watched], clock: Grade | None, slowed: Grade | None
) -> None:
    live, simulated = run_one(tmp_path / "live", 10), run_one(tmp_path / "sim", 10)
    checks = compare([told(live, *devices)], [simulated], free_core=False)

    assert grades(checks).get("change of a device's clock") is clock
    assert grades(checks).get("looks at which a device was slowed down, share") is slowed
    cared = Grade.CARE in (clock, slowed)
    assert verdict(checks)[0] == ("trust with care" if cared else "trust")
    assert all(check.reason and check.advice for check in checks if check.grade is Grade.CARE)
