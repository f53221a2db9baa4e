"""A live run that keeps what its messages and loops take, for the simulation to have it too.

What is measured is named as in `cluster.delays_us` (sim/cluster.py, Delays). The plain controller
does nothing of this, so that a run that is judged costs no more than it did.
"""

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import numpy as np

from executor.controller import LiveCluster
from executor.wire import Report, ToWorker
from scheduler.records import Action, Infer, Load, Status


class Timings:
    """Samples in ns.

    handled: of requests, from their time to the controller's look at them. woken: of wakes, the
    same. costs: by how many actions and answers came of an event, the controller's own time for
    it, until the last action leaves. there: from an action's leaving to its start on an engine
    that was free for it, or to its arrival where it had to wait. gap: an engine's idle time between
    two actions, of which the second was there before the first ended. back: from an action's end to
    the controller's look at it. over: a duration less its profile's, by "load" or batch size, where
    the profile's is constant.
    """

    def __init__(self) -> None:
        self.handled: list[int] = []
        self.woken: list[int] = []
        self.costs: defaultdict[int, list[int]] = defaultdict(list)
        self.there: list[int] = []
        self.gap: list[int] = []
        self.back: list[int] = []
        self.over: defaultdict[str, list[int]] = defaultdict(list)


class TimedCluster(LiveCluster):
    """A LiveCluster that fills `timings`.

    share: of the requests that are asked, drawn from `rng`; the others never come.
    """

    def __init__(
        self, *, timings: Timings, share: float, rng: np.random.Generator, **given: Any
    ) -> None:
        super().__init__(**given)
        self._timings = timings
        self._coming = (one for one in self._coming if rng.random() < share)
        self._left_ns: dict[int, int] = {}  # by action id
        self._result: Report | None = None
        self._last_left_ns = 0

    def _settle(self, now_ns: int) -> None:
        if self._result is not None:
            self._timings.back.append(now_ns - self._result.end_ns)
            self._result = None
        out = self._out
        sent = [action.id for _, action in out.sent]
        emitted = len(sent) + len(out.ended)
        super()._settle(now_ns)
        self._flush()  # now, and not when all that is due has been handled: when is what we ask
        # A worker is at it before our part of the sending returns, so that is the message's.
        done_ns = self._last_left_ns if sent else self.now_ns
        self._timings.costs[emitted].append(done_ns - now_ns)
        for id in sent:
            self._left_ns[id] = done_ns

    def _post(self, gpu: int, address: bytes | None, message: ToWorker) -> None:
        self._last_left_ns = self.now_ns
        super()._post(gpu, address, message)

    def _arrive(self, now_ns: int, at_ns: int, model: int, stream: int) -> None:
        self._timings.handled.append(now_ns - at_ns)
        super()._arrive(now_ns, at_ns, model, stream)

    def _wake(self, at_ns: int, key: Hashable, now_ns: int) -> None:
        if self._wakes.get(key) == at_ns:
            self._timings.woken.append(now_ns - at_ns)
        super()._wake(at_ns, key, now_ns)

    def _reported(self, gpu: int, report: Report) -> None:
        sent = self._in_flight.get(report.id)
        left_ns = self._left_ns.pop(report.id, None)
        if sent is not None and left_ns is not None and report.status is Status.DONE:
            self._result = report
            self._took(gpu, sent[1], left_ns, report)
        super()._reported(gpu, report)
        self._result = None

    def _took(self, gpu: int, action: Action, left_ns: int, report: Report) -> None:
        timings = self._timings
        if report.ready_ns == report.received_ns:
            timings.there.append(report.start_ns - left_ns)
        else:
            timings.there.append(report.received_ns - left_ns)
            if report.ready_ns > action.earliest_ns:  # so its engine was busy until then
                timings.gap.append(report.start_ns - report.ready_ns)
        bill = self._setups[gpu].bills[action.model]
        if isinstance(action, Infer):
            key, durations = str(action.batch), bill.exec[action.batch]
        elif isinstance(action, Load):
            key, durations = "load", bill.load
        else:
            return
        if durations.constant_ns is not None:
            self._timings.over[key].append(report.duration_ns - durations.constant_ns)
