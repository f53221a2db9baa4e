"""Senders, and the link that remote GPUs share: what leaves goes one after the other.

    sender of GPU 1   ▒▒ encode ▒▒████ send ████▒▒▒▒████
    sender of GPU 2   ▒▒▒▒▒▒▒▒▒▒▒▒     waits    ████▒▒▒▒     the link is never idle with two
    GPU 0, local      ▒▒▒▒▒▒                                  needs no link

Each GPU has one sender, which encodes a batch and then sends it, and takes the next one when that
is done: with one remote GPU the link is idle while its sender encodes. Loads and unloads go past.
Left out: answers, which are small, and packets; `bits_per_s` is what is left for payload.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from scheduler.records import Action, Infer
from sim.clock import Clock
from sim.link import Uplink

PAYLOAD_SHARE = 1460 / 1538
"""Of what a line of Ethernet carries: a full TCP segment over its frame, headers, preamble and gap
included (IEEE 802.3; 20 bytes each of IP and TCP)."""


class Network(NamedTuple):
    """bits_per_s: of payload. query_bits: a query's input. encode_ns: the sender's work for it.

    local: how many GPUs, the first ones, need no link.
    """

    bits_per_s: float
    query_bits: int
    encode_ns: float
    local: int = 1


class Sender:
    """A GPU and what stands before it. link: None where the GPU is local."""

    def __init__(self, clock: Clock, network: Network, link: Uplink | None, gpu: Any) -> None:
        self._clock = clock
        self._network = network
        self._link = link
        self._gpu = gpu
        self._queue: deque[Infer] = deque()

    def submit(self, now_ns: int, action: Action) -> None:
        """An action has arrived."""
        if type(action) is not Infer:
            self._gpu.submit(now_ns, action)
            return
        self._queue.append(action)
        if len(self._queue) == 1:
            self._encode(action)

    def _encode(self, action: Infer) -> None:
        delay_ns = round(self._network.encode_ns * action.batch)
        self._clock.call_in(delay_ns, partial(self._send, action))

    def _send(self, action: Infer, now_ns: int) -> None:
        if self._link is None:
            self._sent(now_ns)
        else:
            bits = self._network.query_bits * action.batch
            takes_ns = round(1e9 * bits / self._network.bits_per_s)
            self._clock.call_in(self._link.through_ns(now_ns, takes_ns) - now_ns, self._sent)

    def _sent(self, now_ns: int) -> None:
        self._gpu.submit(now_ns, self._queue.popleft())
        if self._queue:
            self._encode(self._queue[0])


class Linked:
    """A kind of GPU (see `sim.cluster.GpuKind`) for one run, whose GPUs share a link."""

    def __init__(self, gpu_kind: Callable[..., Any], network: Network) -> None:
        self._gpu_kind = gpu_kind
        self._network = network
        self._link: Uplink | None = None
        self._made = 0

    def __call__(self, clock: Clock, *args: Any, **kwargs: Any) -> Sender:
        """Make the next GPU."""
        if self._link is None:
            self._link = Uplink()
        link = None if self._made < self._network.local else self._link
        self._made += 1
        return Sender(clock, self._network, link, self._gpu_kind(clock, *args, **kwargs))
