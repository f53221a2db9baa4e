"""`mainspring profile`: what it measures can be used at once."""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from executor.device import DeviceState
from executor.measure import Measured
from executor.models import Size
from mainspring import alone, load_scenario, profiling, run
from mainspring.cli import main
from mainspring.live import Box
from mainspring.profiling import complaint, runs_for, steadiness
from profiles import Constant, Profile, Samples, read

pytestmark = pytest.mark.usefixtures("without_pictures")

SCENARIO = """
name = "measured"
duration_s = 0.5
slo_ms = 100.0
[cluster]
pages = 4
memory = "contiguous"
engines = 1
[[models]]
profile = "mine.toml/mlp-tiny"
model = "mlp-tiny"
copies = 6
[[workload]]
kind = "poisson"
rate_rps = 100
[policy.edf]
"""

GUESSED = """
schema = 1
device = "none"
source = "guessed"
licence = "none"
[models.mlp-tiny]
weights_bytes = 33280
input_bytes = 256
output_bytes = 256
load_ms = 1.0
exec_ms = { 1 = 0.1 }
"""


def test_a_measured_profile_runs_in_simulation(tmp_path, capsys, monkeypatch):
    """The round trip: measure, name it in a scenario, run."""
    pytest.importorskip("torch", reason="needs torch: pip install 'mainspring[executor]'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["profile", "mlp-tiny", "-o", "mine.toml", "--batches", "1,2", "--quantile", "0.9",
              "--loads", "20", "--json"])  # fmt: skip
    assert not end.value.code
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["batch"], row["n"], row["quantile"]) for row in rows] == [
        (1, 100, 0.9), (2, 100, 0.9),
    ]  # fmt: skip
    (one,) = read(tmp_path / "mine.toml")
    assert one.weights_bytes == pytest.approx(4 * 2 * (64 * 64 + 64), rel=0.01)
    assert one.input_bytes == one.output_bytes == 4 * 64
    assert len(one.load.ns) == 20
    assert "nothing was left out" in one.note

    (tmp_path / "s.toml").write_text(SCENARIO)
    (came,) = run(load_scenario(tmp_path / "s.toml"), tmp_path / "out")
    assert came.summary.outcomes["ok"] > 20


def test_a_validation_measures_again_around_each_live_run(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch", reason="needs torch: pip install 'mainspring[executor]'")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(SCENARIO)
    (tmp_path / "mine.toml").write_text(GUESSED)
    asked = ["validate", "s.toml", "--loads", "own", "--repeats", "1", "--policy", "edf",
             "--out", "v", "--json"]  # fmt: skip
    slices = [tmp_path / "v" / f"alone-{i}.toml" for i in (1, 2)]
    live = tmp_path / "v" / "live-1" / "timings.json"

    def written():
        return [file.stat().st_mtime_ns for file in (slices[0], live, slices[1])]

    with pytest.raises(SystemExit) as end:
        main(asked)
    assert end.value.code in (0, 4, 5)
    times = written()
    assert times == sorted(times)
    checks = json.loads(capsys.readouterr().out)["checks"]
    alone_ns = [one.exec[1].ns for file in slices for one in read(file)]
    (execution,) = (check for check in checks if check["name"] == "execution of batch 1, ms")
    assert execution["simulated"] == pytest.approx(np.median(np.concatenate(alone_ns)) / 1e6)

    (drift,) = (check for check in checks if check["name"].startswith("batches alone"))
    medians = np.array([np.median(ns) for ns in alone_ns])
    drawn_ns = medians.mean() / drift["live"]  # the median of what the simulation drew
    (first,) = read(tmp_path / "v" / "profile.toml")
    assert min(first.exec[1].ns) - 1 <= drawn_ns <= max(first.exec[1].ns) + 1
    assert drift["spread"] * drawn_ns == pytest.approx(np.ptp(medians))

    page = (tmp_path / "v" / "validate.html").read_text()
    assert "have what they took alone around the live runs" in page

    live.unlink()  # as of one that was killed
    with pytest.raises(SystemExit):
        main(asked)
    assert written()[0] > times[0]
    assert written()[2] == times[2]


@pytest.mark.parametrize(
    ("rate_rps", "rest_s"), [(50, 0.0199), (5_000, 0.0001), (20_000, 0.0), (1, 0.1)]
)
def test_a_device_rests_as_in_the_live_run_but_not_for_ever(
    rate_rps, rest_s, tmp_path, monkeypatch
):
    """A batch takes 0.1 ms, by the profile that is there."""
    (tmp_path / "mine.toml").write_text(GUESSED)
    (tmp_path / "s.toml").write_text(SCENARIO.replace('"poisson"', '"constant"'))
    scenario = load_scenario(
        tmp_path / "s.toml", [f"workload.0.rate_rps={rate_rps}", "duration_s=2"]
    )
    asked = []

    def instead(*_, **options):
        asked.append(options["rest_s"])
        return [Profile("mlp-tiny", "d", 1, 1, 1, Constant(1), {1: Constant(1)}, "s", "l")]

    monkeypatch.setattr(profiling, "profile", instead)
    alone.measure_again(scenario, tmp_path / "alone.toml", Box(), None)
    assert asked == [pytest.approx(rest_s, rel=0.01)]


@pytest.fixture
def measured(monkeypatch):
    """Instead of a device: which models were measured, and what comes out."""
    asked = []

    def instead(name, batches, box, runs, loads, stop, rest_s):
        asked.append(name)
        if stop(0.5) and name == "b":
            return None
        times = Samples((1_000_000,) * runs)
        return Profile(name, "d", 1, 1, 1, Constant(1), dict.fromkeys(batches, times), "s", "l")

    monkeypatch.setattr(profiling, "_measured", instead)
    return asked


def measure(*models, out, **options):
    return profiling.profile(models, [1, 2], out, box=Box(), quantile=0.9, loads=1, **options)


def test_ctrl_c_keeps_what_is_there_and_add_goes_on(measured, tmp_path):
    out = tmp_path / "p.toml"

    def press(name, share):
        if name == "b":
            signal.raise_signal(signal.SIGINT)

    assert [one.name for one in measure("a", "b", "c", out=out, progress=press)] == ["a"]
    assert [one.name for one in read(out)] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]
    measured.clear()
    measure("a", "b", "c", out=out, add=True)
    assert measured == ["b", "c"]
    assert [one.name for one in read(out)] == ["a", "b", "c"]


def test_a_file_is_not_overwritten(measured, tmp_path, capsys):
    (tmp_path / "p.toml").write_text("mine")
    with pytest.raises(SystemExit) as end:
        main(["profile", "a", "-o", str(tmp_path / "p.toml")])
    assert end.value.code == 2
    assert "is there already; choose another name, or --add to it" in capsys.readouterr().err
    assert (tmp_path / "p.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batches", "1,x"], "--batches 1,x; expected whole numbers above 0, such as 1,2,4,8"),
        (["--batches", "0"], "--batches 0; expected whole numbers above 0"),
        (["-o", "p.csv"], "-o p.csv; expected a name that ends in .toml"),
        (["nope"], "nope: no model nope; expected one of spin, mlp"),
        (["spin"], "spin: it takes its profile's time; there is nothing to measure"),
    ],
)
def test_a_mistake_is_one_line(arguments, told, capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="needs torch: pip install 'mainspring[executor]'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["profile", *arguments])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith(f"mainspring: {told}")
    assert not list(Path().iterdir())


def test_the_count_that_a_quantile_needs():
    assert [runs_for(q) for q in (0.9, 0.99, 0.999, 0.9999)] == [100, 1_000, 10_000, 100_000]


@pytest.mark.parametrize(
    ("slow_ms", "predictable"), [(2.0, True), (2.4, True), (2.6, False), (20, False)]
)
def test_how_predictable_it_is_is_told_by_the_highest_quantile_there_is(slow_ms, predictable):
    """1,000 runs of 2 ms, of which the slowest 11 take longer: p99 is the slow end."""
    times = Samples((2_000_000,) * 989 + (round(slow_ms * 1e6),) * 11)
    one = Profile("m", "d", 1, 1, 1, Constant(1), {1: times})
    (came,) = steadiness([one])
    assert (came.n, came.median_ms, came.quantile) == (1_000, 2.0, 0.99)
    assert came.ratio == pytest.approx(slow_ms / 2)
    assert came.predictable is predictable


def test_what_is_shorter_than_a_message_does_not_matter():
    times = Samples((10_000,) * 900 + (50_000,) * 100)
    (came,) = steadiness([Profile("m", "d", 1, 1, 1, Constant(1), {1: times})])
    assert came.ratio == pytest.approx(5)
    assert came.predictable


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (DeviceState("d", 0, 0, 1_000, 50), ""),
        (DeviceState("d", 0, 0, 900, 50), "the clock changed by -10% meanwhile"),
        (DeviceState("d", 0, 0, 1_000, 90, "too hot"), "throttled: too hot"),
    ],
)
def test_a_device_that_was_slowed_down_is_noticed(after, told, monkeypatch):
    pytest.importorskip("torch", reason="needs torch: pip install 'mainspring[executor]'")
    before = DeviceState("d", 0, 0, 1_000, 50)
    came = Measured([5], {1: [7]}, before, after)
    monkeypatch.setattr(profiling, "measure", lambda *_: came)
    monkeypatch.setattr(profiling, "size_of", lambda *_: Size(40_000, 1, 1))
    one = profiling._measured("mlp-tiny", [1], Box(), 1, 1, lambda share: False)
    assert complaint(one) == told
