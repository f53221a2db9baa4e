"""Runs: what they leave, that they can be repeated, and that Ctrl-C does no harm."""

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from mainspring import load_scenario, run
from mainspring.scenario import ScenarioError
from results import read_outcomes, read_summary


def test_several_policies_get_a_directory_each_and_a_picture_together(write):
    clockwork, fifo = run(load_scenario(write()), "out")

    assert (clockwork.label, fifo.label) == ("clockwork", "fifo")
    assert clockwork.summary.arrivals == fifo.summary.arrivals
    assert Path("out/comparison.png").is_file()
    assert Path("out/comparison.svg").is_file()
    for label in ("clockwork", "fifo"):
        assert read_outcomes(Path("out", label)).num_rows > 300
        assert Path("out", label, "overview.png").is_file()
        assert Path("out", label, "timeline.png").is_file()


def test_one_policy_goes_straight_into_the_directory(write, without_pictures):
    (only,) = run(load_scenario(write(), ["seed=5"]), "out", ["clockwork"])

    assert read_summary(Path("out")) == only.summary
    record = json.loads(Path("out/run.json").read_text())
    assert (record["seed"], record["overrides"]) == (5, ["seed=5"])
    assert record["policies"] == ["clockwork"]


def test_a_directory_of_a_run_runs_again_with_the_same_digest(write, without_pictures):
    first = run(load_scenario(write(), ["seed=7"]), "out")
    (again,) = run(load_scenario("out/clockwork"), "again")
    assert again.summary.digest == first[0].summary.digest
    assert first[0].summary.digest != first[1].summary.digest

    both = run(load_scenario("out"), "both_again")
    assert [each.summary.digest for each in both] == [each.summary.digest for each in first]


def test_a_directory_that_is_not_empty_is_left_alone(write):
    scenario = load_scenario(write())
    Path("out").mkdir()
    Path("out/thesis.txt").write_text("mine")
    with pytest.raises(ScenarioError, match="out is not empty; choose another --out, or remove it"):
        run(scenario, "out")
    assert [path.name for path in Path("out").iterdir()] == ["thesis.txt"]


def test_ctrl_c_ends_the_run_early_and_keeps_what_there_is(write, without_pictures):
    def interrupt(label, share):
        if share > 0.4:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    (clockwork,) = run(load_scenario(write()), "out", progress=interrupt)  # fifo was not begun

    assert clockwork.label == "clockwork"
    assert clockwork.summary.interrupted
    assert 0 < clockwork.summary.arrivals < 400
    assert read_summary(Path("out/clockwork")) == clockwork.summary
    assert signal.getsignal(signal.SIGINT) is before


def test_progress_is_reported_and_changes_nothing(write, without_pictures):
    seen = []
    scenario = load_scenario(write())
    (watched,) = run(scenario, "a", ["fifo"], lambda label, share: seen.append((label, share)))
    (unwatched,) = run(scenario, "b", ["fifo"])
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert watched.summary.digest == unwatched.summary.digest


# ---- what public reports say has gone wrong elsewhere

FIXED = """\
schema = 1
device = "none"
source = "invented"
licence = "none"

[models.fixed]
weights_bytes = 1
input_bytes = 1
output_bytes = 1
load_ms = 0.000001
exec_ms = {{ 1 = {exec_ms} }}
"""


def closed_loop(write, exec_ms: float, clients: int, duration_s: float) -> Path:
    """One model that always takes so long, and clients that wait for their answers."""
    Path("fixed.toml").write_text(FIXED.format(exec_ms=exec_ms))
    return write(
        ('"clockwork_v100/resnet50_v2"\ncopies = 3', '"fixed.toml/fixed"'),
        ('"poisson"\nrate_rps = 200', f'"closed"\nconcurrency = {clients}'),
        ("duration_s = 2.0", f"duration_s = {duration_s}"),
        ("warmup_s = 0.5", ""),
        ("slo_ms = 100.0", ""),
        ("[policy.clockwork]", ""),
    )


def test_bug_rep_10_no_more_is_counted_than_the_window_can_hold(write, without_pictures):
    """One client, 4 s an answer, a window of 12 s: three requests, 0.25 a second."""
    (only,) = run(load_scenario(closed_loop(write, 4_000, clients=1, duration_s=12.1)), "out")
    ends = [ns / 1e9 for ns in only.outcomes()["end_ns"].to_pylist() if ns < 12_100_000_000]
    assert ends == pytest.approx([4, 8, 12], abs=1e-3)
    assert only.summary.completed_rps == pytest.approx(3 / 12.1)


def test_bug_cli_06_clients_are_never_more_than_there_are(write, without_pictures):
    """Four clients, 100 ms an answer, 10 s: 100 answers, 400 ms each once all four wait."""
    (only,) = run(load_scenario(closed_loop(write, 100, clients=4, duration_s=10)), "out")
    outcomes = only.outcomes().to_pylist()
    in_time = [row for row in outcomes if row["end_ns"] <= 10_001_000_000]
    assert len(in_time) == 100
    later = [row["end_ns"] - row["arrival_ns"] for row in in_time[10:]]
    assert later == pytest.approx([400_000_000] * 90, abs=10_000)
    for row in outcomes:
        under_way = [r for r in outcomes if r["arrival_ns"] <= row["arrival_ns"] < r["end_ns"]]
        assert len(under_way) <= 4


def test_bug_rep_14_a_run_in_which_nothing_completed_is_a_result(write, without_pictures):
    changes = [("duration_s = 2.0", "duration_s = 0.005\ndrain_s = 0"), ("warmup_s = 0.5", "")]
    scenario = load_scenario(write(*changes, ("rate_rps = 200", "rate_rps = 2000")))
    (only,) = runs = run(scenario, "out", ["fifo"])
    assert only.summary.arrivals > 0
    assert (only.summary.goodput_rps, only.summary.latency.n) == (0.0, 0)
    (found,) = json.loads(runs.to_json())
    assert set(found["latency"]["quantiles_ms"].values()) == {None}
    assert "n too small" in repr(runs)


def test_bug_rep_16_a_policy_against_itself_differs_by_nothing(write, without_pictures):
    """Under two names and one seed; that over unpaired seeds waits for runs over seeds."""
    scenario = write(("[policy.fifo]", '[policy.again]\nname = "clockwork"'))
    first, again = run(load_scenario(scenario), "out").summaries
    assert again == msgspec.structs.replace(
        first, name="again", about=first.about | {"policy": "clockwork"}
    )
