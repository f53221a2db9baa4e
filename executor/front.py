"""The live system behind HTTP: the Open Inference Protocol v2, and metrics.

    client ──POST infer──► front ──submit──► backend (the controller) ──► workers

Each item of a request is a request of the scheduler's, with a fate of its own; the answer is
whole, or an error that names the first item that has none. A client that hangs up changes nothing:
what it asked for still ends, and is counted, once.
Not here: what the bytes mean (executor/oip.py), and the process around it (mainspring/serve.py).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from executor.counts import Counts
from executor.oip import (
    DATATYPES,
    VERSION,
    Refused,
    ServedModel,
    TensorSpec,
    answer_bytes,
    parse,
    reply,
)
from executor.visitors import refuse_pages
from scheduler.records import Outcome, Reason

SLO_HEADER: Final = "Mainspring-Slo-Ms"
OUTCOME_HEADER: Final = "Mainspring-Outcome"
_LENGTH: Final = "Inference-Header-Content-Length"

PIECE_BYTES: Final = 64 * 2**10
"""The server holds two of an answer that its client does not take, not all of it twice."""


class Answer(NamedTuple):
    """How one item ended. outputs: without the batch dimension, where there is an answer."""

    outcome: Outcome
    reason: Reason
    latency_ns: int
    batch: int
    outputs: Mapping[str, np.ndarray]


class Backend(Protocol):
    """What stands behind the front: the live controller."""

    def why_not_ready(self) -> str:
        """Nothing where it serves; else why not, in one line."""

    async def submit(
        self, model: int, slo_ns: int | None, inputs: Mapping[str, np.ndarray]
    ) -> Answer:
        """Ask the scheduler; the answer is the request's one end. slo_ns: None is the model's."""


class Limits(NamedTuple):
    """What one client, or all together, may make the server hold."""

    body_bytes: int = 64 * 2**20
    waiting_requests: int = 1_024
    waiting_bytes: int = 512 * 2**20
    body_seconds: float = 30.0
    """A body has this long to come, and an answer to be taken."""
    idle_seconds: float = 30.0
    """A connection has this long to ask, from its opening or its last answer to a whole header."""
    connections: int = 2_048


STATUS: Final = {
    Outcome.REJECTED: 503,
    Outcome.TIMED_OUT: 504,
    Outcome.FAILED: 500,
    Outcome.UNFINISHED: 503,
}
"""The HTTP status of an item without an answer."""
_TRY_AGAIN: Final = {Reason.MISSED_WINDOW, Reason.WORKER_LOST}
"""Failures that are a 503: they have nothing to do with the request, and the next try may do."""


def build_app(
    models: Sequence[ServedModel], backend: Backend, counts: Counts, limits: Limits, *, local: bool
) -> Starlette:
    """The application, for any ASGI server. local: it listens to this machine alone."""
    front = _Front(models, backend, counts, limits)
    guarded = partial(_guard, front, counts, local)
    model = "/v2/models/{model}"
    routes = [
        Route("/v2", guarded(front.server)),
        Route("/v2/health/live", guarded(front.live)),
        Route("/v2/health/ready", guarded(front.ready)),
        Route("/v2/repository/index", guarded(front.index), methods=["POST"]),
        Route("/v2/models/stats", guarded(front.all_stats)),
        Route("/metrics", guarded(front.metrics)),
    ]
    for path in (model, f"{model}/versions/{{version}}"):
        routes += [
            Route(path, guarded(front.metadata)),
            Route(f"{path}/ready", guarded(front.model_ready)),
            Route(f"{path}/config", guarded(front.config)),
            Route(f"{path}/stats", guarded(front.stats)),
            Route(f"{path}/infer", guarded(front.infer), methods=["POST"]),
        ]
    return Starlette(routes=routes, exception_handlers={404: _no_such_path, 405: _no_such_path})


class _Front:
    def __init__(
        self, models: Sequence[ServedModel], backend: Backend, counts: Counts, limits: Limits
    ) -> None:
        self._models = {model.name: (i, model) for i, model in enumerate(models)}
        self._backend, self._counts, self._limits = backend, counts, limits
        self._waiting = 0
        self._memory = _Memory(limits.waiting_bytes, counts)
        self._exposing: asyncio.Future[tuple[bytes, str]] | None = None

    async def infer(self, request: Request) -> Response:
        index, model = self._find(request)
        self._check_open()
        held = _Held(self._memory)
        try:
            return await self._infer(request, index, model, held)
        except BaseException:
            held.let_go()
            raise

    async def _infer(
        self, request: Request, index: int, model: ServedModel, held: "_Held"
    ) -> Response:
        body = await self._body(request, held)
        asked = parse(model, body, request.headers.get(_LENGTH), request.headers.get(SLO_HEADER))
        held.add(answer_bytes(model, asked))
        answers = await self._submit(index, asked.slo_ns, asked.items)
        for i, answer in enumerate(answers):
            if answer.outcome not in (Outcome.OK, Outcome.LATE):
                raise _without_answer(answer, i, len(answers))
        late = any(answer.outcome is Outcome.LATE for answer in answers)
        parameters = {
            "late": late,
            "latency_ms": round(max(answer.latency_ns for answer in answers) / 1e6, 3),
            "batch": max(answer.batch for answer in answers),
        }
        content, json_length = reply(model, asked, [one.outputs for one in answers], parameters)
        headers = {OUTCOME_HEADER: "late" if late else "ok", "Content-Type": "application/json"}
        if json_length is not None:
            headers[_LENGTH] = str(json_length)
            headers["Content-Type"] = "application/octet-stream"
        return _InPieces(content, headers, held.let_go)

    def _check_open(self) -> None:
        if why := self._backend.why_not_ready():
            raise Refused(503, "not_ready", why)
        if self._waiting >= self._limits.waiting_requests:
            raise Refused(
                503,
                "queue_full",
                f"{self._waiting} requests wait already, the most that are allowed; try again",
            )

    async def _body(self, request: Request, held: "_Held") -> bytearray:
        """Read the body, and hold it."""
        limits = self._limits
        if encoding := request.headers.get("Content-Encoding"):
            raise Refused(415, "compressed", f"Content-Encoding {encoding[:40]}; send it plain")
        stated = request.headers.get("Content-Length", "0")
        if stated.isascii() and stated.isdigit() and len(stated) < 20:
            self._check_size(int(stated))
            self._memory.check(int(stated))
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for chunk in request.stream():
                    self._check_size(len(body) + len(chunk))
                    held.add(len(chunk))  # from the first byte on, for the last may never come
                    body += chunk
        except TimeoutError:
            seconds = limits.body_seconds
            raise Refused(408, "slow_body", f"no whole body within {seconds:g} s") from None
        except ClientDisconnect:
            raise Refused(400, "disconnected", "the client left before its body ended") from None
        return body

    def _check_size(self, size: int) -> None:
        most = self._limits.body_bytes
        if size > most:
            raise Refused(413, "body_too_large", f"a body of over {most} bytes; send less at once")

    async def _submit(
        self, model: int, slo_ns: int | None, items: Sequence[Mapping[str, np.ndarray]]
    ) -> list[Answer]:
        if self._waiting + len(items) > self._limits.waiting_requests:
            raise Refused(503, "queue_full", "too many requests wait already; try again")
        self._waiting += len(items)
        self._counts.waiting(self._waiting)
        try:
            return await asyncio.gather(
                *(self._backend.submit(model, slo_ns, item) for item in items)
            )
        finally:
            self._waiting -= len(items)
            self._counts.waiting(self._waiting)

    async def server(self, request: Request) -> Response:
        return _json({"name": "mainspring", "version": VERSION, "extensions": EXTENSIONS})

    async def live(self, request: Request) -> Response:
        return _json({"live": True})

    async def ready(self, request: Request) -> Response:
        if why := self._backend.why_not_ready():
            raise Refused(503, "not_ready", why)
        return _json({"ready": True})

    async def index(self, request: Request) -> Response:
        return _json(
            [
                {"name": name, "version": VERSION, "state": "READY", "reason": ""}
                for name in self._models
            ]
        )

    async def metadata(self, request: Request) -> Response:
        _, model = self._find(request)
        return _json(
            {
                "name": model.name,
                "versions": [VERSION],
                "platform": "mainspring",
                "inputs": [_shown(spec) for spec in model.inputs],
                "outputs": [_shown(spec) for spec in model.outputs],
            }
        )

    async def model_ready(self, request: Request) -> Response:
        """A model that lies on no GPU is ready: loading it is the scheduler's business."""
        self._find(request)
        return await self.ready(request)

    async def config(self, request: Request) -> Response:
        _, model = self._find(request)
        return _json(
            {
                "name": model.name,
                "platform": "mainspring",
                "backend": "mainspring",
                "max_batch_size": model.max_batch,
                "input": [_configured(spec) for spec in model.inputs],
                "output": [_configured(spec) for spec in model.outputs],
                "instance_group": [],
                "dynamic_batching": {},
                "parameters": {
                    "slo_ms": {"string_value": "" if model.slo_ns is None else
                               f"{model.slo_ns / 1e6:g}"},
                },
            }
        )  # fmt: skip

    async def stats(self, request: Request) -> Response:
        index, model = self._find(request)
        return _json({"model_stats": [self._counts.stats(index, model.name)]})

    async def all_stats(self, request: Request) -> Response:
        return _json({"model_stats": [self._counts.stats(i, name) for name, (i, _) in
                                      self._models.items()]})  # fmt: skip

    async def metrics(self, request: Request) -> Response:
        """Of thousands of models that takes seconds, so it is done beside the controller, and once
        for all who ask meanwhile."""
        if self._exposing is None:
            self._exposing = asyncio.ensure_future(asyncio.to_thread(self._counts.exposition))
            self._exposing.add_done_callback(self._exposed)
        text, media_type = await asyncio.shield(self._exposing)
        return Response(text, headers={"Content-Type": media_type})

    def _exposed(self, done: asyncio.Future[tuple[bytes, str]]) -> None:
        self._exposing = None

    def in_pieces(self, response: Response) -> Response:
        """Hold a large response that is not held yet, until it has been taken. Raises Refused."""
        if isinstance(response, _InPieces) or len(response.body) <= PIECE_BYTES:
            return response
        held = _Held(self._memory)
        held.add(len(response.body))
        return _InPieces(bytes(response.body), response.headers, held.let_go)

    def _find(self, request: Request) -> tuple[int, ServedModel]:
        name = request.path_params["model"]
        version = request.path_params.get("version", VERSION)
        found = self._models.get(name)
        if found is None:
            raise Refused(404, "unknown_model", f"no model {name[:80]!r} is served here")
        if version != VERSION:
            raise Refused(404, "unknown_version", f"{name} has version {VERSION} only")
        return found


class _Memory:
    """What all requests together make the server hold, in bytes."""

    def __init__(self, most: int, counts: Counts) -> None:
        self._most, self._counts, self._held = most, counts, 0

    def check(self, size: int) -> None:
        """Raises Refused where there is no room for so many bytes more."""
        if self._held + size > self._most:
            raise Refused(503, "memory_full", "too many bytes wait already; try again")

    def add(self, size: int) -> None:
        """So many more."""
        self._held += size
        self._counts.held(self._held)


class _Held:
    """One request's part of it: its body, and its answer until that has been taken."""

    def __init__(self, memory: _Memory) -> None:
        self._memory, self._bytes = memory, 0

    def add(self, size: int) -> None:
        """Hold so many bytes more. Raises Refused."""
        self._memory.check(size)
        self._memory.add(size)
        self._bytes += size

    def let_go(self) -> None:
        """The request is over."""
        self._memory.add(-self._bytes)
        self._bytes = 0


class _InPieces(Response):
    """An answer of which no more is handed to the socket than the client takes.

    over: is called when all of it has been taken, or the client is gone.
    """

    def __init__(
        self, content: bytes, headers: Mapping[str, str], over: Callable[[], None]
    ) -> None:
        super().__init__(content, headers=headers)
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI wants it."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            for at in range(0, len(self.body), PIECE_BYTES):
                end = at + PIECE_BYTES
                await send(
                    {"type": "http.response.body", "body": self.body[at:end],
                     "more_body": end < len(self.body)}
                )  # fmt: skip
        finally:
            self._over()


EXTENSIONS: Final = ["binary_tensor_data", "model_configuration", "statistics", "model_repository"]

_Handler = Callable[[Request], Awaitable[Response]]


def _guard(front: _Front, counts: Counts, local: bool, handler: _Handler) -> _Handler:
    async def guarded(request: Request) -> Response:
        try:
            refuse_pages(request.headers, local)
            return front.in_pieces(await handler(request))
        except Refused as refused:
            if request.method == "POST":
                counts.refused(refused.reason)
            return error_response(refused.status, refused.reason, str(refused))

    return guarded


def _without_answer(answer: Answer, i: int, of: int) -> Refused:
    outcome, reason = answer.outcome, answer.reason
    status = 503 if reason in _TRY_AGAIN else STATUS[outcome]
    why = (reason or outcome).name.lower()
    item = f"item {i} of {of}: " if of > 1 else ""
    return Refused(status, why, f"{item}{outcome.name.lower()}: {why.replace('_', ' ')}")


def error_response(status: int, reason: str, message: str) -> Response:
    """An error as every client of ours gets it. reason: one word for programs."""
    headers = {"Retry-After": "1"} if status == 503 else None
    content = msgspec.json.encode({"error": message, "reason": reason})
    return Response(content, status, headers, media_type="application/json")


async def _no_such_path(request: Request, error: Any) -> Response:
    asked = f"{request.method} {request.url.path[:80]}"
    if error.status_code == 405:
        why = f"{asked}: there it is {error.headers['Allow']}"
    else:
        why = f"{asked}: no such thing here; GET /v2 says what this is"
    return error_response(error.status_code, "unknown_path", why)


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _shown(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [-1, *spec.shape]}


def _configured(spec: TensorSpec) -> dict[str, Any]:
    assert spec.datatype in DATATYPES
    return {"name": spec.name, "data_type": f"TYPE_{spec.datatype}", "dims": list(spec.shape)}
