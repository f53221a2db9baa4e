"""Connections to the controller's socket: those that are too many are hung up on."""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

zmq = pytest.importorskip("zmq", reason="live runs need pyzmq: pip install 'mainspring[executor]'")

from executor import callers  # noqa: E402
from executor.callers import Callers, most  # noqa: E402
from scheduler.records import Outcome  # noqa: E402
from tests.executor.clusters import Fates, cluster  # noqa: E402

MOST = 4


@pytest.fixture
def watched() -> Iterator[tuple[Callers, int]]:
    context = zmq.Context()
    server = context.socket(zmq.ROUTER)
    watch = Callers(server, MOST)
    server.bind("tcp://127.0.0.1:*")
    yield watch, int(server.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
    watch.close()
    server.close(0)
    context.term()


def call(port: int, n: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(n)]


def hangs_up(one: socket.socket) -> bool:
    """Whether the other end does so, after the ten bytes of its greeting (ZMTP 3.1)."""
    one.settimeout(60)
    with one.makefile("rb") as said:
        return len(said.read()) <= 10


def until(true: Callable[[], bool], watch: Callers) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        select.select([watch], [], [], 0.01)
        while watch.look():
            pass


def test_those_beyond_the_limit_are_hung_up_on_and_a_place_gets_free(
    watched: tuple[Callers, int],
) -> None:
    watch, port = watched
    inside = call(port, MOST)
    until(lambda: len(watch._open) == MOST, watch)
    outside = call(port, 2 * MOST)
    until(lambda: watch.hung_up == 2 * MOST, watch)
    assert all(map(hangs_up, outside))

    inside.pop().close()
    until(lambda: len(watch._open) == MOST - 1, watch)
    inside += call(port, 1)
    until(lambda: len(watch._open) == MOST, watch)
    assert watch.hung_up == 2 * MOST
    for one in (*inside, *outside):
        one.close()


def test_who_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "HANDSHAKE_MS", 100)
    world = cluster(Fates(), listen="tcp://127.0.0.1:*")
    (silent,) = call(int(world.address.rpartition(":")[2]), 1)
    assert hangs_up(silent)
    silent.close()
    world.close()


def test_a_run_goes_on_where_strangers_fill_the_house(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come before the worker, which comes in when they are cut off, and while it serves."""
    monkeypatch.setattr(callers, "HANDSHAKE_MS", 2_000)
    monkeypatch.setattr(callers, "STRANGERS", 8)
    fates = Fates()
    world = cluster(fates, listen="tcp://127.0.0.1:*")
    port, crowd = int(world.address.rpartition(":")[2]), most(1) + 20
    came = call(port, crowd)
    worker = subprocess.Popen([sys.executable, "-m", "executor.worker", world.address, "0"])

    def watch(now_ns: int) -> bool:
        if now_ns and len(came) == crowd:
            came.extend(call(port, crowd))
        return False

    try:
        world.run(2_000_000_000, 20_000_000_000, watch)
        assert fates.outcomes == [Outcome.OK] * 100
        assert world.hung_up >= 2 * 19  # but for the worker's
    finally:
        world.close()
        worker.kill()
        worker.wait()
        for one in came:
            one.close()
