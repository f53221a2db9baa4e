import asyncio
import json
import struct
import threading
from typing import Any

import pytest

from executor.counts import Counts
from executor.front import build_app
from executor.wire import Condition
from scheduler.records import ACTION_COLUMNS, Outcome, Reason
from tests.executor.fronts import DOUBLE, Front, body

LENGTH = "Inference_Header_Content_Length"


def test_each_item_gets_its_own_answer() -> None:
    reply = Front().infer(body([1, 2], [3, 4], [5, 6], id="seven"))
    assert reply.status == 200
    assert reply.json["id"] == "seven"
    (output,) = reply.json["outputs"]
    assert (output["shape"], output["data"]) == ([3, 2], [2, 4, 6, 8, 10, 12])


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True, None])
def test_json_and_binary_tensors_mix(binary_in: bool, binary_out: bool | None) -> None:
    asked = body([1.5, -2.0])
    if binary_out is not None:
        asked["outputs"] = [{"name": "y", "parameters": {"binary_data": binary_out}}]
    headers, tail = {}, b""
    if binary_in:
        del asked["inputs"][0]["data"]
        asked["inputs"][0]["parameters"] = {"binary_data_size": 8}
        tail = struct.pack("<2f", 1.5, -2.0)
        headers[LENGTH] = str(len(json.dumps(asked)))
    reply = Front().infer(json.dumps(asked).encode() + tail, **headers)
    assert reply.status == 200
    cut = int(reply.headers.get("inference-header-content-length", len(reply.body)))
    output = json.loads(reply.body[:cut])["outputs"][0]
    if binary_out:
        assert struct.unpack("<2f", reply.body[cut:]) == (3.0, -4.0)
    else:
        assert output["data"] == [3.0, -4.0]


def test_an_slo_comes_by_parameter_then_header_then_timeout() -> None:
    front = Front()
    front.infer(body([1, 2], parameters={"slo_ms": 20, "timeout": 7}), Mainspring_Slo_Ms="30")
    front.infer(body([1, 2], parameters={"timeout": 7}), Mainspring_Slo_Ms="30.5")
    front.infer(body([1, 2], parameters={"timeout": 7}))
    front.infer(body([1, 2]))
    assert front.backend.slos == [20_000_000, 30_500_000, 7_000, None]


@pytest.mark.parametrize("slo", [0, -1, "soon", True, 1e300, 10**400, [1]])
def test_an_slo_that_is_no_time_is_refused(slo: Any) -> None:
    reply = Front().infer(body([1, 2], parameters={"slo_ms": slo}))
    assert reply.status == 400


@pytest.mark.parametrize(
    ("outcome", "reason", "status"),
    [
        (Outcome.REJECTED, Reason.CANNOT_START_IN_TIME, 503),
        (Outcome.TIMED_OUT, Reason.DEADLINE, 504),
        (Outcome.FAILED, Reason.WORKER_FAILED, 500),
        (Outcome.FAILED, Reason.MISSED_WINDOW, 503),
        (Outcome.FAILED, Reason.WORKER_LOST, 503),
        (Outcome.UNFINISHED, Reason.NOTHING, 503),
    ],
)
def test_a_request_without_an_answer_says_why(
    outcome: Outcome, reason: Reason, status: int
) -> None:
    front = Front()
    front.backend.outcome, front.backend.reason = outcome, reason
    reply = front.infer(body([1, 2]))
    assert reply.status == status
    assert reply.json["reason"] == (reason or outcome).name.lower()
    assert ("retry-after" in reply.headers) == (status == 503)


def test_a_late_answer_is_an_answer_and_says_so() -> None:
    front = Front()
    front.backend.outcome = Outcome.LATE
    reply = front.infer(body([1, 2]))
    assert reply.status == 200
    assert reply.json["parameters"]["late"] is True
    assert reply.headers["mainspring-outcome"] == "late"


def test_too_much_is_refused_with_a_reason() -> None:
    front = Front(body_bytes=200)
    reply = front.infer(body(*[[1.0, 2.0]] * 40))
    assert (reply.status, reply.json["reason"]) == (413, "body_too_large")
    assert front.infer(body([1, 2])).status == 200


def test_a_full_queue_is_a_503_and_what_waits_is_answered() -> None:
    front = Front(waiting_requests=2)

    async def story() -> None:
        front.backend.hold = asyncio.Event()
        data = json.dumps(body([1, 2])).encode()
        path = "/v2/models/double/infer"
        waiting = [asyncio.create_task(front.send("POST", path, data)) for _ in range(2)]
        await asyncio.sleep(0)
        while len(front.backend.slos) < 2:
            await asyncio.sleep(0)
        refused = await front.send("POST", path, data)
        assert (refused.status, refused.json["reason"]) == (503, "queue_full")
        assert refused.headers["retry-after"] == "1"
        front.backend.hold.set()
        assert [(await one).status for one in waiting] == [200, 200]
        assert (await front.send("POST", path, data)).status == 200

    asyncio.run(story())
    assert front.backend.fates == 3


def test_what_is_not_there_is_a_404() -> None:
    front = Front()
    assert front.ask("GET", "/v2/models/nobody").json["reason"] == "unknown_model"
    assert front.ask("GET", "/v2/models/double/versions/2").json["reason"] == "unknown_version"
    assert front.ask("GET", "/v3").json["reason"] == "unknown_path"
    wrong_way = front.ask("GET", "/v2/models/double/infer")
    assert (wrong_way.status, wrong_way.json["error"]) == (
        405, "GET /v2/models/double/infer: there it is POST",
    )  # fmt: skip


def test_a_server_without_workers_is_alive_but_not_ready() -> None:
    front = Front()
    front.backend.down = "no worker has joined"
    assert front.ask("GET", "/v2/health/live").status == 200
    reply = front.ask("GET", "/v2/health/ready")
    assert (reply.status, reply.json["error"]) == (503, "no worker has joined")
    assert front.infer(body([1, 2])).json["reason"] == "not_ready"


def test_metadata_config_and_statistics_fit_together() -> None:
    front = Front()
    front.infer(body([1, 2]))
    front.counts.action((0, "load", 0, 0, 0, 0, 0, 9, 1, 0, 0, 1, 1, 0, 0))
    front.counts.action((1, "infer", 0, 0, 2, 1, 0, 9, 1, 0, 0, 1, 7, 0, 0))
    for path in ("/v2/models/double", "/v2/models/double/versions/1"):
        assert front.ask("GET", path).json["inputs"][0]["shape"] == [-1, 2]
    config = front.ask("GET", "/v2/models/double/config").json
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (4, [2])
    (stats,) = front.ask("GET", "/v2/models/double/stats").json["model_stats"]
    assert (stats["inference_count"], stats["execution_count"]) == (1, 1)
    metrics = front.ask("GET", "/metrics").body.decode()
    assert 'mainspring_requests_total{model="double",outcome="ok",reason="nothing"} 1.0' in metrics
    assert 'mainspring_pages_used{gpu="0"} 3.0' in metrics


def test_metrics_tell_how_each_device_is_until_its_worker_is_lost() -> None:
    front = Front()
    counts = front.backend.counts
    load = dict.fromkeys(ACTION_COLUMNS, 0) | {"type": "load"}
    counts.action(tuple(load.values()))
    counts.condition(0, Condition(1_980, 61, 5, "too hot"))
    text = front.ask("GET", "/metrics").body.decode()
    assert 'mainspring_gpu_clock_hertz{gpu="0"} 1.98e+09' in text
    assert 'mainspring_gpu_temperature_celsius{gpu="0"} 61.0' in text
    assert 'mainspring_gpu_throttled{gpu="0"} 1.0' in text
    assert 'mainspring_gpu_memory_used_bytes{gpu="0"} 5.0' in text
    assert 'mainspring_pages_used{gpu="0"} 3.0' in text

    counts.worker_lost(0)
    text = front.ask("GET", "/metrics").body.decode()
    assert "mainspring_gpu_clock_hertz{" not in text
    assert 'mainspring_pages_used{gpu="0"} 0.0' in text

    counts.condition(0, Condition(None, None, 5))
    text = front.ask("GET", "/metrics").body.decode()
    assert "mainspring_gpu_clock_hertz{" not in text  # what it can't say
    assert 'mainspring_gpu_throttled{gpu="0"} 0.0' in text


def test_what_all_models_have_to_tell_is_held_until_it_is_taken() -> None:
    models = [DOUBLE._replace(name=f"double.{i}") for i in range(1_000)]
    for room, status in ((10_000_000, 200), (300_000, 503)):
        front = Front(waiting_bytes=room)
        front.counts = Counts([model.name for model in models], [1] * 1_000, [10])
        front.app = build_app(models, front.backend, front.counts, front.limits, local=False)
        assert front.ask("GET", "/v2/models/stats").status == status
        assert front.ask("GET", "/v2").status == 200
        held = front.counts._registry.get_sample_value("mainspring_http_held_bytes")
        assert held == 0


def test_metrics_are_made_once_for_all_who_ask_meanwhile() -> None:
    front = Front()
    asked = threading.Event()
    made = []
    exposition = front.counts.exposition

    def slowly() -> tuple[bytes, str]:
        asked.wait(20)
        made.append(1)
        return exposition()

    front.counts.exposition = slowly  # type: ignore[method-assign]

    async def story() -> None:
        asking = [asyncio.create_task(front.send("GET", "/metrics")) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert (await front.send("GET", "/v2/health/live")).status == 200  # it goes on meanwhile
        asked.set()
        assert [(await one).status for one in asking] == [200] * 5
        assert len(made) == 1
        assert (await front.send("GET", "/metrics")).status == 200
        assert len(made) == 2

    asyncio.run(story())


@pytest.mark.parametrize("path", ["/v2/models/{}/infer", "/v2/models/{}", "/v3/{}"])
def test_what_clients_make_up_makes_no_metric(path: str) -> None:
    """Neither names of models, nor SLOs, nor ids: 1,000 of each leave as many lines as one."""
    front = Front()

    def lines() -> int:
        return front.ask("GET", "/metrics").body.count(b"\n")

    def ask(i: int) -> None:
        asked = body([i, 2], id=f"id {i}", parameters={"slo_ms": i + 0.5})
        front.ask("POST", path.format(f"model{i}"), json.dumps(asked).encode())
        assert front.infer(asked, Mainspring_Slo_Ms=f"{i}.5").status == 200

    ask(0)
    before = lines()
    for i in range(1, 1_000):
        ask(i)
    assert lines() == before


@pytest.mark.parametrize(
    ("local", "headers", "reason"),
    [
        (True, {}, None),
        (True, {"Host": "localhost:8000"}, None),
        (True, {"Host": "gpu.localhost"}, None),
        (True, {"Host": "127.0.0.1:8000"}, None),
        (True, {"Host": "[::1]:8000"}, None),
        (True, {"Host": "evil.example:8000"}, "other_host"),
        (True, {"Host": "127.0.0.1.evil.example"}, "other_host"),
        (True, {"Host": "[::1"}, "other_host"),
        (False, {"Host": "gpus.example"}, None),
        (True, {"Host": "localhost:8000", "Origin": "http://localhost:8000"}, None),
        (True, {"Host": "localhost:8000", "Origin": "http://localhost:9000"}, "other_origin"),
        (True, {"Host": "localhost:8000", "Origin": "null"}, "other_origin"),
        (False, {"Host": "gpus.example", "Origin": "https://evil.example"}, "other_origin"),
        (False, {"Host": "gpus.example", "Origin": "https://gpus.example"}, None),
    ],
)
def test_pages_of_others_are_refused(
    local: bool, headers: dict[str, str], reason: str | None
) -> None:
    """A browser asks for them, and says whose page it is, or by which name it found the way."""
    front = Front(local=local)
    replies = [front.infer(body([1, 2]), **headers), front.ask("GET", "/metrics", **headers)]
    assert [reply.status for reply in replies] == [403 if reason else 200] * 2
    if reason:
        assert [reply.json["reason"] for reply in replies] == [reason] * 2
        assert not front.backend.slos
