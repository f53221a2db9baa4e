"""Clockwork's queue discipline INFER5: one line of requests for each batch size.

A request stands in every line of its model. A GPU's strategies are the fronts of the lines of the
models that it holds, one for each batch size, latest possible start first. When one comes up, who
would be too late in a batch of that size leaves the line of that size, and of the sizes that fill
a batch the largest is taken, as long as each smaller one is filled too. If that is smaller than
the strategy asks for, the model stands again with smaller sizes only.

Source: Clockwork, src/clockwork/controller/infer5/infer5_scheduler.cpp (new_strategies,
try_dequeue, schedule_infer). As there, a strategy keeps the latest start that it had when its
model was put in line, and who is passed by a larger batch leaves the lines of the smaller sizes
too. Where a model's requests have different SLOs the original finds who is too late at the front of
a line only, and takes along who stands behind (`heads_only`).
Not here: when a GPU looks, and what becomes of who has left all lines (the policy).
"""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """A request that is not in a batch yet. lines: how many lines it stands in."""

    deadline_ns: int
    seq: int
    lines: int


W = TypeVar("W", bound=Waiting)


class Fifos(Generic[W]):
    """The lines of one model, smallest batch size first.

    needed: requests that fill a batch of each size. heads_only: who is too late in a batch is found
    at the front of the line only.
    """

    __slots__ = ("_heads_only", "_lines", "_needed")

    def __init__(self, needed: Sequence[int], *, heads_only: bool = False) -> None:
        self._needed = tuple(needed)
        self._heads_only = heads_only
        self._lines: list[deque[W]] = [deque() for _ in needed]

    def add(self, w: W) -> None:
        """To the end of every line."""
        for line in self._lines:
            line.append(w)
        w.lines = len(self._lines)

    def remove(self, w: W) -> None:
        """Out of every line that it still stands in."""
        if w.lines:
            for line in self._lines:
                if line and line[0] is w:
                    line.popleft()
                elif w in line:
                    line.remove(w)
            w.lines = 0

    def starts(self, exec_ns: Sequence[int], below: int) -> list[tuple[int, int]]:
        """(latest start in ns, place of the size) of each line but the empty, of the first
        `below` sizes."""
        return [
            (line[0].deadline_ns - exec_ns[k], k)
            for k, line in enumerate(self._lines[:below])
            if line
        ]

    def take(
        self, free_ns: int, exec_ns: Sequence[int], least: int, left: list[W]
    ) -> tuple[int, list[W]] | None:
        """The largest batch of at least the size at place `least` that a GPU can do which is free
        at free_ns: the place of its size, and the requests. None if there is none.

        left: who has left all lines without being taken is added to it.
        """
        lines, needed = self._lines, self._needed
        for k, line in enumerate(lines):
            end_ns = free_ns + exec_ns[k]
            while line and line[0].deadline_ns < end_ns:
                self._leave(line.popleft(), left)
        while True:
            k = 0
            while k + 1 < len(lines) and len(lines[k + 1]) >= needed[k + 1]:
                k += 1
            line = lines[k]
            if k < least or len(line) < needed[k]:
                return None
            if self._heads_only:
                break
            end_ns = free_ns + exec_ns[k]
            late = [w for w in islice(line, needed[k]) if w.deadline_ns < end_ns]
            if not late:
                break
            for w in late:
                line.remove(w)
                self._leave(w, left)
        batch = [line.popleft() for _ in range(needed[k])]
        last = batch[-1].seq
        for w in batch:
            w.lines = 0
        for line in lines:
            while line and line[0].seq <= last:
                w = line.popleft()
                if w.lines:  # passed by, for it was too late for so large a batch
                    self._leave(w, left)
        return k, batch

    @staticmethod
    def _leave(w: W, left: list[W]) -> None:
        w.lines -= 1
        if not w.lines:
            left.append(w)


class Strategies:
    """The strategies of one GPU. Those of a model come and go together."""

    __slots__ = ("_heap", "_stamp", "_stamp_of")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int]] = []
        """(latest start, place of the size, model, stamp); some are of models put anew since."""
        self._stamp_of: dict[int, int] = {}
        self._stamp = 0

    def __contains__(self, model: int) -> bool:
        return model in self._stamp_of

    def __bool__(self) -> bool:
        return bool(self._stamp_of)

    def put(self, model: int, starts: Sequence[tuple[int, int]]) -> None:
        """Put a model in line that is not; with no starts it stays outside."""
        if not starts:
            return
        self._stamp += 1
        self._stamp_of[model] = self._stamp
        for start_ns, k in starts:
            heappush(self._heap, (start_ns, k, model, self._stamp))

    def pop(self) -> tuple[int, int] | None:
        """Take the model whose strategy is first, with all its strategies: (model, place of the
        size). None if there is none."""
        heap = self._heap
        while heap:
            _, k, model, stamp = heappop(heap)
            if self._stamp_of.get(model) == stamp:
                del self._stamp_of[model]
                return model, k
        return None
