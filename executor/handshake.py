"""Why a controller does not let a worker in.

What went wrong ZeroMQ tells only who watches the socket (zmq_socket_monitor). It tries again in
silence for ever, or, where the other end has another mechanism, never. A key that is not on the
list is answered as such. All else that fails, such as another controller's key or none where one is
asked for, looks the same from here: the other end hangs up.
"""

from pathlib import Path
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

TRIES: Final = 3
"""So often in a row it may fail: a controller that ends just then hangs up, too."""

_HUNG_UP: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_FINAL: Final = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
"""Keys on one end only; whether that is told, or just a hang-up, depends on who is faster."""


class Handshake:
    """Watches a socket from before it connects. keys: what it proves itself with, if it does."""

    def __init__(self, socket: "zmq.Socket[bytes]", address: str, keys: Path | None) -> None:
        self._socket, self._address, self._keys = socket, address, keys
        self._failed = 0
        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        self._events = socket.get_monitor_socket(events | _HUNG_UP | _FINAL)

    def problem(self) -> str:
        """Why it can't come to anything, in one line; nothing as long as it may."""
        while self._events.poll(0):
            event = recv_monitor_message(self._events)["event"]
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                return (
                    f"{self._address} does not let this worker's key in; give --keys a directory "
                    "worker-N that was made together with that controller's"
                )
            if event == _FINAL:
                self._failed = TRIES
            else:
                self._failed = self._failed + 1 if event == _HUNG_UP else 0
        if self._failed < TRIES:
            return ""
        if self._keys is None:
            return f"{self._address} hangs up: a controller there asks for keys; give --keys DIR"
        return (
            f"{self._address} hangs up: a controller there asks for no keys, or is not the one "
            f"whose key lies in {self._keys}"
        )

    def close(self) -> None:
        """Watch no longer."""
        self._socket.disable_monitor()
        self._events.close(0)
