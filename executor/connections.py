"""What a connection of the front may do: how many there are, and how long one may do nothing.

    opened, or answered ──a whole header──► a request under way ──its answer written──► answered
            │ idle_seconds                          │ the client does not take the answer
            ▼                                       ▼ body_seconds
         closed                                  cut off

uvicorn's own limit counts idle connections, but refuses requests; its timer for idle ones starts
after a first answer and ends with the next byte. So these are ours, on top of its protocol. A
request under way is left alone: a slow body is the front's business (executor/front.py).
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import h11
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from executor.counts import Counts
from executor.front import Limits, error_response

REFUSED_AT_ONCE: Final = 64
"""So many of those that are one too many may be told; the others are just cut off."""

HEAR_S: Final = 1.0
"""They have this long to hear our last word."""


class Door:
    """What the connections of a server share. inside: how many were let in; refusing: how many are
    being told that they were not."""

    def __init__(self, limits: Limits, counts: Counts) -> None:
        self.limits, self.counts = limits, counts
        self.inside = self.refusing = 0
        most = limits.connections
        text = f"{most} connections are open already, the most that are allowed; try again"
        self.full = _whole(error_response(503, "connections_full", text))


class Connection(H11Protocol):
    """One connection. It is uvicorn's `http=`, with the door given first."""

    def __init__(self, door: Door, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._door = door
        self._is_in = self._is_told = self._is_slow = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let it in, or tell it that there is no room."""
        super().connection_made(transport)
        door = self._door
        if door.inside >= door.limits.connections:
            self._refuse()
            return
        self._is_in = True
        door.inside += 1
        door.counts.connections(door.inside)
        self._expect_within(door.limits.idle_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, whoever closed it."""
        super().connection_lost(exc)
        door = self._door
        if self._is_in:
            door.inside -= 1
            door.counts.connections(door.inside)
        else:
            door.refusing -= 1
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes alone buy no time. What is said after our last word is not read."""
        if not self._is_told:
            super().data_received(data)

    def on_response_complete(self) -> None:
        """From here on it is to take the answer and to ask again."""
        self._is_slow = False
        self._expect_within(self._door.limits.idle_seconds)
        super().on_response_complete()
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        """The client does not take its answer as fast as we write it."""
        super().pause_writing()
        if not self._is_slow:  # the time is for the whole answer
            self._is_slow = True
            self._expect_within(self._door.limits.body_seconds)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused as all else is, where it can be told yet."""
        self._door.counts.refused("not_http")
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        if self._under_way():  # its body went wrong, so it is never answered
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._tell(_whole(error_response(400, "not_http", msg)))

    def shutdown(self) -> None:
        """The server ends."""
        if self._is_told:
            self.transport.abort()
        else:
            super().shutdown()

    def _refuse(self) -> None:
        door = self._door
        door.counts.cut_off("connections_full")
        door.refusing += 1
        if door.refusing > REFUSED_AT_ONCE:
            self.transport.abort()
        else:
            self._tell(door.full)

    def _tell(self, last_word: bytes) -> None:
        """Say this and no more. Who still writes when we close may never read it, so wait."""
        self._is_told = True
        self.transport.write(last_word)
        with suppress(OSError):  # it is gone already
            self.transport.write_eof()
        self._expect_within(HEAR_S)

    def _under_way(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_within(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._expired)

    def _expired(self) -> None:
        if self._is_told:
            self.transport.abort()
        elif self._is_slow or self.transport.get_write_buffer_size():
            self._door.counts.cut_off("slow_reader")
            self.transport.abort()  # to close it would be to wait until all is read
        elif not self._under_way():  # else it has its time again once it is answered
            half, _ = self.conn.trailing_data
            self._door.counts.cut_off("slow_header" if half else "idle")
            self.transport.close()


def _whole(response: Response) -> bytes:
    """A response as it goes over the wire, after which nothing comes."""
    status = HTTPStatus(response.status_code)
    headers = [*response.raw_headers, (b"connection", b"close")]
    lines = [f"HTTP/1.1 {status} {status.phrase}".encode(), *(b": ".join(h) for h in headers)]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
