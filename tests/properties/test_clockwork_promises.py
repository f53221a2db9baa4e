"""What Clockwork promises when its predictions hold: constant durations, and no delays.

And what it never does, whatever happens: plan a batch that ends after a deadline.
"""

from hypothesis import given

from scheduler.records import FOREVER, Outcome, Status
from tests.properties.cases import Case, Choice, Recorder, cases, clockworks, examples
from tests.worlds import MS

CERTAIN = {"constant": True, "delays": False}


def ms(choice: Choice, name: str, default: float) -> int:
    """A parameter of a choice in ns; the defaults are the artifact's."""
    return round(choice.params.get(name, default) * MS)


@examples(400)
@given(cases(**CERTAIN), clockworks(faithful_to="none"))
def test_when_predictions_hold_nothing_is_late_and_no_window_is_missed(
    case: Case, choice: Choice
) -> None:
    world = case.run(choice.build())
    assert not world.sink.ended(Outcome.LATE)
    assert not world.sink.ended(Outcome.FAILED)
    assert all(row.status == Status.DONE for row in world.actions)


@examples(200)
@given(cases(), clockworks(faithful_to="none"))
def test_no_batch_is_planned_to_end_after_a_deadline_in_it(case: Case, choice: Choice) -> None:
    """Whatever the durations turn out to be, and however long messages take."""
    seen = Recorder(choice.build())
    world = case.run(seen)
    deadlines = {row.id: row.deadline_ns for row in world.requests}
    delta_ns = ms(choice, "latest_delta_ms", 10)
    for _, _, action in seen.emitted:
        for task in getattr(action, "tasks", ()):
            planned_ns = action.latest_ns - delta_ns + action.expected_ns
            assert planned_ns <= deadlines[task]


@examples(200)
@given(cases(**CERTAIN), clockworks(faithful_to="none"))
def test_who_is_not_served_hears_it_before_the_deadline(case: Case, choice: Choice) -> None:
    world = case.run(choice.build())
    for row in world.requests:
        if row.outcome in (Outcome.REJECTED, Outcome.TIMED_OUT):
            assert row.end_ns <= row.deadline_ns


@examples(200)
@given(cases(**CERTAIN), clockworks(faithful_to="osdi20-artifact"))
def test_the_artifact_rejects_at_the_deadline_less_the_buffer(case: Case, choice: Choice) -> None:
    """Original, section 5.6 of the measurements: all rejected requests have latency 95.0 ms at an
    SLO of 100 ms. Nobody is planned for less than schedule_ahead + buffer."""
    world = case.run(choice.build())
    buffer_ns = ms(choice, "buffer_ms", 5)
    floor_ns = ms(choice, "schedule_ahead_ms", 10) + buffer_ns
    for row in world.requests:
        if row.outcome in (Outcome.REJECTED, Outcome.TIMED_OUT):
            slo_ns = row.deadline_ns - row.arrival_ns
            planned_ns = slo_ns - buffer_ns if slo_ns > buffer_ns else slo_ns
            assert row.latency_ns == max(planned_ns, floor_ns)


@examples(300)
@given(cases(clients=False, largest_arrivals=8, **CERTAIN), clockworks(faithful_to="none"))
def test_whoever_can_be_served_on_an_idle_cluster_is(case: Case, choice: Choice) -> None:
    """A lone request is served if its SLO has room for all that has to happen: the model's load
    if it is not there, the future that is set aside for messages, the smallest batch, the buffer.
    """
    apart_ns = 1_000 * MS  # nothing is left of the request before
    arrivals = [(apart_ns * (i + 1), m, s) for i, (_, m, s) in enumerate(case.arrivals)]
    end_ns = apart_ns * (len(arrivals) + 2)
    case = case._replace(arrivals=tuple(arrivals), end_ns=end_ns, drain_ns=0)
    for row in case.run(choice.build()).requests:
        spec = case.models[row.model]
        if row.deadline_ns == FOREVER:
            continue
        work_ns = spec.exec[min(spec.exec)].ns + row.cold * spec.load.ns
        need_ns = work_ns + ms(choice, "future_ms", 1) + ms(choice, "buffer_ms", 5)
        if row.deadline_ns - row.arrival_ns > need_ns:
            assert row.outcome == Outcome.OK
            assert row.latency_ns == work_ns
