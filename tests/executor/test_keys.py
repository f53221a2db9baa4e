"""Workers over TCP: who has a listed key comes in, nobody else does, and the run goes on."""

import stat
import subprocess
import sys
import threading

import pytest

zmq = pytest.importorskip("zmq", reason="needs pyzmq: pip install 'mainspring[executor]'")
if not zmq.has("curve"):
    pytest.skip("this libzmq was built without CURVE", allow_module_level=True)

from executor.controller import LiveError  # noqa: E402
from executor.keys import KeysError, lock, make_keys, unlock  # noqa: E402
from executor.wire import VERSION, Hello, encode  # noqa: E402
from mainspring.cli import main  # noqa: E402
from scheduler.records import Outcome  # noqa: E402
from tests.executor.clusters import Fates, cluster  # noqa: E402

HELLO = encode(Hello(VERSION, 0, 1, {}))


def locked(keys, sink, listen="tcp://127.0.0.1:*"):
    return cluster(sink, listen=listen, keys=keys)


@pytest.fixture
def keys(tmp_path):
    make_keys(tmp_path / "keys", 2)
    return tmp_path / "keys"


def comes_in(server, knock):
    """Whether what a client says is heard within the time that a listed one needs tenfold."""
    context = zmq.Context.instance()
    with context.socket(zmq.DEALER) as client:
        client.setsockopt(zmq.LINGER, 0)
        knock(client)
        client.connect(server.getsockopt_string(zmq.LAST_ENDPOINT))
        client.send(HELLO)
        return bool(server.poll(1_000))


def test_only_listed_keys_come_in(keys, tmp_path):
    make_keys(tmp_path / "other", 1)
    mixed = tmp_path / "mixed"  # believes our controller, but has a key that is not listed
    mixed.mkdir()
    (mixed / "controller.key").write_bytes((keys / "worker-0/controller.key").read_bytes())
    secret = (tmp_path / "other/worker-0/worker.key_secret").read_bytes()
    (mixed / "worker.key_secret").write_bytes(secret)

    context = zmq.Context()
    server = context.socket(zmq.ROUTER)
    guard = lock(server, context, keys / "controller")
    try:
        server.bind("tcp://127.0.0.1:*")
        assert not comes_in(server, lambda client: None)  # plaintext
        assert not comes_in(server, lambda client: unlock(client, mixed))
        assert not comes_in(server, lambda client: unlock(client, tmp_path / "other/worker-0"))
        assert comes_in(server, lambda client: unlock(client, keys / "worker-1"))
    finally:
        server.close(0)
        guard.stop()
        context.term()


def test_where_nobody_checks_nobody_comes_in(keys):
    context = zmq.Context()
    server = context.socket(zmq.ROUTER)
    lock(server, context, keys / "controller").stop()
    server.bind("tcp://127.0.0.1:*")
    try:
        assert not comes_in(server, lambda client: unlock(client, keys / "worker-0"))
    finally:
        server.close(0)
        context.term()


def test_a_run_goes_on_while_strangers_knock(keys, tmp_path):
    make_keys(tmp_path / "other", 1)
    fates = Fates()
    world = locked(keys / "controller", fates)
    command = [sys.executable, "-m", "executor.worker", world.address, "0"]
    worker = subprocess.Popen([*command, f"--keys={keys / 'worker-0'}"])
    over = threading.Event()
    knocks = []

    def knock():
        context = zmq.Context()
        while not over.wait(0.05):
            for stranger in (None, tmp_path / "other/worker-0"):
                with context.socket(zmq.DEALER) as socket:
                    socket.setsockopt(zmq.LINGER, 0)
                    if stranger:
                        unlock(socket, stranger)
                    socket.connect(world.address)
                    socket.send(HELLO)
                    socket.poll(20)
                    knocks.append(stranger)
        context.term()

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        world.run(2_000_000_000, 2_000_000_000)
    finally:
        over.set()
        thread.join()
        world.close()
        worker.kill()
        worker.wait()
    assert fates.outcomes == [Outcome.OK] * 100
    assert not fates.lost
    assert not world.dropped  # not a byte of theirs was read
    assert len(knocks) > 10


def test_an_open_address_needs_keys(keys, tmp_path):
    with pytest.raises(LiveError, match="needs keys"):
        locked(None, Fates(), "tcp://0.0.0.0:*")
    with pytest.raises(LiveError, match="no key file"):
        locked(tmp_path / "nowhere", Fates())
    with pytest.raises(LiveError, match="nonsense"):
        locked(keys / "controller", Fates(), "nonsense")


def test_secrets_are_their_owners_and_never_overwritten(tmp_path, monkeypatch, capsys):
    target = tmp_path / "keys"
    monkeypatch.setattr(sys, "argv", ["mainspring", "keys", str(target), "--workers", "2"])
    for code in (0, 2):
        with pytest.raises(SystemExit) as end:
            raise SystemExit(main() or 0)
        assert (end.value.code or 0) == code
    assert "is there already" in capsys.readouterr().err
    secrets = sorted(target.rglob("*.key_secret"))
    assert len(secrets) == 3
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in secrets)
    with pytest.raises(KeysError, match="is there already"):
        make_keys(target, 1)
