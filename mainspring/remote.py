"""Workers on other machines: where they find the controller, and who of them is still missing.

Not here: how they prove who they are (executor/keys.py), and the worker's command
(mainspring/worker_cli.py).
"""

import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from executor.address import AddressError, endpoint, is_open
from mainspring.document import ScenarioError


class Remote(NamedTuple):
    """A live run's workers are started elsewhere, by people.

    address: where the controller listens to them, tcp://HOST:PORT. keys: the controller's, None
    where only this machine can reach the address. wait_s: how long to wait for them at the start;
    None is for ever.
    """

    address: str
    keys: Path | None = None
    wait_s: float | None = None


def remote_of(listen: str | None, keys: Path | None, wait_s: float | None) -> Remote | None:
    """What --listen, --keys and --wait say. Raises ScenarioError."""
    if listen is None:
        if keys is not None or wait_s is not None:
            given = "--keys" if keys is not None else "--wait"
            raise ScenarioError(
                f"{given} is about workers on other machines; say where they find the controller, "
                "as in --listen 0.0.0.0:5555"
            )
        return None
    try:
        address = endpoint(listen)
    except AddressError as error:
        raise ScenarioError(f"--listen {error}") from None
    if keys is None and is_open(address):
        raise ScenarioError(
            f"--listen {listen} is open to other machines, so it needs keys; make some with "
            "mainspring keys DIR, and add --keys DIR"
        )
    return Remote(address, keys, wait_s)


class Roll:
    """Says on stderr how many workers are here, and how to start those that are not.

    count: how many there are to be. options: what they are to be started with, beside the keys.
    """

    def __init__(self, remote: Remote, count: int, options: Sequence[str]) -> None:
        self._remote, self._count, self._options = remote, count, options
        self._missing: Sequence[int] | None = None

    def missing(self, gpus: Sequence[int]) -> None:
        """These GPUs have no worker yet. Says so where it is news."""
        if list(gpus) == self._missing or (not gpus and self._missing is None):
            return
        self._missing = list(gpus)
        print(f"{self._count - len(gpus)} of {self._count} workers are here", file=sys.stderr)
        if gpus:
            keys = "" if self._remote.keys is None else f" --keys worker-{gpus[0]}"
            options = "".join(f" {shlex.quote(option)}" for option in self._options)
            more = "" if len(gpus) == 1 else f", and so for GPU {', '.join(map(str, gpus[1:]))}"
            print(
                f"  start: mainspring worker {self._found_at()} {gpus[0]}{keys}{options}{more}",
                file=sys.stderr,
                flush=True,
            )

    def say(self, text: str) -> None:
        """Something is wrong with a worker."""
        print(f"mainspring: warning: {text}", file=sys.stderr, flush=True)

    def _found_at(self) -> str:
        """The address as another machine may know it."""
        host, _, port = self._remote.address.removeprefix("tcp://").rpartition(":")
        return f"{socket.gethostname() if host in ('*', '0.0.0.0', '[::]') else host}:{port}"
