"""Delays that vary, each time another of those that were measured."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from profiles.durations import Samples
from scheduler.faults import DeviceError
from scheduler.records import Infer, Load, Outcome
from sim.drawn import Drawn
from tests.worlds import MS, RESNET50, RESNET50_LOAD_MS, run

N = 2_000


def drawn(**ms: Sequence[float]) -> Drawn:
    samples = {name: Samples(tuple(round(one * MS) for one in each)) for name, each in ms.items()}
    return Drawn(samples, np.random.default_rng(1))


@pytest.mark.parametrize("name", ["worker_to_controller", "controller_to_worker"])
def test_a_server_that_waits_for_messages_is_as_fast_as_their_mean(name: str) -> None:
    """FIFO sends the next request when it hears of the last: their median, 0.1 ms, says little."""
    times_ms = [0.1] * 9 + [10.0]
    world = run("fifo", [(0, 0)] * N, slo_ms=None, end_s=20, drawn=drawn(**{name: times_ms}))
    mean_ms = float(np.mean(times_ms))
    expected_ms = RESNET50_LOAD_MS + N * RESNET50[1] + (N + 1) * mean_ms
    error_ms = float(np.std(times_ms)) * N**0.5
    end_ms = max(row.end_ns for row in world.requests) / MS
    assert end_ms == pytest.approx(expected_ms, abs=4 * error_ms)
    assert expected_ms - 4 * error_ms > RESNET50_LOAD_MS + N * (RESNET50[1] + 0.1)


def test_what_a_load_ends_with_is_told_apart_where_it_was_measured() -> None:
    def end_ms(**ms: Sequence[float]) -> float:
        world = run("fifo", [(0, 0)] * 10, slo_ms=None, drawn=drawn(**ms))
        return max(row.end_ns for row in world.requests) / MS - RESNET50_LOAD_MS - 10 * RESNET50[1]

    assert end_ms(worker_to_controller=[2.0]) == pytest.approx(11 * 2)
    assert end_ms(worker_to_controller=[2.0], load_to_controller=[0.5]) == pytest.approx(20.5)
    assert end_ms(load_to_controller=[0.5]) == pytest.approx(0.5)


def test_nothing_overtakes_on_one_way() -> None:
    """An action, a result or a request that takes less than the one before comes behind it."""
    arrivals = [(1.0 * i, 0) for i in range(200)]
    steps: list[tuple[int, str, int]] = []

    def record(step: object) -> None:
        event = getattr(step, "event", None)
        now_ns = getattr(step, "now_ns", 0)
        if hasattr(event, "request"):
            steps.append((now_ns, "request", event.request.id))
        if hasattr(event, "action_id"):
            steps.append((now_ns, "result", event.action_id))

    world = run(
        "clockwork", arrivals, record=record,
        drawn=drawn(
            client_to_controller=[0.1, 5.0], controller_to_worker=[0.1, 4.0],
            worker_to_controller=[0.1, 6.0],
        ),
    )  # fmt: skip
    requests = [id for _, kind, id in steps if kind == "request"]
    assert requests == sorted(requests)
    ends = {row.id: row.end_ns for row in world.actions}
    heard = [(ends[id], id) for _, kind, id in steps if kind == "result"]
    assert heard == sorted(heard)
    assert [now_ns for now_ns, *_ in steps] == sorted(now_ns for now_ns, *_ in steps)
    taken = {
        now_ns - arrivals[id][0] * MS for now_ns, kind, id in steps if kind == "request"
    }  # fmt: skip
    assert min(taken) == 0.1 * MS
    assert max(taken) <= 5 * MS


def test_an_engine_is_idle_for_a_drawn_time_between_two_batches() -> None:
    world = run(
        "clockwork", [(100, 0)] * 64, slo_ms=1000, drawn=drawn(worker_gap=[1.0, 2.0])
    )  # fmt: skip
    batches = [row for row in world.actions if row.type == Infer.__name__.lower()]
    gaps_ms = {(after.start_ns - before.end_ns) / MS for before, after in pairwise(batches)}
    assert gaps_ms <= {1.0, 2.0}
    assert gaps_ms


def test_the_same_seed_draws_the_same() -> None:
    ends = [
        [row.end_ns for row in run("fifo", [(0, 0)] * 50, slo_ms=None,
                                   drawn=drawn(worker_to_controller=[1.0, 2.0, 3.0])).requests]
        for _ in range(2)
    ]  # fmt: skip
    assert ends[0] == ends[1]


def test_where_things_go_wrong_messages_vary_too() -> None:
    world = run(
        "fifo", [(0, 0)] * 50, slo_ms=None, faults=[DeviceError(at_s=0.01, gpu=0, batches=1)],
        drawn=drawn(worker_to_controller=[1.0, 2.0], controller_to_worker=[0.5]),
    )  # fmt: skip
    assert len(world.sink.ended(Outcome.OK)) == 49
    load, *batches = world.actions
    assert load.type == Load.__name__.lower()
    assert load.start_ns == 0.5 * MS
    for before, after in pairwise(batches):
        assert (after.start_ns - before.end_ns) / MS in (1.5, 2.5)
