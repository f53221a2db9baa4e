"""The process side of the front: a socket, and an orderly end.

On SIGTERM or Ctrl-C the server takes no new request, answers everything in flight, and returns. A
second signal ends the wait.
Not here: what is answered (executor/front.py), and to whom (executor/connections.py).
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import uvicorn

from executor.connections import REFUSED_AT_ONCE, Connection, Door
from executor.counts import Counts
from executor.front import Limits
from executor.open_files import allow

IN_FLIGHT_S: Final = 60
"""How long requests in flight may still take after the first signal."""
AT_A_TIME: Final = 64
"""Connections that asyncio takes in one go; they are closed three goes later at the earliest."""
BACKLOG: Final = 1_024
"""Those for which the kernel waits until they are taken."""
OTHER_FILES: Final = 128
"""What a service has open beside connections: the run's files and what ZeroMQ needs, some 40."""


def room_for(connections: int, workers: int) -> int:
    """How many of so many connections this process may have, once its limit of open files has been
    raised for them and its workers'. Those that are being taken and being refused need room, too.
    """
    beside = 4 * AT_A_TIME + REFUSED_AT_ONCE + OTHER_FILES + workers
    return min(connections, allow(connections + beside) - beside)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would raise the signals again afterwards, and so end us before our summary."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        try:
            for number in numbers:
                loop.add_signal_handler(number, self.handle_exit, number, None)
        except (RuntimeError, ValueError):  # another thread than the first takes no signals
            numbers = ()  # type: ignore[assignment]
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


class HttpServer:
    """One front on one address. app: as `build_app` makes it, with the same counts and limits;
    port 0 takes a free one.

    The address is ours from here on; nobody is let in before `serve`. Raises OSError where it
    cannot be had.
    """

    def __init__(self, app: Any, host: str, port: int, limits: Limits, counts: Counts) -> None:
        self._socket = _bound(host, port)
        self._server = _Server(
            uvicorn.Config(
                app,
                http=cast(Any, partial(Connection, Door(limits, counts))),
                ws="none",  # it would take connections out of our hands
                log_config=None,
                log_level="error",  # not what clients do wrong
                access_log=False,
                lifespan="off",
                backlog=AT_A_TIME,
                timeout_graceful_shutdown=IN_FLIGHT_S,
                server_header=False,
            )
        )

    async def serve(self, on_start: Callable[[str], None]) -> None:
        """Serve until a signal or `stop`. on_start: is told the address once it is open."""
        task = asyncio.create_task(self._server.serve([self._socket]))
        while not (self._server.started or task.done()):
            await asyncio.sleep(0.01)
        if self._server.started:
            self._socket.listen(BACKLOG)
            host, port = self._socket.getsockname()[:2]
            on_start(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        await task

    def stop(self) -> None:
        """Take no new requests; `serve` returns once what is in flight is answered."""
        self._server.should_exit = True

    def close(self) -> None:
        """Let the address go."""
        self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
