"""The front on a real socket, asked by a client that we did not write."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from executor.server import HttpServer
from tests.executor.fronts import Front, serving

http = pytest.importorskip("tritonclient.http", reason="needs pip install 'tritonclient[http]'")
gevent = pytest.importorskip("gevent", reason="comes with tritonclient[http]")
InferenceServerException = pytest.importorskip("tritonclient.utils").InferenceServerException


@pytest.fixture
def served() -> Iterator[tuple[Front, HttpServer, str]]:
    front = Front()
    with serving(front) as (server, port):
        yield front, server, f"127.0.0.1:{port}"


def inputs(binary: bool) -> list[object]:
    tensor = http.InferInput("x", [2, 2], "FP32")
    tensor.set_data_from_numpy(np.array([[1, 2], [3, 4]], np.float32), binary_data=binary)
    return [tensor]


def test_tritons_client_sees_a_server_of_its_kind(served: tuple[Front, HttpServer, str]) -> None:
    front, _, address = served
    client = http.InferenceServerClient(address)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert client.get_server_metadata()["name"] == "mainspring"
    assert client.get_model_metadata("double")["inputs"][0]["name"] == "x"
    assert client.get_model_config("double")["max_batch_size"] == 4
    assert client.get_model_repository_index()[0]["name"] == "double"
    for binary_in in (False, True):
        for outputs in (None, [http.InferRequestedOutput("y", binary_data=False)],
                        [http.InferRequestedOutput("y", binary_data=True)]):  # fmt: skip
            answer = client.infer("double", inputs(binary_in), outputs=outputs)
            assert answer.as_numpy("y").tolist() == [[2, 4], [6, 8]]
    client.infer("double", inputs(True), timeout=5_000, parameters={"slo_ms": 9})
    assert front.backend.slos[-1] == 9_000_000
    stats = client.get_inference_statistics("double")["model_stats"][0]
    assert stats["inference_stats"]["success"]["count"] == 14
    with pytest.raises(InferenceServerException, match="no model 'nobody' is served here"):
        client.infer("nobody", inputs(True))
    client.close()


def test_a_stopping_server_answers_what_is_in_flight(
    served: tuple[Front, HttpServer, str],
) -> None:
    front, server, address = served
    hold = front.backend.hold = asyncio.Event()
    client = http.InferenceServerClient(address)
    waiting = client.async_infer("double", inputs(True))
    while not front.backend.slos:
        gevent.sleep(0.01)  # the client's request is one of its threads, which another sleep stops
    server.stop()
    assert front.backend.loop
    front.backend.loop.call_soon_threadsafe(hold.set)
    assert waiting.get_result().as_numpy("y").tolist() == [[2, 4], [6, 8]]
    assert front.backend.fates == 2
    client.close()
