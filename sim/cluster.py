"""The simulated cluster: clients, a controller, GPUs, and the messages between them.

    source ──request──► controller ──action──► GPU
       ▲                 │      ▲                │
       └──────answer─────┘      └─────result─────┘

The controller is a server with an inbox: an event waits until the polling loop sees it
(`poll_ns`) and until the controller is free; what the policy emits leaves after the decision's
cost. Everything else is a delay, fixed or drawn for each message (`sim/drawn.py`); on one way
nothing overtakes. Time is SimPy's, in integer nanoseconds.

This is the hot path: one SimPy event a request and a handful an action, callbacks in place of
processes (see `benchmarks/`).
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from mypy_extensions import mypyc_attr

from scheduler.journal import Record, Recorder
from scheduler.ledger import Controller, Ended, member_of
from scheduler.policy import Policy
from scheduler.records import (
    FOREVER,
    Action,
    AnswerKind,
    Feedback,
    GpuInfo,
    Infer,
    ModelInfo,
    Request,
    Result,
    Status,
    Why,
)
from scheduler.rows import Sink, write_action, write_ended, write_unfinished
from sim.answers import Answers
from sim.clock import Clock
from sim.drawn import Drawn
from sim.gpu import ModelCost, SimGpu, Stream
from sim.link import Link, LinkParams, Uplink
from sim.trouble import Trouble
from workloads.closed import MIN_RETRY_NS, Client


class Delays(NamedTuple):
    """The platform's delays, in ns."""

    client_to_controller_ns: int = 0
    poll_ns: int = 0
    """How long an event lies in the inbox until the controller's loop looks there."""
    wake_ns: int = 0
    """How much later than that a moment is noticed that the policy asked for."""
    controller_to_worker_ns: int = 0
    worker_gap_ns: int = 0
    """How long an engine is idle between two actions."""
    worker_to_controller_ns: int = 0
    load_to_controller_ns: int | None = None
    """Of loads and unloads, where that is not the same."""
    controller_to_client_ns: int = 0
    decision_per_event_ns: int = 0
    """The controller's own time for an event, and for each action that comes of it."""
    decision_per_action_ns: int = 0


class OpenLoop(NamedTuple):
    """Arrivals that do not depend on the answers.

    chunks: (times_ns, models, streams), arrays of equal length in order of time.
    slo_ns: by stream and model.
    """

    chunks: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]
    slo_ns: Sequence[Sequence[int]]


class Truth(NamedTuple):
    """What models say, and when clients tell whether it was right.

    feedback_ns: how long after the answer; FOREVER if they never do.
    """

    answers: Answers
    feedback_ns: int = FOREVER


class Gpu(Protocol):
    """A GPU, exclusive or shared."""

    trouble: Trouble | None

    def submit(self, now_ns: int, action: Action) -> None:
        """An action has arrived."""

    def crash(self) -> None:
        """Its worker dies."""


GpuKind = Callable[
    [Clock, int, Sequence[ModelCost], int | Stream, np.random.Generator, Callable[[Result], None]],
    Gpu,
]


def _rows(
    chunk: tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> Iterator[tuple[int, int, int, int]]:
    inbox, (sent, models, streams) = chunk
    return zip(inbox.tolist(), sent.tolist(), models.tolist(), streams.tolist(), strict=True)


@mypyc_attr(allow_interpreted_subclasses=True)
class Cluster:
    """One run. Build it, call `run` once.

    costs: what each model costs, in the order of `models`.
    rngs: one generator for each GPU's durations. policy_rng: what the policy may draw from.
    record: is given every step of the controller's, for a journal.
    keys: which input each request brings, in the order of arrival, for prediction caches.
    gpu_kind: makes a GPU, with the arguments of SimGpu; or one for each GPU.
    link: what batches' inputs go over; without it they take no time.
    truth: what models say to the requests, for policies that choose among them.
    uplinks: by client, what it shares with others, and how long its input takes there, in ns.
    drawn: what varies of the delays, and comes on top of the constant part in `delays`.
    """

    def __init__(
        self,
        policy: Policy,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        costs: Sequence[ModelCost],
        delays: Delays,
        arrivals: OpenLoop,
        clients: Sequence[Client],
        sink: Sink,
        rngs: Sequence[np.random.Generator],
        policy_rng: np.random.Generator,
        record: Callable[[Record], None] | None = None,
        keys: Iterator[int] | None = None,
        gpu_kind: GpuKind | Sequence[GpuKind] = SimGpu,
        link: LinkParams | None = None,
        truth: Truth | None = None,
        uplinks: Mapping[int, tuple[Uplink, int]] = MappingProxyType({}),
        drawn: Drawn | None = None,
    ) -> None:
        self.env = Clock()
        self._truth = truth
        self._model_count = len(models)
        self._keys = keys
        self.controller = (
            Controller(policy, gpus, models, policy_rng)
            if record is None
            else Recorder(policy, gpus, models, policy_rng, record)
        )
        self._out = self.controller.out
        self.arrived = 0
        """Requests that clients have sent."""
        self.turned_away: Counter[int] = Counter()
        """By closed-loop client, how often it was given up sooner than its model can answer."""
        self._delays = delays
        self._drawn = drawn
        self._arrivals = arrivals
        self._clients = {client.id: client for client in clients}
        self._soonest_ns = [min(model.exec_ns) for model in models]
        self._uplinks = uplinks
        self._sink = sink
        kinds = gpu_kind if isinstance(gpu_kind, Sequence) else [gpu_kind] * len(gpus)
        gap = drawn.worker_gap if drawn and drawn.worker_gap else delays.worker_gap_ns
        self._make_gpu = [
            partial(kind, self.env, gpu.pages, costs, gap, rng, self._report)
            for kind, gpu, rng in zip(kinds, gpus, rngs, strict=True)
        ]
        self._gpus: list[Gpu] = [make() for make in self._make_gpu]
        self._link = Link(self.env, link, self._through, self._unsent) if link else None
        self._sent_ns: dict[int, int] = {}  # by action id
        self._wakes: dict[Hashable, int] = {}  # key -> the latest time asked for
        self._inbox: deque[tuple[Callable[[int, Any], None], object]] = deque()
        self._busy_until_ns = 0
        self._to_inbox_ns = delays.client_to_controller_ns + delays.poll_ns
        self._result_ns = self._load_ns = delays.worker_to_controller_ns + delays.poll_ns
        if delays.load_to_controller_ns is not None:
            self._load_ns = delays.load_to_controller_ns + delays.poll_ns
        self._has_cost = bool(delays.decision_per_event_ns or delays.decision_per_action_ns)
        self._varies = drawn is not None or self._load_ns != self._result_ns
        """Whether messages take different times; then none may overtake another on its way."""
        # By GPU, when its last message arrives, if it varies.
        self._last_there_ns = [0] * len(gpus)
        self._last_back_ns = [0] * len(gpus)

    def run(self, end_ns: int, drain_ns: int) -> None:
        """Run until every request that arrives before end_ns has ended, or drain_ns after it.

        Requests that are left then are written as unfinished.
        """
        env = self.env
        self.controller.start(env.now)
        self._settle(env.now)
        # One after the other, without a step of Python's in between: when it comes to the inbox and
        # when it was sent, in ns, its model and its stream.
        # (A generator expression in place of `map` becomes a list of the whole run if compiled.)
        self._coming: Iterator[tuple[int, int, int, int]] = chain.from_iterable(
            map(_rows, self._in_inbox(self._arrivals.chunks))
        )
        self._expect()
        for client in self._clients.values():
            self._ask_at(client, client.start_ns)
        try:
            env.run_to(end_ns + drain_ns)
        finally:
            unseen = [event for _, event in self._inbox if isinstance(event, Request)]
            write_unfinished(self._sink, (*self.controller.stop(), *unseen), env.now)

    # ---- clients

    def _in_inbox(
        self, chunks: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]
    ) -> Iterator[tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
        """When each request comes to the inbox, with its chunk."""
        last_ns = 0
        for chunk in chunks:
            times_ns = chunk[0] + self._to_inbox_ns
            if self._drawn is not None and self._drawn.client_to_controller and len(times_ns):
                times_ns += self._drawn.client_to_controller.draw_ns(len(times_ns))
                times_ns = np.maximum(np.maximum.accumulate(times_ns), last_ns)
                last_ns = int(times_ns[-1])
            yield times_ns, chunk

    def _expect(self) -> None:
        """Call for the first request of the open loop."""
        self._next = coming = next(self._coming, None)
        if coming is not None:
            self._call_for_next(coming[0])

    def _call_for_next(self, at_ns: int) -> None:
        """At one instant what a worker or the controller has to say comes before new requests:
        traces with whole milliseconds tie all the time."""
        self.env.call_last_in(at_ns - self.env.now, self._arrivals_due)

    def _arrivals_due(self, now_ns: int) -> None:
        """Hand over a request, and those behind it until something else happens."""
        assert self._next is not None
        self._arrive(*self._next)
        for coming in self._coming:
            if not self.env.skip_to(coming[0]):
                self._next = coming
                self._call_for_next(coming[0])
                return
            self._arrive(*coming)

    def _arrive(self, now_ns: int, at_ns: int, model: int, stream: int) -> None:
        """A request that was sent at at_ns has come to the inbox."""
        slo_ns = self._arrivals.slo_ns[stream][model]
        deadline_ns = at_ns + slo_ns if slo_ns < FOREVER else FOREVER
        request = Request(self.arrived, model, at_ns, deadline_ns, stream)
        if self._keys is not None:
            request.key = next(self._keys)
        self.arrived += 1
        if self._has_cost:
            self._handle(now_ns, self.controller.request, request)
            return
        self.controller.request(now_ns, request)
        out = self._out
        if out.ended or out.sent or out.wakes:
            self._settle(now_ns)

    def _ask_at(self, client: Client, at_ns: int) -> None:
        if at_ns < client.until_ns:
            if client.id in self._uplinks:
                uplink, input_ns = self._uplinks[client.id]
                at_ns = uplink.through_ns(at_ns, input_ns)
            delay_ns = at_ns + self._to_inbox_ns - self.env.now
            if self._drawn is not None and self._drawn.client_to_controller:
                delay_ns += self._drawn.client_to_controller.next_ns()
            self.env.call_last_in(delay_ns, partial(self._ask, client, at_ns))

    def _ask(self, client: Client, at_ns: int, now_ns: int) -> None:
        deadline_ns = at_ns + client.slo_ns if client.slo_ns < FOREVER else FOREVER
        request = Request(self.arrived, client.model, at_ns, deadline_ns, client.id)
        if self._keys is not None:
            request.key = next(self._keys)
        self.arrived += 1
        self._handle(now_ns, self.controller.request, request)

    def _ask_again(self, ended: Sequence[Ended], end_ns: int) -> None:
        """Closed-loop clients whose requests have ended."""
        for request, kind, *_ in ended:
            client = self._clients.get(request.client)
            if client is not None:
                answered = kind is not AnswerKind.NONE
                if not answered and end_ns - request.arrival_ns < self._soonest_ns[client.model]:
                    self.turned_away[client.id] += 1
                wait_ns = client.wait_ns(answered)
                self._ask_at(client, max(end_ns + wait_ns, self.env.now + MIN_RETRY_NS))

    # ---- controller

    def _handle(self, now_ns: int, handler: Callable[[int, Any], None], event: object) -> None:
        """An event has been seen in the inbox: handle it when the controller is free."""
        if self._has_cost and (self._inbox or now_ns < self._busy_until_ns):
            self._inbox.append((handler, event))
            if len(self._inbox) == 1:
                self._call_when_free()
            return
        handler(now_ns, event)
        self._settle(now_ns)

    def _call_when_free(self) -> None:
        self.env.call_in(self._busy_until_ns - self.env.now, self._next_event)

    def _next_event(self, now_ns: int) -> None:
        handler, what = self._inbox.popleft()
        handler(now_ns, what)
        self._settle(now_ns)
        if self._inbox:
            self._call_when_free()

    def _settle(self, now_ns: int) -> None:
        """Carry out what the policy has emitted."""
        out = self._out
        delays = self._delays
        cost_ns = 0
        if self._has_cost:
            cost_ns = delays.decision_per_event_ns + delays.decision_per_action_ns * (
                len(out.sent) + len(out.ended)
            )
            self._busy_until_ns = now_ns + cost_ns
        if out.sent:
            self._send(now_ns, cost_ns)
        if out.ended:
            end_ns = now_ns + cost_ns + delays.controller_to_client_ns
            write_ended(self._sink, out.ended, end_ns)
            if self._clients:
                self._ask_again(out.ended, end_ns)
            if self._truth is not None:
                self._tell_truth(self._truth, out.ended, end_ns)
            out.ended.clear()
        if out.wakes:
            for at_ns, key in out.wakes:
                self._wakes[key] = at_ns
                delay_ns = at_ns + delays.poll_ns + delays.wake_ns - now_ns
                if self._drawn is not None and self._drawn.wake:
                    delay_ns += self._drawn.wake.next_ns()
                self.env.call_in(delay_ns, partial(self._wake, at_ns, key))
            out.wakes.clear()

    def _send(self, now_ns: int, cost_ns: int) -> None:
        """Send the actions that the policy has emitted."""
        sent_ns = now_ns + cost_ns
        message_ns = self._there_ns()
        for gpu, action in self._out.sent:
            self._sent_ns[action.id] = sent_ns
            if self._link is None:
                self._go(now_ns, cost_ns, message_ns, gpu, action)
            elif cost_ns:
                self.env.call_in(cost_ns, partial(self._over_link, gpu, action))
            else:
                self._link.send(now_ns, gpu, action)
        self._out.sent.clear()

    def _go(self, now_ns: int, cost_ns: int, message_ns: int, gpu: int, action: Action) -> None:
        """An action leaves in cost_ns, and is with its GPU message_ns later."""
        there_ns = now_ns + cost_ns + message_ns
        if self._varies:
            self._last_there_ns[gpu] = there_ns = max(there_ns, self._last_there_ns[gpu])
        if there_ns > now_ns:
            self.env.call_in(there_ns - now_ns, partial(self._deliver, gpu, action))
        else:
            self._gpus[gpu].submit(now_ns, action)

    def _there_ns(self) -> int:
        """How long a message to a worker takes. All that one decision emits goes together."""
        there_ns = self._delays.controller_to_worker_ns
        if self._drawn is not None and self._drawn.controller_to_worker:
            there_ns += self._drawn.controller_to_worker.next_ns()
        return there_ns

    def _back_ns(self, action: Action) -> int:
        """How long its result takes until the controller looks at it."""
        drawn = self._drawn
        if type(action) is Infer:
            back_ns, stream = self._result_ns, drawn and drawn.worker_to_controller
        else:
            back_ns, stream = self._load_ns, drawn and drawn.load_to_controller
        return back_ns + stream.next_ns() if stream else back_ns

    def _tell_truth(self, truth: Truth, ended: Sequence[Ended], end_ns: int) -> None:
        """Clients say what would have been right, to answers and to defaults alike."""
        if truth.feedback_ns == FOREVER:
            return
        delay_ns = end_ns + truth.feedback_ns - self.env.now
        for request, *_ in ended:
            right = truth.answers.truth(request.id)
            feedback = Feedback(request.id, request.client, right)
            self.env.call_in(delay_ns, partial(self._feedback, feedback))

    def _feedback(self, feedback: Feedback, now_ns: int) -> None:
        self._handle(now_ns, self.controller.feedback, feedback)

    def _wake(self, at_ns: int, key: Hashable, now_ns: int) -> None:
        if self._wakes.get(key) == at_ns:  # otherwise replaced
            del self._wakes[key]
            self._handle(now_ns, self.controller.wake, key)

    # ---- the link to the workers

    def _over_link(self, gpu: int, action: Action, now_ns: int) -> None:
        assert self._link is not None
        self._link.send(now_ns, gpu, action)

    def _through(self, gpu: int, action: Action) -> None:
        """All of an action is through the link."""
        self._go(self.env.now, 0, self._there_ns(), gpu, action)

    def _unsent(self, action: Action) -> None:
        """An action was not sent, and the controller learns of it."""
        now_ns = self.env.now
        self._hear(now_ns, Result(action, Status.MISSED, Why.SENT_TOO_LATE, now_ns, now_ns, 0))

    def _hear(self, now_ns: int, result: Result) -> None:
        """The controller learns what became of an action that no worker speaks of."""
        action = result.action
        sent_ns = self._sent_ns.pop(action.id)
        write_action(self._sink, result, self._out.gpu_of_lane[action.lane], sent_ns)
        self._handle(now_ns, self.controller.result, result)

    # ---- workers

    def _deliver(self, gpu: int, action: Action, now_ns: int) -> None:
        self._gpus[gpu].submit(now_ns, action)

    def _report(self, result: Result) -> None:
        """A worker has sent a result."""
        action = result.action
        if self._truth is not None:
            self._say(self._truth, result)
        sent_ns = self._sent_ns.pop(action.id)
        gpu = self._out.gpu_of_lane[action.lane]
        write_action(self._sink, result, gpu, sent_ns)
        delay_ns = self._result_ns
        if self._varies:
            now_ns = self.env.now
            self._last_back_ns[gpu] = max(now_ns + self._back_ns(action), self._last_back_ns[gpu])
            delay_ns = self._last_back_ns[gpu] - now_ns
        self.env.call_in(delay_ns, partial(self._receive, result))

    def _say(self, truth: Truth, result: Result) -> None:
        """Put into a result what the model says."""
        action = result.action
        if type(action) is Infer and result.status is Status.DONE:
            says, model = truth.answers.says, action.model
            result.values = tuple([says(self._request_of(task), model) for task in action.tasks])

    def _request_of(self, task: int) -> int:
        return task if task >= 0 else member_of(task, self._model_count)[0]

    def _receive(self, result: Result, now_ns: int) -> None:
        self._handle(now_ns, self.controller.result, result)
