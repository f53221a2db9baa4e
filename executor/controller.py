"""The live controller: a policy, its books, real clocks and real workers.

What `sim/cluster.py` is in virtual time this is in real time: the same books
(`scheduler/ledger.py`), the same rows for the same sink. One asyncio loop holds everything; it is
never on the precise path, for actions are sent ahead of their windows and workers keep them.
Time is nanoseconds since the start of the run, by this process's monotonic clock.
Not here: starting worker processes and files (mainspring.live), what a device does.
"""

import asyncio
import contextlib
import heapq
import selectors
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import zmq

from executor.offset import Offset
from executor.wire import (
    MAX_MESSAGE_BYTES,
    VERSION,
    Do,
    Hello,
    Ping,
    Pong,
    Ready,
    Report,
    Reports,
    Setup,
    Stop,
    ToWorker,
    Unable,
    decode_from_worker,
    encode,
)
from scheduler.journal import Record, Recorder
from scheduler.ledger import Controller
from scheduler.policy import Policy
from scheduler.records import (
    FOREVER,
    Action,
    GpuInfo,
    ModelInfo,
    Request,
    Result,
    Status,
    Unload,
)
from scheduler.rows import Sink, write_action, write_ended, write_unfinished

PING_NS: Final = 100_000_000
"""A worker hears from us this often at least, or it takes us for gone."""

START_S: Final = 120.0
"""Workers have this long to come up: to import torch, make models and run each until it is warm."""


class LiveError(Exception):
    """The live run can't go on, in one line."""


class Start(NamedTuple):
    """How punctual an action was: ns between when it could begin and when it began, and whether
    it missed its window for a late message, a late start, or an overrun of those before it."""

    late_ns: int
    missed: str


class _Peer:
    """A worker as the controller knows it."""

    __slots__ = ("address", "in_force", "offset", "ready")

    def __init__(self) -> None:
        self.address: bytes | None = None
        self.in_force: dict[str, str] = {}
        self.offset = Offset()
        self.ready = False


class LiveCluster:
    """One live run. Build it, bind it, start workers, call `run` once.

    setups: what each worker is to know, by GPU. chunks: arrivals of the open loop, as in
    sim.cluster.OpenLoop; slo_ns: by stream and model.
    """

    def __init__(
        self,
        policy: Policy,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        setups: Sequence[Setup],
        chunks: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]],
        slo_ns: Sequence[Sequence[int]],
        sink: Sink,
        policy_rng: np.random.Generator,
        record: Callable[[Record], None] | None = None,
    ) -> None:
        self.controller = (
            Controller(policy, gpus, models, policy_rng)
            if record is None
            else Recorder(policy, gpus, models, policy_rng, record)
        )
        self.arrived = 0
        """Requests that clients have sent."""
        self.dropped = 0
        """Messages that were none."""
        self.starts: list[Start] = []
        """Of every action that was done or missed its window."""
        self.arrival_late_ns: list[int] = []
        """How long after its time each request was handled."""
        self.device_errors: Counter[str] = Counter()
        """What went wrong on devices, in their words."""
        self._out = self.controller.out
        self._setups = setups
        self._slo_ns = slo_ns
        self._sink = sink
        self._coming: Iterator[tuple[int, int, int]] = chain.from_iterable(
            zip(times.tolist(), models.tolist(), streams.tolist(), strict=True)
            for times, models, streams in chunks
        )
        self._in_flight: dict[int, tuple[int, Action, int]] = {}  # id -> GPU, action, sent
        self._wakes: dict[Hashable, int] = {}  # key -> the latest time asked for
        self._timers: list[tuple[int, int, Hashable]] = []
        self._seq = 0
        self._peers = [_Peer() for _ in gpus]
        self._gpu_of: dict[bytes, int] = {}
        self._epoch_ns = 0
        self._offsets_ns: list[int] = []  # each worker's clock less ours, fixed for the run
        self._failure: BaseException | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        """Where workers find it; nobody else can reach it."""

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the start of the run."""
        return time.monotonic_ns() - self._epoch_ns

    @property
    def in_force(self) -> list[dict[str, str]]:
        """What holds for each worker's process."""
        return [peer.in_force for peer in self._peers]

    @property
    def clock_errors_ns(self) -> list[int | None]:
        """By how much each worker's clock may be misjudged."""
        return [peer.offset.error_ns for peer in self._peers]

    def run(
        self, end_ns: int, drain_ns: int, watch: Callable[[int], bool] = lambda now_ns: False
    ) -> bool:
        """Run until every request that arrives before end_ns has ended, or drain_ns after it.

        watch: is told the time a few times a second; the run ends early where it says True.
        Returns whether it did. Raises LiveError where the workers do not come up.
        """
        # epoll waits for whole milliseconds, which is as long as an inference; select does not.
        loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
        try:
            if not _in_a_loop():
                return loop.run_until_complete(self._run(end_ns, drain_ns, watch))
            with ThreadPoolExecutor(1) as beside:  # a notebook has a loop, and a thread only one
                work = self._run(end_ns, drain_ns, watch)
                return beside.submit(loop.run_until_complete, work).result()
        finally:
            loop.close()

    def close(self) -> None:
        """Let the workers go."""
        for gpu, peer in enumerate(self._peers):
            if peer.address is not None:
                with contextlib.suppress(LiveError):
                    self._tell(gpu, Stop())
        self._socket.close(linger=500)
        self._context.term()

    async def _run(self, end_ns: int, drain_ns: int, watch: Callable[[int], bool]) -> bool:
        loop = asyncio.get_running_loop()
        loop.add_reader(int(self._socket.getsockopt(zmq.FD)), self._guarded, self._read)
        await self._gather()
        self._epoch_ns = time.monotonic_ns()
        self._offsets_ns = [peer.offset.offset_ns + self._epoch_ns for peer in self._peers]
        try:
            self.controller.start(0)
            self._settle(0)
            return await self._serve(end_ns, drain_ns, watch)
        finally:
            write_unfinished(self._sink, self.controller.stop(), self.now_ns)

    async def _gather(self) -> None:
        """Wait for every worker, and get to know its clock."""
        end_ns = time.monotonic_ns() + round(START_S * 1e9)
        while not all(peer.offset.exchanges >= Offset.KEPT for peer in self._peers):
            self._read()
            self._ping()
            self._raise_failure()
            if time.monotonic_ns() > end_ns:
                missing = [gpu for gpu, peer in enumerate(self._peers) if not peer.ready]
                raise LiveError(f"workers {missing} did not come up within {START_S:g} s")
            await asyncio.sleep(0.005)

    async def _serve(self, end_ns: int, drain_ns: int, watch: Callable[[int], bool]) -> bool:
        """Hand over arrivals and wakes when they are due."""
        coming = next(self._coming, None)
        next_watch_ns = next_ping_ns = 0
        while True:
            now_ns = self.now_ns
            while coming is not None and coming[0] <= now_ns:
                self._arrive(now_ns, *coming)
                coming = next(self._coming, None)
                now_ns = self.now_ns
            while self._timers and self._timers[0][0] <= now_ns:
                at_ns, _, key = heapq.heappop(self._timers)
                if self._wakes.get(key) == at_ns:  # otherwise replaced
                    del self._wakes[key]
                    self.controller.wake(now_ns, key)
                    self._settle(now_ns)
                    now_ns = self.now_ns
            self._read()
            self._raise_failure()
            if now_ns >= next_ping_ns:
                next_ping_ns = now_ns + PING_NS
                self._ping()
            if now_ns >= next_watch_ns:
                next_watch_ns = now_ns + PING_NS
                if watch(now_ns):
                    return True
            idle = coming is None and not self._out.live
            if now_ns >= end_ns + drain_ns or (now_ns >= end_ns and idle and not self._in_flight):
                return False
            next_ns = min(next_ping_ns, next_watch_ns, end_ns + drain_ns)
            if coming is not None:
                next_ns = min(next_ns, coming[0])
            if self._timers:
                next_ns = min(next_ns, self._timers[0][0])
            await asyncio.sleep(max(next_ns - self.now_ns, 0) / 1e9)

    def _arrive(self, now_ns: int, at_ns: int, model: int, stream: int) -> None:
        slo_ns = self._slo_ns[stream][model]
        deadline_ns = at_ns + slo_ns if slo_ns < FOREVER else FOREVER
        request = Request(self.arrived, model, at_ns, deadline_ns, stream)
        self.arrived += 1
        self.arrival_late_ns.append(now_ns - at_ns)
        self.controller.request(now_ns, request)
        self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        """Carry out what the policy has emitted."""
        out = self._out
        if out.sent:
            by_gpu: dict[int, list[Action]] = {}
            for gpu, action in out.sent:
                self._in_flight[action.id] = (gpu, action, now_ns)
                offset_ns = self._offsets_ns[gpu]
                by_gpu.setdefault(gpu, []).append(_by_clock(action, offset_ns))
            out.sent.clear()
            for gpu, actions in by_gpu.items():
                self._tell(gpu, Do(actions))
        if out.ended:
            write_ended(self._sink, out.ended, now_ns)
            out.ended.clear()
        for at_ns, key in out.wakes:
            self._wakes[key] = at_ns
            self._seq += 1
            heapq.heappush(self._timers, (at_ns, self._seq, key))
        out.wakes.clear()

    # ---- workers

    def _tell(self, gpu: int, message: ToWorker) -> None:
        address = self._peers[gpu].address
        assert address is not None
        try:
            self._socket.send_multipart([address, encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            raise LiveError(f"worker {gpu} cannot be reached: {error}") from None

    def _ping(self) -> None:
        for gpu, peer in enumerate(self._peers):
            if peer.ready:
                self._tell(gpu, Ping(self.now_ns))

    def _guarded(self, handler: Callable[[], None]) -> None:
        """A callback of the loop's: what goes wrong in it ends the run, not just the callback."""
        try:
            handler()
        except BaseException as error:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _read(self) -> None:
        """Handle every message that has come."""
        while True:
            try:
                address, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                (frame,) = frames
                message = decode_from_worker(frame)
            except (ValueError, msgspec.DecodeError):
                self.dropped += 1
                continue
            if isinstance(message, Hello):
                self._hello(address, message)
                continue
            gpu = self._gpu_of.get(address)
            if gpu is None:
                self.dropped += 1
            elif isinstance(message, Reports):
                for report in message.reports:
                    self._reported(gpu, report)
            elif isinstance(message, Pong):
                if not self._epoch_ns:  # in a run the estimate stays: windows may not move
                    self._peers[gpu].offset.add(message.sent_ns, message.at_ns, self.now_ns)
            elif isinstance(message, Unable):
                raise LiveError(f"worker {gpu}: {message.reason}")
            else:
                assert isinstance(message, Ready)
                self._peers[gpu].ready = True
                self._peers[gpu].in_force |= message.in_force

    def _hello(self, address: bytes, hello: Hello) -> None:
        known = 0 <= hello.gpu < len(self._peers) and self._peers[hello.gpu].address is None
        if hello.version != VERSION or not known:
            self.dropped += 1
            return
        peer = self._peers[hello.gpu]
        peer.address, peer.in_force = address, hello.in_force
        self._gpu_of[address] = hello.gpu
        self._tell(hello.gpu, self._setups[hello.gpu])

    def _reported(self, gpu: int, report: Report) -> None:
        sent = self._in_flight.get(report.id)
        if sent is None or sent[0] != gpu:
            self.dropped += 1  # of no action that this worker has
            return
        del self._in_flight[report.id]
        _, action, sent_ns = sent
        offset_ns = self._offsets_ns[gpu]
        result = Result(
            action,
            report.status,
            report.why,
            report.start_ns - offset_ns,
            report.end_ns - offset_ns,
            report.duration_ns,
        )
        if report.error:
            self.device_errors[report.error] += 1
        if type(action) is not Unload and report.status is not Status.FAILED:
            self.starts.append(_punctuality(action, report, offset_ns))
        write_action(self._sink, result, gpu, sent_ns)
        now_ns = self.now_ns
        self.controller.result(now_ns, result)
        self._settle(now_ns)


def _in_a_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _by_clock(action: Action, offset_ns: int) -> Action:
    """The action with its window by the worker's clock."""
    latest_ns = action.latest_ns
    changes: dict[str, Any] = {
        "earliest_ns": action.earliest_ns + offset_ns,
        "latest_ns": latest_ns if latest_ns == FOREVER else latest_ns + offset_ns,
    }
    return msgspec.structs.replace(action, **changes)


def _punctuality(action: Action, report: Report, offset_ns: int) -> Start:
    late_ns = report.start_ns - report.ready_ns
    if report.status is not Status.MISSED:
        return Start(late_ns, "")
    latest_ns = action.latest_ns + offset_ns
    if report.received_ns > latest_ns:
        return Start(late_ns, "late message")
    return Start(late_ns, "overrun" if report.ready_ns > latest_ns else "late start")
