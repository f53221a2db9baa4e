"""Strangers on the controller's socket: whatever they send, the run goes on and nobody gets in."""

import random
import threading

import pytest

from executor import controller
from executor.wire import VERSION, Hello, Pong, Ready, Report, Reports, encode
from mainspring import load_scenario
from mainspring.live import run_live
from scheduler.records import Status, Why

zmq = pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")

SCENARIO = """
name = "noise"
duration_s = 3
slo_ms = 500.0
[cluster]
gpus = 1
pages = 56
[[models]]
profile = "clockwork_docs/resnet50_v2"
copies = 8
[[workload]]
kind = "poisson"
rate_rps = 50
[policy.fifo]
"""

REPORTS = encode(Reports([Report(i, Status.DONE, Why.NOTHING, 0, 0, 0, 0, 0) for i in range(50)]))
WELL_FORMED = [
    REPORTS,
    encode(Hello(VERSION, 0, 1, {})),
    encode(Hello(VERSION, 7, 1, {})),
    encode(Hello(VERSION + 1, 0, 1, {})),
    encode(Ready({})),
    encode(Pong(0, 0, list(range(50)))),
]


def frames(dice):
    """What a stranger says: messages that are none of ours, and ours with some bytes changed."""
    if dice.random() < 0.3:
        return [dice.randbytes(dice.randrange(200)) for _ in range(dice.randint(1, 3))]
    frame = bytearray(dice.choice(WELL_FORMED))
    for _ in range(dice.choice([0, 1, 4])):
        frame[dice.randrange(len(frame))] = dice.randrange(256)
    return [bytes(frame)]


def test_strangers_do_no_harm(tmp_path, monkeypatch):
    file = tmp_path / "noise.toml"
    file.write_text(SCENARIO)
    worlds = []
    init = controller.LiveCluster.__init__

    def noted(world, *args, **kwargs):
        init(world, *args, **kwargs)
        worlds.append(world)
        threading.Thread(target=shout, args=(world,), daemon=True).start()

    def shout(world):
        dice = random.Random(1)
        context = zmq.Context()
        while not world._epoch_ns and not over.wait(0.01):
            pass  # places are free before the run
        for _ in range(10):
            with context.socket(zmq.DEALER) as socket:
                socket.setsockopt(zmq.LINGER, 1_000)
                socket.connect(world.address)
                for _ in range(200):
                    socket.send_multipart(frames(dice))
        context.term()

    over = threading.Event()
    monkeypatch.setattr(controller.LiveCluster, "__init__", noted)
    try:
        (live,) = run_live(load_scenario(file), tmp_path / "live")
    finally:
        over.set()

    assert worlds[0].dropped > 300
    assert live.summary.outcomes["ok"] == live.summary.arrivals
    assert live.summary.workers_lost_whole_run == 0
    assert not worlds[0].stale
