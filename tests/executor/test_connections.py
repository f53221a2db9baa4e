"""Connections of the front, on real sockets: too many, too slow, and broken."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from executor.oip import ServedModel, TensorSpec
from tests.executor.fronts import Front, body, serving

READY = b"GET /v2/health/ready HTTP/1.1\r\nHost: here\r\n\r\n"
GUARD_S = 20
"""Less than the usual `idle_seconds`, so that nothing ends by that in its place."""


class Client(socket.socket):
    """A connection that says when it was let in."""

    def __init__(self, port: int, buffer: int | None = None) -> None:
        super().__init__()
        self.settimeout(GUARD_S)
        if buffer:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.connect(("127.0.0.1", port))

    def ask(self, request: bytes = READY) -> tuple[int, dict[str, Any]]:
        """Status and body of one answer."""
        self.sendall(request)
        return self.answer()

    def answer(self) -> tuple[int, dict[str, Any]]:
        with self.makefile("rb") as file:
            status = int(file.readline().split()[1])
            headers = dict(line.split(": ", 1) for line in iter(lambda: _line(file), ""))
            return status, headers | json.loads(file.read(int(headers["content-length"])))

    def rest(self) -> bytes:
        """All that comes until the server closes."""
        with self.makefile("rb") as file:
            return file.read()


def _line(file: Any) -> str:
    return str(file.readline().decode().strip())


def infer(data: bytes, length: int | None = None) -> bytes:
    size = len(data) if length is None else length
    return (
        b"POST /v2/models/double/infer HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % size
    ) + data


ONE = infer(json.dumps(body([1, 2])).encode())


def cut_off(front: Front, reason: str) -> float:
    name = "mainspring_http_cut_off_total"
    return front.counts._registry.get_sample_value(name, {"reason": reason}) or 0.0


def gauge(front: Front, name: str) -> float | None:
    return front.counts._registry.get_sample_value(name)


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(100 * GUARD_S):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError("in vain")


def test_one_connection_too_many_is_told_so_and_the_others_are_served() -> None:
    front = Front(connections=4)
    with serving(front) as (_, port):
        inside = [Client(port) for _ in range(4)]
        assert [one.ask()[0] for one in inside] == [200] * 4  # so all of them are in
        for outside in (Client(port), Client(port)):
            with suppress(OSError):  # it may be closed before all of it is sent
                outside.sendall(READY)
            status, told = outside.answer()
            assert (status, told["reason"], told["retry-after"]) == (503, "connections_full", "1")
            assert outside.rest() == b""
            outside.close()
        assert [one.ask(ONE)[0] for one in inside] == [200] * 4
        assert cut_off(front, "connections_full") == 2
        assert gauge(front, "mainspring_http_connections") == 4

        inside.pop().close()
        wait_until(lambda: gauge(front, "mainspring_http_connections") == 3)
        inside.append(Client(port))
        assert inside[-1].ask()[0] == 200
        for one in inside:
            one.close()


def test_a_connection_that_says_nothing_is_closed() -> None:
    front = Front(idle_seconds=0.1)
    with serving(front) as (_, port), Client(port) as silent, Client(port) as answered:
        assert silent.rest() == b""
        assert answered.rest() == b""
        with Client(port) as again:
            assert again.ask()[0] == 200
            assert again.rest() == b""
        assert cut_off(front, "idle") == 3


def test_a_header_that_never_ends_is_not_waited_for_whatever_it_trickles() -> None:
    front = Front(idle_seconds=0.2)
    with serving(front) as (_, port), Client(port) as slow:
        slow.sendall(READY[:-2])
        with suppress(OSError):
            while not cut_off(front, "slow_header"):
                slow.sendall(b"a: b\r\n")
                threading.Event().wait(0.01)
        assert cut_off(front, "slow_header") == 1


def test_a_refused_body_that_goes_on_for_ever_is_not_waited_for() -> None:
    front = Front(idle_seconds=0.2, body_bytes=100)
    with serving(front) as (_, port), Client(port) as slow:
        status, told = slow.ask(infer(b"x", length=10**9))
        assert (status, told["reason"]) == (413, "body_too_large")
        with suppress(OSError):
            while not cut_off(front, "idle"):
                slow.sendall(b"x")
                threading.Event().wait(0.01)


def test_a_request_under_way_is_left_alone() -> None:
    front = Front(idle_seconds=0.1)
    with serving(front) as (_, port), Client(port) as working:
        front.backend.hold = asyncio.Event()
        working.sendall(ONE)
        wait_until(lambda: bool(front.backend.slos))
        with Client(port) as silent:  # has as long as that one had, and later
            assert silent.rest() == b""
        assert front.backend.loop
        front.backend.loop.call_soon_threadsafe(front.backend.hold.set)
        assert working.answer()[0] == 200
        front.backend.hold = None


def wide(values: int) -> tuple[ServedModel, bytes]:
    """A model that answers with so many values, and a request for them as raw bytes."""
    given = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    asked = {"inputs": [given], "parameters": {"binary_data_output": True}}
    (x, y) = (TensorSpec(name, "FP32", (n,)) for name, n in (("x", 1), ("y", values)))
    return ServedModel("double", (x,), (y,), max_batch=1), infer(json.dumps(asked).encode())


def test_an_answer_that_is_not_taken_is_held_for_a_while_and_then_no_more() -> None:
    model, asked = wide(4_000_000)  # 16 MB, more than the kernel takes off our hands
    front = Front(model, body_seconds=1.0, waiting_bytes=20_000_000)
    with serving(front) as (_, port), Client(port, buffer=4_096) as deaf, Client(port) as other:
        deaf.sendall(asked)
        wait_until(lambda: front.backend.fates == 1)
        status, told = other.ask(asked)
        assert (status, told["reason"]) == (503, "memory_full")
        wait_until(lambda: cut_off(front, "slow_reader") == 1)
        with Client(port) as again:
            again.sendall(asked)
            with again.makefile("rb") as file:
                assert file.readline().split()[1] == b"200"


def test_an_answer_that_is_taken_in_small_bites_is_not_held_for_ever() -> None:
    model, asked = wide(4_000_000)
    front = Front(model, body_seconds=1.0)
    with serving(front) as (_, port), Client(port, buffer=4_096) as slow:
        slow.sendall(asked)
        with suppress(OSError):
            while not cut_off(front, "slow_reader"):
                slow.recv(1_000)
                threading.Event().wait(0.01)
        assert cut_off(front, "slow_reader") == 1


def test_one_that_asks_on_and_on_and_reads_nothing_is_cut_off() -> None:
    model, asked = wide(10_000)
    front = Front(model, idle_seconds=0.5)
    with serving(front) as (_, port), Client(port, buffer=4_096) as deaf:
        with suppress(OSError):
            while not cut_off(front, "slow_reader"):
                deaf.sendall(asked)
        assert cut_off(front, "slow_reader") == 1


def test_half_a_body_is_held_from_its_first_byte_and_no_longer_than_its_client() -> None:
    front = Front(waiting_bytes=1_000_000)
    large = infer(b" " * 500_000 + json.dumps(body([1, 2])).encode())
    with serving(front) as (_, port), Client(port) as other:
        with Client(port) as half:
            half.sendall(infer(b" " * 800_000, length=900_000))
            wait_until(lambda: gauge(front, "mainspring_http_held_bytes") == 800_000)
            status, told = other.ask(large)
            assert (status, told["reason"]) == (503, "memory_full")
        wait_until(lambda: gauge(front, "mainspring_http_held_bytes") == 0)
        assert other.ask(large)[0] == 200


def test_a_large_answer_comes_whole() -> None:
    model, asked = wide(400_000)
    with serving(Front(model)) as (_, port), Client(port) as client:
        for _ in range(3):
            client.sendall(asked)
            with client.makefile("rb") as file:
                assert file.readline().split()[1] == b"200"
                headers = dict(line.split(": ", 1) for line in iter(lambda: _line(file), ""))
                content = file.read(int(headers["content-length"]))
            assert content[-1_600_000:] == np.full(400_000, 2, np.float32).tobytes()


@pytest.mark.parametrize(
    "noise",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n", b"a" * 100_000,
     b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", READY[:-2] + b"a: " + b"b" * 100_000,
     infer(b"", 1).replace(b"Content-Length: 1", b"Transfer-Encoding: chunked") + b"nonsense\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_a_400_with_a_reason(noise: bytes) -> None:
    front = Front()
    with serving(front) as (_, port), Client(port) as client:
        with suppress(OSError):
            client.sendall(noise)
        status, told = client.answer()
        assert (status, told["reason"]) == (400, "not_http")
        assert client.rest() == b""
        with Client(port) as other:
            assert other.ask(ONE)[0] == 200


def test_a_server_with_idle_connections_ends_at_once() -> None:
    """Where it waited for them it would do so for `idle_seconds`."""
    with serving(Front(connections=3)) as (_, port):
        idle, half, answered = (Client(port) for _ in range(3))
        half.sendall(READY[:-2])
        assert answered.ask()[0] == 200
        with Client(port) as outside:
            assert outside.answer()[0] == 503
    for one in (idle, half, answered):
        assert one.rest() == b""
        one.close()
