"""The link from the controller to its workers, where batches carry their inputs.

Messages go out in order. `sends` of them may be under way at a time, and share the link in order:
the second one's bytes follow the first one's. What waits longer than its time to be sent is not
sent at all; the controller hears of it when the action would have been over. So does Clockwork:
`network_concurrency` (2), `send_by` and `report_error_at` in its schedulers
(infer5_scheduler.cpp, InferAction::set_expectations). An input of ResNet50 has 602,112 bytes.
`Uplink` is the link from closed-loop clients to the controller.
Not here: the way back (outputs are a few kB), and compression.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from scheduler.records import Action, Infer
from sim.clock import Clock

LEAST_NS = 1_000_000
"""A send may always wait so long: `future` in the artifact."""


class Uplink:
    """What several senders share, such as closed-loop clients: one input after the other."""

    __slots__ = ("_free_ns",)

    def __init__(self) -> None:
        self._free_ns = 0

    def through_ns(self, now_ns: int, takes_ns: int) -> int:
        """When an input that is handed over at now_ns is on the other side."""
        self._free_ns = max(self._free_ns, now_ns) + takes_ns
        return self._free_ns


class LinkParams(NamedTuple):
    """bits_per_s: of the link. sends: under way at once. margin_ns: a batch has to be on its way
    so long before its window closes. input_bytes: of one task, by model."""

    bits_per_s: float
    sends: int
    margin_ns: int
    input_bytes: tuple[int, ...]


class Link:
    """deliver: called with (GPU, action) when all of it is on the other side. unsent: with the
    action, when the controller learns that it was not sent."""

    def __init__(
        self,
        clock: Clock,
        params: LinkParams,
        deliver: Callable[[int, Action], None],
        unsent: Callable[[Action], None],
    ) -> None:
        self._clock = clock
        self._params = params
        self._deliver = deliver
        self._unsent = unsent
        self._waiting: deque[tuple[int, Action, int]] = deque()  # GPU, action, send by
        self._under_way = 0
        self._free_ns = 0  # when the last byte that was handed over is through

    def send(self, now_ns: int, gpu: int, action: Action) -> None:
        """Put an action behind what waits. Only batches can be too late."""
        send_by_ns = action.latest_ns
        if type(action) is Infer:
            send_by_ns = max(now_ns + LEAST_NS, action.latest_ns - self._params.margin_ns)
        self._waiting.append((gpu, action, send_by_ns))
        self._pump(now_ns)

    def drop(self, gpu: int) -> None:
        """The worker there is gone: what waits for it is not sent. What is under way goes on."""
        self._waiting = deque(waits for waits in self._waiting if waits[0] != gpu)

    def _pump(self, now_ns: int) -> None:
        waiting, params = self._waiting, self._params
        while waiting and self._under_way < params.sends:
            gpu, action, send_by_ns = waiting.popleft()
            if type(action) is Infer and now_ns > send_by_ns:
                late_ns = max(action.latest_ns + action.expected_ns - now_ns, 0)
                self._clock.call_in(late_ns, partial(self._tell, action))
                continue
            size = (
                len(action.tasks) * params.input_bytes[action.model]
                if isinstance(action, Infer)
                else 0
            )
            self._free_ns = max(self._free_ns, now_ns) + round(8e9 * size / params.bits_per_s)
            self._under_way += 1
            self._clock.call_in(self._free_ns - now_ns, partial(self._through, gpu, action))

    def _through(self, gpu: int, action: Action, now_ns: int) -> None:
        self._under_way -= 1
        self._deliver(gpu, action)
        self._pump(now_ns)

    def _tell(self, action: Action, now_ns: int) -> None:
        self._unsent(action)
