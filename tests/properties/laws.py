"""What holds in every run, whatever the policy: the sentences of the design's contract, as code.

Written from the words and looking only at rows and at what a `Recorder` saw, so that it shares
nothing with the worlds, nor with `results.audit`, which it also calls.
"""

from collections import Counter, defaultdict
from itertools import pairwise

from results.audit import Audit
from results.columns import actions_of, requests_of
from scheduler.records import (
    FOREVER,
    OUTCOME_OF,
    AnswerKind,
    Infer,
    Outcome,
    Reason,
    Status,
    Unload,
    Why,
)
from sim.cluster import MIN_RETRY_NS
from tests.properties.cases import Case, Recorder
from tests.worlds import ActionRow, World

ANSWERED = (Outcome.OK, Outcome.LATE)


def all_of_them(case: Case, world: World, seen: Recorder) -> None:
    """Every law there is."""
    requests_end_once_and_add_up(case, world)
    outcomes_are_as_the_times_say(case, world)
    actions_have_one_result_each(case, world, seen)
    windows_are_honoured(world)
    engines_do_one_thing_at_a_time(case, world)
    engines_never_dawdle(case, world)
    nothing_is_stuck(case, world, seen)
    pages_are_never_exceeded(case, world)
    clients_wait_for_their_answer(case, world)
    the_audit_agrees(case, world)


def requests_end_once_and_add_up(case: Case, world: World) -> None:
    rows = world.requests
    assert [row.id for row in rows] == list(range(world.cluster.arrived))
    # A request is the controller's once the link and the polling loop have passed it on.
    on_the_way_ns = case.delays.client_to_controller_ns + case.delays.poll_ns
    asked = []
    for at_ns, model, stream in case.arrivals:
        slo_ns = case.slo_ns[stream][model]
        if at_ns + on_the_way_ns < case.stop_ns:
            deadline_ns = FOREVER if slo_ns == FOREVER else at_ns + slo_ns
            asked.append((at_ns, model, stream, deadline_ns))
    streams = len(case.slo_ns)
    got = [(r.arrival_ns, r.model, r.client, r.deadline_ns) for r in rows if r.client < streams]
    assert got == asked


def outcomes_are_as_the_times_say(case: Case, world: World) -> None:
    d = case.delays
    there_ns = d.client_to_controller_ns + d.poll_ns
    answer_ns = d.controller_to_worker_ns + d.worker_to_controller_ns + d.poll_ns
    batches = {
        row.id: row for row in world.actions if row.type == "infer" and row.status == Status.DONE
    }
    carried = Counter(row.action for row in world.requests if row.action >= 0)
    assert all(n <= batches[action].tasks for action, n in carried.items())
    for row in world.requests:
        assert row.end_ns >= row.arrival_ns
        if row.outcome in ANSWERED:
            assert (row.outcome == Outcome.OK) == (row.end_ns <= row.deadline_ns)
            assert row.kind == AnswerKind.PREDICTION
            assert row.reason == Reason.NOTHING
            spent_ns = there_ns + answer_ns + d.controller_to_client_ns
            batch = batches[row.action]
            assert (batch.model, batch.gpu, batch.batch) == (row.model, row.gpu, row.batch)
            assert batch.sent_ns >= row.arrival_ns + there_ns
            assert batch.end_ns + answer_ns - d.controller_to_worker_ns <= row.end_ns
            assert row.latency_ns >= spent_ns + batch.duration_ns
        else:
            assert (row.kind, row.gpu, row.batch) == (AnswerKind.NONE, -1, 0)
            assert row.action == -1
        if row.outcome == Outcome.UNFINISHED:
            assert (row.end_ns, row.reason) == (case.stop_ns, Reason.NOTHING)
        elif row.outcome not in ANSWERED:
            assert row.outcome == OUTCOME_OF[Reason(row.reason)]


def actions_have_one_result_each(case: Case, world: World, seen: Recorder) -> None:
    d = case.delays
    emitted = {action.id: (now_ns, gpu, action) for now_ns, gpu, action in seen.emitted}
    assert len(emitted) == len(seen.emitted)
    heard = [result.action.id for _, result in seen.results]
    assert len(set(heard)) == len(heard)
    rows = {row.id: row for row in world.actions}
    asked = {row.id: row.model for row in world.requests}
    assert len(rows) == len(world.actions)
    assert set(heard) <= set(rows) <= set(emitted)
    batch_ns = load_ns = d.worker_to_controller_ns + d.poll_ns
    if d.load_to_controller_ns is not None:
        load_ns = d.load_to_controller_ns + d.poll_ns
    before_ns: dict[int, int] = {}  # by GPU: none overtakes the one before
    for now_ns, result in seen.results:
        assert result.action is emitted[result.action.id][2]
        row = rows[result.action.id]
        there_ns = row.end_ns + (batch_ns if row.type == "infer" else load_ns)
        before_ns[row.gpu] = there_ns = max(there_ns, before_ns.get(row.gpu, 0))
        late_ns = now_ns - there_ns
        if d.decision_per_event_ns or d.decision_per_action_ns:
            assert late_ns >= 0  # it may have waited in the inbox
        else:
            assert late_ns == 0
    for row in rows.values():
        now_ns, gpu, action = emitted[row.id]
        assert (row.gpu, row.model, row.type) == (gpu, action.model, type(action).__name__.lower())
        assert (row.earliest_ns, row.latest_ns) == (action.earliest_ns, action.latest_ns)
        assert row.sent_ns >= now_ns
        assert row.start_ns >= row.sent_ns + d.controller_to_worker_ns
        tasks = len(action.tasks) if isinstance(action, Infer) else 0
        assert row.tasks == tasks <= max(row.batch, 0)
        models = {asked[task] for task in getattr(action, "tasks", ())}
        assert models <= {action.model}, "a batch carries requests for another model"


def windows_are_honoured(world: World) -> None:
    for row in world.actions:
        if row.status == Status.DONE:
            assert row.earliest_ns <= row.start_ns <= row.latest_ns
            assert row.end_ns - row.start_ns == row.duration_ns
            assert row.why == Why.NOTHING
        else:
            assert row.start_ns == row.end_ns
            assert row.duration_ns == 0
            outside = not row.earliest_ns <= row.start_ns <= row.latest_ns
            assert (row.status == Status.MISSED) == (row.why == Why.WINDOW) == outside


def engines_do_one_thing_at_a_time(case: Case, world: World) -> None:
    for rows in _by_engine(world).values():
        for before, after in pairwise(rows):
            assert after.start_ns >= before.end_ns + case.delays.worker_gap_ns


def engines_never_dawdle(case: Case, world: World) -> None:
    """An action starts once it is there, its window is open and its engine is free; not later."""
    for rows in _by_engine(world).values():
        free_ns = 0
        for row in rows:
            there_ns = row.sent_ns + case.delays.controller_to_worker_ns
            assert row.start_ns == max(there_ns, row.earliest_ns, free_ns)
            free_ns = row.end_ns + case.delays.worker_gap_ns


def nothing_is_stuck(case: Case, world: World, seen: Recorder) -> None:
    """What has no result when the run stops has a reason: it is on its way, its window has not
    opened, or its engine is still busy with something."""
    d = case.delays
    if d.decision_per_event_ns or d.decision_per_action_ns:
        return  # when an action leaves is then not known here
    engines = _by_engine(world)
    have = {row.id for row in world.actions}
    for now_ns, gpu, action in seen.emitted:
        ready_ns = max(now_ns + d.controller_to_worker_ns, action.earliest_ns)
        if action.id in have or ready_ns >= case.stop_ns or isinstance(action, Unload):
            continue
        done = engines.get((gpu, "infer" if isinstance(action, Infer) else "load"), [])
        free_ns = done[-1].end_ns + d.worker_gap_ns if done else 0
        assert case.stop_ns <= max(ready_ns, free_ns) + _longest_ns(case)


def pages_are_never_exceeded(case: Case, world: World) -> None:
    """And a batch runs on weights that are there from its start to its end."""
    changes: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    stays: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    moves = [row for row in world.actions if row.type != "infer" and row.status == Status.DONE]
    for row in moves:  # in the order in which they happened
        pages = case.models[row.model].pages
        stay = stays[row.gpu, row.model]
        if row.type == "load":
            assert not stay or stay[-1][1] <= row.start_ns, f"{row} loads what is there"
            stay.append([row.end_ns, FOREVER])
            changes[row.gpu].append((row.start_ns, 1, pages))
        else:
            assert stay, f"{row} unloads what is not there"
            assert stay[-1][1] == FOREVER, f"{row} unloads what is not there"
            stay[-1][1] = row.end_ns
            changes[row.gpu].append((row.end_ns, 0, -pages))
    for of_gpu in changes.values():
        used = 0
        for _, _, pages in sorted(of_gpu):
            used += pages
            assert 0 <= used <= case.pages
    for row in world.actions:
        if row.type == "infer" and row.status == Status.DONE:
            assert any(
                since <= row.start_ns and row.end_ns <= until
                for since, until in stays[row.gpu, row.model]
            ), f"{row} ran without its weights"


def clients_wait_for_their_answer(case: Case, world: World) -> None:
    of_client = defaultdict(list)
    for row in world.requests:
        of_client[row.client].append(row)
    for client in case.clients:
        rows = of_client[client.id]
        for before, after in pairwise(rows):
            assert before.outcome != Outcome.UNFINISHED
            assert after.arrival_ns >= before.end_ns + client.think_ns
            if before.outcome not in ANSWERED:
                assert after.arrival_ns >= before.end_ns + client.retry_after_ns
            assert after.arrival_ns >= before.arrival_ns + MIN_RETRY_NS
        assert all(row.arrival_ns < client.until_ns for row in rows)
        assert not rows or rows[0].arrival_ns == client.start_ns


def the_audit_agrees(case: Case, world: World) -> None:
    audit = Audit(
        pages_of_model=[spec.pages for spec in case.models],
        pages_of_gpu=[case.pages] * len(world.cluster._gpus),
    )
    if world.actions:
        audit.actions(actions_of(world.actions))
    if world.requests:
        audit.requests(requests_of(world.requests))
    audit.finish(world.cluster.arrived)
    assert not audit.unchecked


def _by_engine(world: World) -> dict[tuple[int, str], list[ActionRow]]:
    engines = defaultdict(list)
    for row in world.actions:
        if row.status == Status.DONE and row.type != "unload":
            engines[row.gpu, row.type].append(row)
    for rows in engines.values():
        rows.sort(key=lambda row: row.start_ns)
    return engines


def _longest_ns(case: Case) -> int:
    return max(
        durations.estimate_ns(1.0)
        for spec in case.models
        for durations in (spec.load, *spec.exec.values())
    )
