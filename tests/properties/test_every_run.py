"""Invariants of every run: any policy, any small world, any traffic."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.policies import POLICIES
from tests.properties import laws
from tests.properties.cases import (
    FIFO,
    Case,
    Choice,
    Hostile,
    Recorder,
    batchings,
    cases,
    clockworks,
    examples,
)


def obeys_the_laws(case: Case, policy: Any) -> None:
    seen = Recorder(policy)
    world = case.run(seen)
    laws.all_of_them(case, world, seen)


@examples(200)
@given(cases(pieces=True))
def test_fifo_obeys_the_laws(case: Case) -> None:
    obeys_the_laws(case, Choice("fifo", {}).build())


@examples(500)
@given(cases(pieces=True), clockworks())
def test_clockwork_obeys_the_laws(case: Case, choice: Choice) -> None:
    obeys_the_laws(case, choice.build())


@examples(300)
@given(cases(pieces=True), batchings())
def test_dynamic_batching_obeys_the_laws(case: Case, choice: Choice) -> None:
    obeys_the_laws(case, choice.build())


@examples(600)
@given(cases(pieces=True), st.integers(0, 2**32))
def test_nonsense_is_refused_counted_and_without_effect(case: Case, seed: int) -> None:
    hostile = Hostile(seed)
    seen = Recorder(hostile)
    world = case.run(seen)
    laws.all_of_them(case, world, seen)
    assert sum(world.cluster.controller.out.refusals) == hostile.refused


@examples(100)
@given(cases(pieces=True), st.one_of(FIFO, clockworks(), batchings()))
def test_nobody_who_makes_sense_is_ever_refused(case: Case, choice: Choice) -> None:
    world = case.run(choice.build())
    assert not any(world.cluster.controller.out.refusals)


@examples(150)
@given(cases(pieces=True), st.one_of(FIFO, clockworks(), batchings()))
def test_the_same_seed_gives_the_same_rows(case: Case, choice: Choice) -> None:
    first, second = (case.run(choice.build()).sink for _ in range(2))
    assert first.requests == second.requests
    assert first.actions == second.actions


@examples(100)
@given(cases(pieces=True), st.sampled_from(["clipper-exp3", "clipper-exp4"]), st.booleans())
def test_ensembles_end_every_request_once_and_are_never_refused(
    case: Case, name: str, defaults: bool
) -> None:
    policy = POLICIES[name](POLICIES[name].Params(defaults=defaults))
    world = case.run(policy)
    laws.requests_end_once_and_add_up(case, world)
    assert not any(world.cluster.controller.out.refusals)
