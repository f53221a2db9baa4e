"""Cases of the area executor from public bug reports, by their numbers.

Elsewhere: 10 and 15 (results of a worker that was killed; a worker that comes back) in
test_faults.py; 17 (start by exec, never fork) is how `mainspring/crew.py` starts workers.
"""

import itertools
import time

import pytest

from mainspring.live import run_live
from results import read_outcomes
from tests.executor.scenarios import loaded

pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")


@pytest.fixture
def live(tmp_path):
    """A run of 200 requests, one each 10 ms."""

    def live(faults=""):
        scenario = loaded(
            tmp_path, "duration_s=2", "slo_ms=1000", "cluster.gpus=1", "cluster.pages=56",
            "models.0.copies=1", "workload.0.kind=constant", more=faults,
        )  # fmt: skip
        (done,) = run_live(scenario, tmp_path / "live", ["edf"])
        return done, read_outcomes(tmp_path / "live").to_pandas().sort_values("id")

    return live


def test_bug_exe_03_and_04_latency_counts_from_the_plan_and_lateness_is_shown(live):
    """BUG-EXE-04, too. The controller is away for 200 ms, in which 20 requests fall due."""
    pause = '[[faults]]\nkind = "paused_controller"\nat_s = 1.0\nfor_s = 0.2\n'
    done, rows = live(pause)

    assert (rows["arrival_ns"].diff().dropna() == 10_000_000).all()  # the plan, not the handling
    latency_ms = (rows["end_ns"] - rows["arrival_ns"]) / 1e6
    waited = rows["arrival_ns"].between(1.0e9, 1.2e9)
    assert latency_ms[waited].max() > 150
    assert done.punctuality.arrival_late_us["p50"] < 150_000
    assert len(rows) == 200


def test_bug_exe_16_the_wall_clock_is_used_for_no_duration(live, monkeypatch):
    """It jumps back by two seconds and on by five, again and again."""
    jumps = itertools.cycle([0.0, -2.0, 5.0])
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + next(jumps))
    _, rows = live()

    latency_ms = (rows["end_ns"] - rows["arrival_ns"]) / 1e6
    assert latency_ms.min() > 0
    assert latency_ms.max() < 1_000
