"""Finished runs side by side: what `mainspring report` and a notebook see."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from mainspring import load_runs, load_scenario, run
from results import ResultsError


@pytest.fixture(name="runs")
def two_runs(write, without_pictures):
    """The small scenario's two policies, in out/clockwork and out/fifo."""
    return run(load_scenario(write()), "out")


def test_runs_are_found_by_position_and_by_label(runs):
    assert runs[0] is runs["clockwork"]
    assert [each.label for each in runs[1:]] == ["fifo"]
    with pytest.raises(KeyError, match="no run lifo; have clockwork, fifo"):
        runs["lifo"]


def test_a_directory_of_several_policies_stands_for_all_of_its_runs(runs):
    found = load_runs("out")
    assert [(each.label, each.directory) for each in found] == [
        ("clockwork", Path("out/clockwork")),
        ("fifo", Path("out/fifo")),
    ]
    assert found.summaries == runs.summaries


def test_one_run_of_several_may_be_named_alone(runs):
    (only,) = load_runs("out/fifo")
    assert only == runs["fifo"]


def test_runs_of_one_name_are_told_apart_by_their_paths(runs):
    shutil.copytree("out", "later")
    found = load_runs("out", "later/fifo")
    assert [each.label for each in found] == ["clockwork", "out/fifo", "later/fifo"]
    assert [summary.name for summary in found.summaries] == ["clockwork", "out/fifo", "later/fifo"]


def test_the_same_run_twice_is_an_error(runs):
    with pytest.raises(ResultsError, match="out/fifo is given twice; expected each run once"):
        load_runs("out", "out/fifo")


def test_a_run_that_did_not_finish_is_left_out_with_a_warning(runs):
    Path("out/fifo/summary.json").unlink()
    with pytest.warns(UserWarning, match="out/fifo is left out: not a finished run"):
        found = load_runs("out")
    assert [each.label for each in found] == ["clockwork"]
    with pytest.raises(ResultsError, match=r"out/fifo: no summary\.json: not the directory"):
        load_runs("out/fifo")


def test_what_holds_no_run_is_an_error(tmp_path):
    with pytest.raises(ResultsError, match="nowhere: no such directory; expected"):
        load_runs(tmp_path / "nowhere")
    with pytest.raises(ResultsError, match=r"no summary\.json: not the directory of a run"):
        load_runs(tmp_path)


def test_printed_they_are_a_table(runs):
    assert "goodput (req/s)" in repr(runs)


def test_in_json_they_are_the_summaries(runs):
    found = json.loads(runs.to_json())
    assert [each["directory"] for each in found] == ["out/clockwork", "out/fifo"]
    for each, name in zip(found, ("clockwork", "fifo"), strict=True):
        del each["directory"]
        assert each == json.loads(Path("out", name, "summary.json").read_text())


def test_runs_of_two_seeds_say_so(runs):
    run(load_scenario("small.toml", ["seed=9"]), "other", ["fifo"])
    assert [line.split() for line in repr(load_runs("out/fifo", "other")).splitlines()[2:3]] == [
        ["seed", "1", "9"]
    ]
    assert "\nseed " not in repr(runs)


def test_the_fate_of_every_request_is_a_table_or_a_frame(runs):
    clockwork = runs["clockwork"]
    assert clockwork.outcomes().num_rows > 300
    assert clockwork.actions().num_rows > 100
    pytest.importorskip("pandas")
    frame = clockwork.frame()
    ok = frame[frame.outcome == "ok"]
    assert ok.latency_ms.max() <= 100
    assert list(runs.frame().index) == ["clockwork", "fifo"]
    assert runs.frame()["latency.quantiles_ms.p50"]["fifo"] > 0


def test_without_pandas_a_frame_says_what_to_install(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'mainspring\[notebooks\]'"):
        runs[0].frame()


def test_a_notebook_shows_the_pictures_as_they_are(runs):
    for picture in (runs.plot(), runs.plot_latency(), runs[0].plot_latency(), runs[0].plot_gpus()):
        assert picture._repr_png_()[:4] == b"\x89PNG"
