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
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import zmq

from executor.address import is_open
from executor.callers import Callers, most
from executor.keys import KeysError, lock
from executor.lateness import Lateness
from executor.offset import Offset
from executor.selector import PreciseSelector
from executor.watch import Watched
from executor.wire import (
    ASKED,
    MAX_MESSAGE_BYTES,
    VERSION,
    Condition,
    Do,
    FromWorker,
    Happens,
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
from scheduler.faults import (
    HEARTBEAT_NS,
    DelayedMessages,
    Fault,
    LostMessages,
    PausedController,
    WorkerKilled,
)
from scheduler.journal import Record, Recorder
from scheduler.ledger import Controller, Ended, lost
from scheduler.policy import Policy
from scheduler.records import (
    FOREVER,
    Action,
    AnswerKind,
    Change,
    GpuInfo,
    Infer,
    ModelInfo,
    Request,
    Result,
    Status,
    Unload,
    Why,
    WorkerChange,
)
from scheduler.rows import Sink, write_action, write_ended, write_unfinished
from workloads.closed import MIN_RETRY_NS, Client

SILENT_NS: Final = 1_000_000_000
"""A worker that leaves a ping unanswered for so long is lost: on top of a batch that may be under
way, for model code that holds Python's lock keeps its worker from answering."""

OVERRUN: Final = 4
"""A batch may take so many times what its profile says before its worker counts as silent."""

AT_A_TIME: Final = 64
"""Requests that are handled before the workers are listened to again."""

READ_AT_ONCE: Final = 1_000
"""Messages that are handled before all else has its turn."""

SPARE_TIMERS: Final = 32
"""So many that count no more may stand among the timers, or as many as those that do."""

STOP_NS: Final = 500_000_000
"""Workers have this long to hear that the run is over."""

START_S: Final = 120.0
"""Workers have this long to come up: to import torch, make models and run each until it is warm."""


class LiveError(Exception):
    """The live run can't go on, in one line."""


class _State(IntEnum):
    """How far a worker has come."""

    ABSENT = 0
    GREETED = 1
    """It has said hello, and was told what to be ready for."""
    TIMED = 2
    """It is ready; its clock is being compared with ours."""
    SERVING = 3


class _Peer:
    """A worker as the controller knows it.

    offset_ns: its clock at the start of the run. unanswered_ns: when the oldest ping was sent that
    it has not answered; FOREVER if there is none.
    """

    __slots__ = (
        "actions_to_lose", "address", "delay_ns", "delayed_until_ns", "in_force", "last_back_ns",
        "last_there_ns", "lost_ns", "offset", "offset_ns", "results_to_lose", "state",
        "unanswered_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.address: bytes | None = None
        self.in_force: dict[str, str] = {}
        self.offset = Offset()
        self.offset_ns = 0
        self.state = _State.ABSENT
        self.unanswered_ns = FOREVER
        self.lost_ns = 0
        # What the scenario's faults do to its messages.
        self.delayed_until_ns = self.delay_ns = self.last_there_ns = self.last_back_ns = 0
        self.actions_to_lose = self.results_to_lose = 0


class Alarm:
    """A wake that the policy asked for; it counts as long as it is the last one of its key."""

    __slots__ = ("at_ns", "key", "wake")

    def __init__(self, at_ns: int, key: Hashable, wake: "Callable[[Alarm, int], None]") -> None:
        self.at_ns, self.key, self.wake = at_ns, key, wake

    def __call__(self, now_ns: int) -> None:
        self.wake(self, now_ns)


class LiveCluster:
    """One live run. Build it, bind it, start workers, call `run` once.

    setups: what each worker is to know, by GPU. chunks: arrivals of the open loop, as in
    sim.cluster.OpenLoop; slo_ns: by stream and model. faults: what goes wrong; kill: ends a worker
    at once, and starts another when the fault says so.
    clients: those of the closed loop.

    listen: an address, such as tcp://0.0.0.0:5555, for workers that others start; without it they
    find a socket in a directory that no other user may enter. keys: those of executor/keys.py; who
    listens to other machines needs them. wait_s: workers have this long to come up; None is for
    ever. missing: is told the GPUs whose workers are not there, while it waits and when that
    changes. say: is told what goes wrong with such a worker, for the run goes on without it.
    Raises LiveError where the address or the keys cannot be had.
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
        faults: Sequence[Fault] = (),
        kill: Callable[[WorkerKilled], None] = lambda fault: None,
        listen: str | None = None,
        keys: Path | None = None,
        clients: Sequence[Client] = (),
        wait_s: float | None = START_S,
        missing: Callable[[Sequence[int]], None] = lambda gpus: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        if listen is not None and keys is None and is_open(listen):
            raise LiveError(f"{listen} is open to others, so it needs keys; mainspring keys DIR")
        self._home = tempfile.TemporaryDirectory(prefix="mainspring-")
        address = listen or f"ipc://{self._home.name}/workers"
        if listen is None and len(address.removeprefix("ipc://")) > zmq.IPC_PATH_MAX_LEN:
            raise LiveError(
                f"{tempfile.gettempdir()} is too long a path for the workers' socket; "
                "set TMPDIR to a shorter one"
            )
        self.controller = (
            Controller(policy, gpus, models, policy_rng)
            if record is None
            else Recorder(policy, gpus, models, policy_rng, record)
        )
        self.arrived = 0
        """Requests that clients have sent."""
        self.turned_away: Counter[int] = Counter()
        """By closed-loop client, how often it was given up sooner than its model can answer."""
        self.dropped = 0
        """Messages that were none."""
        self.stale = 0
        """Results that came after their worker had been declared lost."""
        self.away_ns: list[int] = []
        """How long each worker that was lost and came back was away."""
        self.starts = Lateness()
        """How long after an action could begin it began; of those that were done."""
        self.missed: Counter[str] = Counter()
        """Actions that missed their windows: for a late message, a late start, or an overrun of
        those before them."""
        self.arrivals = Lateness()
        """How long after its time each request was handled."""
        self.device_errors: Counter[str] = Counter()
        """What went wrong on devices, in their words."""
        self.devices = [Watched() for _ in gpus]
        """What each GPU's device has told of itself since the start of the run."""
        self._out = self.controller.out
        self._setups = setups
        self._slo_ns = slo_ns
        self._sink = sink
        self._coming: Iterator[tuple[int, int, int]] = chain.from_iterable(
            zip(times.tolist(), models.tolist(), streams.tolist(), strict=True)
            for times, models, streams in chunks
        )
        self._clients = {client.id: client for client in clients}
        self._in_flight: dict[int, tuple[int, Action, int]] = {}  # id -> GPU, action, sent
        self._outbox: list[list[Action]] = [[] for _ in gpus]
        self._exec_ns = [dict(zip(m.batch_sizes, m.exec_ns, strict=True)) for m in models]
        self._soonest_ns = [min(model.exec_ns) for model in models]
        self._wakes: dict[Hashable, Alarm] = {}  # by key, the one that was asked for last
        self._timers: list[tuple[int, int, Callable[[int], None]]] = []
        self._many_timers = SPARE_TIMERS
        self._asleep_until_ns = self._next_round_ns = 0
        self._seq = 0
        self._peers = [_Peer() for _ in gpus]
        self._gpu_of: dict[bytes, int] = {}
        self._epoch_ns = 0
        self._faults = faults
        self._kill = kill
        self._lost_ids: set[int] = set()
        self._unreachable: set[int] = set()
        self._elsewhere = listen is not None
        self._wait_s, self._missing, self._say = wait_s, missing, say
        self._last_ping_ns = 0
        self._more_to_read = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._guard = self._callers = None
        try:
            if keys is not None:
                self._guard = lock(self._socket, self._context, keys)
            if listen is not None:
                self._callers = Callers(self._socket, most(len(gpus)))
            self._socket.setsockopt(zmq.IPV6, listen is not None and "[" in listen)
            self._socket.bind(address)
        except (KeysError, zmq.ZMQError) as error:
            self._let_go()
            where = f"{address}: " if isinstance(error, zmq.ZMQError) else ""
            raise LiveError(f"{where}{error}") from None
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        """Where workers find it."""

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the start of the run."""
        return time.monotonic_ns() - self._epoch_ns

    @property
    def serving(self) -> int:
        """Workers that are there now."""
        return sum(peer.state is _State.SERVING for peer in self._peers)

    @property
    def hung_up(self) -> int:
        """Connections that were too many."""
        return 0 if self._callers is None else self._callers.hung_up

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
        loop = asyncio.SelectorEventLoop(PreciseSelector())
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
        stop = encode(Stop())
        there = {peer.address for peer in self._peers if peer.address is not None}
        end_ns = time.monotonic_ns() + STOP_NS
        # A message that waits when its socket is closed is dropped as often as not, whatever its
        # LINGER, so say it until they are gone: then there is no way to them.
        while there and time.monotonic_ns() < end_ns:
            for address in tuple(there):
                try:
                    self._socket.send_multipart([address, stop], zmq.NOBLOCK)
                except zmq.ZMQError:
                    there.remove(address)
            time.sleep(0.005)
        self._let_go()

    def _let_go(self) -> None:
        if self._callers is not None:
            self._callers.close()
        self._socket.close(linger=0)
        if self._guard is not None:
            self._guard.stop()
        self._context.term()
        self._home.cleanup()

    def gone(self, gpu: int) -> None:
        """A worker's process has ended. May be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with contextlib.suppress(RuntimeError):  # it closes just now
                loop.call_soon_threadsafe(self._guarded, partial(self._ended, gpu))

    def fail(self, why: str) -> None:
        """The run cannot go on. May be called from any thread."""
        self._failure = LiveError(why)

    async def _run(self, end_ns: int, drain_ns: int, watch: Callable[[int], bool]) -> bool:
        loop = self._loop = asyncio.get_running_loop()
        loop.add_reader(int(self._socket.getsockopt(zmq.FD)), self._guarded, self._came)
        if self._callers is not None:
            loop.add_reader(self._callers.fileno(), self._guarded, self._look_at_callers)
            self._look_at_callers()
        came = await self._gather(watch)
        self._epoch_ns = time.monotonic_ns()
        if not came:
            return True
        for peer in self._peers:
            peer.state, peer.offset_ns = _State.SERVING, peer.offset.offset_ns + self._epoch_ns
        for fault in self._faults:
            self._at(fault.at_ns, partial(self._happens, fault))
        try:
            self.controller.start(0)
            self._settle(0)
            for client in self._clients.values():
                self._ask_at(client, client.start_ns)
            return await self._serve(end_ns, drain_ns, watch)
        finally:
            write_unfinished(self._sink, self.controller.stop(), self.now_ns)

    async def _gather(self, watch: Callable[[int], bool]) -> bool:
        """Wait for every worker, and get to know its clock. Returns False where `watch` ends it."""
        begun_ns = next_ns = time.monotonic_ns()
        while True:
            self._read()
            while self._unreachable:  # gone again: another one may come
                gpu = self._unreachable.pop()
                self._forget(gpu)
                self._peers[gpu].offset = Offset()
            self._raise_failure()
            now_ns = time.monotonic_ns()
            missing = [
                gpu for gpu, peer in enumerate(self._peers) if peer.offset.exchanges < Offset.KEPT
            ]
            if not missing:
                self._missing(())
                return True
            if self._wait_s is not None and now_ns - begun_ns > self._wait_s * 1e9:
                raise LiveError(f"workers {missing} did not come up within {self._wait_s:g} s")
            now = now_ns >= next_ns
            if now:
                next_ns = now_ns + HEARTBEAT_NS
                self._missing([gpu for gpu in missing if self._peers[gpu].state is _State.ABSENT])
                if watch(0):
                    return False
            for gpu, peer in enumerate(self._peers):  # who is known already is kept awake
                if peer.state is _State.TIMED and (gpu in missing or now):
                    self._tell(gpu, Ping(time.monotonic_ns()))
            await asyncio.sleep(0.005)

    def _forget(self, gpu: int) -> None:
        """A worker is gone, and its place is free."""
        peer = self._peers[gpu]
        if peer.address is not None:
            self._gpu_of.pop(peer.address, None)
        peer.state, peer.address = _State.ABSENT, None

    async def _serve(self, end_ns: int, drain_ns: int, watch: Callable[[int], bool]) -> bool:
        """Hand over arrivals and wakes when they are due."""
        coming = next(self._coming, None)
        next_watch_ns = next_ping_ns = 0
        while True:
            # Results first: if more comes than can be handled, what is done must not wait.
            self._read()
            self._raise_failure()
            now_ns = self.now_ns
            for _ in range(AT_A_TIME):
                if coming is None or coming[0] > now_ns:
                    break
                self._arrive(now_ns, *coming)
                coming = next(self._coming, None)
                now_ns = self.now_ns
            now_ns = self._due()
            if now_ns >= next_ping_ns:
                next_ping_ns = now_ns + HEARTBEAT_NS
                self._heartbeat(now_ns)
            self._flush()
            while self._unreachable:
                self._lose(self._unreachable.pop())
                self._flush()
            if now_ns >= next_watch_ns:
                next_watch_ns = now_ns + HEARTBEAT_NS
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
            self._asleep_until_ns = self._next_round_ns = next_ns
            await asyncio.sleep(max(next_ns - self.now_ns, 0) / 1e9)

    def _arrive(self, now_ns: int, at_ns: int, model: int, stream: int) -> None:
        self._admit(now_ns, at_ns, model, stream, self._slo_ns[stream][model])

    def _ask_at(self, client: Client, at_ns: int) -> None:
        if at_ns < client.until_ns:
            self._at(at_ns, partial(self._ask, client, at_ns))

    def _ask(self, client: Client, at_ns: int, now_ns: int) -> None:
        self._admit(now_ns, at_ns, client.model, client.id, client.slo_ns)

    def _ask_again(self, ended: Sequence[Ended], now_ns: int) -> None:
        """Closed-loop clients whose requests have ended."""
        for request, kind, *_ in ended:
            client = self._clients.get(request.client)
            if client is not None:
                answered = kind is not AnswerKind.NONE
                if not answered and now_ns - request.arrival_ns < self._soonest_ns[client.model]:
                    self.turned_away[client.id] += 1
                wait_ns = client.wait_ns(answered)
                self._ask_at(client, now_ns + max(wait_ns, MIN_RETRY_NS))

    def _admit(self, now_ns: int, at_ns: int, model: int, client: int, slo_ns: int) -> None:
        """A request that was to come at at_ns is handled now."""
        deadline_ns = at_ns + slo_ns if slo_ns < FOREVER else FOREVER
        request = Request(self.arrived, model, at_ns, deadline_ns, client)
        self.arrived += 1
        self.arrivals.add(now_ns - at_ns)
        self.controller.request(now_ns, request)
        self._settle(now_ns)

    def _settle(self, now_ns: int) -> None:
        """Carry out what the policy has emitted."""
        out = self._out
        if out.sent:
            for gpu, action in out.sent:
                self._in_flight[action.id] = (gpu, action, now_ns)
                self._outbox[gpu].append(action)
            out.sent.clear()
        if out.ended:
            write_ended(self._sink, out.ended, now_ns)
            if self._clients:
                self._ask_again(out.ended, now_ns)
            out.ended.clear()
        for at_ns, key in out.wakes:
            self._wakes[key] = alarm = Alarm(at_ns, key, self._wake)
            self._at(at_ns, alarm)
        out.wakes.clear()
        if len(self._timers) > self._many_timers:
            self._forget_replaced()

    def _flush(self) -> None:
        """Send what has collected: the busier we are, the more actions go in one message, for a
        message costs more than all else that is done for a request (benchmarks/controller.py)."""
        for gpu, actions in enumerate(self._outbox):
            if not actions:
                continue
            peer = self._peers[gpu]
            kept = actions
            if peer.actions_to_lose:
                kept = actions[peer.actions_to_lose :]
                peer.actions_to_lose -= len(actions) - len(kept)
            if kept:
                self._send(gpu, peer.offset_ns, kept)
            self._outbox[gpu] = []

    def _send(self, gpu: int, offset_ns: int, actions: list[Action]) -> None:
        """Send actions to a worker, which makes up the inputs."""
        self._tell(gpu, Do(offset_ns, actions))

    def _at(self, at_ns: int, call: Callable[[int], None]) -> None:
        """Call back at that time, with the time that it is then."""
        self._seq += 1
        heapq.heappush(self._timers, (at_ns, self._seq, call))

    def _due(self) -> int:
        """Call back what is due by now, and not what falls due meanwhile: a client that is rejected
        at once asks again at once. Returns the time that it is then."""
        until_ns = now_ns = self.now_ns
        while self._timers and self._timers[0][0] <= until_ns:
            heapq.heappop(self._timers)[2](now_ns)
            now_ns = self.now_ns
        return now_ns

    def _wake(self, alarm: Alarm, now_ns: int) -> None:
        if self._wakes.get(alarm.key) is alarm:  # otherwise replaced
            del self._wakes[alarm.key]
            self.controller.wake(now_ns, alarm.key)
            self._settle(now_ns)

    def _forget_replaced(self) -> None:
        """Those for deadlines in ten days, which clients may ask for, would stay for ten days."""
        self._timers[:] = [
            timer
            for timer in self._timers
            if type(timer[2]) is not Alarm or self._wakes.get(timer[2].key) is timer[2]
        ]
        heapq.heapify(self._timers)
        self._many_timers = 2 * len(self._timers) + SPARE_TIMERS

    # ---- workers

    def _tell(self, gpu: int, message: ToWorker) -> None:
        peer = self._peers[gpu]
        if peer.delay_ns:
            now_ns = self.now_ns
            extra_ns = peer.delay_ns if now_ns < peer.delayed_until_ns else 0
            due_ns = max(now_ns + extra_ns, peer.last_there_ns)
            if due_ns > now_ns:
                peer.last_there_ns = due_ns
                self._at(due_ns, lambda _: self._post(gpu, peer.address, message))
                return
        self._post(gpu, peer.address, message)

    def _post(self, gpu: int, address: bytes | None, message: ToWorker) -> None:
        """Put a message on the wire. A worker that cannot be reached is lost, a little later."""
        if address is None or address != self._peers[gpu].address:
            return
        try:
            self._socket.send_multipart([address, encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:
            self._unreachable.add(gpu)

    def _heartbeat(self, now_ns: int) -> None:
        """Ask every worker for a sign of life, and for the results that it owes."""
        # If we were away ourselves, its answers may still be on their way to us.
        away = now_ns - self._last_ping_ns > 3 * HEARTBEAT_NS
        for gpu, peer in enumerate(self._peers):
            if peer.state is _State.SERVING:
                if away:
                    peer.unanswered_ns = FOREVER
                elif now_ns - peer.unanswered_ns > SILENT_NS:
                    batch_ns = max(
                        (
                            self._exec_ns[action.model][action.batch]
                            for at, action, _ in self._in_flight.values()
                            if at == gpu and type(action) is Infer
                        ),
                        default=0,
                    )
                    if now_ns - peer.unanswered_ns > SILENT_NS + OVERRUN * batch_ns:
                        self._lose(gpu)
                        continue
                owed = [
                    id
                    for id, (at, _, sent_ns) in self._in_flight.items()
                    if at == gpu and sent_ns < self._last_ping_ns
                ]
                peer.unanswered_ns = min(peer.unanswered_ns, now_ns)
                self._tell(gpu, Ping(time.monotonic_ns(), owed[:ASKED]))
            elif peer.state is _State.TIMED:
                self._tell(gpu, Ping(time.monotonic_ns()))
        self._last_ping_ns = now_ns

    def _ended(self, gpu: int) -> None:
        self._read()  # what it has said before comes first
        peer = self._peers[gpu]
        if not self._epoch_ns:
            raise LiveError(
                f"worker {gpu} ended before the run began; what it wrote above says why"
            )
        if peer.state is _State.SERVING:
            self._lose(gpu)
        self._forget(gpu)
        self._flush()

    def _lose(self, gpu: int) -> None:
        """A worker is gone, or silent for too long: what is open on it is lost."""
        peer = self._peers[gpu]
        if peer.state is not _State.SERVING:
            return
        now_ns = self.now_ns
        peer.state, peer.lost_ns, peer.unanswered_ns = _State.ABSENT, now_ns, FOREVER
        self._outbox[gpu] = []
        self._sink.worker_lost(gpu, now_ns)
        self.controller.worker(now_ns, WorkerChange(gpu, Change.LOST))
        self._settle(now_ns)
        open_ = [action for at, action, _ in self._in_flight.values() if at == gpu]
        for action in open_:
            self._lost_ids.add(action.id)
            self._is_lost(action, Why.WORKER_LOST, now_ns)
        self._call_the_roll()

    def _is_lost(self, action: Action, why: Why, now_ns: int) -> None:
        gpu, _, sent_ns = self._in_flight.pop(action.id)
        result = lost(action, now_ns, why)
        write_action(self._sink, result, gpu, sent_ns)
        self.controller.result(now_ns, result)
        self._settle(now_ns)

    def _is_back(self, gpu: int) -> None:
        """A worker is ready, its clock is known, and it is empty."""
        peer = self._peers[gpu]
        peer.state = _State.SERVING
        peer.offset_ns = peer.offset.offset_ns + self._epoch_ns
        now_ns = self.now_ns
        self.away_ns.append(now_ns - peer.lost_ns)
        self.controller.worker(now_ns, WorkerChange(gpu, Change.BACK))
        self._settle(now_ns)
        self._call_the_roll()

    def _call_the_roll(self) -> None:
        peers = enumerate(self._peers)
        self._missing([gpu for gpu, peer in peers if peer.state is not _State.SERVING])

    def _happens(self, fault: Fault, now_ns: int) -> None:
        """One of the scenario's faults is due."""
        if isinstance(fault, PausedController):
            time.sleep(fault.for_s)
        elif isinstance(fault, WorkerKilled):
            self._kill(fault)
        elif isinstance(fault, DelayedMessages):
            peer = self._peers[fault.gpu]
            peer.delayed_until_ns = now_ns + round(fault.for_s * 1e9)
            peer.delay_ns = round(fault.delay_ms * 1e6)
        elif isinstance(fault, LostMessages):
            peer = self._peers[fault.gpu]
            if fault.lose == "actions":
                peer.actions_to_lose += fault.count
            else:
                peer.results_to_lose += fault.count
        elif self._peers[fault.gpu].state is _State.SERVING:
            self._tell(fault.gpu, Happens(fault))

    def _guarded(self, handler: Callable[[], object]) -> None:
        """A callback of the loop's: what goes wrong in it ends the run, not just the callback."""
        try:
            handler()
        except BaseException as error:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _came(self) -> None:
        """Something has come while we waited."""
        self._more_to_read = False
        self._read()
        self._flush()
        self._call_for_timers()

    def _look_at_callers(self) -> None:
        assert self._callers is not None
        if self._callers.look():
            assert self._loop is not None
            self._loop.call_soon(self._guarded, self._look_at_callers)

    def _wake_up(self) -> None:
        # Not for ever: a call of the loop's for a deadline in ten days would be kept for ten days.
        self._asleep_until_ns = self._next_round_ns
        self._due()
        self._flush()
        self._call_for_timers()

    def _call_for_timers(self) -> None:
        """A message may ask for an earlier moment than the one until which `_serve` sleeps."""
        if self._timers and self._timers[0][0] < self._asleep_until_ns:
            self._asleep_until_ns = self._timers[0][0]
            # A microsecond more, for the loop's clock is a float: too early would be never.
            wait_ns = max(0, self._asleep_until_ns - self.now_ns) + 1_000
            loop = asyncio.get_running_loop()
            loop.call_later(wait_ns / 1e9, self._guarded, self._wake_up)

    def _read(self) -> None:
        """Handle the messages that have come. If they come faster than that, all else has its turn
        in between: a stranger's flood would make the workers look lost."""
        for _ in range(READ_AT_ONCE):
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
                self._dropped(message)
                continue
            peer = self._peers[gpu]
            if peer.delay_ns:
                now_ns = self.now_ns
                extra_ns = peer.delay_ns if now_ns < peer.delayed_until_ns else 0
                due_ns = max(now_ns + extra_ns, peer.last_back_ns)
                if due_ns > now_ns:
                    peer.last_back_ns = due_ns
                    self._at(due_ns, partial(self._hear, gpu, message))
                    continue
            self._hear(gpu, message)
        # The descriptor tells of changes only, so the rest is asked for.
        if self._loop is not None and not self._more_to_read:
            self._more_to_read = True
            self._loop.call_soon(self._guarded, self._came)

    def _dropped(self, message: FromWorker) -> None:
        """What a worker says that is none of ours, or no more."""
        if isinstance(message, Reports):
            self.stale += sum(report.id in self._lost_ids for report in message.reports)
        self.dropped += not isinstance(message, Reports | Pong)

    def _hear(self, gpu: int, message: FromWorker, _: int = 0) -> None:
        """A worker has said something."""
        peer = self._peers[gpu]
        peer.unanswered_ns = FOREVER
        if isinstance(message, Reports):
            for report in message.reports:
                self._reported(gpu, report)
        elif isinstance(message, Pong):
            if peer.state is _State.TIMED:  # later the estimate stays: windows may not move
                peer.offset.add(message.sent_ns, message.at_ns, time.monotonic_ns())
                if self._epoch_ns and peer.offset.exchanges < Offset.KEPT:
                    self._tell(gpu, Ping(time.monotonic_ns()))
                elif self._epoch_ns:
                    self._is_back(gpu)
            elif peer.state is _State.SERVING:
                now_ns = self.now_ns
                for id in message.unknown:
                    if id in self._in_flight and self._in_flight[id][0] == gpu:
                        self._is_lost(self._in_flight[id][1], Why.MESSAGE_LOST, now_ns)
                if message.condition is not None:
                    self._told(gpu, message.condition)
        elif isinstance(message, Unable):
            if not self._elsewhere:
                raise LiveError(f"worker {gpu}: {message.reason}")
            self._say(f"the worker of GPU {gpu} cannot take part: {message.reason}")
            self._forget(gpu)
            return
        elif isinstance(message, Ready) and peer.state is _State.GREETED:
            peer.state = _State.TIMED
            peer.in_force |= message.in_force
            self._tell(gpu, Ping(time.monotonic_ns()))
        if peer.state is _State.ABSENT and self._epoch_ns:
            self._greet(gpu)  # it was only silent: it starts anew, with nothing on it

    def _told(self, gpu: int, condition: Condition) -> None:
        """A device has told how it is."""
        self.devices[gpu].add(condition)

    def _hello(self, address: bytes, hello: Hello) -> None:
        if hello.version != VERSION:
            self._turn_away(
                address,
                f"the controller's mainspring speaks version {VERSION} of the messages, this "
                f"worker's {hello.version}; install the same one on both machines",
            )
            return
        if not 0 <= hello.gpu < len(self._peers):
            last = len(self._peers) - 1
            self._turn_away(address, f"the cluster has no GPU {hello.gpu}; its last one is {last}")
            return
        peer = self._peers[hello.gpu]
        if peer.address == address and peer.state is not _State.ABSENT:
            return  # it says so until it hears from us
        if peer.state is _State.SERVING:
            self.dropped += 1  # its place is taken
            return
        if peer.address is not None:
            self._gpu_of.pop(peer.address, None)
        peer.address, peer.in_force = address, dict(hello.in_force)
        self._gpu_of[address] = hello.gpu
        self._greet(hello.gpu)

    def _turn_away(self, address: bytes, reason: str) -> None:
        self.dropped += 1
        with contextlib.suppress(zmq.ZMQError):  # it is gone already
            self._socket.send_multipart([address, encode(Stop(reason))], zmq.NOBLOCK)

    def _greet(self, gpu: int) -> None:
        """Tell a worker what to be ready for."""
        peer = self._peers[gpu]
        peer.state, peer.offset = _State.GREETED, Offset()
        self._tell(gpu, self._setups[gpu])

    def _reported(self, gpu: int, report: Report) -> None:
        peer = self._peers[gpu]
        sent = self._in_flight.get(report.id)
        if sent is None or sent[0] != gpu:
            self.stale += report.id in self._lost_ids  # else heard before, and asked for meanwhile
            return
        if peer.results_to_lose:
            peer.results_to_lose -= 1
            return
        del self._in_flight[report.id]
        _, action, sent_ns = sent
        result = Result(
            action, report.status, report.why, report.start_ns, report.end_ns, report.duration_ns
        )
        if report.error:
            self.device_errors[report.error] += 1
        if type(action) is not Unload and report.status is not Status.FAILED:
            if report.status is Status.MISSED:
                self.missed[_why_missed(action, report)] += 1
            else:
                self.starts.add(report.start_ns - report.ready_ns)
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


def _why_missed(action: Action, report: Report) -> str:
    if report.received_ns > action.latest_ns:
        return "late message"
    return "overrun" if report.ready_ns > action.latest_ns else "late start"
