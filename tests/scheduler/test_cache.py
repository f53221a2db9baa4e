"""The prediction cache: order of eviction, joins, bounds."""

from scheduler.cache import ClockCache, Lookup


def ask(cache: ClockCache, keys: str, size: int = 1) -> list[str]:
    """Ask for one after the other; what missed is put at once."""
    came = []
    for task, key in enumerate(keys):
        found, _ = cache.look_up((0, key), task)
        came.append(found.name[0])
        if found is Lookup.MISS:
            cache.put((0, key), key, size)
    return came


def test_clock_gives_what_was_used_a_second_chance():
    cache = ClockCache(3)
    # D: A was used, so the hand passes it and evicts B; then B evicts C, as with LRU here.
    assert ask(cache, "ABCADB") == list("MMMHMM")
    assert [key for key in "ABCD" if (0, key) in cache] == ["A", "B", "D"]


def test_what_is_larger_than_the_cache_is_handed_on_and_evicts_nothing():
    """BUG-COR-10."""
    cache = ClockCache(3)
    ask(cache, "ABC")
    cache.look_up((0, "huge"), 9)
    assert cache.put((0, "huge"), "answer", 5) == [9]
    assert (0, "huge") not in cache
    assert all((0, key) in cache for key in "ABC")


def test_bytes_in_use_never_exceed_the_room():
    cache = ClockCache(10)
    for task in range(200):
        key = (0, task * 7 % 23)
        if cache.look_up(key, task)[0] is Lookup.MISS:
            cache.put(key, task, 1 + task % 4)
        assert cache.used_bytes <= 10


def test_equal_questions_join_the_one_that_runs():
    """BUG-REP-02: hits, misses and joins add up to the look-ups."""
    cache = ClockCache(10)
    found = [cache.look_up((0, "x"), task)[0] for task in (1, 2, 3)]
    assert found == [Lookup.MISS, Lookup.JOINED, Lookup.JOINED]
    assert cache.put((0, "x"), "cat", 1) == [1, 2, 3]
    assert cache.look_up((0, "x"), 4) == (Lookup.HIT, "cat")
    assert cache.counts == [1, 1, 2]


def test_an_open_entry_is_not_evicted_and_a_failed_one_is_gone():
    cache = ClockCache(1)
    cache.look_up((0, "open"), 1)
    ask(cache, "AB")
    assert cache.look_up((0, "open"), 2)[0] is Lookup.JOINED
    assert cache.fail((0, "open")) == [1, 2]
    assert cache.look_up((0, "open"), 3)[0] is Lookup.MISS


def test_a_new_version_has_answers_of_its_own():
    """BUG-COR-11: v1, v1, v2, v2, back to v1."""
    cache = ClockCache(10)
    came = []
    for task, version in enumerate((1, 1, 2, 2, 1)):
        found, _ = cache.look_up((version, "x"), task)
        came.append(found.name)
        if found is Lookup.MISS:
            cache.put((version, "x"), version, 1)
    assert came == ["MISS", "HIT", "MISS", "HIT", "HIT"]
