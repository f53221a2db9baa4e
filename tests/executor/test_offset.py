"""A worker's clock, from questions and answers."""

from executor.offset import Offset


def test_the_quickest_exchange_counts():
    offset = Offset()
    offset.add(0, 5_000_000, 2_000_000)  # 2 ms for a trip: 4 ms, give or take 1 ms
    offset.add(10_000_000, 15_050_000, 10_100_000)

    assert offset.offset_ns == 5_000_000
    assert offset.error_ns == 50_000


def test_old_exchanges_are_forgotten():
    offset = Offset()
    offset.add(0, 1_000_000, 10)
    for i in range(Offset.KEPT):
        offset.add(1_000 * i, 1_000 * i + 2_000_000 + 50, 1_000 * i + 100)

    assert offset.offset_ns == 2_000_000


def test_an_answer_from_before_its_question_is_no_exchange():
    offset = Offset()
    offset.add(100, 0, 50)

    assert offset.error_ns is None
