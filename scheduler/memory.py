"""Where a model's weights lie on a GPU: on any free pages, or in one piece.

    pages        a model lies on pages from anywhere; it fits if enough are free
    contiguous   a model lies in one piece, in the first hole that is long enough; it may find none
                 although enough pages are free, because they are not side by side

A GPU whose pages can be mapped anywhere has the first kind; one arena that weights are copied into
has the second. Both hand out page numbers.
Not here: which model is there, and whether the pages suffice (`scheduler/worker.py`).
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

Place = Sequence[int]
"""Page numbers; ascending and without a gap where contiguous."""


class NoSpace(Exception):
    """Enough pages are free, but not side by side."""


class Memory(Protocol):
    """Hands out page numbers. It is asked for no more pages than are free."""

    def take(self, pages: int) -> Place:
        """Pages for a model. Raises NoSpace, and changes nothing."""

    def give(self, place: Place) -> None:
        """Take back what `take` gave."""


class Paged:
    """Pages from anywhere. pages: how many there are."""

    def __init__(self, pages: int) -> None:
        self._free = list(range(pages - 1, -1, -1))

    def take(self, pages: int) -> Place:
        """The pages that were given back last."""
        assert pages <= len(self._free), f"{pages} pages wanted of {len(self._free)}"
        return tuple(self._free.pop() for _ in range(pages))

    def give(self, place: Place) -> None:
        """They are the next to be taken."""
        self._free += reversed(place)


class Contiguous:
    """One piece a model, first fit. pages: how many there are."""

    def __init__(self, pages: int) -> None:
        self._starts = [0]  # of holes, ascending; no two touch each other
        self._lengths = [pages]

    @property
    def holes(self) -> list[tuple[int, int]]:
        """(first page, pages) of each hole, ascending."""
        return list(zip(self._starts, self._lengths, strict=True))

    def take(self, pages: int) -> range:
        """The front of the first hole that is long enough."""
        at = next((i for i, length in enumerate(self._lengths) if length >= pages), None)
        if at is None:
            raise NoSpace
        start, length = self._starts[at], self._lengths[at]
        if length == pages:
            del self._starts[at], self._lengths[at]
        else:
            self._starts[at] += pages
            self._lengths[at] -= pages
        return range(start, start + pages)

    def give(self, place: Place) -> None:
        """A hole again, one with those that it touches."""
        start, length = place[0], len(place)
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start + length:
            length += self._lengths[at]
            del self._starts[at], self._lengths[at]
        if at and self._starts[at - 1] + self._lengths[at - 1] == start:
            self._lengths[at - 1] += length
        else:
            self._starts.insert(at, start)
            self._lengths.insert(at, length)
