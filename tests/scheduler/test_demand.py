"""Which model should be loaded next. Numbers by hand, after Clockwork's load_tracker.cpp.

A GPU that has work W on it, of which 1 ms is always assumed, serves the share capacity / W of what
it holds; the load demand that is left is the model's priority. The capacity is 100 ms here.
"""

import pytest

from scheduler.demand import IDLE_WORK_NS, Demand

MS = 1_000_000
LATER = 25 * MS


def demand(gpus: int = 1, models: int = 3, *, load_satisfied: bool = False) -> Demand:
    return Demand(models, gpus, 100 * MS, load_satisfied=load_satisfied)


def wanted(d: Demand, now_ns: int = 0) -> list[int]:
    """All models that should be loaded, most wanted first, as long as nobody loads them."""
    order = []
    while (entry := d.pop_most_wanted(now_ns)) is not None:
        order.append(entry)
    for entry in order:
        d.put_back(entry)
    return [model for _, model in order]


def test_a_model_that_nobody_asks_for_is_not_wanted() -> None:
    d = demand()
    assert wanted(d) == []
    assert d.empty(0)


def test_more_demand_is_wanted_more() -> None:
    d = demand()
    d.add(0, 10, 40, 0, LATER)
    d.add(1, 10, 50, 0, LATER)
    d.add(2, 10, 20, 0, LATER)
    assert wanted(d) == [1, 0, 2]
    d.add(2, 10, 40, 0, LATER)  # 60 now
    assert wanted(d) == [2, 1, 0]


def test_equal_demand_is_taken_in_the_order_of_models() -> None:
    d = demand()
    for model in (2, 0, 1):
        d.add(model, 10, 40, 0, LATER)
    assert wanted(d) == [0, 1, 2]


def test_demand_counts_until_a_load_could_not_help_any_more() -> None:
    d = demand()
    d.add(0, 10, 40, 0, LATER)
    assert wanted(d, LATER) == [0]
    assert wanted(d, LATER + 1) == []
    assert not d.empty(0)  # somebody waits all the same


def test_who_is_turned_away_speaks_for_a_load_for_a_while() -> None:
    """Also where demand is not forgotten: nobody waits, so it must not be wanted for ever."""
    d = Demand(2, 1, 100 * MS, load_satisfied=False, forget=False)
    d.turn_away(0, 40, 0, LATER)
    d.add(1, 10, 30, 0, LATER)
    assert wanted(d) == [0, 1]
    assert d.empty(0)
    assert wanted(d, LATER) == [0, 1]
    assert wanted(d, LATER + 1) == [1]


def test_what_was_sent_counts_beside_what_was_turned_away() -> None:
    """40 turned away and 30 that wait: the 30 are sent, 40 are left until they are too old."""
    d = Demand(1, 2, 100 * MS, load_satisfied=False, forget=False)
    d.turn_away(0, 40, 0, LATER)
    d.add(0, 10, 30, 0, 2 * LATER)
    d.meet(0, 30)
    d.complete(0, 10, 0)
    assert wanted(d, LATER) == [0]
    assert wanted(d, LATER + 1) == []
    d.add(0, 10, 30, 3 * LATER, 4 * LATER)
    assert wanted(d, 3 * LATER) == [0]
    d.meet(0, 30)
    assert wanted(d, 3 * LATER) == []


def test_what_was_sent_to_a_gpu_speaks_for_no_load() -> None:
    d = demand(gpus=2)
    d.add(0, 10, 40, 0, LATER)
    d.meet(0, 40)
    assert wanted(d) == []


def test_demand_that_is_met_and_expires_leaves_once() -> None:
    """Two requests, one of them met: after both have expired nothing is left, and not less than
    nothing, which a later request would have to make up for."""
    d = demand()
    d.add(0, 10, 40, 0, LATER)
    d.add(0, 10, 40, 0, LATER)
    d.meet(0, 40)
    assert wanted(d, LATER + 1) == []
    d.add(0, 10, 40, LATER + 1, 2 * LATER)
    assert wanted(d, LATER + 1) == [0]


def test_a_model_that_every_gpu_holds_is_wanted_nowhere() -> None:
    d = demand(gpus=1)
    d.add(0, 900 * MS, 900 * MS, 0, LATER)
    d.hold(0, 0, 0)
    assert wanted(d) == []
    d.release(0, 0, 0)
    assert wanted(d) == [0]


@pytest.mark.parametrize(
    ("work_ms", "is_wanted"),
    [
        (50, False),  # 51 ms of work on a GPU that has 100: all is served
        (99, False),  # 100 ms: just
        (100, True),  # 101 ms: the share 1 - 100 / 101 is not
        (900, True),
    ],
)
def test_one_gpu_is_enough_as_long_as_it_has_time(work_ms: int, is_wanted: bool) -> None:
    d = demand(gpus=2)
    d.add(0, work_ms * MS, 40 * MS, 0, LATER)
    d.hold(0, 0, 0)
    assert wanted(d) == ([0] if is_wanted else [])


def test_the_share_that_a_busy_gpu_leaves_is_what_counts() -> None:
    """Model 0: load demand 400, on a GPU with 1 + 399 ms of work, which serves 100 / 400 of it:
    300 are left. Model 1, on no GPU, goes before it with 301 and after it with 299."""
    for other, order in ((301, [1, 0]), (299, [0, 1])):
        d = demand(gpus=2)
        d.add(0, 399 * MS, 400 * MS, 0, LATER)
        d.hold(0, 0, 0)
        d.add(1, 10, other * MS, 0, LATER)
        assert wanted(d) == order


def test_work_that_is_done_frees_the_gpu() -> None:
    d = demand(gpus=2)
    d.add(0, 900 * MS, 40 * MS, 0, LATER)
    d.hold(0, 0, 0)
    assert wanted(d) == [0]
    d.complete(0, 850 * MS, 0)
    assert wanted(d) == []
    d.complete(0, 50 * MS, 0)
    assert d.empty(0)


def test_the_artifact_wants_a_model_on_every_gpu_as_long_as_anybody_waits() -> None:
    d = demand(gpus=3, load_satisfied=True)
    d.add(0, 10 * MS, 40 * MS, 0, LATER)
    for gpu in (0, 1):
        assert wanted(d) == [0]
        d.hold(0, gpu, 0)
    assert wanted(d, 10 * LATER) == [0]  # expired, but somebody waits
    d.hold(0, 2, 0)
    assert wanted(d) == []


def test_the_artifact_still_prefers_what_is_on_no_gpu() -> None:
    d = demand(gpus=2, load_satisfied=True)
    d.add(0, 10 * MS, 40 * MS, 0, LATER)
    d.hold(0, 0, 0)
    d.add(1, 10 * MS, MS, 0, LATER)
    assert wanted(d) == [1, 0]


def test_idle_holders_that_lose_one_share_what_comes_next() -> None:
    """Three hold it, all is done, one drops it: the next work lies on the two that are left."""
    d = demand(gpus=4)
    for gpu in range(3):
        d.hold(0, gpu, 0)
    d.add(0, 90 * MS, 10 * MS, 0, LATER)
    d.complete(0, 90 * MS, 2 * MS)
    assert [gpu.outstanding for gpu in d._gpus] == [IDLE_WORK_NS] * 4
    d.release(0, 1, 3 * MS)
    d.add(0, 90 * MS, 10 * MS, 4 * MS, 4 * MS + LATER)
    work = [gpu.outstanding - IDLE_WORK_NS for gpu in d._gpus]
    assert work == [45 * MS, 0, 45 * MS, 0]
