"""Web pages of others do not belong here: a browser asks any address for them, this machine's too.

A page may post to a service on the machine of who looks at it; browsers then say whose page it is
in Origin. Under a name of its own that it lets point at this machine (DNS rebinding) it could read
the answers as well; that name is then in Host. Programs send no Origin, and ask by number or as
localhost.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from executor.oip import Refused


def refuse_pages(headers: Mapping[str, str], local: bool) -> None:
    """local: the service listens to this machine alone. Raises Refused."""
    host = headers.get("Host", "")
    origin = headers.get("Origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise Refused(
            403, "other_origin", f"a page of {origin[:80]} may not ask here; let its server ask"
        )
    if local and not _is_here(host):
        raise Refused(
            403,
            "other_host",
            f"Host {host[:80]}: this service listens to this machine alone; ask it as localhost, "
            "or let it listen elsewhere with --host",
        )


def _is_here(host: str) -> bool:
    """Whether a Host is a number, localhost, or none (HTTP/1.0)."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
