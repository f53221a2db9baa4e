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
        main(["validate", str(SCENARIO), "--repeats", "1", "--json", *settings,
              "--out", str(tmp_path / "v")])  # fmt: skip
    came = json.loads(capsys.readouterr().out)
    codes = {"trust": 0, "trust with care": 4, "do not trust": 5}
    assert end.value.code == codes[came["verdict"]] == came["exit_code"]
    exact = [check for check in came["checks"] if check["name"] in ("same arrivals", "replay")]
    assert [check["grade"] for check in exact] == ["good", "good"]


def test_the_simulation_has_delays_that_were_measured_in_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "duration_s=1", "--set", "warmup_s=0.2", "--set", "workload.0.rate_rps=50"]
    with pytest.raises(SystemExit):
        main(["validate", str(SCENARIO), "--repeats", "1", "--json", *settings,
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
