"""Workers die and come back, messages are lost, controllers pause: what holds all the same."""

from collections import Counter, defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from results.audit import Audit
from results.columns import actions_of, requests_of
from scheduler.policies import POLICIES
from scheduler.records import (
    FOREVER,
    OUTCOME_OF,
    Change,
    Infer,
    Outcome,
    Reason,
    Status,
    Unload,
    Why,
)
from tests.properties import laws
from tests.properties.cases import (
    Case,
    Choice,
    Hostile,
    Recorder,
    batchings,
    cases,
    clockworks,
    examples,
    with_faults,
    with_link,
)
from tests.properties.test_replay import recorded, replayed
from tests.worlds import World

FAULTY = with_faults(cases(pieces=True))
FAULTY_WITH_LINK = with_link(FAULTY)
ANY_POLICY = st.one_of(
    clockworks(), batchings(), st.sampled_from([Choice(name, {}) for name in POLICIES])
)


def all_laws(case: Case, world: World, seen: Recorder) -> None:
    laws.requests_end_once_and_add_up(case, world)
    outcomes_have_their_reason(world)
    results_come_once(world, seen)
    a_lost_worker_leaves_nothing_open(world, seen)
    no_request_is_executed_twice(world, seen)
    the_audit_agrees(case, world)


def outcomes_have_their_reason(world: World) -> None:
    for row in world.requests:
        if row.outcome in (Outcome.OK, Outcome.LATE):
            assert (row.outcome == Outcome.OK) == (row.end_ns <= row.deadline_ns)
        elif row.outcome != Outcome.UNFINISHED:
            assert row.outcome == OUTCOME_OF[Reason(row.reason)]


def results_come_once(world: World, seen: Recorder) -> None:
    emitted = {action.id for _, _, action in seen.emitted}
    heard = [result.action.id for _, result in seen.results]
    rows = [row.id for row in world.actions]
    assert len(set(heard)) == len(heard)
    assert len(set(rows)) == len(rows)
    assert set(heard) <= set(rows) <= emitted
    for row in world.actions:
        lost = row.status == Status.LOST
        assert lost == (row.why in (Why.WORKER_LOST, Why.MESSAGE_LOST))


def a_lost_worker_leaves_nothing_open(world: World, seen: Recorder) -> None:
    """Everything sent to it before has its result by then, or right after; nothing is sent to it
    before it is back."""
    heard_ns = {result.action.id: now_ns for now_ns, result in seen.results}
    by_gpu = defaultdict(list)
    for now_ns, gpu, action in seen.emitted:
        by_gpu[gpu].append((now_ns, action))
    for gpu, _ in world.sink.lost:
        changes = [(at_ns, each.change) for at_ns, each in seen.changes if each.gpu == gpu]
        kinds = [change for _, change in changes]
        assert kinds == [Change.LOST, Change.BACK] * (len(kinds) // 2) + kinds[-1:] * (
            len(kinds) % 2
        )
        for at_ns, change in changes:
            if change is Change.LOST:
                back_ns = min(
                    [ns for ns, c in changes if c is Change.BACK and ns >= at_ns] or [FOREVER]
                )
                for sent_ns, action in by_gpu[gpu]:
                    # With a decision cost, what was handled at that moment may wait in the inbox.
                    if sent_ns < at_ns and action.id in heard_ns:
                        assert heard_ns[action.id] < back_ns or back_ns == at_ns
                    assert not at_ns < sent_ns < back_ns, "sent to a worker that is gone"


def no_request_is_executed_twice(world: World, seen: Recorder) -> None:
    """A batch that may have run is not run again: neither done nor lost with its worker."""
    tasks = {a.id: a.tasks for _, _, a in seen.emitted if isinstance(a, Infer)}
    ran = Counter(
        task
        for row in world.actions
        if row.status == Status.DONE or row.why == Why.WORKER_LOST
        for task in tasks.get(row.id, ())
    )
    assert not ran or max(ran.values()) == 1


def the_audit_agrees(case: Case, world: World) -> None:
    audit = Audit(
        pages_of_model=[spec.pages for spec in case.models],
        pages_of_gpu=[case.pages] * case.gpus,
    )
    for gpu, at_ns in world.sink.lost:
        audit.worker_lost(gpu, at_ns)
    if world.actions:
        audit.actions(actions_of(world.actions))
    if world.requests:
        audit.requests(requests_of(world.requests))
    audit.finish(world.cluster.arrived)


def survives(case: Case, policy: Any) -> None:
    seen = Recorder(policy)
    world = case.run(seen)
    all_laws(case, world, seen)
    assert not any(world.cluster.controller.out.refusals)


@examples(400)
@given(FAULTY, ANY_POLICY)
def test_every_policy_survives(case: Case, choice: Choice) -> None:
    survives(case, choice.build())


@examples(300)
@given(FAULTY_WITH_LINK, ANY_POLICY)
def test_every_policy_survives_behind_a_link(case: Case, choice: Choice) -> None:
    survives(case, choice.build())


@examples(150)
@given(st.one_of(FAULTY, FAULTY_WITH_LINK), st.integers(0, 2**32))
def test_nonsense_does_no_harm_either(case: Case, seed: int) -> None:
    seen = Recorder(Hostile(seed))
    world = case.run(seen)
    laws.requests_end_once_and_add_up(case, world)
    results_come_once(world, seen)
    the_audit_agrees(case, world)


@examples(100)
@given(with_faults(cases()), ANY_POLICY)
def test_it_replays_bit_for_bit(case: Case, choice: Choice) -> None:
    replayed(case, recorded(case, choice.build()), choice.build())


@examples(100)
@given(st.one_of(FAULTY, FAULTY_WITH_LINK), ANY_POLICY)
def test_the_same_seed_gives_the_same_rows(case: Case, choice: Choice) -> None:
    first, second = (case.run(choice.build()).sink for _ in range(2))
    assert first.requests == second.requests
    assert first.actions == second.actions


@examples(100)
@given(
    with_faults(cases(clients=False, delays=False)),
    st.sampled_from(["fifo", "edf", "clockwork", "dynamic_batching"]),
)
def test_nothing_waits_for_ever_once_all_workers_are_back(case: Case, name: str) -> None:
    """Without deadlines every request is served in the end, or was lost with a worker."""
    back = tuple(
        fault.__class__(at_s=fault.at_s, gpu=fault.gpu, back_after_s=0.01)
        if hasattr(fault, "back_after_s")
        else fault
        for fault in case.faults
    )
    streams = tuple(tuple(FOREVER for _ in case.models) for _ in case.slo_ns)
    case = case._replace(faults=back, slo_ns=streams, drain_ns=60_000_000_000)
    seen = Recorder(Choice(name, {}).build())
    world = case.run(seen)
    failed = {Reason.WORKER_LOST, Reason.WORKER_FAILED, Reason.MISSED_WINDOW}
    for row in world.requests:
        assert row.outcome in (Outcome.OK, Outcome.LATE) or Reason(row.reason) in failed, row
    open_ = {a.id for _, _, a in seen.emitted} - {row.id for row in world.actions}
    assert not open_
    assert all(isinstance(a, Infer | Unload) or a.id not in open_ for _, _, a in seen.emitted)
