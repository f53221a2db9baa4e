"""Comparisons: pairs of the same seed, with the interval that scipy gives, and what is refused."""

import csv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from scipy import stats

import mainspring
from mainspring.document import ScenarioError

STUDY = {
    "name": "pairs",
    "scenario": "small.toml",
    "set": {"duration_s": 1.0, "warmup_s": 0.2},
    "grid": {"policy": ["clockwork", "fifo"], "workload.0.rate_rps": [200, 500]},
    "replications": {"count": 4},
}


@pytest.fixture
def swept(write):
    write()
    with ThreadPoolExecutor(1) as executor:
        return mainspring.sweep(STUDY, "out", executor=executor)


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
