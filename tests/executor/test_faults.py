"""Faults in live runs: everything accounted for, nothing executed twice, service restored."""

import os
import random
import signal
import sys
import threading
import time

import pytest

from mainspring import crew as crew_module
from mainspring.journal import replay
from mainspring.live import run_live
from mainspring.run import run
from results import read_actions, read_outcomes
from tests.executor.scenarios import loaded

pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")

FAULTS = {
    "worker_killed": ("gpu = 0\nback_after_s = 0.2", "worker_lost"),
    "device_error": ("gpu = 0\nbatches = 3", "worker_failed"),
    "stalled_copy": ("gpu = 0\nfor_s = 0.1", None),
    "slow_gpu": ("gpu = 0\nfor_s = 0.3\nfactor = 2.0", None),
    "delayed_messages": ("gpu = 0\nfor_s = 0.2\ndelay_ms = 5.0", None),
    "lost_messages": ("gpu = 0\ncount = 2", "worker_lost"),
    "paused_controller": ("for_s = 0.2", None),
}


def faulty(folder, kind, keys):
    fault = f'[[faults]]\nat_s = 1.0\nkind = "{kind}"\n{keys}\n'
    return loaded(folder, "duration_s=2.5", "cluster.pages=56", more=fault)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_does_the_same_in_both_worlds(tmp_path, kind, monkeypatch):
    """The audit has passed where it comes back; what fails, fails for the same reasons."""
    monkeypatch.setattr(sys.modules["mainspring.run"], "_draw", lambda *_: None)
    keys, reason = FAULTS[kind]
    scenario = faulty(tmp_path, kind, keys)
    (live,) = run_live(scenario, tmp_path / "live")
    (simulated,) = run(scenario, tmp_path / "simulated")

    assert replay(live.directory).same
    failed = []
    for summary in (live.summary, simulated.summary):
        assert sum(summary.outcomes.values()) == summary.arrivals > 200
        assert summary.outcomes["unfinished"] == 0
        reasons = set(summary.reasons) & {"worker_lost", "worker_failed"}
        # What was on the way just then depends on the moment: nothing, or some batches.
        assert reasons <= {reason}
        failed.append(reasons)
        assert summary.workers_lost_whole_run == (kind == "worker_killed")
    if kind in ("device_error", "lost_messages"):
        assert failed[0] or live.summary.lost_actions
        assert failed[1] or simulated.summary.lost_actions


def test_twenty_kills_at_random_moments(tmp_path, monkeypatch, capsys):
    """`kill -9` from outside. The crew replaces the worker; every request has its fate."""
    crews = []
    start = crew_module.Crew.__enter__
    monkeypatch.setattr(
        crew_module.Crew, "__enter__", lambda crew: (crews.append(crew), start(crew))[1]
    )
    scenario = loaded(tmp_path, "duration_s=25", "cluster.pages=56")
    dice = random.Random(5)
    kills = 0
    over = threading.Event()

    def kill():
        nonlocal kills
        time.sleep(1.5)
        while kills < 20 and not over.is_set():
            time.sleep(dice.uniform(0.2, 1.4))
            gpu = dice.randrange(2)
            process = crews[0]._processes[gpu]
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                kills += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        (live,) = run_live(scenario, tmp_path / "live")
    finally:
        over.set()
        killer.join()

    away_ms = [round(ms) for ms in sorted(live.punctuality.workers_away_ms)]
    with capsys.disabled():
        print(
            f"\n{kills} kills, {live.summary.workers_lost_whole_run} of a serving worker; "
            f"back after ms, the start of a process included: {away_ms}"
        )
    assert kills == 20
    # A worker that was killed before it served had nothing to lose.
    assert 10 <= live.summary.workers_lost_whole_run <= 20
    outcomes = read_outcomes(live.directory)
    assert sorted(outcomes["id"].to_pylist()) == list(range(live.summary.arrivals))
    actions = read_actions(live.directory)
    assert len(set(actions["id"].to_pylist())) == len(actions)
    assert replay(live.directory).same
    assert live.summary.outcomes["ok"] > 0.5 * live.summary.arrivals


def test_a_worker_that_hangs_is_lost_and_taken_on_anew(tmp_path, monkeypatch):
    """It is stopped for three seconds: its process lives, so nothing but its silence tells."""
    crews = []
    start = crew_module.Crew.__enter__
    monkeypatch.setattr(
        crew_module.Crew, "__enter__", lambda crew: (crews.append(crew), start(crew))[1]
    )

    begun = threading.Event()

    def hang():
        begun.wait()
        os.kill(crews[0].pid(0), signal.SIGSTOP)
        time.sleep(3)
        os.kill(crews[0].pid(0), signal.SIGCONT)

    hanging = threading.Thread(target=hang)
    hanging.start()
    (live,) = run_live(
        loaded(tmp_path, "duration_s=6", "cluster.pages=56"),
        tmp_path / "live",
        progress=lambda _, share: begun.set() if share > 0.1 else None,
    )
    hanging.join()

    assert live.summary.workers_lost_whole_run == len(live.punctuality.workers_away_ms) == 1
    assert live.summary.outcomes["unfinished"] == 0
    assert replay(live.directory).same
