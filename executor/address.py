"""Where a controller listens and its workers find it: HOST:PORT, as people write it.

Not here: who is let in there (executor/keys.py).
"""

import socket
from ipaddress import ip_address


class AddressError(Exception):
    """No address, in one line."""


def endpoint(text: str) -> str:
    """What ZeroMQ calls it, tcp://HOST:PORT. Takes that, too; an IPv6 host is in brackets.

    Raises AddressError.
    """
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
    bare = ":" not in host or (host.startswith("[") and host.endswith("]"))
    if not (colon and host and bare and "/" not in host and (0 < number < 2**16 or port == "*")):
        raise AddressError(f"{text} is no address; expected HOST:PORT, as in 0.0.0.0:5555")
    return f"tcp://{host}:{port}"


def known(endpoint: str) -> None:
    """Raises AddressError where its host is not found: ZeroMQ would wait for it for ever."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), None)
    except OSError as error:
        raise AddressError(f"{host}:{port}: {host} is not found: {error.strerror}") from None


def is_open(endpoint: str) -> bool:
    """Whether other machines can reach who listens there: anywhere but on loopback."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
