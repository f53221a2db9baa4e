"""What a run has recorded, a fresh policy does again, bit for bit."""

from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.journal import Footer, Header, Record, Recorder, Replay, Step
from scheduler.records import GpuInfo
from tests.properties.cases import Case, Choice, Hostile, cases, clockworks, examples

CODEC = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Record)


def recorded(case: Case, policy: Any) -> list[Record]:
    """The journal of a run, as it comes back from a file."""
    encoder, decoder = CODEC
    journal: list[bytes] = []
    world = case.run(policy, record=lambda record: journal.append(encoder.encode(record)))
    controller = world.cluster.controller
    assert isinstance(controller, Recorder)
    journal.append(encoder.encode(controller.footer()))
    return [decoder.decode(record) for record in journal]


def replayed(case: Case, journal: list[Record], policy: Any) -> Replay:
    """A fresh policy that was given all the events. Fails at the first difference."""
    header = Header(
        format=1,
        mainspring="",
        policy="",
        params={},
        seed=case.seed,
        gpus=tuple(GpuInfo(i, (i,), case.pages) for i in range(case.gpus)),
        models=tuple(spec.info(i) for i, spec in enumerate(case.models)),
        inputs={},
    )
    again = Replay(header, policy, np.random.default_rng(case.seed))
    for step in journal[:-1]:
        assert isinstance(step, Step)
        assert again.step(step) is None
    return again


@examples(150)
@given(cases(), clockworks())
def test_clockwork_replays_bit_for_bit(case: Case, choice: Choice) -> None:
    journal = recorded(case, choice.build())
    again = replayed(case, journal, choice.build())
    footer = journal[-1]
    assert isinstance(footer, Footer)
    assert (footer.steps, footer.refusals) == (again.steps, again.refusals())


@examples(100)
@given(cases(), st.integers(0, 2**32))
def test_nonsense_replays_bit_for_bit(case: Case, seed: int) -> None:
    journal = recorded(case, Hostile(seed))
    again = replayed(case, journal, Hostile(seed))
    footer = journal[-1]
    assert isinstance(footer, Footer)
    assert footer.refusals == again.refusals()


@examples(50)
@given(cases(clients=False))
def test_another_policy_is_noticed(case: Case) -> None:
    """A replay can fail: FIFO is not Clockwork, unless nothing was asked."""
    journal = recorded(case, Choice("clockwork", {}).build())
    if not case.arrivals:
        return
    try:
        replayed(case, journal, Choice("fifo", {}).build())
    except (AssertionError, KeyError):
        return
    raise AssertionError("FIFO passed for Clockwork")
