"""Who is connected to the controller's socket where others can reach it: so many and no more.

ZeroMQ takes every connection, until the process may open no more files: then no HTTP client comes
in either. It does tell who comes and goes (zmq_socket_monitor), so those beyond the limit are hung
up on. A worker that meets a full house tries again.
Not here: who may say anything (executor/keys.py).
"""

import os
import socket
from contextlib import suppress
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

STRANGERS: Final = 128
"""Connections beyond those of workers: who fills them keeps a worker out that comes anew."""

HANDSHAKE_MS: Final = 5_000
"""Who has not said or proved who it is by then is cut off: a place is free again."""

AT_ONCE: Final = 100
"""Comings and goings that are looked at before all else has its turn."""

_ADDRESS: Final = "inproc://callers"


def most(gpus: int) -> int:
    """Connections for so many workers: an old one may still stand when a new one comes."""
    return 2 * gpus + STRANGERS


class Callers:
    """Watches a socket from before it is bound. most: connections that it may have.

    hung_up: how many were too many.
    """

    def __init__(self, watched: "zmq.Socket[bytes]", most: int) -> None:
        self.hung_up = 0
        self._most = most
        self._open: set[int] = set()
        self._watched = watched
        watched.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        watched.monitor(_ADDRESS, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        # pyzmq's get_monitor_socket would have room for 2,000 events, and then the thread that
        # also carries the workers' messages waits for us.
        self._events = watched.context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.RCVHWM, 0)
        self._events.connect(_ADDRESS)

    def fileno(self) -> int:
        """Readable where somebody has come or gone; tells of changes only (zmq_getsockopt)."""
        return int(self._events.getsockopt(zmq.FD))

    def look(self) -> bool:
        """Hang up on those that are too many. Returns whether there may be more to look at."""
        for _ in range(AT_ONCE):
            try:
                event = recv_monitor_message(self._events, zmq.NOBLOCK)
            except zmq.Again:
                return False
            connection = event["value"]
            if event["event"] == zmq.EVENT_DISCONNECTED:
                self._open.discard(connection)
            elif len(self._open) < self._most:
                self._open.add(connection)
            else:
                self._hang_up(connection)
        return True

    def _hang_up(self, connection: int) -> None:
        """ZeroMQ owns it, and closes it once the other end seems to be gone.

        It may have done so already; what has the number by now then loses a connection, no more.
        """
        self.hung_up += 1
        with suppress(OSError), socket.socket(fileno=os.dup(connection)) as ours:
            ours.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Watch no longer."""
        self._watched.disable_monitor()
        self._events.close(0)
