"""Clipper's prediction cache: answers by model and input, bounded in bytes, evicted by CLOCK.

A miss opens an entry, and whoever asks for the same input meanwhile joins it. An entry that is
still open is never evicted. A version of a model is a model of its own, so it has keys of its own
(BUG-COR-11). Whoever gives a task up must call `fail`: in the release its entry stays open for
ever, and can never be evicted.
"""

from collections.abc import Hashable
from enum import IntEnum

Key = tuple[int, Hashable]
"""A model (with its version) and an input."""


class Lookup(IntEnum):
    """What became of a look-up. Hits, misses and joins add up to the look-ups."""

    HIT = 0
    MISS = 1
    JOINED = 2


class _Entry:
    __slots__ = ("bytes", "used", "value", "waiting")

    def __init__(self, first: int) -> None:
        self.bytes = 0
        self.used = False
        self.value: object = None
        self.waiting: list[int] | None = [first]  # None once it is there


class ClockCache:
    """room: bytes of answers that it may hold; open entries count nothing yet."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.used_bytes = 0
        self.counts = [0] * len(Lookup)
        self._entries: dict[Key, _Entry] = {}
        self._ring: list[Key] = []
        self._hand = 0

    def __contains__(self, key: Key) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.waiting is None

    def look_up(self, key: Key, task: int) -> tuple[Lookup, object]:
        """Ask for an answer. A task that missed has to run; one that joined waits for that."""
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(task)
            found = Lookup.MISS
        elif entry.waiting is None:
            entry.used = True
            found = Lookup.HIT
        else:
            entry.waiting.append(task)
            found = Lookup.JOINED
        self.counts[found] += 1
        return found, entry.value if entry is not None else None

    def put(self, key: Key, value: object, size: int) -> list[int]:
        """An answer is there. Returns the tasks that waited for it, the one that ran first.

        What is larger than the whole cache is handed on, and not kept.
        """
        entry = self._entries[key]
        waiting = entry.waiting
        assert waiting is not None, f"{key} was put twice"
        if size > self.room:
            del self._entries[key]
            return waiting
        self._make_room(size)
        entry.value, entry.bytes, entry.waiting = value, size, None
        self.used_bytes += size
        # Behind the hand: it comes to the new one last.
        self._ring.insert(self._hand, key)
        self._hand += 1
        return waiting

    def fail(self, key: Key) -> list[int]:
        """There will be no answer. Returns the tasks that waited for it."""
        entry = self._entries.pop(key)
        assert entry.waiting is not None, f"{key} failed after it was put"
        return entry.waiting

    def _make_room(self, size: int) -> None:
        while self.used_bytes + size > self.room:
            self._hand %= len(self._ring)
            key = self._ring[self._hand]
            entry = self._entries[key]
            if entry.used:
                entry.used = False
                self._hand += 1
            else:
                self.used_bytes -= entry.bytes
                del self._entries[key]
                del self._ring[self._hand]
