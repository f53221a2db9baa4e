"""Clockwork's variant INFER5: one line of requests for each batch size.

Source of the rules: facts on Clockwork, section 3, INFER scheduling, steps 1 to 4.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.policies.clockwork_fifos import Fifos, Strategies
from scheduler.records import Outcome, Reason
from tests.worlds import MS, World, model, policy, run

EXEC_NS = (2, 3, 5)
"""Batches of 1, 2 and 4."""


def waiting(*deadlines_ns: int, heads_only: bool = False) -> tuple[Fifos[Any], list[Any]]:
    fifos: Fifos[Any] = Fifos((1, 2, 4), heads_only=heads_only)
    requests = [
        SimpleNamespace(deadline_ns=deadline_ns, seq=seq, lines=0)
        for seq, deadline_ns in enumerate(deadlines_ns)
    ]
    for request in requests:
        fifos.add(request)
    return fifos, requests


def test_the_largest_size_that_is_filled_is_taken() -> None:
    fifos, requests = waiting(9, 9, 9, 9, 9)
    left: list[Any] = []
    assert fifos.take(0, EXEC_NS, 0, left) == (2, requests[:4])
    assert fifos.take(0, EXEC_NS, 0, left) == (0, requests[4:])
    assert fifos.take(0, EXEC_NS, 0, left) is None
    assert left == []


def test_who_is_too_late_for_a_size_leaves_its_line_only() -> None:
    """The first is due at 4: in time alone or in a pair, too late in a batch of four."""
    fifos, requests = waiting(4, 9, 9, 9)
    left: list[Any] = []
    assert fifos.take(0, EXEC_NS, 2, left) is None  # three in the line of four
    assert fifos.take(0, EXEC_NS, 1, left) == (1, requests[:2])


def test_a_larger_batch_passes_who_is_too_late_for_it() -> None:
    fifos, requests = waiting(4, 9, 9, 9, 9)
    left: list[Any] = []
    assert fifos.take(0, EXEC_NS, 0, left) == (2, requests[1:])
    assert left == [requests[0]]


def test_nobody_is_taken_along_who_would_be_too_late_behind_one_with_more_time() -> None:
    """Different SLOs for one model: the second, due at 4, is too late in a batch of four. It leaves
    that line, and three go no more than in a pair; the artifact takes it along."""
    fifos, requests = waiting(9, 4, 9, 9)
    left: list[Any] = []
    assert fifos.take(0, EXEC_NS, 0, left) == (1, requests[:2])
    assert left == []
    fifos, requests = waiting(9, 4, 9, 9, heads_only=True)
    assert fifos.take(0, EXEC_NS, 0, left) == (2, requests)


def test_who_would_be_too_late_behind_one_with_more_time_in_any_batch_is_given_up() -> None:
    fifos, requests = waiting(20, 3, 20)
    left: list[Any] = []
    assert fifos.take(2, EXEC_NS, 0, left) == (1, [requests[0], requests[2]])
    assert left == [requests[1]]


def test_who_cannot_be_in_time_leaves_all_lines() -> None:
    fifos, requests = waiting(3, 20)
    left: list[Any] = []
    assert fifos.take(2, EXEC_NS, 0, left) == (0, requests[1:])
    assert left == [requests[0]]


def test_a_size_that_asks_for_more_than_there_is_gets_nothing() -> None:
    fifos, _ = waiting(9, 9)
    assert fifos.take(0, EXEC_NS, 2, []) is None
    assert fifos.starts(EXEC_NS, 2) == [(7, 0), (6, 1)]  # back with the smaller sizes


def test_who_is_removed_is_in_no_line() -> None:
    fifos, requests = waiting(9, 9, 9)
    fifos.remove(requests[1])
    assert fifos.take(0, EXEC_NS, 0, []) == (1, [requests[0], requests[2]])


def test_strategies_come_by_latest_start_then_batch_then_model() -> None:
    strategies = Strategies()
    strategies.put(7, [(5, 1), (5, 0)])
    strategies.put(3, [(5, 0), (9, 1)])
    strategies.put(4, [])
    assert 4 not in strategies
    assert strategies.pop() == (3, 0)
    assert 3 not in strategies  # its other strategy has gone with it
    assert strategies.pop() == (7, 0)
    assert not strategies
    assert strategies.pop() is None


EXEC_MS = {1: 10.0, 2: 12.0, 4: 16.0, 8: 24.0, 16: 40.0}


def warm(arrivals_ms: list[float], slo_ms: float = 100.0, **params: Any) -> World:
    """The requests, 1 s after one that loads the model, with next to no time ahead."""
    chosen = policy("clockwork", variant="infer5", schedule_ahead_ms=2e-6, future_ms=0.0, **params)
    arrivals = [(0.0, 0), *((1000 + ms, 0) for ms in arrivals_ms)]
    return run(chosen, arrivals, models=[model(EXEC_MS)], slo_ms=slo_ms, end_s=2)


def batches(world: World) -> list[int]:
    return [row.batch for row in world.actions if row.type == "infer"][1:]


@pytest.mark.parametrize(("params", "expected"), [({}, [1, 8, 8]), ({"max_batch": 16}, [1, 16])])
def test_batches_of_more_than_8_have_to_be_asked_for(params: Any, expected: list[int]) -> None:
    """Facts on Clockwork, section 3: max_batch is 8 by default in INFER5."""
    assert batches(warm([0.0] + [1.0] * 16, slo_ms=500.0, **params)) == expected


def test_larger_batches_than_the_time_limit_are_not_used() -> None:
    assert batches(warm([0.0] + [1.0] * 4, max_exec_ms=13.0)) == [1, 2, 2]


def test_a_request_that_no_line_holds_any_more_is_told_at_once() -> None:
    """Ten at once, 5 ms of buffer, 40 ms: [1] to 10, [8] to 34, and no time for the tenth."""
    world = warm([0.0] * 10, slo_ms=40.0)
    assert batches(world) == [1, 8]
    last = world.requests[-1]
    assert (last.outcome, last.reason) == (Outcome.TIMED_OUT, Reason.DEADLINE)
    assert last.end_ns == (1000 + 25) * MS  # 35 less the 10 of a batch of one


def test_the_artifact_tells_it_at_the_deadline_less_the_buffer() -> None:
    world = warm([0.0] * 10, slo_ms=40.0, faithful_to="osdi20-artifact")
    assert {row.end_ns for row in world.sink.ended(Outcome.TIMED_OUT)} == {(1000 + 35) * MS}
