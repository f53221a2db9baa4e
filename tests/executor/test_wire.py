"""Messages: what is none is refused, whatever it is made of."""

import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.offset import Offset
from executor.wire import (
    Bill,
    Do,
    Pong,
    Report,
    Reports,
    Setup,
    decode_from_worker,
    decode_to_worker,
    encode,
)
from profiles.durations import Constant
from scheduler.records import Infer, Load, Status, Unload, Why

EXAMPLES = int(os.environ.get("MAINSPRING_EXAMPLES", 5_000))

MESSAGE = encode(Reports([Report(1, Status.DONE, Why.NOTHING, 2, 3, 4, 5, 6)]))
TO_WORKER = [
    encode(Do(9, [Load(1, 0, 2, 3, 4, 5), Infer(3, 0, 2, 4, (7, 8), 1, 2, 3)])),
    encode(Setup(84, 1, [Bill(7, Constant(8_310_000), {1: Constant(2_730_000)})])),
]


def test_what_is_sent_is_what_comes():
    actions = [Load(1, 0, 2, 3, 4, 5), Unload(2, 0, 2, 3, 4, 0), Infer(3, 0, 2, 4, (7, 8), 1, 2, 3)]
    setup = Setup(84, 1, [Bill(7, Constant(8_310_000), {1: Constant(2_730_000)})])

    assert decode_to_worker(encode(Do(9, actions))) == Do(9, actions)
    assert decode_to_worker(encode(setup)) == setup


@settings(max_examples=EXAMPLES, deadline=None)
@given(frame=st.binary(max_size=200))
def test_noise_is_no_message(frame):
    for decode in (decode_from_worker, decode_to_worker):
        try:
            decode(frame)
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue


@settings(max_examples=EXAMPLES, deadline=None)
@given(place=st.integers(0, len(MESSAGE) - 1), value=st.integers(0, 255))
def test_a_message_with_a_wrong_byte_is_refused_or_another_message(place, value):
    frame = bytearray(MESSAGE)
    frame[place] = value
    try:
        message = decode_from_worker(bytes(frame))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return
    assert encode(message)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    message=st.sampled_from(TO_WORKER),
    wrong=st.dictionaries(st.integers(0, 200), st.integers(0, 255), max_size=6),
    end=st.integers(0, 200),
)
def test_what_a_worker_is_sent_with_wrong_bytes_is_refused_or_another_message(message, wrong, end):
    frame = bytearray(message)
    for place, value in wrong.items():
        frame[place % len(frame)] = value
    try:
        understood = decode_to_worker(bytes(frame[:end]))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return
    assert encode(understood)


def test_a_status_that_is_none_is_refused():
    frame = msgspec.msgpack.encode(["Reports", [[1, 77, 0, 2, 3, 4, 5, 6]]])
    with pytest.raises(msgspec.ValidationError, match="77"):
        decode_from_worker(frame)


@given(sent_ns=st.integers(-(2**63), 2**64 - 1), at_ns=st.integers(-(2**63), 2**64 - 1))
def test_a_clock_that_lies_cannot_make_a_message_that_does_not_fit(sent_ns, at_ns):
    try:
        pong = decode_from_worker(encode(Pong(sent_ns, at_ns)))
    except msgspec.ValidationError:
        return
    offset = Offset()
    offset.add(pong.sent_ns, pong.at_ns, 2**60)
    assert encode(Do(offset.offset_ns + 2**60, []))


@pytest.mark.parametrize("field", ["received_ns", "ready_ns", "start_ns", "end_ns", "duration_ns"])
def test_a_time_that_fits_into_no_column_is_refused(field):
    report = Report(1, Status.DONE, Why.NOTHING, 2, 3, 4, 5, 6)
    setattr(report, field, 2**63)
    with pytest.raises(msgspec.ValidationError, match="<= 4611686018427387904"):
        decode_from_worker(encode(Reports([report])))
