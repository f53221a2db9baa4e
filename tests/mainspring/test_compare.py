"""Comparisons: pairs of the same seed, with the interval that scipy gives, and what is refused."""

import csv
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from scipy import stats

import mainspring
from mainspring.cli import main
from mainspring.document import ScenarioError
from mainspring.sweep import ABOUT, TABLE, Sweep, write_table
from tests.mainspring.conftest import SMALL

STUDY = {
    "name": "pairs",
    "scenario": "small.toml",
    "set": {"duration_s": 1.0, "warmup_s": 0.2},
    "grid": {"policy": ["clockwork", "fifo"], "workload.0.rate_rps": [200, 500]},
    "replications": {"count": 4},
}


@pytest.fixture(scope="module")
def swept_once(tmp_path_factory):
    home = tmp_path_factory.mktemp("swept")
    (home / "small.toml").write_text(SMALL)
    study = STUDY | {"scenario": str(home / "small.toml")}
    with ThreadPoolExecutor(1) as executor:
        return mainspring.sweep(study, home / "out", executor=executor)


@pytest.fixture
def swept(write, swept_once):
    """A copy of its own, in the folder where it works."""
    write()
    shutil.copytree(swept_once.directory, "out")
    return Sweep(Path("out"), swept_once.table, swept_once.keys)


def test_differences_are_paired_by_seed_with_a_t_interval(swept):
    came = mainspring.compare(swept, metric="mean")

    (row,) = [r for r in came.table.to_pylist() if r["difference"] and r[came.over] == 500]
    numbers = {
        policy: [
            r["latency.mean_ms"]
            for r in swept.table.to_pylist()
            if (r["policy"], r["workload.0.rate_rps"]) == (policy, 500)
        ]
        for policy in ("clockwork", "fifo")
    }
    pairs = [b - a for a, b in zip(numbers["clockwork"], numbers["fifo"], strict=True)]
    interval = stats.ttest_1samp(pairs, 0.0).confidence_interval(0.95)
    assert (row["policy"], row["n"], row["pairs"]) == ("fifo", 4, 4)
    assert row["difference"] == pytest.approx(sum(pairs) / 4)
    assert row["difference_low"] == pytest.approx(interval.low)
    assert row["difference_high"] == pytest.approx(interval.high)
    mean = stats.ttest_1samp(numbers["fifo"], 0.0).confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((mean.low, mean.high))


def test_the_table_is_there_as_csv_and_parquet_and_as_a_figure(swept):
    came = mainspring.compare("out", over="workload.0.rate_rps")

    text, table, png, svg = came.save("elsewhere")
    assert pq.read_table(table).to_pylist() == came.table.to_pylist()
    with text.open() as file:
        assert len(list(csv.DictReader(file))) == came.table.num_rows == 4
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert "difference to clockwork" in svg.read_text() or svg.stat().st_size > 10_000
    assert "paired by seed, Student's t over 4 seeds, 95% each" in repr(came)


def test_an_interval_of_a_share_ends_where_shares_end(swept):
    """Four seeds, one of which loses a few requests: Student's t would reach beyond 1."""
    column = swept.table.schema.get_field_index("share_in_time")
    shares = [1.0, 1.0, 1.0, 0.95] * (swept.table.num_rows // 4)
    swept.table = swept.table.set_column(column, "share_in_time", [shares])
    reach = stats.ttest_1samp(shares[:4], 0.0).confidence_interval(0.95)
    assert reach.high > 1

    came = mainspring.compare(swept, metric="attainment")

    rows = came.table.to_pylist()
    assert {row["high"] for row in rows} == {1.0}
    assert rows[0]["low"] == pytest.approx(reach.low)
    assert came.method.endswith("cut to what a share can be")
    assert not mainspring.compare(swept).method.endswith("cut to what a share can be")


def test_titles_and_legend_stay_inside_the_figure(swept):
    long = "a-policy-with-a-name-that-somebody-has-made-far-too-long-for-any-figure"
    column = swept.table.schema.get_field_index("policy")
    names = [name.replace("clockwork", long) for name in swept.table["policy"].to_pylist()]
    swept.table = swept.table.set_column(column, "policy", [names])

    figure = mainspring.compare(swept, metric="attainment").plot()

    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [axes._left_title for axes in figure.axes]
    boxes = [text.get_window_extent(renderer) for text in texts]
    left, right = boxes
    assert left.x1 < right.x0
    legend = figure.legends[0].get_window_extent(renderer)
    for box in (*boxes, legend):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
    assert legend.y1 < min(axes.get_tightbbox(renderer).y0 for axes in figure.axes)


def test_a_scenario_is_run_with_each_policy_on_the_same_arrivals(write):
    with ThreadPoolExecutor(1) as executor:
        came = mainspring.compare(
            write(), ["fifo", "edf"], seeds=3, metric="attainment", executor=executor
        )
    assert came.over is None
    assert came.baseline == "fifo"
    assert [row["policy"] for row in came.table.to_pylist()] == ["fifo", "edf"]
    assert Path("runs/compare-small/table.parquet").is_file()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"over": "cluster.gpus"}, "--over cluster.gpus: not swept; expected one of policy, work"),
        ({"metric": "godput"}, "--metric godput: no such number in .*did you mean goodput"),
        ({"where": {"workload.0.rate_rps": 300}}, "no 300; have 200, 500"),
        ({"policies": ["lifo"]}, "out has no policy lifo"),
        ({"baseline": "edf"}, "--baseline: no edf; have clockwork, fifo"),
        ({"between": "workload.0.rate_rps", "over": "workload.0.rate_rps"}, "policy were? swept"),
    ],
)
def test_what_cannot_be_compared_is_one_line(swept, asked, message):
    with pytest.raises(ScenarioError, match=message):
        mainspring.compare(swept, **asked)


def test_a_table_names_its_unit_and_says_why_numbers_are_missing(swept):
    assert "goodput (req/s)" in repr(mainspring.compare(swept))
    tail = repr(mainspring.compare(swept, metric="p99.99"))
    assert "p99.99 (ms)" in tail
    assert "too few requests for this number" in tail


def test_a_sweep_that_was_interrupted_is_not_compared_in_silence(swept):
    about = json.loads(swept.table.schema.metadata[ABOUT])
    notes = {ABOUT: json.dumps({**about, "interrupted": True})}
    write_table(swept.table.replace_schema_metadata(notes), swept.directory / TABLE)

    with pytest.warns(UserWarning, match=f"only the {swept.table.num_rows} points"):
        mainspring.compare(swept.directory)


def test_the_command_that_goes_on_is_the_whole_command(swept, monkeypatch, capsys):
    cut = Sweep(swept.directory, swept.table, swept.keys, interrupted=True)
    monkeypatch.setattr(sys.modules["mainspring.sweep"], "sweep", lambda *args, **kwargs: cut)

    with pytest.raises(SystemExit) as left:
        main(["sweep", "my study.toml", "--out", "there"])

    assert left.value.code == 130
    assert "mainspring sweep 'my study.toml' --out there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"policies": ["edf", "edf"]}, '^--policy edf --policy edf: "edf" is there twice'),
        ({"overrides": ["seed=5"]}, "^--set seed=5: a comparison takes the seeds 1 to 10, .*--see"),
        ({"overrides": ["cluster.gpu=5"]}, "^--set cluster.gpu=5: cluster.gpu: unknown key; did"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_told_in_the_words_of_its_user(write, asked, message):
    with pytest.raises(ScenarioError, match=message):
        mainspring.compare(write(), **asked)
