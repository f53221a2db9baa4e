"""Elements of Clockwork that can be taken away, for the ablation: each does what its name says."""

import pytest

from tests.worlds import MS, World, model, policy, run


def kinds(world: World, kind: str) -> list[int]:
    """The models of such actions, in the order in which they began."""
    rows = [row for row in world.actions if row.type == kind]
    return [row.model for row in sorted(rows, key=lambda row: (row.start_ns, row.id))]


@pytest.mark.parametrize(
    ("order", "expected"), [("latest_start", [2, 0]), ("deadline", [0, 2])], ids=str
)
def test_who_comes_first_is_who_has_to_start_first_or_who_is_due_first(
    order: str, expected: list[int]
) -> None:
    """Due at 201 ms is a batch of 2.73 ms, at 222 one of 60; planned 5 ms before."""
    world = run(
        policy("clockwork", order=order),
        [(0, 0), (20, 1), (40, 2), (150, 1), (151, 0), (152, 2)],
        models=[model(), model({1: 30.0}), model({1: 60.0})],
        streams=[0, 0, 0, 0, 1, 2],
        slo_ns=[[500 * MS] * 3, [100 * MS] * 3, [120 * MS] * 3],
    )
    assert kinds(world, "infer")[-2:] == expected


@pytest.mark.parametrize(("loads", "expected"), [("demand", 3), ("arrival", 2)])
def test_what_is_loaded_next_is_what_most_ask_for_or_who_asked_first(
    loads: str, expected: int
) -> None:
    """Two loads are under way when one request comes for model 2 and then five for model 3."""
    world = run(
        policy("clockwork", loads=loads),
        [(0, 0), (0, 1), (1, 2), *[(2, 3)] * 5],
        models=[model() for _ in range(4)],
    )
    assert kinds(world, "load")[2] == expected


def test_loads_by_arrival_make_no_copies_of_a_hot_model() -> None:
    hot = [(50 + 0.5 * i, 0) for i in range(200)]
    by_demand = run(policy("clockwork"), [(0, 0), *hot], gpus=2)
    by_arrival = run(policy("clockwork", loads="arrival"), [(0, 0), *hot], gpus=2)
    assert len(kinds(by_demand, "load")) == 2
    assert len(kinds(by_arrival, "load")) == 1


def test_one_fault_alone_can_be_repeated() -> None:
    calm = [(0, 0), (100, 0), (200, 0)]
    assert len(kinds(run(policy("clockwork"), calm, gpus=3), "load")) == 1
    faulty = policy("clockwork", faults=["load_satisfied"])
    assert len(kinds(run(faulty, calm, gpus=3), "load")) == 3


def test_what_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"faults = \['haste'\]; expected some of load_satisfied"):
        policy("clockwork", faults=["haste"])
    with pytest.raises(ValueError, match="infer5 has no such order"):
        policy("clockwork", variant="infer5", order="deadline")
