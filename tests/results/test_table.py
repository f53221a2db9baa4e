"""The table in a pipe: plain, 80 columns, and honest about what it does not know."""

import io
import json

import msgspec
import pytest

from results.table import print_runs, runs_text
from scheduler.records import Outcome
from tests.results.helpers import MS, request, writer


@pytest.fixture(name="summaries")
def two_runs(tmp_path):
    found = []
    for name, n in (("few", 30), ("many", 1_000)):
        with writer(tmp_path / name) as sink:
            sink.request(request(0, outcome=Outcome.REJECTED))
            for i in range(1, n):
                sink.request(request(i, end=i * 10_000 + 5 * MS))
            found.append(sink.close(arrivals=n))
    return found


def line(text, name):
    return next(line for line in text.splitlines() if line.startswith(name)).split()


def test_each_run_has_a_column(summaries):
    text = runs_text(summaries)
    assert line(text, "arrivals")[1:] == ["30", "1,000"]
    assert line(text, "rejected")[1:] == ["1", "1"]
    assert line(text, "in time")[-2:] == ["96.667", "99.900"]
    assert line(text, "latency p50")[-2:] == ["5.150", "10.000"]


def test_bug_rep_07_too_few_values_are_said_to_be_too_few(summaries):
    text = runs_text(summaries)
    assert " ".join(line(text, "latency p90")[3:]) == "n too small 14.000"
    assert " ".join(line(text, "latency p99.9 ")[-6:]) == "n too small n too small"


@pytest.mark.parametrize("runs", [1, 2, 3, 7])
def test_a_pipe_gets_80_columns_and_no_colour(summaries, runs):
    file = io.StringIO()
    print_runs((summaries * 4)[:runs], file)
    text = file.getvalue()
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.count("goodput (req/s)") == -(-runs // 3)


def test_a_share_is_never_rounded_up_to_all(summaries):
    nearly = msgspec.structs.replace(summaries[0], share_in_time=0.9999999)
    assert line(runs_text([nearly]), "in time")[-1] == ">99.999"


def test_bug_rep_06_the_table_shows_the_median_of_the_json(summaries):
    text = runs_text(summaries)
    shown = [float(value) for value in line(text, "latency p50")[-2:]]
    kept = [json.loads(msgspec.json.encode(s))["latency"]["quantiles_ms"]["p50"] for s in summaries]
    assert shown == kept
