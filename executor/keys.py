"""CURVE keys: which workers a controller lets in, and which controller a worker believes.

    DIR/controller/controller.key_secret     stays on the controller's machine
    DIR/controller/workers/worker-0.key      who is let in; remove the file to lock it out
    DIR/worker-0/worker.key_secret           goes to the worker's machine, with
    DIR/worker-0/controller.key              whom it believes

ZeroMQ's own format and its authentication protocol (ZAP, RFC 27), by pyzmq's `zmq.auth`. The list
is read when a run starts. Not here: the commands (mainspring.keys_cli).
"""

import os
import shutil
from pathlib import Path
from typing import Final

import zmq
from zmq.auth import create_certificates, load_certificate
from zmq.auth.thread import ThreadAuthenticator

CONTROLLER: Final = "controller"
WORKER: Final = "worker"
ALLOWED: Final = "workers"

DOMAIN: Final = "mainspring"
"""Of ZAP. pyzmq looks for keys under exactly this name; "*" is for sockets without one."""


class KeysError(Exception):
    """Keys cannot be written or read, in one line."""


def make_keys(directory: Path, workers: int) -> None:
    """Write a pair for the controller and one a worker; only their owner may read the secrets.

    Raises KeysError where `directory` is there already: keys in use are never overwritten.
    """
    before = os.umask(0o077)  # from the first byte on, not by a chmod that comes later
    try:
        directory.mkdir(parents=True)
        home = directory / CONTROLLER
        (home / ALLOWED).mkdir(parents=True)
        public, _ = create_certificates(home, CONTROLLER)
        for i in range(workers):
            at = directory / f"{WORKER}-{i}"
            at.mkdir()
            own, _ = create_certificates(at, WORKER)
            shutil.copy(own, home / ALLOWED / f"{WORKER}-{i}.key")
            shutil.copy(public, at)
    except FileExistsError:
        raise KeysError(f"{directory} is there already; keys go to a new directory") from None
    except OSError as error:
        raise KeysError(f"{directory}: {error.strerror}; choose another directory") from None
    finally:
        os.umask(before)


def lock(
    socket: "zmq.Socket[bytes]", context: "zmq.Context[zmq.Socket[bytes]]", keys: Path
) -> ThreadAuthenticator:
    """Let only the listed workers in, before `socket` is bound. Stop what is returned at the end.

    Raises KeysError.
    """
    keys = _part(keys, CONTROLLER)
    public, secret = _pair(keys / f"{CONTROLLER}.key_secret")
    allowed = keys / ALLOWED
    if not any(allowed.glob("*.key")):
        raise KeysError(f"{allowed} holds no worker's key, so nobody could come in")
    guard = ThreadAuthenticator(context)
    guard.start()
    try:
        guard.configure_curve(domain=DOMAIN, location=allowed)
    except (OSError, ValueError) as error:
        guard.stop()
        raise KeysError(f"{allowed}: {error}; make keys with mainspring keys DIR") from None
    socket.curve_publickey, socket.curve_secretkey, socket.curve_server = public, secret, True
    socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN.encode())
    # Without this, libzmq lets everyone in whose encryption is right where nobody answers ZAP.
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    return guard


def unlock(socket: "zmq.Socket[bytes]", keys: Path, gpu: int = 0) -> None:
    """Prove who we are, before `socket` connects. gpu: whose worker. Raises KeysError."""
    keys = _part(keys, f"{WORKER}-{gpu}")
    public, secret = _pair(keys / f"{WORKER}.key_secret")
    server, _ = _read(keys / f"{CONTROLLER}.key")
    socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = public, secret, server


def _part(keys: Path, name: str) -> Path:
    """A machine's own part of what `make_keys` wrote, where all of it is given."""
    return keys / name if (keys / name).is_dir() else keys


def _pair(file: Path) -> tuple[bytes, bytes]:
    public, secret = _read(file)
    if secret is None:
        raise KeysError(f"{file} holds no secret key; make keys with mainspring keys DIR")
    return public, secret


def _read(file: Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = load_certificate(file)
    except (OSError, ValueError):
        raise KeysError(
            f"{file} is no key file; mainspring keys DIR makes them, DIR/worker-N for a worker"
        ) from None
    if len(public) != 40 or len(secret or public) != 40:
        raise KeysError(f"{file}: a key has 40 characters; make keys with mainspring keys DIR")
    return public, secret
