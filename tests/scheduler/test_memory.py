"""Where models lie: no page is given twice, and a piece goes into the first hole it fits."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.audit import Audit
from results.columns import actions_of
from scheduler.memory import Contiguous, NoSpace, Paged
from scheduler.records import FOREVER, Load, Outcome, Result, Status, Unload, Why
from scheduler.worker import Engine, Worker
from sim.gpu import SimGpu
from tests.worlds import ActionRow, World, model, run
from tests.worlds import policy as make

PAGES = 24

_MOVES = st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.integers(0, 99)), max_size=80)


@pytest.mark.parametrize("kind", [Paged, Contiguous])
@given(moves=_MOVES)
def test_no_page_is_given_to_two(kind: Any, moves: list[tuple[bool, int, int]]) -> None:
    memory, places = kind(PAGES), []
    for takes, pages, which in moves:
        held = {page for place in places for page in place}
        if takes and len(held) + pages <= PAGES:
            try:
                place = memory.take(pages)
            except NoSpace:
                runs = _longest_run(set(range(PAGES)) - held)
                assert kind is Contiguous
                assert runs < pages
                continue
            assert len(place) == len(set(place)) == pages
            assert held.isdisjoint(place)
            assert set(place) <= set(range(PAGES))
            places.append(place)
        elif places:
            memory.give(places.pop(which % len(places)))
    for place in places:
        memory.give(place)
    assert sorted(memory.take(PAGES)) == list(range(PAGES))


def _longest_run(pages: set[int]) -> int:
    longest = run = 0
    for page in range(PAGES):
        run = run + 1 if page in pages else 0
        longest = max(longest, run)
    return longest


def test_a_piece_goes_into_the_first_hole_that_is_long_enough() -> None:
    memory = Contiguous(20)
    a, _, c, _ = (memory.take(pages) for pages in (2, 3, 5, 4))
    memory.give(a)
    memory.give(c)
    assert memory.holes == [(0, 2), (5, 5), (14, 6)]
    assert memory.take(3) == range(5, 8)
    assert memory.take(2) == range(2)


def test_holes_that_touch_become_one() -> None:
    memory = Contiguous(9)
    a, b, c = (memory.take(3) for _ in range(3))
    for place in (a, c, b):
        memory.give(place)
    assert memory.holes == [(0, 9)]


def test_a_model_finds_no_space_though_enough_pages_are_free() -> None:
    worker = Worker((2, 2, 2, 3), pages=6, memory=Contiguous(6))
    for id, each in enumerate((0, 1, 2)):
        worker.submit(0, Load(id, 0, each, 0, FOREVER, 0))
        worker.start(Engine.COPY, 0)
        worker.finish(Engine.COPY, 0, 1, 1)
    for id, each in ((3, 0), (4, 2)):
        worker.submit(2, Unload(id, 0, each, 0, FOREVER, 0))
    worker.submit(2, Load(5, 0, 3, 0, FOREVER, 0))
    refused = worker.start(Engine.COPY, 2)
    assert isinstance(refused, Result)
    assert (refused.status, refused.why) == (Status.FAILED, Why.NO_SPACE)
    assert worker.pages_used == 2
    assert worker.places == {1: range(2, 4)}
    worker.submit(3, Unload(6, 0, 1, 0, FOREVER, 0))
    worker.submit(3, Load(7, 0, 3, 0, FOREVER, 0))
    assert isinstance(worker.start(Engine.COPY, 3), Load)
    assert worker.places == {3: range(3)}


def test_a_load_that_went_wrong_on_the_device_gives_its_place_back() -> None:
    worker = Worker((4,), pages=4, memory=Contiguous(4))
    for id in range(2):
        worker.submit(0, Load(id, 0, 0, 0, FOREVER, 0))
        assert isinstance(worker.start(Engine.COPY, 0), Load)
        failed = worker.finish(Engine.COPY, 0, 5, 5, Why.DEVICE_ERROR)
        assert (failed.status, failed.why) == (Status.FAILED, Why.DEVICE_ERROR)
    assert (worker.pages_used, worker.places, worker.residence) == (0, {}, {})


def scattered(chosen: Any) -> World:
    """Six models of odd sizes in a memory in which they cannot all lie, asked for in turn."""
    sizes = (3, 2, 4, 5, 1, 3)
    order = (0, 1, 2, 4, 3, 5, 1, 3, 0, 2, 5, 4)
    asked = [(20.0 * i, order[i % len(order)]) for i in range(200)]
    return run(
        chosen,
        asked,
        models=[model(pages=pages, load_ms=2.0) for pages in sizes],
        pages=8,
        slo_ms=None,
        end_s=4.0,
        drain_s=2.0,
        gpu_kind=partial(SimGpu, memory=Contiguous),
    )


@pytest.mark.parametrize(
    "chosen",
    [
        make("fifo"),
        make("edf", drop="none"),
        make("clockwork"),
        make("clockwork", variant="infer5"),
    ],
    ids=["fifo", "edf", "clockwork", "infer5"],
)
def test_policies_evict_more_where_no_hole_is_long_enough(chosen: Any) -> None:
    world = scattered(chosen)
    no_space = [row for row in world.actions if row.why == Why.NO_SPACE]
    assert no_space
    assert [row.outcome for row in world.requests] == [Outcome.OK] * 200
    audit = Audit(pages_of_model=[3, 2, 4, 5, 1, 3], pages_of_gpu=[8])
    audit.actions(actions_of([tuple(row) for row in world.actions]))
    audit.finish(0)
    loads = sum(row.type == "load" and row.status == Status.DONE for row in world.actions)
    assert len(no_space) < loads  # they do not try the same again and again
    _pieces_never_overlap(world.actions)


def _pieces_never_overlap(actions: list[ActionRow]) -> None:
    """Replays what was done on a memory of its own: each load found a hole then."""
    sizes, memory, places = (3, 2, 4, 5, 1, 3), Contiguous(8), {}
    moves = [row for row in actions if row.type in ("load", "unload") and row.status == Status.DONE]
    for row in sorted(moves, key=lambda row: (row.start_ns, row.type == "load")):
        if row.type == "load":
            places[row.model] = memory.take(sizes[row.model])
        else:
            memory.give(places.pop(row.model))
