"""What a decision costs. No time is asserted, only what is made of it."""

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mainspring import build_scenario
from mainspring.cli import app
from mainspring.decisions import Timed, _split, as_text, measure_decisions
from mainspring.document import ScenarioError
from mainspring.world import build_world
from tests.worlds import Sink

TABLE: dict[str, Any] = {
    "name": "small",
    "duration_s": 1.0,
    "slo_ms": 100.0,
    "cluster": {"pages": 1376},
    "models": [{"profile": "clockwork_docs/resnet50_v2", "copies": 3}],
    "workload": [{"kind": "poisson", "rate_rps": 300}],
    "policy": {"clockwork": {}},
}


def test_a_cost_that_is_a_line_is_split_as_it_is() -> None:
    """3 us an event and 0.5 for each of what comes of it."""
    emitted = np.tile(np.arange(10.0), 200)
    assert _split(3000 + 500 * emitted, emitted) == pytest.approx((3000, 500))
    assert _split(np.full(5, 3000.0), np.zeros(5)) == (3000, 0)
    assert _split(np.zeros(0), np.zeros(0)) == (0, 0)


def test_a_split_is_never_negative_and_adds_up_to_what_was_measured() -> None:
    emitted = np.array([0.0, 1, 2, 3])
    for took in (np.array([9.0, 6, 3, 0]), np.array([0.0, 0, 0, 12])):
        event, action = _split(took, emitted)
        assert event >= 0
        assert action >= 0
        assert event * 4 + action * emitted.sum() == pytest.approx(took.sum())


def test_each_event_is_timed_and_the_policy_decides_as_it_would() -> None:
    scenario = build_scenario(TABLE)
    (choice,) = scenario.policies
    rows = []
    for policy in (choice.build(), Timed(choice.build())):
        sink = Sink()
        build_world(scenario, policy, sink).run(10**9, 10**9)
        rows.append((sink.requests, sink.actions))
    assert rows[0] == rows[1]
    found = measure_decisions(scenario, choice)
    assert found.requests == len(rows[0][0])
    assert found.kinds["request"].events == found.requests
    assert found.kinds["result"].events == len(rows[0][1])
    assert found.max_rps == pytest.approx(1e6 / found.per_request_us)
    assert f"decision_per_event = {found.per_event_us:.2f}" in as_text(found)


def test_the_command_prints_all_policies_of_a_scenario(tmp_path: Any) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        """
name = "s"
duration_s = 0.2
slo_ms = 100
[cluster]
pages = 1376
[[models]]
profile = "clockwork_docs/resnet50_v2"
[[workload]]
kind = "poisson"
rate_rps = 100
[policy.clockwork]
[policy.fifo]
"""
    )
    printed = CliRunner().invoke(app, ["decisions", str(file), "--json"])
    assert [each["policy"] for each in json.loads(printed.stdout)] == ["clockwork", "fifo"]


def test_what_a_policy_of_ones_own_does_wrong_is_one_line(tmp_path) -> None:
    policy = tmp_path / "broken.py"
    policy.write_text(
        "import msgspec\n"
        "class Broken:\n"
        "    class Params(msgspec.Struct): ...\n"
        "    def __init__(self, params): ...\n"
        "    def on_start(self, now_ns, gpus, models, rng, out): ...\n"
        "    def on_request(self, now_ns, request, out): raise ValueError('kaboom')\n"
        "    def on_result(self, now_ns, result, out): ...\n"
        "    def on_wake(self, now_ns, key, out): ...\n"
    )
    scenario = build_scenario(TABLE)
    (choice,) = scenario.choose([f"{policy}:Broken"])
    with pytest.raises(ScenarioError, match=r"broken\.py, line 6: ValueError: kaboom"):
        measure_decisions(scenario, choice)
