import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads import Chunk, Poisson, merge


def stream(*chunks):
    """Chunks of instants; the model says where in the stream an arrival was."""
    seen = 0
    for times in chunks:
        yield Chunk(np.array(times, np.int64), np.arange(seen, seen + len(times), dtype=np.int32))
        seen += len(times)


def merged(*streams):
    """(time, source, place in its stream) of each arrival."""
    return [
        arrival
        for chunk in merge(list(streams))
        for arrival in zip(
            chunk.times_ns.tolist(), chunk.sources.tolist(), chunk.models.tolist(), strict=True
        )
    ]


def test_two_streams_become_one_in_the_order_of_time():
    assert merged(stream([1, 5], [9]), stream([2, 3, 10])) == [
        (1, 0, 0), (2, 1, 0), (3, 1, 1), (5, 0, 1), (9, 0, 2), (10, 1, 2),
    ]  # fmt: skip


def test_at_the_same_instant_the_earlier_workload_comes_first():
    assert merged(stream([5], [5, 5]), stream([5, 6], [6])) == [
        (5, 0, 0), (5, 0, 1), (5, 0, 2), (5, 1, 0), (6, 1, 1), (6, 1, 2),
    ]  # fmt: skip


def test_no_stream_and_empty_streams_give_nothing():
    assert merged() == []
    assert merged(stream(), stream([], [])) == []
    assert merged(stream([], [3], []), stream()) == [(3, 0, 0)]


chunked = st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=5)


@given(st.lists(chunked, max_size=4))
def test_it_is_the_stable_sort_of_everything(streams):
    ordered = []
    for chunks in streams:
        times = iter(sorted(time for chunk in chunks for time in chunk))
        ordered.append([[next(times) for _ in chunk] for chunk in chunks])
    everything = [
        (time, source, place)
        for source, chunks in enumerate(ordered)
        for place, time in enumerate(time for chunk in chunks for time in chunk)
    ]
    assert merged(*(stream(*chunks) for chunks in ordered)) == sorted(everything)


def test_a_workload_keeps_its_arrivals_when_another_one_joins_it():
    def chunks(seed):
        return Poisson(rate_rps=1000).chunks([0, 1], [], 10**10, np.random.default_rng(seed))

    alone = np.concatenate([chunk.times_ns for chunk in chunks(1)])
    together = list(merge([chunks(2), chunks(1)]))
    times_ns = np.concatenate([chunk.times_ns for chunk in together])
    sources = np.concatenate([chunk.sources for chunk in together])
    assert np.array_equal(times_ns[sources == 1], alone)
