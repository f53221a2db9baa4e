"""An independent check of every run, from nothing but the rows that it writes.

Every request ends exactly once and as its times say; actions start inside their windows; a GPU
executes one batch and copies one model at a time; the models on a GPU never take more pages than
it has. The worlds should make all of this impossible, which is why someone else has to look.

Rows come in the order in which results were reported, not in the order of time: a load is reported
at its end but holds its pages from its start. So the audit keeps the actions of the last flush
back, and judges an action once a whole flush has been reported after it. Two consequences:

- reports may overtake each other by up to a flush. Where one is later than that, the engine check
  cannot tell a late report from an overlap, and counts it in `unchecked` instead of guessing;
- memory is bounded by two flushes, plus one byte per request among those of the same 65,536 ids
  as one that has not ended (ids are numbered in order of arrival).

Not here: whether a model stays while it executes (the worker's rule, scheduler), and how many
batches a shared GPU runs at once.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from results.columns import INFER, LOAD, UNLOAD, WORDS, Columns, Ints
from results.errors import InvariantError
from scheduler.records import FOREVER, AnswerKind, Outcome, Status

Flags = npt.NDArray[np.bool_]

_BLOCK_BITS: Final = 16
_KEPT: Final = ("id", "type", "gpu", "model", "start_ns", "end_ns")
"""The columns of an action that must wait for those reported after it."""
_LOSS: Final = len(WORDS["type"])
"""Stands among the types of actions for the loss of a worker, which frees its GPU's pages."""


class Audit:
    """Watches a run. Every method raises InvariantError as soon as something does not fit.

    pages_of_model, pages_of_gpu: by index. resident: (gpu, model) pairs loaded before the run.
    exclusive: whether a GPU executes one batch at a time; otherwise batches may overlap.
    """

    def __init__(
        self,
        *,
        pages_of_model: Sequence[int],
        pages_of_gpu: Sequence[int],
        resident: Iterable[tuple[int, int]] = (),
        exclusive: bool = True,
    ) -> None:
        self._exclusive = exclusive
        self._ended = _Once()
        self._pages_of_model = np.array(pages_of_model, np.int64)
        self._pages_of_gpu = np.array(pages_of_gpu, np.int64)
        gpus = len(pages_of_gpu)

        self._waiting = {name: np.zeros(0, np.int64) for name in _KEPT}
        self._judged_to_ns = -1  # what ended before then has been judged
        self._reported_to_ns = -1  # the latest end in any flush so far
        self._engine_free_ns = np.zeros(2 * gpus, np.int64)  # copy and execution engine per GPU
        self._engine_last = np.zeros(2 * gpus, np.int64)  # the action that kept it until then
        self._last_load_ns = np.full(gpus, -1, np.int64)
        self._resident: Flags = np.zeros((gpus, len(pages_of_model)), np.bool_)
        for gpu_and_model in resident:
            self._resident[gpu_and_model] = True
        self._used = self._resident @ self._pages_of_model
        for at in np.flatnonzero(self._used > self._pages_of_gpu):
            raise InvariantError(
                f"GPU {at} starts with {self._used[at]} pages in use of {self._pages_of_gpu[at]}"
            )
        self.unchecked = 0

    def requests(self, c: Columns) -> None:
        """Check requests that ended."""
        twice = self._ended.first_repeated(c["id"])
        if twice is not None:
            raise InvariantError(
                f"request {c['id'][twice]} ended twice, then as {_outcome(c, twice)}"
            )

        ok, late = c["outcome"] == Outcome.OK, c["outcome"] == Outcome.LATE
        met = c["end_ns"] <= c["deadline_ns"]
        _none(c["end_ns"] < c["arrival_ns"], c, "request", "ended before it arrived")
        _none(ok & ~met, c, "request", "is ok, but ended after its deadline")
        _none(late & met, c, "request", "is late, but ended by its deadline")
        answered = c["kind"] != AnswerKind.NONE
        _none((ok | late) & ~answered, c, "request", "was answered with nothing")
        _none(~(ok | late) & answered, c, "request", "was not answered, but has an answer")
        served = c["action"] >= 0
        predicted = c["kind"] == AnswerKind.PREDICTION
        by_members = (c["gpu"] < 0) & (c["batch"] > 0)  # of an ensemble: no one action made it
        _none(
            predicted & ~served & ~by_members, c, "request", "has a prediction that no action made"
        )
        _none(served & ~predicted, c, "request", "has no prediction, but an action that made it")

    def actions(self, c: Columns) -> None:
        """Check actions that got their result."""
        _none(
            (c["gpu"] < 0) | (c["gpu"] >= len(self._pages_of_gpu)),
            c, "action", f"is on a GPU of which there are {len(self._pages_of_gpu)}",
        )  # fmt: skip
        _none(
            (c["model"] < 0) | (c["model"] >= len(self._pages_of_model)),
            c, "action", f"names a model of which there are {len(self._pages_of_model)}",
        )  # fmt: skip
        done = c["status"] == Status.DONE
        outside = (c["start_ns"] < c["earliest_ns"]) | (c["start_ns"] > c["latest_ns"])
        _none(done & outside, c, "action", "started outside its window")
        _none(c["end_ns"] < c["start_ns"], c, "action", "ended before it started")

        new = {name: c[name][done] for name in _KEPT}
        self._judge(_join(self._waiting, new), until_ns=self._reported_to_ns)
        self._reported_to_ns = max(self._reported_to_ns, int(new["end_ns"].max(initial=-1)))

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        """A worker is gone: of what is reported from now on, nothing ran there before."""
        row = {"id": -1, "type": _LOSS, "gpu": gpu, "model": 0, "start_ns": at_ns, "end_ns": at_ns}
        loss = {name: np.array([row[name]], np.int64) for name in _KEPT}
        self._waiting = _join(self._waiting, loss)

    def finish(self, arrivals: int) -> None:
        """Check what was kept back, and that as many requests ended as arrived."""
        self._judge(self._waiting, until_ns=FOREVER)
        if self._ended.count != arrivals:
            raise InvariantError(
                f"{arrivals} requests arrived, but {self._ended.count} ended; "
                "every request must end exactly once"
            )

    def _judge(self, c: Columns, until_ns: int) -> None:
        """Judge the actions that ended before then, and keep the rest."""
        load, unload = c["type"] == LOAD, (c["type"] == UNLOAD) | (c["type"] == _LOSS)
        judged = c["end_ns"] < until_ns
        too_late = ~unload & (c["end_ns"] < self._judged_to_ns)
        self._judged_to_ns = until_ns
        self.unchecked += int(too_late.sum())
        self._engines(_pick(c, judged & ~unload & ~too_late))

        # Pages that are given back while a load runs are not there when it starts. So an unload
        # counts only once a load has started after it: no load reported later can start earlier.
        if until_ns < FOREVER:
            np.maximum.at(self._last_load_ns, c["gpu"][judged & load], c["start_ns"][judged & load])
            judged = np.where(unload, c["end_ns"] <= self._last_load_ns[c["gpu"]], judged)
        self._pages(_pick(c, judged & (load | unload)))
        self._waiting = _pick(c, ~judged)

    def _engines(self, c: Columns) -> None:
        """No two executions of a GPU at once, and no two loads."""
        if not self._exclusive:
            c = _pick(c, c["type"] != INFER)
        engine = 2 * c["gpu"] + (c["type"] == INFER)
        order = np.lexsort((c["end_ns"], c["start_ns"], engine))
        c, engine = _pick(c, order), engine[order]
        first, last = _groups(engine)
        free_ns = np.where(first, self._engine_free_ns[engine], np.roll(c["end_ns"], 1))
        before = np.where(first, self._engine_last[engine], np.roll(c["id"], 1))
        for i in np.flatnonzero(c["start_ns"] < free_ns)[:1]:
            what = "executes one batch" if c["type"][i] == INFER else "loads one model"
            raise InvariantError(
                f"{_action(c, i)} started at {c['start_ns'][i]} ns, before action {before[i]} "
                f"ended at {free_ns[i]} ns; a GPU {what} at a time"
            )
        self._engine_free_ns[engine[last]] = c["end_ns"][last]
        self._engine_last[engine[last]] = c["id"][last]

    def _pages(self, c: Columns) -> None:
        """Loads bring models that are not there and fit; unloads take models that are there."""
        for i in np.flatnonzero(c["type"] == _LOSS):
            gpu, at_ns = c["gpu"][i], c["end_ns"][i]
            # Later losses of the same GPU come later in the columns, as they were told.
            before = (c["gpu"] == gpu) & (c["end_ns"] <= at_ns) & (c["type"] != _LOSS)
            self._moves(_pick(c, before))
            self._resident[gpu], self._used[gpu] = False, 0
            c = c | {"gpu": np.where(before, -1, c["gpu"])}
        self._moves(_pick(c, (c["gpu"] >= 0) & (c["type"] != _LOSS)))

    def _moves(self, c: Columns) -> None:
        """The same, without the loss of a worker in between."""
        load = c["type"] == LOAD
        c = c | {"at_ns": np.where(load, c["start_ns"], c["end_ns"])}
        # At one instant pages are given back before they are taken again.
        c = _pick(c, np.lexsort((load, c["at_ns"], c["gpu"])))
        load = c["type"] == LOAD
        gpu = c["gpu"]
        first, last = _groups(gpu)
        pages = np.where(load, 1, -1) * self._pages_of_model[c["model"]]
        total = np.cumsum(pages)
        start = np.maximum.accumulate(np.where(first, np.arange(len(gpu)), 0))
        used = self._used[gpu] + total - (total - pages)[start]
        self._resident_once(c, load)
        for i in np.flatnonzero(used > self._pages_of_gpu[gpu])[:1]:
            raise InvariantError(
                f"{_action(c, i)} of model {c['model'][i]} ({pages[i]} pages) at "
                f"{c['at_ns'][i]} ns makes {used[i]} pages in use of {self._pages_of_gpu[gpu[i]]}"
            )
        self._used[gpu[last]] = used[last]

    def _resident_once(self, c: Columns, load: Flags) -> None:
        place = c["gpu"] * len(self._pages_of_model) + c["model"]
        order = np.argsort(place, kind="stable")
        c, load = _pick(c, order), load[order]
        first, last = _groups(place[order])
        gpu, model = c["gpu"], c["model"]
        there = np.where(first, self._resident[gpu, model], np.roll(load, 1))
        for i in np.flatnonzero(load == there)[:1]:
            state = "already on the GPU" if load[i] else "not on the GPU"
            raise InvariantError(
                f"{_action(c, i)} at {c['at_ns'][i]} ns, but model {model[i]} is {state}"
            )
        self._resident[gpu[last], model[last]] = load[last]


class _Once:
    """Which ids have been seen, in blocks of 65,536; a block whose ids all came is forgotten."""

    def __init__(self) -> None:
        self.count = 0
        self._open: dict[int, Flags] = {}
        self._left: dict[int, int] = {}
        self._full: set[int] = set()

    def first_repeated(self, ids: Ints) -> int | None:
        """Note these ids. The position of one that came before, or None."""
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        for i in np.flatnonzero(ordered[1:] == ordered[:-1])[:1]:
            return int(order[i + 1])
        blocks = ordered >> _BLOCK_BITS
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        for part, where in zip(np.split(ordered, cuts), np.split(order, cuts), strict=True):
            if not len(part):
                continue
            block = int(part[0]) >> _BLOCK_BITS
            if block in self._full:
                return int(where[0])
            seen = self._open.setdefault(block, np.zeros(1 << _BLOCK_BITS, np.bool_))
            within = part & ((1 << _BLOCK_BITS) - 1)
            for i in np.flatnonzero(seen[within])[:1]:
                return int(where[i])
            seen[within] = True
            left = self._left.get(block, 1 << _BLOCK_BITS) - len(part)
            self._left[block] = left
            if not left:
                del self._open[block], self._left[block]
                self._full.add(block)
        self.count += len(ids)
        return None


def _none(wrong: Flags, c: Columns, what: str, complaint: str) -> None:
    for i in np.flatnonzero(wrong)[:1]:
        if what == "request":
            raise InvariantError(
                f"request {c['id'][i]} {complaint}: {_outcome(c, i)}, "
                f"arrived {c['arrival_ns'][i]} ns, deadline {c['deadline_ns'][i]} ns"
            )
        raise InvariantError(
            f"{_action(c, i)} {complaint}: model {c['model'][i]}, "
            f"window {c['earliest_ns'][i]} to {c['latest_ns'][i]} ns, "
            f"ran {c['start_ns'][i]} to {c['end_ns'][i]} ns"
        )


def _outcome(c: Columns, i: int) -> str:
    return f"{WORDS['outcome'][c['outcome'][i]]} at {c['end_ns'][i]} ns"


def _action(c: Columns, i: int) -> str:
    return f"GPU {c['gpu'][i]}: {WORDS['type'][c['type'][i]]} {c['id'][i]}"


def _pick(c: Columns, which: Flags | Ints) -> Columns:
    return {name: values[which] for name, values in c.items()}


def _join(a: Columns, b: Columns) -> Columns:
    return {name: np.concatenate([a[name], b[name]]) for name in a}


def _groups(key: Ints) -> tuple[Flags, Flags]:
    """Where each value of a sorted key begins, and where it ends."""
    change = np.diff(key, prepend=-1, append=-1) != 0
    return change[:-1], change[1:]
