"""Calls and SimPy's own events in one queue."""

from collections.abc import Iterator

import pytest
import simpy

from sim.clock import Clock


def mixed() -> tuple[Clock, list[tuple[int, str]]]:
    clock, seen = Clock(), []

    def process() -> Iterator[simpy.Event]:
        while True:
            yield clock.timeout(3)
            seen.append((clock.now, "process"))

    clock.call_last_in(3, lambda now_ns: seen.append((now_ns, "last")))
    clock.process(process())
    clock.call_in(5, lambda now_ns: seen.append((now_ns, "call")))
    clock.call_in(6, lambda now_ns: seen.append((now_ns, "second call")))
    return clock, seen


def test_calls_stand_in_line_with_the_events_of_a_process() -> None:
    clock, seen = mixed()
    clock.run_to(7)
    assert seen == [
        (3, "process"), (3, "last"), (5, "call"), (6, "second call"), (6, "process")
    ]  # fmt: skip
    assert clock.now == 7


def test_simpy_may_run_the_clock_itself() -> None:
    ours, theirs = mixed(), mixed()
    ours[0].run_to(7)
    theirs[0].run(until=7)
    assert theirs[1] == ours[1]


@pytest.mark.parametrize(("at_ns", "may"), [(4, True), (5, False), (9, False)])
def test_time_is_skipped_only_where_nothing_happens(at_ns: int, may: bool) -> None:
    clock = Clock()
    skipped = []
    clock.call_in(1, lambda now_ns: skipped.append(clock.skip_to(at_ns)))
    clock.call_in(5, lambda now_ns: None)
    clock.run_to(7)
    assert skipped == [may]


def test_time_is_not_skipped_beyond_the_end_of_the_run() -> None:
    clock = Clock()
    skipped = []
    clock.call_in(1, lambda now_ns: skipped.append(clock.skip_to(7)))
    clock.run_to(7)
    assert skipped == [False]
