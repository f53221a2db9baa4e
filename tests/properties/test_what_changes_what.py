"""One thing is changed, and what should not care does not: arrivals, other GPUs, the clock."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.records import FOREVER
from sim.cluster import Delays
from tests.properties.cases import FIFO, Case, Choice, Hostile, cases, clockworks, examples
from tests.sim.test_cluster import Script
from tests.worlds import MS, Row, World


def asked(case: Case, policy: Any) -> list[tuple[int, ...]]:
    """Who asked for what and when, in the open loop."""
    rows = case.run(policy).requests
    return [row[1:5] for row in rows if row.client < len(case.slo_ns)]


@examples(150)
@given(cases(), clockworks(), st.integers(0, 2**32))
def test_the_policy_changes_no_arrival(case: Case, choice: Choice, seed: int) -> None:
    arrivals = asked(case, Choice("fifo", {}).build())
    assert asked(case, choice.build()) == arrivals
    assert asked(case, Hostile(seed)) == arrivals


@examples(150)
@given(cases(clients=False, delays=False), st.integers(1, 3))
def test_more_gpus_change_no_duration_of_the_others(case: Case, more: int) -> None:
    """A policy that asks the same of GPU 0 whatever else there is sees the same there."""

    def same_on_each(now_ns: int, out: Any) -> None:
        for gpu in set(out.gpu_of_lane.values()):
            for i in range(len(case.models)):
                out.load(gpu, i, now_ns, FOREVER, 0)

    def on_first(now_ns: int, request: Any, out: Any) -> None:
        gpu = request.id % len(out.gpu_of_lane)
        size = min(case.models[request.model].exec)
        if gpu:  # something else on another one, and first
            out.load(gpu, request.model, now_ns, FOREVER, 0)
        out.infer(0, request.model, size, (request.id,), now_ns, FOREVER, 0)

    def on_gpu_0(gpus: int) -> list[tuple[int, ...]]:
        world: World = case.run(Script(same_on_each, on_first), gpus=gpus)
        rows = [row for row in world.actions if row.gpu == 0]
        return [(row.type, row.model, row.batch, row.start_ns, row.duration_ns) for row in rows]

    assert on_gpu_0(1 + more) == on_gpu_0(1)


def later(case: Case, by_ns: int) -> Case:
    return case._replace(
        arrivals=tuple((at_ns + by_ns, m, s) for at_ns, m, s in case.arrivals),
        end_ns=case.end_ns + by_ns,
    )


def sooner(row: Row, by_ns: int) -> Row:
    return row._replace(
        arrival_ns=row.arrival_ns - by_ns,
        deadline_ns=row.deadline_ns - by_ns if row.deadline_ns < FOREVER else FOREVER,
        end_ns=row.end_ns - by_ns,
    )


@examples(150)
@given(cases(clients=False), st.one_of(FIFO, clockworks()), st.sampled_from([1, 7 * MS, 10**15]))
def test_nothing_depends_on_when_the_day_begins(case: Case, choice: Choice, by_ns: int) -> None:
    """The same traffic, later: the same fates, later by as much. No absolute time is used, and no
    time is squeezed into too few bits (10**15 ns are 12 days)."""
    case = later(case, 10 * MS)  # the controller has done with its own start by then
    moved = later(case, by_ns).run(choice.build()).requests
    assert [sooner(row, by_ns) for row in moved] == case.run(choice.build()).requests


@examples(100)
@given(cases(constant=True, clients=False), st.one_of(FIFO, clockworks()))
def test_constant_durations_need_no_randomness(case: Case, choice: Choice) -> None:
    other = case._replace(seed=case.seed + 1)
    assert case.run(choice.build()).sink.actions == other.run(choice.build()).sink.actions


@examples(100)
@given(cases(constant=True, delays=False, clients=False), st.integers(0, 2 * MS))
def test_a_slower_way_to_the_client_delays_answers_and_nothing_else(
    case: Case, delay_ns: int
) -> None:
    slow = case._replace(delays=Delays(controller_to_client_ns=delay_ns))
    fast_world = case.run(Choice("clockwork", {}).build())
    slow_world = slow.run(Choice("clockwork", {}).build())
    assert slow_world.actions == fast_world.actions
    for before, after in zip(fast_world.requests, slow_world.requests, strict=True):
        finished = before.end_ns < case.stop_ns or after.end_ns > before.end_ns
        assert after.end_ns - before.end_ns == (delay_ns if finished else 0)
