"""Runs: what they leave, that they can be repeated, and that Ctrl-C does no harm."""

import json
import os
import signal
from pathlib import Path

import pytest

from mainspring import load_scenario, run
from mainspring.scenario import ScenarioError
from results import read_outcomes, read_summary


def test_several_policies_get_a_directory_each_and_a_picture_together(write):
    summaries = run(load_scenario(write()), "out")

    assert [summary.name for summary in summaries] == ["clockwork", "fifo"]
    assert summaries[0].arrivals == summaries[1].arrivals
    assert Path("out/comparison.png").is_file()
    assert Path("out/comparison.svg").is_file()
    for label in ("clockwork", "fifo"):
        assert read_outcomes(Path("out", label)).num_rows > 300
        assert Path("out", label, "overview.png").is_file()
        assert Path("out", label, "timeline.png").is_file()


def test_one_policy_goes_straight_into_the_directory(write, without_pictures):
    (summary,) = run(load_scenario(write(), ["seed=5"]), "out", ["clockwork"])

    assert read_summary(Path("out")) == summary
    record = json.loads(Path("out/run.json").read_text())
    assert (record["seed"], record["overrides"]) == (5, ["seed=5"])
    assert record["policies"] == ["clockwork"]


def test_a_directory_of_a_run_runs_again_with_the_same_digest(write, without_pictures):
    first = run(load_scenario(write(), ["seed=7"]), "out")
    (again,) = run(load_scenario("out/clockwork"), "again")
    assert again.digest == first[0].digest
    assert first[0].digest != first[1].digest

    both = run(load_scenario("out"), "both_again")
    assert [summary.digest for summary in both] == [summary.digest for summary in first]


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
    summaries = run(load_scenario(write()), "out", progress=interrupt)

    assert [summary.name for summary in summaries] == ["clockwork"]  # fifo was not begun
    assert summaries[0].interrupted
    assert 0 < summaries[0].arrivals < 400
    assert read_summary(Path("out/clockwork")) == summaries[0]
    assert signal.getsignal(signal.SIGINT) is before


def test_progress_is_reported_and_changes_nothing(write, without_pictures):
    seen = []
    scenario = load_scenario(write())
    (watched,) = run(scenario, "a", ["fifo"], lambda label, share: seen.append((label, share)))
    (unwatched,) = run(scenario, "b", ["fifo"])
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert watched.digest == unwatched.digest
