"""How many requests are in the system."""

import numpy as np

from results.backlog import under_way


def test_who_has_come_and_not_gone_is_under_way() -> None:
    """Two from 10 to 30 and from 20 to 50; one that comes at a time counts from then on."""
    arrival_ns, end_ns = np.array([20, 10]), np.array([50, 30])
    at_ns = np.array([5.0, 15.0, 25.0, 35.0, 55.0])
    assert under_way(arrival_ns, end_ns, at_ns).tolist() == [0, 1, 2, 1, 0]
