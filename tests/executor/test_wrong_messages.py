"""Whatever a worker is told, it goes on serving: the real loop, and the brain with its device.

Messages are made as bytes that our own records would not let us make: any number anywhere, what is
no number, what is missing or too much, other types.
"""

import os
import threading
import time
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from executor.job import Job
from executor.models import Sources
from executor.oip import DATATYPES
from executor.tensors import packed, unpacked
from executor.wire import (
    ASKED,
    Bill,
    Do,
    Happens,
    Pong,
    Ready,
    Reports,
    Setup,
    Stop,
    Tensor,
    Unable,
    decode_from_worker,
    decode_to_worker,
    encode,
)
from mainspring.document import ScenarioError
from mainspring.live import run_live
from profiles.durations import Constant
from scheduler.records import FOREVER, Infer, Load, Status, Unload
from tests.executor.scenarios import COMPUTING, loaded

zmq = pytest.importorskip("zmq", reason="workers need pyzmq: pip install 'mainspring[executor]'")

EXAMPLES = int(os.environ.get("MAINSPRING_EXAMPLES", 5_000))
FEWER = max(100, EXAMPLES // 20)

NAN = float("nan")
pack = msgspec.msgpack.encode


def raw(*fields: object) -> bytes:
    """A message as an array of what it is called and what it holds."""
    return pack(fields)


SETUP = encode(Setup(7, 1, [Bill(3, Constant(1_000), {1: Constant(1_000), 2: Constant(1_000)})]))
ACTIONS = [Load(2**61, 0, 0, 0, FOREVER, 0), Infer(2**61 + 1, 0, 0, 2, (8,), 0, FOREVER, 0)]

# -- what there may be in a message

small = st.integers(-1, 3)
right = small | st.integers(-(2**62), 2**62)
wrong = small | st.integers(-(2**63), 2**64 - 1)
floats = st.sampled_from([0.0, 0.5, 1.0, 1e6, 1e9, NAN, float("inf"), -1.0]) | st.floats()
words = st.sampled_from(["", "spin", "no such model", "cpu", "cuda", "Setup"])
anything = st.recursive(
    st.none() | st.booleans() | wrong | floats | words | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | wrong, inner, max_size=3),
    max_leaves=8,
)
WINDOWS = ("id", "lane", "model", "earliest_ns", "latest_ns", "expected_ns")


def told(tag: str, word: str, **fields: st.SearchStrategy) -> st.SearchStrategy:
    """A record as it is packed."""
    return st.fixed_dictionaries({tag: st.just(word), **fields})


def some(of: st.SearchStrategy, least: int = 0) -> st.SearchStrategy:
    return st.lists(of, min_size=least, max_size=3)


def spoilt(strategy: st.SearchStrategy) -> st.SearchStrategy:
    """Now and then anything else."""
    return st.one_of(*[strategy] * 9, anything)


def messages_of(numbers: st.SearchStrategy, or_else: object) -> dict[str, st.SearchStrategy]:
    """Every kind of message, of such numbers. or_else: what becomes of a field."""
    lengths = st.integers(1, 9) | numbers
    durations = st.one_of(
        told("type", "constant", ns=or_else(lengths)),
        told("type", "samples", ns=some(or_else(lengths), 1)),
        told("type", "quantiles", shares=some(floats), ns=some(numbers)),
    )
    bills = st.tuples(
        or_else(lengths), or_else(durations), st.dictionaries(lengths, durations, max_size=3), words
    )
    setups = st.tuples(
        st.just("Setup"), or_else(lengths), or_else(st.integers(0, 9)), some(or_else(bills)),
        or_else(st.sampled_from(["cpu", "cpu", "cuda"])), or_else(lengths), or_else(st.booleans()),
    )  # fmt: skip
    windows = {name: or_else(numbers) for name in WINDOWS}
    actions = st.one_of(
        told("type", "Load", **windows),
        told("type", "Unload", **windows),
        told("type", "Infer", batch=small | numbers, tasks=some(numbers), **windows),
    )
    extents = or_else(st.lists(small | numbers, max_size=4))
    names = st.sampled_from(["FP32", "INT8", "BOOL", "BYTES", ""])
    tensors = st.tuples(names, extents, st.binary(max_size=16))
    inputs = st.dictionaries(words, or_else(tensors), max_size=2)
    faults = st.one_of(
        told("kind", "slow_gpu", at_s=floats, gpu=numbers, for_s=floats, factor=floats),
        told("kind", "stalled_copy", at_s=floats, gpu=numbers, for_s=floats),
        told("kind", "device_error", at_s=st.just(0), gpu=small, batches=small | numbers),
    )
    return {
        "Setup": setups,
        "Do": st.tuples(
            st.just("Do"), or_else(numbers), some(or_else(actions)), st.just([]) | some(inputs)
        ),
        "Ping": st.tuples(st.just("Ping"), or_else(numbers), some(or_else(numbers))),
        "Happens": st.tuples(st.just("Happens"), or_else(faults)),
    }


well_formed, malformed = messages_of(right, lambda field: field), messages_of(wrong, spoilt)
setups, dos = (
    (well_formed[kind] | malformed[kind]).map(pack) for kind in ("Setup", "Do")
)  # fmt: skip
messages = st.one_of(
    st.one_of(*well_formed.values()).map(pack),
    st.one_of(*malformed.values()).map(pack),
    (st.tuples(st.just("Stop"), anything) | st.lists(anything, max_size=5)).map(pack),
    st.binary(max_size=60),
).filter(lambda frame: not _is(frame, Stop))
"""A Stop that can be understood ends a worker; that is no mistake."""


def _is(frame: bytes, kind: type) -> bool:
    try:
        return isinstance(decode_to_worker(frame), kind)
    except msgspec.DecodeError:
        return False


# -- the real loop


class Boss:
    """A controller's socket, and a worker's loop in a thread of its own."""

    def __init__(self, serve: object) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.RCVTIMEO, 60_000)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind("tcp://127.0.0.1:*")
        self.error: BaseException | None = None
        address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

        def work() -> None:
            try:
                serve(address, 0, Sources())
            except BaseException as error:
                self.error = error

        self._thread = threading.Thread(target=work)
        self._thread.start()
        self._worker, _ = self._socket.recv_multipart()

    def tell(self, frame: bytes) -> None:
        self._socket.send_multipart([self._worker, frame])

    def hear(self, kind: type, *, until: object = lambda message: True) -> object:
        """The next message of a kind. Whatever else comes is of what went before."""
        while True:
            assert self._thread.is_alive(), f"the worker has ended: {self.error!r}"
            message = decode_from_worker(self._socket.recv_multipart()[1])
            if isinstance(message, kind) and until(message):
                return message

    def serves(self) -> None:
        """It is taken on anew, loads, runs a batch and tells the time."""
        self.tell(encode_ping(1))
        self.hear(Pong, until=lambda pong: pong.sent_ns == 1)  # all that was said before is heard
        self.tell(SETUP)
        self.hear(Ready)
        for action in ACTIONS:
            self.tell(encode(Do(0, [action])))
            (report,) = self.hear(Reports).reports
            assert (report.id, report.status) == (action.id, Status.DONE)

    def close(self) -> None:
        self.tell(encode(Stop()))
        self._thread.join(20)
        self._socket.close()
        self._context.term()
        assert not self._thread.is_alive()
        assert self.error is None


def encode_ping(sent_ns: int) -> bytes:
    return raw("Ping", sent_ns, [])


@pytest.fixture(scope="module")
def boss() -> Iterator[Boss]:
    from executor import worker

    silence_s, worker.SILENCE_S = worker.SILENCE_S, 1e6  # hypothesis thinks for a while
    boss = Boss(worker.serve)
    yield boss
    boss.close()
    worker.SILENCE_S = silence_s


@settings(max_examples=FEWER, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example([raw("Setup", 7, 1, [[3, {"type": "constant", "ns": NAN}, {}, "spin"]])])
@example([raw("Setup", 2**22, 1, [], "cpu", 2**50, False)])
@example([raw("Setup", 7, 1, [], "cuda", 1 << 24, False)])
@example([SETUP, raw("Do", 0, [{"type": "Infer", **dict.fromkeys(WINDOWS, 0), "batch": 3,
                                "tasks": [1]}])])  # fmt: skip
@example([SETUP, raw("Do", 2**64 - 1, [])])
@example([SETUP, raw("Ping", 2**64 - 1, [])])
@example([SETUP, raw("Happens", {"kind": "slow_gpu", "at_s": 0, "gpu": 0, "for_s": NAN,
                                 "factor": NAN})])  # fmt: skip
@given(frames=st.lists(messages, max_size=5))
def test_a_worker_serves_whatever_it_was_told_before(boss, frames):
    for frame in frames:
        boss.tell(frame)
    boss.serves()


@settings(max_examples=FEWER, deadline=None)
@given(frame=setups)
def test_a_set_up_is_met_or_answered_with_the_reason(boss, frame):
    """Of a worker that has none yet; who has one keeps it where the new one can't be read."""
    boss.tell(raw("Setup", 1, 1, [[1, {"type": "constant", "ns": 1}, {}, "no such model"]]))
    boss.hear(Unable)  # from here on it has none
    boss.tell(frame)
    answer = boss.hear((Ready, Unable))
    assert isinstance(answer, Ready) or answer.reason
    boss.serves()


def test_a_set_up_that_cannot_be_is_told_as_it_is(boss):
    boss.tell(raw("Setup", 1, 1, [[1, {"type": "constant", "ns": 1}, {}, "no such model"]]))
    assert "no such model" in boss.hear(Unable).reason
    wrong = {"type": "quantiles", "shares": [NAN], "ns": [1]}
    boss.tell(raw("Setup", 7, 1, [[3, wrong, {}, "spin"]]))
    assert "nan is not a quantile" in boss.hear(Unable).reason
    boss.tell(raw("Setup", 2**30, 1, []))
    assert "<= 4194304" in boss.hear(Unable).reason


def test_complaints_are_told_until_they_are_too_many(boss, capfd):
    from executor.worker import Dropped

    for _ in range(3 * Dropped.TOLD):
        boss.tell(b"noise")
    boss.serves()

    assert capfd.readouterr().err.count("was dropped") <= Dropped.TOLD


# -- the brain with a device, without the messages


def ended(job: Job, count: int) -> list:
    end = time.monotonic() + 60
    while len(job.reports) < count:
        job.step()
        assert time.monotonic() < end, f"only {job.reports} within a minute"
    return job.reports


@settings(max_examples=max(100, EXAMPLES // 5), deadline=None)
@given(frames=st.lists(dos, max_size=5))
def test_every_action_that_is_taken_is_reported_once_and_the_next_one_runs(frames):
    """Its id is above theirs, for ids only rise."""
    job = Job(decode_to_worker(SETUP))
    for frame in frames:
        try:
            do = decode_to_worker(frame)
            inputs = [unpacked(one) for one in do.inputs]
        except (msgspec.DecodeError, ValueError):
            continue
        last = job._last_id
        # What opens in some years, or keeps an engine for as long, is waited for: not here.
        do.actions = [a for a in do.actions if a.earliest_ns + do.offset_ns <= 0 and a.id < 2**61]
        job.take(do.actions, do.offset_ns, inputs)
        rising = [a.id for a in do.actions if a.id > last]
        assert job._last_id == last or job._last_id in rising
        job.step()
    known = set(job._received_ns) | {report.id for report in job.reports}
    job.take([Unload(2**61 - 1, 0, 0, 0, FOREVER, 0)])
    for i, action in enumerate(ACTIONS):
        job.take([msgspec.structs.replace(action)])
        reports = ended(job, len(known) + 2 + i)
    assert [one.id for one in reports[-2:]] == [action.id for action in ACTIONS]
    assert {one.id for one in reports} == known | {2**61 - 1, *(one.id for one in ACTIONS)}
    assert len({one.id for one in reports}) == len(reports)
    assert reports[-1].status is Status.DONE
    for report in reports:
        assert encode(Reports([report]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(asked=st.lists(wrong, max_size=9))
def test_whatever_is_asked_for_is_unknown_or_told_again(asked):
    job = Job(decode_to_worker(SETUP))
    job.take([Load(5, 0, 0, 0, FOREVER, 0)])
    ended(job, 1)
    job.reports.clear()

    unknown = job.asked(asked)

    assert [one.id for one in job.reports] == [id for id in asked if id == 5]
    assert unknown == [id for id in asked if id != 5]


def test_more_is_not_asked_for_than_a_ping_asks():
    with pytest.raises(msgspec.ValidationError, match="length <= 1000"):
        decode_to_worker(raw("Ping", 1, [0] * (ASKED + 1)))


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Load(1, 0, 1, 0, FOREVER, 0), "there is no model 1 of 1"),
        (Load(1, 0, -1, 0, FOREVER, 0), "there is no model -1 of 1"),
        (Infer(1, 0, 0, 3, (1,), 0, FOREVER, 0), "model 0 has no batch of 3"),
        (Infer(1, 0, 0, 2, (1, 2, 3), 0, FOREVER, 0), "3 tasks in a batch of 2"),
        (Infer(1, 0, 0, 2, (), 0, FOREVER, 0), "0 tasks in a batch of 2"),
    ],
)
def test_what_cannot_be_meant_is_dropped_told_and_unknown(action, why):
    refused = []
    job = Job(decode_to_worker(SETUP), dropped=refused.append)
    job.take([action])
    assert why in refused[0]
    assert job.asked([1]) == [1]


@pytest.mark.parametrize("count", [1, 3])
def test_inputs_are_of_one_batch(count):
    refused = []
    job = Job(decode_to_worker(SETUP), dropped=refused.append)
    job.take([Infer(1, 0, 0, 2, (1, 2), 0, FOREVER, 0)], 0, [{}] * count)
    assert f"{count} inputs" in refused[0]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    name=st.sampled_from([*DATATYPES, "BYTES"]),
    shape=st.lists(small | st.integers(0, 2**64 - 1), max_size=9),
    data=st.binary(max_size=16),
)
def test_a_tensor_is_one_or_is_refused(name, shape, data):
    try:
        there = unpacked({"x": msgspec.convert([name, shape, data], Tensor)})
    except ValueError:  # of which msgspec's are some
        return
    assert there["x"].shape == tuple(shape)


names = st.sampled_from(["x", "y", "input"])
arrays = st.builds(
    lambda dtype, shape: np.ones(shape, dtype),
    st.sampled_from(["f4", "f8", "i8", "?"]), st.lists(st.integers(0, 40), max_size=3),
)  # fmt: skip


@pytest.fixture(scope="module")
def computing() -> Iterator[Job]:
    pytest.importorskip("torch", reason="models need torch: pip install 'mainspring[executor]'")
    costs = {1: Constant(1), 2: Constant(1)}
    job = Job(Setup(1, 1, [Bill(1, Constant(1), costs, "mlp-tiny")], "cpu", 1 << 20))
    job.take([Load(0, 0, 0, 0, FOREVER, 0)])
    ended(job, 1)
    yield job
    job.close()


@settings(max_examples=FEWER, deadline=None)
@given(inputs=st.lists(st.dictionaries(names, arrays, max_size=2), min_size=1, max_size=2))
def test_a_model_that_is_given_nonsense_computes_the_next_batch(computing, inputs):
    for them in (inputs, ()):
        computing.reports.clear()
        tasks = tuple(range(len(them) or 1))
        infer = Infer(computing._last_id + 1, 0, 0, 2, tasks, 0, FOREVER, 0)
        computing.take([infer], 0, them)
        (report,) = ended(computing, 1)
        if them:
            assert report.error or len(report.outputs) == len(them)
        else:
            assert (report.status, report.error) == (Status.DONE, "")


def test_a_tensor_goes_there_and_comes_back():
    there = packed({"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    do = decode_to_worker(encode(Do(0, [], [there])))
    assert unpacked(do.inputs[0])["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_fault_is_no_nan():
    for key in ("at_s", "for_s", "factor"):
        fault = {"kind": "slow_gpu", "at_s": 1.0, "gpu": 0, "for_s": 1.0, "factor": 2.0}
        assert isinstance(decode_to_worker(raw("Happens", fault)), Happens)
        with pytest.raises(msgspec.ValidationError, match=key):
            decode_to_worker(raw("Happens", fault | {key: NAN}))


def test_a_set_up_that_cannot_be_met_ends_the_run_in_one_line(tmp_path, capfd):
    """The worker says why, and is not what ends."""
    pytest.importorskip("torch", reason="models need torch: pip install 'mainspring[executor]'")
    scenario = loaded(tmp_path, "cluster.pages=4000000", "cluster.page_mib=16", text=COMPUTING)
    with pytest.raises(ScenarioError, match=r"worker 0: .*4,?000,?000 pages"):
        run_live(scenario, tmp_path / "live")
    assert "Traceback" not in capfd.readouterr().err


def test_more_pages_than_a_worker_can_count_are_refused_before_it_starts(tmp_path):
    with pytest.raises(ScenarioError, match=r"cluster\.pages = 5,000,000: a live worker can have"):
        run_live(loaded(tmp_path, "cluster.pages=5000000"), tmp_path / "live")
