"""The simulated cluster, one story at a time."""

from typing import Any

import msgspec
import pytest

from scheduler.records import FOREVER, GpuInfo, Outcome, Reason, Status, Why
from sim.cluster import Cluster, Delays, OpenLoop
from sim.gpu import ModelCost
from tests.worlds import MS, RESNET50_PAGES, Sink, World, model, policy, run
from workloads import Client

US = 1_000


class Script:
    """A policy that does what a test tells it, and keeps what it hears."""

    class Params(msgspec.Struct):
        pass

    def __init__(self, on_start: Any = None, on_request: Any = None, on_wake: Any = None) -> None:
        self._on_start = on_start
        self._on_request = on_request
        self._on_wake = on_wake
        self.results: list[Any] = []
        self.heard_ns: list[int] = []

    def on_start(self, now_ns: int, gpus: Any, models: Any, rng: Any, out: Any) -> None:
        if self._on_start:
            self._on_start(now_ns, out)

    def on_request(self, now_ns: int, request: Any, out: Any) -> None:
        self.heard_ns.append(now_ns)
        if self._on_request:
            self._on_request(now_ns, request, out)

    def on_result(self, now_ns: int, result: Any, out: Any) -> None:
        self.heard_ns.append(now_ns)
        self.results.append(result)
        if result.status is Status.DONE and hasattr(result.action, "tasks"):
            for task in result.action.tasks:
                out.answer(task)

    def on_wake(self, now_ns: int, key: Any, out: Any) -> None:
        self.heard_ns.append(now_ns)
        if self._on_wake:
            self._on_wake(now_ns, key, out)


def test_each_delay_is_where_it_belongs() -> None:
    delays = Delays(
        client_to_controller_ns=1,
        poll_ns=10,
        controller_to_worker_ns=100,
        worker_gap_ns=1_000,
        worker_to_controller_ns=10_000,
        controller_to_client_ns=100_000,
    )

    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)

    def infer(now_ns: int, request: Any, out: Any) -> None:
        out.infer(0, 0, 1, (request.id,), now_ns, FOREVER, 0)

    script = Script(start, infer)
    world = run(script, [(20, 0), (20, 0)], delays=delays)
    load, first, second = world.actions
    assert load.start_ns == 100
    assert first.sent_ns == 20 * MS + 11
    assert first.start_ns == 20 * MS + 111
    assert second.start_ns == first.end_ns + 1_000
    heard_ns = first.end_ns + 10_010
    assert script.heard_ns[3] == heard_ns
    assert world.requests[0].end_ns == heard_ns + 100_000


def test_a_busy_controller_lets_events_wait() -> None:
    delays = Delays(decision_per_event_ns=MS)
    script = Script()
    run(script, [(5, 0), (5.1, 0), (5.2, 0), (9, 0)], delays=delays)
    assert script.heard_ns == [5 * MS, 6 * MS, 7 * MS, 9 * MS]


def test_what_a_decision_emits_leaves_after_its_cost() -> None:
    delays = Delays(decision_per_event_ns=1_000, decision_per_action_ns=10)

    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)
        out.load(0, 1, 0, FOREVER, 0)

    world = run(Script(start), models=[model(), model()], delays=delays)
    assert [action.sent_ns for action in world.actions] == [1_020, 1_020]


def test_an_action_that_misses_its_window_is_not_run_late() -> None:
    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)

    def infer(now_ns: int, request: Any, out: Any) -> None:
        out.infer(0, 0, 1, (request.id,), now_ns, now_ns + 1 * MS, 0)

    script = Script(start, infer)
    world = run(script, [(20, 0), (20, 0)])
    assert [result.status for result in script.results] == [
        Status.DONE,
        Status.DONE,
        Status.MISSED,
    ]
    assert script.results[-1].why is Why.WINDOW
    assert [row.outcome for row in world.requests] == [Outcome.OK, Outcome.UNFINISHED]


def test_a_load_runs_beside_an_execution() -> None:
    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)

    def both(now_ns: int, request: Any, out: Any) -> None:
        out.infer(0, 0, 16, (request.id,), now_ns, FOREVER, 0)
        out.load(0, 1, now_ns, FOREVER, 0)

    world = run(Script(start, both), [(20, 0)], models=[model(), model()])
    _, load, infer = world.actions
    assert load.start_ns == infer.start_ns == 20 * MS


def test_a_load_without_room_fails() -> None:
    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)
        out.load(0, 1, 0, FOREVER, 0)

    script = Script(start)
    run(script, models=[model(), model()], pages=2 * RESNET50_PAGES - 1)
    assert [result.why for result in script.results] == [Why.NOTHING, Why.NO_PAGES]


def test_an_unload_gives_all_the_pages_back() -> None:
    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)
        out.wake_at(10 * MS, "then")

    def then(now_ns: int, key: Any, out: Any) -> None:
        out.unload(0, 0, now_ns, FOREVER)
        out.load(0, 1, now_ns, FOREVER, 0)

    script = Script(start, on_wake=then)
    run(script, models=[model(), model()], pages=RESNET50_PAGES)
    assert [result.status for result in script.results] == [Status.DONE] * 3


def test_a_new_time_for_a_wake_replaces_the_old_one() -> None:
    def start(now_ns: int, out: Any) -> None:
        out.wake_at(10 * MS, "key")
        out.wake_at(5 * MS, "other")
        out.wake_at(20 * MS, "key")

    script = Script(start)
    run(script)
    assert script.heard_ns == [5 * MS, 20 * MS]


def test_an_instant_reject_does_not_stop_time_for_a_client_that_asks_again() -> None:
    def refuse(now_ns: int, request: Any, out: Any) -> None:
        out.reject(request.id, Reason.DEADLINE)

    world = run(
        Script(None, refuse),
        clients=[Client(1, 0, 100 * MS, think_ns=0, start_ns=0, until_ns=1 * MS)],
        end_s=0.001,
    )
    assert len(world.requests) == 1000  # once a microsecond


def test_every_request_has_one_fate_when_the_run_stops_first() -> None:
    world = run(Script(), [(1, 0), (2, 0)], delays=Delays(decision_per_event_ns=10_000 * MS))
    assert [row.outcome for row in world.requests] == [Outcome.UNFINISHED] * 2
    assert world.cluster.arrived == 2


def test_the_same_seed_gives_the_same_run() -> None:
    arrivals = [(i * 1.7, i % 3) for i in range(500)]
    models = [model(), model(), model()]
    runs = [run(policy("clockwork"), arrivals, models=models, gpus=2) for _ in range(2)]
    assert runs[0].sink.requests == runs[1].sink.requests
    assert runs[0].sink.actions == runs[1].sink.actions


def starts_us(world: World) -> dict[int, float]:
    return {row.id: row.start_ns / US for row in world.actions if row.type == "infer"}


@pytest.mark.parametrize("later_us", [1_000, 30])
def test_an_engine_takes_its_next_action_after_the_gap_even_if_a_later_one_waits(
    later_us: int,
) -> None:
    """Whether the later one may start long after the gap, or just when the engine finishes."""

    def start(now_ns: int, out: Any) -> None:
        out.load(0, 0, 0, FOREVER, 0)

    def three(now_ns: int, request: Any, out: Any) -> None:
        if request.id == 2:
            at_ns = 20 * US
            out.infer(0, 0, 1, (0,), later_us * US, FOREVER, 0)
            out.infer(0, 0, 1, (1,), at_ns, FOREVER, 0)
            out.infer(0, 0, 1, (2,), at_ns, FOREVER, 0)

    world = run(
        Script(start, three),
        [(0.02, 0)] * 3,
        models=[model({1: 0.01}, load_ms=0.01)],
        delays=Delays(worker_gap_ns=5 * US),
    )
    # Actions 2 and 3 run from 20 and, 10 us and the gap later, from 35; action 1 when it may.
    assert starts_us(world) == {2: 20, 3: 35, 1: max(later_us, 50)}


def test_actions_are_written_with_their_gpu_also_where_lanes_have_other_numbers() -> None:
    spec = model()
    sink = Sink()

    def start(now_ns: int, out: Any) -> None:
        out.load(7, 0, 0, FOREVER, 0)

    Cluster(
        policy=Script(start),
        gpus=(GpuInfo(0, (7, 8), 100),),
        models=(spec.info(0),),
        costs=[ModelCost(spec.pages, spec.load, spec.exec)],
        delays=Delays(),
        arrivals=OpenLoop(iter([]), []),
        clients=(),
        sink=sink,
        rngs=[None],  # type: ignore[list-item]  # nothing is drawn
        policy_rng=None,  # type: ignore[arg-type]
    ).run(1_000 * MS, 0)
    assert [row.gpu for row in sink.actions] == [0]
