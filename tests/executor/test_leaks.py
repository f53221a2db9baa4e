"""Whatever comes in, and wherever it breaks off: when it is over nothing of it is held.

A run has three parts with as many messages. The first fills what is filled once. It is a leak if
each of the others leaves half a small thing a message behind: what comes and goes, or is filled
later, does so in one of them. That one small thing a message would be noticed is tested, too.
"""

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from executor.wire import VERSION, Hello, Pong, Ready, Report, Reports, encode
from scheduler.records import Status, Why
from tests.executor.fronts import body
from tests.executor.test_oip_fuzz import frames, headers
from tests.executor.weighed import Weight, weight

zmq = pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")
try:
    weight()
except (AttributeError, OSError):
    pytest.skip("needs Linux and glibc 2.33, which tell what is held", allow_module_level=True)

FEW = 700
EXAMPLES = int(os.environ.get("MAINSPRING_EXAMPLES", FEW))

WAIT_S = 60
"""Nothing that is waited for takes so long."""

LEAK = {"objects": 1, "bytes": 64, "files": 1}
"""The small thing."""


class Served:
    """A service and its worker, as processes, with what was done to them."""

    def __init__(self, stack: ExitStack, *options: str) -> None:
        self.examples = FEW if options else EXAMPLES  # who leaks files has soon too many

        def start(*command: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.executor.weighed", *command, *options],
                    stdout=subprocess.PIPE, text=True,
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
            )  # fmt: skip
            stack.callback(process.kill)
            return process

        self.service = start("serve")
        assert self.service.stdout
        self.workers_at = self.service.stdout.readline().strip()
        self.worker = start("worker", self.workers_at)
        line = self.service.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), line
        self.port = int(line.rpartition(":")[2])
        self.client = Client(self.port)

    def weights(self) -> tuple[Weight, Weight]:
        """Of the service and of the worker, once both have nothing to do."""
        end = time.monotonic() + WAIT_S
        while "mainspring_http_connections 1.0\n" not in self._metrics():
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.5)  # some pings: the worker keeps what it reported until it is confirmed
        return self._weight(self.service), self._weight(self.worker)

    def _metrics(self) -> str:
        status, text = self.client.ask("GET", "/metrics")
        assert status == 200, text
        return text

    @staticmethod
    def _weight(process: subprocess.Popen[str]) -> Weight:
        assert process.stdout
        process.send_signal(signal.SIGUSR1)
        return msgspec.json.decode(process.stdout.readline(), type=Weight)


@contextmanager
def served(*options: str) -> Iterator[Served]:
    with ExitStack() as stack:
        one = Served(stack, *options)
        yield one
        one.client.close()
        one.service.send_signal(signal.SIGTERM)
        assert one.service.wait(WAIT_S) == 0


class Client:
    """A connection that is kept open, over which it asks."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._file = self._socket.makefile("rb")

    def ask(self, method: str, path: str, data: bytes = b"", *headers: bytes) -> tuple[int, str]:
        """Status and text of the answer."""
        length = b"Content-Length: %d" % len(data)
        line = f"{method} {path} HTTP/1.1".encode()
        self._socket.sendall(b"\r\n".join([line, b"Host: localhost", length, *headers, b"", data]))
        status = int(self._file.readline().split()[1])
        size = 0
        while line := self._file.readline().strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        return status, self._file.read(size).decode("latin-1")

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def leaked(one: Served, strategy: st.SearchStrategy[Any], do: Callable[[Any], None]) -> list[str]:
    """What each of two parts has left behind, of three with as many messages."""
    weights = []
    for number in range(3):
        sent = 0

        @seed(number)
        @settings(max_examples=one.examples, deadline=None, derandomize=False, database=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(strategy)
        def all_of_them(message: Any) -> None:
            nonlocal sent
            sent += 1
            do(message)

        all_of_them()
        weights.append(one.weights())
    found = []
    for i, name in enumerate(("service", "worker")):
        first, second, third = (weight[i] for weight in weights)
        print(f"{name}: {sent} messages a part, {first}, {second}, {third}")
        for what in Weight._fields:
            most = sent * LEAK[what] / 2
            was, is_, then = (getattr(weight, what) for weight in (first, second, third))
            if min(is_ - was, then - is_) >= most:
                found.append(f"{name}: {then - was} {what} after twice {sent} messages")
    return found


VALID = json.dumps(body([1, 2])).encode()
posts = st.tuples(
    st.one_of(st.just("double"), st.just("double"), st.text("abcdef%0123456789", max_size=9)),
    st.one_of(frames, st.just(VALID)),
    headers,
    st.one_of(st.none(), st.floats(0.001, 1e9).map(str), st.text("0123456789.e-", max_size=9)),
)


def leaked_by_bodies(one: Served) -> list[str]:
    def post(message: tuple[str, bytes, str | None, str | None]) -> None:
        model, data, length, slo_ms = message
        more = {"Inference-Header-Content-Length": length, "Mainspring-Slo-Ms": slo_ms}
        lines = [f"{name}: {value}".encode("latin-1") for name, value in more.items()
                 if value and value.isprintable()]  # fmt: skip
        status, text = one.client.ask("POST", f"/v2/models/{model}/infer", data, *lines)
        assert status == 200 or json.loads(text)["reason"], text

    return leaked(one, posts, post)


requests = st.tuples(st.floats(-9, 9, width=32), st.one_of(st.none(), st.floats(0.001, 1e9)))


def leaked_by_requests(one: Served) -> list[str]:
    """That are in order, so that the worker has something to do."""

    def ask(message: tuple[float, float | None]) -> None:
        value, slo_ms = message
        own = {} if slo_ms is None else {"parameters": {"slo_ms": slo_ms}}
        data = json.dumps(body([value, 1], **own)).encode()
        status, _ = one.client.ask("POST", "/v2/models/double/infer", data)
        assert status in (200, 503)

    return leaked(one, requests, ask)


MESSAGES = [
    encode(Reports([Report(1, Status.DONE, Why.NOTHING, 2, 3, 4, 5, 6, "", [{}])])),
    encode(Hello(VERSION, 0, 1, {"a": "b"})), encode(Hello(VERSION, 7, 1, {})),
    encode(Hello(VERSION + 1, 0, 1, {})), encode(Ready({"a": "b"})), encode(Pong(1, 2, [3, 4])),
]  # fmt: skip


def broken(message: bytes, wrong: dict[int, int], end: int) -> bytes:
    frame = bytearray(message)
    for place, value in wrong.items():
        frame[place % len(frame)] = value
    return bytes(frame[:end])


wire = st.tuples(
    st.one_of(
        st.binary(max_size=64),
        st.builds(
            broken,
            st.sampled_from(MESSAGES),
            st.dictionaries(st.integers(0, 99), st.integers(0, 255), max_size=3),
            st.integers(1, 99),
        ),
    ),
    st.sampled_from([1, 1, 1, 2, 5]),
    st.sampled_from(["stay", "stay", "stay", "leave", "hang up", "shout"]),
)


def leaked_by_messages(one: Served) -> list[str]:
    """Of strangers: the worker's place is taken, so nobody else comes to be one."""
    context = zmq.Context()
    strangers: list[Any] = []

    def stranger() -> Any:
        made = context.socket(zmq.DEALER)
        made.setsockopt(zmq.LINGER, 1_000)
        made.setsockopt(zmq.RCVTIMEO, WAIT_S * 1_000)
        made.connect(one.workers_at)
        return made

    def send(message: tuple[bytes, int, str]) -> None:
        frame, times, then = message
        if not strangers:
            strangers.append(stranger())
        strangers[0].send_multipart([frame] * times)
        if then == "stay":
            return
        if then == "shout":  # at the door, what is no ZeroMQ
            host, port = one.workers_at.removeprefix("tcp://").split(":")
            with socket.create_connection((host, int(port))) as plain, suppress(OSError):
                plain.sendall(frame)
            return
        if then == "leave":  # once all is heard: only then is one told that it is not wanted
            strangers[0].send(MESSAGES[2])
            while not strangers[0].recv().startswith(b"\x92\xa4Stop\xd9"):
                pass
        strangers.pop().close(None if then == "leave" else 0)

    with context:
        found = leaked(one, wire, send)
        for left in strangers:
            left.close(0)
    return found


REQUEST = (
    b"POST /v2/models/double/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
    % (len(VALID), VALID)
)
breaks = st.tuples(
    st.integers(0, len(REQUEST)),
    st.binary(max_size=3),
    st.integers(0, 3),
    st.sampled_from(["close", "reset", "shut", "read"]),
)


def leaked_by_connections(one: Served) -> list[str]:
    def come_and_go(message: tuple[int, bytes, int, str]) -> None:
        end, noise, whole, how = message
        with socket.create_connection(("127.0.0.1", one.port), timeout=WAIT_S) as client:
            with suppress(ConnectionError):
                client.sendall(REQUEST * whole + REQUEST[:end] + noise)
                if how == "read" and whole:
                    client.recv(50)
                elif how == "shut":
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(4_096):
                        pass
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return leaked(one, breaks, come_and_go)


LEAKED_BY = {
    "bodies": leaked_by_bodies,
    "requests": leaked_by_requests,
    "messages": leaked_by_messages,
    "connections": leaked_by_connections,
}


def test_nothing_is_left_of_what_came_in() -> None:
    with served() as one:
        assert {by: leaked_by(one) for by, leaked_by in LEAKED_BY.items()} == {
            by: [] for by in LEAKED_BY
        }


def test_one_small_thing_a_message_would_be_noticed() -> None:
    with served("leaking") as one:
        found = {by: " ".join(leaked_by(one)) for by, leaked_by in LEAKED_BY.items()}
    print(found)
    assert re.search(r"service: \d+ objects .* service: \d+ bytes", found["bodies"])
    assert re.search(r"worker: \d+ objects", found["requests"])
    assert re.search(r"service: \d+ objects", found["messages"])
    assert re.search(r"service: \d+ objects .* service: \d+ files", found["connections"])
