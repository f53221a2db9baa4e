"""A simulated cluster in which things go wrong, as a scenario's `[[faults]]` say.

What a fault is stands in `scheduler/faults.py`. Where batches' inputs share a link
(`sim/link.py`), a message is delayed or lost behind it, and has taken its time there; what waits
for a worker that is gone is not sent. A cluster without faults has none of this in its
hot path but one look at `SimGpu.trouble` for each action.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from scheduler.faults import (
    HEARTBEAT_NS,
    DelayedMessages,
    DeviceError,
    Fault,
    LostMessages,
    PausedController,
    SlowGpu,
    StalledCopy,
    WorkerKilled,
)
from scheduler.ledger import lost
from scheduler.records import Action, Change, Result, Why, WorkerChange
from scheduler.rows import write_action
from sim.cluster import Cluster
from sim.trouble import Trouble


class _Way:
    """The way between the controller and one worker, there and back."""

    def __init__(self) -> None:
        self.delayed_until_ns = 0
        self.delay_ns = 0
        self.actions_to_lose = 0
        self.results_to_lose = 0

    def extra_ns(self, now_ns: int) -> int:
        """How much longer a message takes that is sent now."""
        return self.delay_ns if now_ns < self.delayed_until_ns else 0


class FaultyCluster(Cluster):
    """See the module's text. faults: in any order. The rest as for Cluster."""

    def __init__(self, *args: Any, faults: Sequence[Fault], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._faults = faults
        self._varies = True
        self._ways = [_Way() for _ in self._gpus]
        self._outstanding: dict[int, tuple[int, Action]] = {}  # by action id: GPU, action
        self._dead: set[int] = set()
        # An inbox is needed where the controller may be away.
        self._has_cost |= any(isinstance(fault, PausedController) for fault in faults)
        for gpu in self._gpus:
            gpu.trouble = Trouble()

    def run(self, end_ns: int, drain_ns: int) -> None:
        for fault in self._faults:
            self.env.call_in(fault.at_ns, partial(self._happens, fault))
        super().run(end_ns, drain_ns)

    def _happens(self, fault: Fault, now_ns: int) -> None:
        if isinstance(fault, PausedController):
            until_ns = now_ns + round(fault.for_s * 1e9)
            self._busy_until_ns = max(self._busy_until_ns, until_ns)
            return
        if isinstance(fault, WorkerKilled):
            self._kill(now_ns, fault)
            return
        way, trouble = self._ways[fault.gpu], self._gpus[fault.gpu].trouble
        assert trouble is not None, "made in __init__, and kept by _return"
        if isinstance(fault, DeviceError):
            trouble.errors += fault.batches
        elif isinstance(fault, StalledCopy):
            trouble.stalled_until_ns = now_ns + round(fault.for_s * 1e9)
        elif isinstance(fault, SlowGpu):
            trouble.slow_until_ns = now_ns + round(fault.for_s * 1e9)
            trouble.factor = fault.factor
        elif isinstance(fault, DelayedMessages):
            way.delayed_until_ns = now_ns + round(fault.for_s * 1e9)
            way.delay_ns = round(fault.delay_ms * 1e6)
        else:
            assert isinstance(fault, LostMessages)
            if fault.lose == "actions":
                way.actions_to_lose += fault.count
            else:
                way.results_to_lose += fault.count

    # ---- a worker's death

    def _kill(self, now_ns: int, fault: WorkerKilled) -> None:
        gpu = fault.gpu
        if gpu in self._dead:
            return
        self._dead.add(gpu)
        self._gpus[gpu].crash()
        # What it has sent before is on its way, and comes first.
        known_ns = max(now_ns + self._result_ns, self._last_back_ns[gpu])
        self.env.call_in(known_ns - now_ns, partial(self._is_lost, gpu))
        if fault.back_after_s is not None:
            back_ns = max(now_ns + round(fault.back_after_s * 1e9) + self._result_ns, known_ns)
            self.env.call_in(back_ns - now_ns, partial(self._is_back, gpu))

    def _is_lost(self, gpu: int, now_ns: int) -> None:
        self._handle(now_ns, self._lose, gpu)

    def _lose(self, now_ns: int, gpu: int) -> None:
        """The controller handles the loss; until now it may have sent actions into the void."""
        self._sink.worker_lost(gpu, now_ns)
        if self._link is not None:
            self._link.drop(gpu)
        self.controller.worker(now_ns, WorkerChange(gpu, Change.LOST))
        for at, action in list(self._outstanding.values()):
            if at == gpu:
                self._settle(now_ns)
                result = lost(action, now_ns, Why.WORKER_LOST)
                self._write(result)
                self.controller.result(now_ns, result)

    def _is_back(self, gpu: int, now_ns: int) -> None:
        self._handle(now_ns, self._return, gpu)

    def _return(self, now_ns: int, gpu: int) -> None:
        """The controller takes the new worker on."""
        self._dead.remove(gpu)
        trouble = self._gpus[gpu].trouble
        self._gpus[gpu] = self._make_gpu[gpu]()  # empty, and with nothing to do
        self._gpus[gpu].trouble = trouble
        self.controller.worker(now_ns, WorkerChange(gpu, Change.BACK))

    # ---- messages

    def _send(self, now_ns: int, cost_ns: int) -> None:
        for gpu, action in self._out.sent:
            self._outstanding[action.id] = (gpu, action)
        super()._send(now_ns, cost_ns)

    def _go(self, now_ns: int, cost_ns: int, message_ns: int, gpu: int, action: Action) -> None:
        way = self._ways[gpu]
        sent_ns = now_ns + cost_ns
        if way.actions_to_lose and gpu not in self._dead:
            way.actions_to_lose -= 1
            missed_ns = _second_heartbeat_ns(sent_ns) + self._result_ns
            self.env.call_in(missed_ns - now_ns, partial(self._is_missed, action))
            return
        super()._go(now_ns, cost_ns, message_ns + way.extra_ns(sent_ns), gpu, action)

    def _through(self, gpu: int, action: Action) -> None:
        if action.id in self._outstanding:  # else its worker has died meanwhile
            self._go(self.env.now, 0, self._there_ns(), gpu, action)

    def _is_missed(self, action: Action, now_ns: int) -> None:
        self._hear(now_ns, lost(action, now_ns, Why.MESSAGE_LOST))

    def _deliver(self, gpu: int, action: Action, now_ns: int) -> None:
        if action.id in self._outstanding:  # else declared lost: its worker has died since
            super()._deliver(gpu, action, now_ns)

    def _report(self, result: Result) -> None:
        if self._truth is not None:
            self._say(self._truth, result)
        now_ns = self.env.now
        gpu = self._out.gpu_of_lane[result.action.lane]
        way = self._ways[gpu]
        back_ns = now_ns + self._back_ns(result.action) + way.extra_ns(now_ns)
        if way.results_to_lose:
            way.results_to_lose -= 1
            # Sent again, and again after what was sent meanwhile.
            again_ns = _second_heartbeat_ns(now_ns) + self._result_ns
            self.env.call_in(again_ns - now_ns, partial(self._receive, result))
            return
        self._last_back_ns[gpu] = back_ns = max(back_ns, self._last_back_ns[gpu])
        self.env.call_in(back_ns - now_ns, partial(self._receive, result))

    def _receive(self, result: Result, now_ns: int) -> None:
        self._hear(now_ns, result)

    def _hear(self, now_ns: int, result: Result) -> None:
        """The controller learns what became of an action, if it has not been told before."""
        if result.action.id in self._outstanding:
            self._write(result)
            self._handle(now_ns, self.controller.result, result)

    def _write(self, result: Result) -> None:
        action_id = result.action.id
        gpu, _ = self._outstanding.pop(action_id)
        write_action(self._sink, result, gpu, self._sent_ns.pop(action_id))

    # ---- a controller that is away

    def _next_event(self, now_ns: int) -> None:
        if now_ns < self._busy_until_ns:
            self._call_when_free()
        else:
            super()._next_event(now_ns)


def _second_heartbeat_ns(after_ns: int) -> int:
    return (after_ns // HEARTBEAT_NS + 2) * HEARTBEAT_NS
