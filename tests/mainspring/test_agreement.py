"""Pairs of simulated runs stand for live and simulated: what differs between them is known."""

from pathlib import Path

import pytest

from mainspring import build_scenario, run
from mainspring.agreement import Check, Grade, compare, verdict

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
    checks = compare([live], simulated, free_core=True)
    assert verdict(checks) == ("trust", 0)
    assert grades(checks)["replay"] is Grade.GOOD


def test_a_device_slower_than_its_profile_is_named(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 12), run_one(tmp_path / "sim", 10)
    checks = compare([live], simulated, free_core=True)
    assert verdict(checks) == ("do not trust", 5)
    execution = next(check for check in checks if check.name == "execution of batch 1, ms")
    assert execution.difference == pytest.approx(0.2)
    assert "does not hold under load" in execution.advice


def test_two_saturated_servers_agree_with_care(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10, 140), run_one(tmp_path / "sim", 10, 140)
    assert verdict(compare([live], simulated, free_core=True)) == ("trust with care", 4)


def test_a_server_that_alone_falls_behind_is_a_wrong_model(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 16, 80), run_one(tmp_path / "sim", 10, 80)
    checks = compare([live], simulated, free_core=True)
    (backlog,) = (check for check in checks if check.name.startswith("growth"))
    assert backlog.grade is Grade.BAD
    assert "only the live server" in backlog.reason


def test_other_arrivals_are_no_comparison(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10, seed=2), run_one(tmp_path / "sim", 10)
    assert grades(compare([live], simulated, free_core=True))["same arrivals"] is Grade.BAD


def test_p99_is_only_shown_where_no_core_is_free(tmp_path: Path) -> None:
    live, simulated = run_one(tmp_path / "live", 10.5), run_one(tmp_path / "sim", 10)
    checks = compare([live], simulated, free_core=False)
    assert grades(checks)["latency p99, ms"] is Grade.SHOWN
