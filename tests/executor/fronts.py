"""A front with a backend of a few lines behind it, and a client without sockets."""

import asyncio
import json
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from executor.counts import Counts
from executor.front import Answer, Limits, build_app
from executor.oip import ServedModel, TensorSpec
from executor.server import HttpServer
from scheduler.records import FOREVER, AnswerKind, Outcome, Reason

DOUBLE = ServedModel(
    "double", (TensorSpec("x", "FP32", (2,)),), (TensorSpec("y", "FP32", (2,)),), max_batch=4
)


class Doubling:
    """Answers twice the input at once, or as it is told. Every fate goes to the counts.

    repeat: of each value in the answer.
    """

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self.outcome, self.reason = Outcome.OK, Reason.NOTHING
        self.hold: asyncio.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.slos: list[int | None] = []
        self.fates = 0
        self.repeat = 1
        self.down = ""

    def why_not_ready(self) -> str:
        return self.down

    async def submit(
        self, model: int, slo_ns: int | None, inputs: Mapping[str, np.ndarray]
    ) -> Answer:
        self.loop = asyncio.get_running_loop()
        self.slos.append(slo_ns)
        if self.hold:
            await self.hold.wait()
        answered = self.outcome in (Outcome.OK, Outcome.LATE)
        kind = AnswerKind.PREDICTION if answered else AnswerKind.NONE
        self.counts.request(
            (self.fates, 0, 0, 0, FOREVER, 5_000_000, self.outcome, self.reason, kind, 0, 1, False)
        )
        self.fates += 1
        y = np.repeat(inputs["x"] * 2, self.repeat)
        return Answer(self.outcome, self.reason, 5_000_000, 1, {"y": y})


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Front:
    """The application, asked in this process, or served with `serving`."""

    def __init__(self, model: ServedModel = DOUBLE, *, local: bool = False, **limits: Any) -> None:
        self.limits = Limits(**limits)
        self.counts = Counts(["double"], pages_of_model=[3], pages_of_gpu=[10])
        self.backend = Doubling(self.counts)
        self.backend.repeat = model.outputs[0].shape[0] // model.inputs[0].shape[0]
        self.app = build_app([model], self.backend, self.counts, self.limits, local=local)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        return asyncio.run(self.send(method, path, body, **headers))

    def infer(self, body: Any, **headers: str) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", "/v2/models/double/infer", data, **headers)

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
            "headers": [(name.replace("_", "-").lower().encode(), value.encode("latin-1"))
                        for name, value in headers.items()],
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        parts = [message.get("body", b"") for message in sent[1:]]
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Reply(sent[0]["status"], found, b"".join(parts))


@contextmanager
def serving(front: Front) -> Iterator[tuple[HttpServer, int]]:
    """The front on a real socket of its own thread; its port. At the end it has to end."""
    server = HttpServer(front.app, "127.0.0.1", 0, front.limits, front.counts)
    address: queue.Queue[str] = queue.Queue()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(address.put)))
    thread.start()
    try:
        yield server, int(address.get(timeout=20).rpartition(":")[2])
    finally:
        server.stop()
        thread.join(timeout=20)
    assert not thread.is_alive()


def body(*rows: list[float], **more: Any) -> dict[str, Any]:
    """An infer request for `double`."""
    shape = [len(rows), 2]
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": rows}], **more}
