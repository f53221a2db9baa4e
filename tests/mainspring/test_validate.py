import json
import tomllib
from pathlib import Path

import pytest

from mainspring.cli import main

pytest.importorskip("zmq", reason="live runs need pip install 'mainspring[executor]'")
pytestmark = pytest.mark.usefixtures("without_pictures")
SCENARIO = Path(__file__).parents[2] / "scenarios" / "live.toml"


def test_validate_ends_with_the_code_of_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "duration_s=1", "--set", "warmup_s=0.2", "--set", "workload.0.rate_rps=50"]
    with pytest.raises(SystemExit) as end:
        main(["validate", str(SCENARIO), "--loads", "own", "--repeats", "1", "--json", *settings,
              "--out", str(tmp_path / "v")])  # fmt: skip
    came = json.loads(capsys.readouterr().out)
    codes = {"trust": 0, "trust with care": 4, "do not trust": 5}
    assert end.value.code == codes[came["verdict"]] == came["exit_code"]
    exact = [check for check in came["checks"] if check["name"] in ("same arrivals", "replay")]
    assert [check["grade"] for check in exact] == ["good", "good"]


def test_loads_are_shares_of_a_capacity_that_it_finds_and_the_page_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "duration_s=1", "--set", "warmup_s=0.2", "--set", "models.0.copies=2"]
    with pytest.raises(SystemExit):
        main(["validate", str(SCENARIO), "--loads", "0.1,0.2", "--repeats", "1", "--json",
              *settings, "--out", str(tmp_path / "v")])  # fmt: skip
    came = json.loads(capsys.readouterr().out)
    (capacity,) = came["capacities"]
    assert capacity["rps"] == max(goodput for _, goodput in capacity["tried"])
    assert {(check["policy"], check["load"]) for check in came["checks"]} == {
        ("clockwork", 0.1), ("clockwork", 0.2)
    }  # fmt: skip
    for load in (0.1, 0.2):
        folder = tmp_path / "v" / "clockwork" / f"{load:g}"
        for name in ("live-1", "simulated"):
            asked = tomllib.loads((folder / name / "scenario.toml").read_text())
            assert asked["workload"][0]["rate_rps"] == pytest.approx(
                load * capacity["rps"] * 250 / capacity["own_rps"]
            )
    page = (tmp_path / "v" / "validate.html").read_text()
    assert "clockwork at 20% of capacity" in page
    assert page.count("<svg") == 4
    assert json.loads((tmp_path / "v" / "validate.json").read_text()) == came


@pytest.mark.parametrize("loads", ["", "half", "0.5,0.5", "0,1", "nan"])
def test_loads_that_are_none_are_told(loads: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["validate", str(SCENARIO), "--loads", loads])
    assert end.value.code == 2
    assert f"--loads {loads}: expected different shares of capacity" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "fifo", "--policy", "nope"], "no policy nope"),
        (["--policy", "fifo", "--policy", "fifo"], "two policies have the label fifo"),
        (["--full", "--policy", "fifo"], "--full and --policy: give one of them"),
    ],
)
def test_a_wrong_policy_is_told_before_anything_runs(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["validate", str(SCENARIO), *options, "--out", str(tmp_path / "v")])
    assert message in capsys.readouterr().err
    assert not (tmp_path / "v").exists()


def test_the_simulation_has_delays_that_were_measured_in_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "duration_s=1", "--set", "warmup_s=0.2", "--set", "workload.0.rate_rps=50"]
    with pytest.raises(SystemExit):
        main(["validate", str(SCENARIO), "--loads", "own", "--repeats", "1", "--json", *settings,
              "--out", str(tmp_path / "v")])  # fmt: skip
    measured = json.loads(capsys.readouterr().out)["delays"]
    simulated, live, calibration = (
        tomllib.loads((tmp_path / "v" / name / "scenario.toml").read_text())
        for name in ("simulated", "live-1", "calibration")
    )
    given = measured["delays_us"]
    assert simulated["cluster"]["delays_us"] == given
    assert not any(live["cluster"]["delays_us"].values())
    assert calibration["seed"] == measured["seed"] != live["seed"] == simulated["seed"]
    assert tomllib.loads((tmp_path / "v" / "delays.toml").read_text())["delays_us"] == given
    assert measured["samples"]["controller_to_worker"] >= 10
    # Generous: a message takes some time, and less than a second on any machine.
    assert 0 < given["controller_to_worker"] < 1e6
    assert 0 < given["worker_to_controller"] + given["poll"] < 1e6
    assert all(0 <= us < 1e6 for us in given.values())
    assert all(us >= 0 for us in measured["over_us"].values())  # spinning never ends early
