"""A live run that keeps what its messages and loops take, for the simulation to have it too.

What is measured is named as in `cluster.delays_us` (mainspring.scenario, DelaysUs). It costs a
microsecond an event and changes nothing of what the controller does, or when.
"""

from typing import Any

import msgspec
import numpy as np

from executor.controller import Alarm, LiveCluster
from executor.wire import Report
from scheduler.records import Action, Infer, Load, Status


class Timings(msgspec.Struct):
    """Samples in ns.

    handled: of requests, from their time to the controller's look at them. woken: of wakes, the
    same. costs: by how many actions and answers came of an event, the controller's own time for
    it. there: from the end of that to an action's start, or to its arrival where its window was not
    open yet; so with what sending takes, and of actions that left while their GPU did nothing, so
    without what they wait for. gap: an engine's idle time between two actions, of which the second
    was there before the first ended. back: from a batch's end to the controller's look at it;
    back_loads: from a load's. over: a duration less its profile's, by "load" or batch size, where
    the profile's is constant. ran_ns, said_ns: of the other batches, what they took together and
    what their profiles' means say; ran: how many.
    """

    handled: list[int] = []
    woken: list[int] = []
    costs: dict[int, list[int]] = {}
    there: list[int] = []
    gap: list[int] = []
    back: list[int] = []
    back_loads: list[int] = []
    over: dict[str, list[int]] = {}
    ran: int = 0
    ran_ns: int = 0
    said_ns: float = 0.0

    def add(self, other: "Timings") -> None:
        """Take over another run's samples."""
        for mine, its in (
            (self.handled, other.handled), (self.woken, other.woken), (self.there, other.there),
            (self.gap, other.gap), (self.back, other.back), (self.back_loads, other.back_loads),
        ):  # fmt: skip
            mine += its
        for emitted, ns in other.costs.items():
            self.costs.setdefault(emitted, []).extend(ns)
        for what, ns in other.over.items():
            self.over.setdefault(what, []).extend(ns)
        self.ran += other.ran
        self.ran_ns += other.ran_ns
        self.said_ns += other.said_ns


class TimedCluster(LiveCluster):
    """A LiveCluster that fills `timings`.

    share: of the requests that are asked, drawn from `rng`; the others never come.
    """

    def __init__(
        self,
        *,
        timings: Timings,
        share: float = 1.0,
        rng: np.random.Generator | None = None,
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self._timings = timings
        if rng is not None:
            self._coming = (one for one in self._coming if rng.random() < share)
        self._left_ns: dict[int, int] = {}  # by action id
        self._busy_until_ns = [0] * len(self._setups)
        self._result: tuple[Action, Report] | None = None
        self._means_ns: dict[tuple[int, int], float] = {}  # by model and batch

    def _settle(self, now_ns: int) -> None:
        if self._result is not None:
            action, report = self._result
            self._result = None
            if isinstance(action, Infer):
                self._timings.back.append(now_ns - report.end_ns)
            elif isinstance(action, Load):
                self._timings.back_loads.append(now_ns - report.end_ns)
        out = self._out
        sent = [action.id for _, action in out.sent]
        emitted = len(sent) + len(out.ended)
        super()._settle(now_ns)
        done_ns = self.now_ns
        self._timings.costs.setdefault(emitted, []).append(done_ns - now_ns)
        for id in sent:
            self._left_ns[id] = done_ns

    def _arrive(self, now_ns: int, at_ns: int, model: int, stream: int) -> None:
        self._timings.handled.append(now_ns - at_ns)
        super()._arrive(now_ns, at_ns, model, stream)

    def _wake(self, alarm: Alarm, now_ns: int) -> None:
        if self._wakes.get(alarm.key) is alarm:
            self._timings.woken.append(now_ns - alarm.at_ns)
        super()._wake(alarm, now_ns)

    def _reported(self, gpu: int, report: Report) -> None:
        sent = self._in_flight.get(report.id)
        left_ns = self._left_ns.pop(report.id, None)
        if sent is not None and left_ns is not None and report.status is Status.DONE:
            self._result = sent[1], report
            self._took(gpu, sent[1], left_ns, report)
        super()._reported(gpu, report)
        self._result = None

    def _took(self, gpu: int, action: Action, left_ns: int, report: Report) -> None:
        timings = self._timings
        if left_ns >= self._busy_until_ns[gpu]:
            waited = report.ready_ns > report.received_ns  # for its window
            timings.there.append((report.received_ns if waited else report.start_ns) - left_ns)
        elif report.ready_ns > max(report.received_ns, action.earliest_ns):
            timings.gap.append(report.start_ns - report.ready_ns)
        self._busy_until_ns[gpu] = max(report.end_ns, self._busy_until_ns[gpu])
        bill = self._setups[gpu].bills[action.model]
        if isinstance(action, Infer):
            key, durations = str(action.batch), bill.exec[action.batch]
        elif isinstance(action, Load):
            key, durations = "load", bill.load
        else:
            return
        if durations.constant_ns is not None:
            timings.over.setdefault(key, []).append(report.duration_ns - durations.constant_ns)
        elif isinstance(action, Infer):
            which = (action.model, action.batch)
            if which not in self._means_ns:
                self._means_ns[which] = durations.mean_ns()
            timings.ran += 1
            timings.ran_ns += report.duration_ns
            timings.said_ns += self._means_ns[which]
