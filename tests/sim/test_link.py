"""The link to the workers: in order, two sends at a time, and what is too late is not sent.

An input of 1,000,000 bytes takes 1 ms at 8 Gbit/s.
"""

from itertools import pairwise

from mainspring import build_scenario
from mainspring.world import build_world
from results.audit import Audit
from results.columns import actions_of, requests_of
from scheduler.records import Action, Infer, Load, Outcome, Reason, Status, Why
from sim.clock import Clock
from sim.link import Link, LinkParams
from tests.worlds import MS, Sink, World, model, policy, run

MB = 1_000_000
PARAMS = LinkParams(bits_per_s=8e9, sends=2, margin_ns=5 * MS, input_bytes=(MB,))


class Wire:
    """A link, and what came of what was sent: (ms, action id)."""

    def __init__(self, params: LinkParams = PARAMS) -> None:
        self.clock = Clock()
        self.arrived: list[tuple[float, int]] = []
        self.unsent: list[tuple[float, int]] = []
        self.link = Link(self.clock, params, self._arrive, self._unsent)

    def _arrive(self, gpu: int, action: Action) -> None:
        self.arrived.append((self.clock.now / MS, action.id))

    def _unsent(self, action: Action) -> None:
        self.unsent.append((self.clock.now / MS, action.id))


def batch(id: int, size: int = 1, latest_ms: float = 1000.0) -> Infer:
    return Infer(id, 0, 0, size, tuple(range(size)), 0, round(latest_ms * MS), 3 * MS)


def test_inputs_share_the_link_in_order() -> None:
    wire = Wire()
    for action in (batch(0, 4), batch(1, 1), batch(2, 2)):
        wire.link.send(0, 0, action)
    wire.clock.run()
    assert wire.arrived == [(4, 0), (5, 1), (7, 2)]


def test_what_waits_too_long_is_not_sent_and_the_controller_learns_it_in_the_end() -> None:
    """Two are under way until 4 ms. The window of the third closes at 8, so it had to be sent by
    3; it is told when it would have been over, at 8 + 3. The fourth goes in its place."""
    wire = Wire()
    for action in (batch(0, 4), batch(1, 4), batch(2, latest_ms=8.0), batch(3)):
        wire.link.send(0, 0, action)
    wire.clock.run()
    assert wire.arrived == [(4, 0), (8, 1), (9, 3)]
    assert wire.unsent == [(11, 2)]


def test_a_send_may_always_wait_a_millisecond() -> None:
    """Its window leaves less than the margin, but it is sent at 1 ms, when the first is through."""
    wire = Wire(PARAMS._replace(sends=1))
    for action in (batch(0), batch(1, latest_ms=2.0)):
        wire.link.send(0, 0, action)
    wire.clock.run()
    assert wire.arrived == [(1, 0), (2, 1)]


def test_a_load_has_no_bytes_but_its_turn() -> None:
    wire = Wire()
    wire.link.send(0, 0, batch(0, 4))
    wire.link.send(0, 0, Load(1, 0, 0, 0, 0, 0))
    wire.link.send(0, 0, batch(2, 1))
    wire.clock.run()
    assert wire.arrived == [(4, 0), (4, 1), (5, 2)]


def over_a_link(bits_per_s: float, arrivals: list[tuple[float, int]]) -> World:
    return run(
        policy("clockwork"),
        arrivals,
        link=LinkParams(bits_per_s, 2, 5 * MS, (MB,)),
        models=[model()],
    )


def test_a_batch_starts_when_its_inputs_are_there() -> None:
    """Loaded at 8.31; sent at 50, there at 51 with 1 MB at 8 Gbit/s."""
    world = over_a_link(8e9, [(0, 0), (50, 0)])
    assert [row.start_ns / MS for row in world.actions] == [0, 9.31, 51]


def test_a_link_that_is_too_slow_fails_requests_and_loses_none() -> None:
    """8 ms an input, and 300 requests in 0.3 s: most batches wait too long for the link."""
    world = over_a_link(1e9, [(float(ms), 0) for ms in range(300)])
    failed = [row for row in world.requests if row.reason == Reason.MISSED_WINDOW]
    late = [row for row in world.actions if row.why == Why.SENT_TOO_LATE]
    assert late
    assert {row.status for row in late} == {Status.MISSED}
    assert len(failed) >= len(late)
    assert {Outcome(row.outcome) for row in failed} == {Outcome.FAILED}
    assert len(world.requests) == 300
    audit = Audit(pages_of_model=[7], pages_of_gpu=[1376])
    audit.actions(actions_of([tuple(row) for row in world.actions]))
    audit.requests(requests_of([tuple(row) for row in world.requests]))
    audit.finish(300)


def test_a_scenario_has_a_link_if_it_says_so() -> None:
    """An input of ResNet50, 602,112 bytes, takes 4.816896 ms at 1 Gbit/s."""
    scenario = build_scenario(
        {
            "name": "link",
            "duration_s": 0.5,
            "slo_ms": 100.0,
            "cluster": {"pages": 1376, "link": {"gbit_per_s": 1.0}},
            "models": [{"profile": "clockwork_docs/resnet50_v2"}],
            "workload": [{"kind": "poisson", "rate_rps": 20}],
            "policy": {"clockwork": {}},
        }
    )
    sink = Sink()
    build_world(scenario, scenario.policies[0].build(), sink).run(5 * 10**8, 10**9)
    batches = [row for row in sink.actions if row.type == "infer"]
    assert {row.start_ns - row.sent_ns for row in batches if row.tasks == 1} >= {4_816_896}


def test_clients_that_share_a_link_ask_one_after_the_other() -> None:
    """Three clients, an input of 4.816896 ms at 1 Gbit/s: their requests count from then on."""
    scenario = build_scenario(
        {
            "name": "uplink",
            "duration_s": 0.1,
            "slo_ms": 100.0,
            "cluster": {"pages": 1376},
            "models": [{"profile": "clockwork_docs/resnet50_v2"}],
            "workload": [{"kind": "closed", "concurrency": 3, "link_gbit_per_s": 1.0}],
            "policy": {"clockwork": {}},
        }
    )
    sink = Sink()
    build_world(scenario, scenario.policies[0].build(), sink).run(10**8, 10**9)
    asked = sorted(row.arrival_ns for row in sink.requests)
    assert asked[:3] == [4_816_896, 2 * 4_816_896, 3 * 4_816_896]
    assert min(b - a for a, b in pairwise(asked)) >= 4_816_896
