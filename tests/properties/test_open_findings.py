"""Tests that fail today. Each says what is wrong; it moves to the file it belongs to once it holds.

A finding that turns out to be a decision is turned into a test of that decision, elsewhere.
"""

from typing import Any

from scheduler.records import FOREVER, Outcome, Reason
from tests.sim.test_cluster import Script
from tests.worlds import model, run


def test_bug_sim_05_a_result_at_one_instant_is_heard_before_an_arrival() -> None:
    """One server, no waiting room, T = 10 ms, arrivals at 0, 10, 20: all three are served, if at
    one instant completions come before arrivals. Here the arrival is heard first: a result takes
    one more turn through SimPy's queue, even where no message takes any time. Which goes first is
    written down nowhere; a rule is needed, for traces with whole milliseconds tie all the time."""

    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)

    def no_room(now_ns: int, request: Any, out: Any) -> None:
        if out.work:
            out.reject(request.id, Reason.NOTHING)
        else:
            out.infer(0, 0, 1, (request.id,), now_ns, FOREVER, 0)

    world = run(Script(start, no_room), [(100, 0), (110, 0), (120, 0)], models=[model({1: 10.0})])
    assert len(world.sink.ended(Outcome.OK)) == 3
