import json
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from mainspring import alone, load_scenario
from mainspring.cli import main
from mainspring.delays import MeasuredDelays, summed_up
from mainspring.live import TIMINGS
from mainspring.scenario import ClusterSpec, DelaysUs, Scenario
from mainspring.validate import validate_loads

pytest.importorskip("zmq", reason="live runs need pip install 'mainspring[executor]'")
from executor.timed import Timings

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
        for name in ("live-1", "simulated-1"):
            asked = tomllib.loads((folder / name / "scenario.toml").read_text())
            assert asked["workload"][0]["rate_rps"] == pytest.approx(
                load * capacity["rps"] * 250 / capacity["own_rps"]
            )
    page = (tmp_path / "v" / "validate.html").read_text()
    assert "what they took alone" not in page
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


def test_a_simulation_has_delays_that_were_measured_in_other_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--set", "duration_s=1", "--set", "warmup_s=0.2", "--set", "workload.0.rate_rps=50"]
    with pytest.raises(SystemExit):
        main(["validate", str(SCENARIO), "--loads", "own", "--repeats", "2", "--json", *settings,
              "--out", str(tmp_path / "v")])  # fmt: skip
    (measured,) = json.loads(capsys.readouterr().out)["delays"]
    names = ("live-1", "live-2", "simulated-1", "simulated-2", "calibration")
    first, second, one, two, calibration = (
        tomllib.loads((tmp_path / "v" / name / "scenario.toml").read_text()) for name in names
    )
    assert calibration["seed"] != first["seed"] == second["seed"] == one["seed"] == two["seed"]
    for live in (first, second, calibration):
        assert not any(live["cluster"]["delays_us"].values())

    given = [each["cluster"]["delays_us"]["worker_to_controller"] for each in (one, two)]
    took = [
        msgspec.json.decode((tmp_path / "v" / name / TIMINGS).read_bytes(), type=Timings).back
        for name in ("live-1", "live-2")
    ]
    assert measured["samples"]["worker_to_controller"] == sum(map(len, took)) >= 20
    for us, ns in zip(given, reversed(took), strict=True):  # each has the other's
        assert len(us) == min(50, len(ns))
        assert us == sorted(us)
        # Groups differ by one in size; the lowest and highest are means of what they hold.
        assert min(ns) / 1e3 - 0.1 <= us[0] <= us[-1] <= max(ns) / 1e3 + 0.1
    told = tomllib.loads((tmp_path / "v" / "delays.toml").read_text())
    assert told["delays_us"] == {
        name: us for name, us in measured["delays_us"].items() if us is not None
    }
    # Generous: a message takes some time, and less than a second on any machine.
    for name in ("client_to_controller", "controller_to_worker", "worker_to_controller"):
        assert all(0 < us < 1e6 for us in measured["delays_us"][name])


@pytest.mark.parametrize(("measured", "stretch"), [(True, 1.0), (False, 1.3)])
def test_capacity_is_that_of_a_device_which_never_rests(
    measured: bool, stretch: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its profile was; of one from elsewhere only the calibration says how it is here."""
    module = sys.modules["mainspring.validate"]
    calibrated = MeasuredDelays("made up", DelaysUs(wake=5.0), {}, stretch=1.3)
    asked: list[ClusterSpec] = []

    def instead(scenario: Scenario, *_: object) -> None:
        asked.append(scenario.spec.cluster)
        raise KeyboardInterrupt

    monkeypatch.setattr(alone, "measure", lambda scenario, *_, **__: scenario)
    monkeypatch.setattr(module, "measure_delays", lambda *_: (calibrated, Timings()))
    monkeypatch.setattr(module, "find_capacity", instead)
    with pytest.raises(KeyboardInterrupt):
        validate_loads(load_scenario(SCENARIO), tmp_path / "v", measured=measured)
    (cluster,) = asked
    assert (cluster.stretch, cluster.delays_us.wake) == (stretch, 5.0)


def test_a_spread_keeps_the_mean_of_what_was_measured() -> None:
    back = [1_000 * i for i in range(1, 101)]
    spread = summed_up([Timings(back=back), Timings(back=[1] * 50)], "made up").delays_us
    assert isinstance(spread.worker_to_controller, list)
    assert spread.worker_to_controller[:2] == [1.5, 3.5]
    assert sum(spread.worker_to_controller) / 50 == pytest.approx(50.5)
    assert spread.worker_gap == 0
    assert spread.load_to_controller is None


def test_results_of_loads_are_told_apart_where_there_are_enough() -> None:
    given = Timings(back=[5_000] * 10, back_loads=[1_000] * 10)
    spread = summed_up([given], "made up").delays_us
    assert (spread.worker_to_controller, spread.load_to_controller) == ([5.0] * 10, [1.0] * 10)
    given.add(Timings(back_loads=[3_000] * 10))
    told = summed_up([given], "made up")
    assert told.delays_us.load_to_controller == [1.0] * 10 + [3.0] * 10
    assert told.samples["load_to_controller"] == 20


def test_what_a_run_has_too_little_of_comes_of_the_next() -> None:
    few, enough = Timings(gap=[5_000] * 9), Timings(gap=[7_000] * 10)
    came = summed_up([few, enough], "made up")
    assert came.delays_us.worker_gap == [7.0] * 10
    assert came.samples == {"worker_gap": 10}


def test_batches_of_varying_profiles_are_stretched_by_what_they_took_together(
    tmp_path: Path,
) -> None:
    few = Timings(ran=9, ran_ns=90, said_ns=9.0)
    enough = Timings(ran=10, ran_ns=1_100, said_ns=1_000.0)
    came = summed_up([few, enough], "made up")
    assert (came.stretch, came.samples["stretch"]) == (1.1, 10)
    assert "batches take 1.100 times what their profiles say" in repr(came)
    enough.add(Timings(ran=10, ran_ns=1_000, said_ns=1_000.0))
    assert summed_up([enough], "made up").stretch == 1.05
    assert summed_up([few], "made up").stretch == 1
