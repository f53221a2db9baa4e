"""The controller's books: what a policy may do, and how every request ends exactly once.

`Actions` is the `out` of a policy. It believes nothing: an action that names an unknown or ended
request, a task already in flight, an unknown lane, model or batch size, is refused with a
`Refusal`, counted, and changes nothing. What passes lies in `sent`, `ended` and `wakes` until the
world takes it. `Controller` feeds a policy its events and keeps the books beside it.

The same two objects run in the simulation and in the live controller.
Not here: time, messages, and the controller's own service time.
"""

from collections.abc import Hashable, Iterable

import numpy as np
from mypy_extensions import mypyc_attr

from scheduler.policy import Policy
from scheduler.records import (
    OUTCOME_OF,
    UNKNOWN,
    Action,
    AnswerKind,
    Change,
    Feedback,
    GpuInfo,
    Infer,
    Load,
    ModelInfo,
    Reason,
    Refusal,
    Request,
    Result,
    Status,
    Unload,
    Why,
    WorkerChange,
)

Ended = tuple[Request, AnswerKind, Reason, int, int, int]
"""A request that the policy ended: the answer's kind, the reason if there is no answer, and the
GPU, the batch size and the action that served it (-1, 0 and -1 where none did; -1, how many members
of an ensemble did, and -1)."""


MEMBERS = -(2**62)
"""Where the ids of an ensemble's tasks begin: below 0, and far from what a mistake gives."""


def member_of(task: int, models: int) -> tuple[int, int]:
    """(request, model) of a task that `Actions.task_of` made; it is below 0."""
    return divmod(task - MEMBERS, models)


class Actions:
    """What a policy may do. Every method returns at once; nothing has happened yet when it does."""

    def __init__(self, gpus: tuple[GpuInfo, ...], models: tuple[ModelInfo, ...]) -> None:
        self.now_ns = 0
        self.sent: list[tuple[int, Action]] = []
        """(GPU, action) in the order of emission."""
        self.ended: list[Ended] = []
        self.wakes: list[tuple[int, Hashable]] = []
        self.refusals = [0] * len(Refusal)
        self.live: dict[int, Request] = {}
        """Requests that have not ended."""
        self.work: dict[int, Infer | Result] = {}
        """What carries a task: the action while in flight, its result once done."""
        self.members: dict[int, list[int]] = {}
        """Tasks that were sent for a request to models of an ensemble."""
        self.gpu_of_lane = {lane: gpu.id for gpu in gpus for lane in gpu.lanes}
        self.lost: set[int] = set()
        """GPUs whose workers are gone."""
        self._batch_sizes = [frozenset(model.batch_sizes) for model in models]
        self._next_id = 0

    def load(
        self,
        lane: int,
        model: int,
        earliest_ns: int,
        latest_ns: int,
        expected_ns: int,
        expected_end_ns: int = UNKNOWN,
    ) -> int | None:
        """Copy a model's weights to the GPU of `lane`. Returns the action's id, None if refused."""
        return self._move(Load, lane, model, earliest_ns, latest_ns, expected_ns, expected_end_ns)

    def unload(self, lane: int, model: int, earliest_ns: int, latest_ns: int) -> int | None:
        """Free a model's pages on the GPU of `lane`. Returns the action's id, None if refused."""
        return self._move(Unload, lane, model, earliest_ns, latest_ns, 0, UNKNOWN)

    def infer(
        self,
        lane: int,
        model: int,
        batch: int,
        tasks: tuple[int, ...],
        earliest_ns: int,
        latest_ns: int,
        expected_ns: int,
        expected_end_ns: int = UNKNOWN,
    ) -> int | None:
        """Run one batch. Returns the action's id, None if refused.

        batch: the size that is executed and charged; at least len(tasks).
        tasks: ids of the requests that ride in it, or what `task_of` gives.
        expected_ns, expected_end_ns: how long it takes and when it ends, as the policy believes.
        """
        gpu = self._check(lane, model, earliest_ns, latest_ns)
        if gpu is None:
            return None
        if batch not in self._batch_sizes[model]:
            return self._refuse(Refusal.UNKNOWN_BATCH)
        count = len(tasks)
        if not 0 < count <= batch:
            return self._refuse(Refusal.TOO_MANY_TASKS)
        if count > 1 and len(set(tasks)) < count:
            return self._refuse(Refusal.TASK_IN_FLIGHT)
        live, work = self.live, self.work
        for task in tasks:
            request = live.get(task)
            if request is None:
                request_id, member = member_of(task, len(self._batch_sizes))
                if task >= 0 or request_id not in live:
                    return self._refuse(Refusal.UNKNOWN_REQUEST)
                if member != model:
                    return self._refuse(Refusal.WRONG_MODEL)
            elif request.model != model:
                return self._refuse(Refusal.WRONG_MODEL)
            if task in work:
                riding = type(work[task]) is Infer
                return self._refuse(Refusal.TASK_IN_FLIGHT if riding else Refusal.ALREADY_SERVED)
        action_id = self._next_id
        self._next_id = action_id + 1
        action = Infer(
            action_id, lane, model, batch, tasks, earliest_ns, latest_ns, expected_ns,
            expected_end_ns,
        )  # fmt: skip
        for task in tasks:
            work[task] = action
            if task < 0:
                self.members.setdefault(member_of(task, len(self._batch_sizes))[0], []).append(task)
        self.sent.append((gpu, action))
        return action_id

    def task_of(self, request_id: int, model: int) -> int:
        """A task for a request and any model, whichever the request names: for ensembles."""
        return MEMBERS + request_id * len(self._batch_sizes) + model

    def served_by(self, request_id: int) -> int:
        """How many members of an ensemble have made a prediction for a request so far."""
        work = self.work
        return sum([type(work.get(task)) is Result for task in self.members.get(request_id, ())])

    def answer_with(self, request_id: int, asked: int) -> bool:
        """Answer a request with what members of an ensemble have made so far.

        asked: how many there are. With fewer predictions the answer is PARTIAL; with none it is
        refused. Returns whether it was accepted.
        """
        done = self.served_by(request_id)
        if not done:
            known = request_id in self.live
            self._refuse(Refusal.NOT_SERVED if known else Refusal.UNKNOWN_REQUEST)
            return False
        kind = AnswerKind.PREDICTION if done >= asked else AnswerKind.PARTIAL
        self._forget(request_id)
        self.ended.append((self.live.pop(request_id), kind, Reason.NOTHING, -1, done, -1))
        return True

    def answer_without(
        self, request_id: int, kind: AnswerKind, reason: Reason = Reason.NOTHING
    ) -> bool:
        """Answer a request with what no batch of its own has made: cached, or the default.

        reason: why there is no prediction. Returns whether it was accepted.
        """
        if kind is AnswerKind.NONE or kind is AnswerKind.PREDICTION:
            self._refuse(Refusal.NOT_SERVED)
            return False
        request = self.live.pop(request_id, None)
        if request is None:
            self._refuse(Refusal.UNKNOWN_REQUEST)
            return False
        self._forget(request_id)
        self.ended.append((request, kind, reason, -1, 0, -1))
        return True

    def answer(self, request_id: int) -> bool:
        """Send a request's prediction to its client. Returns whether it was accepted."""
        served = self.work.get(request_id)
        if type(served) is not Result:
            known = request_id in self.live
            self._refuse(Refusal.NOT_SERVED if known else Refusal.UNKNOWN_REQUEST)
            return False
        del self.work[request_id]
        if self.members:
            self._forget(request_id)
        action = served.action
        assert type(action) is Infer
        self.ended.append(
            (
                self.live.pop(request_id),
                AnswerKind.PREDICTION,
                Reason.NOTHING,
                self.gpu_of_lane[action.lane],
                action.batch,
                action.id,
            )
        )
        return True

    def reject(self, request_id: int, reason: Reason) -> bool:
        """End a request without an answer. Returns whether it was accepted."""
        if reason not in OUTCOME_OF:
            self._refuse(Refusal.UNKNOWN_REASON)
            return False
        request = self.live.pop(request_id, None)
        if request is None:
            self._refuse(Refusal.UNKNOWN_REQUEST)
            return False
        self._forget(request_id)
        self.ended.append((request, AnswerKind.NONE, reason, -1, 0, -1))
        return True

    def wake_at(self, at_ns: int, key: Hashable) -> bool:
        """Ask for `on_wake(key)` at a later time. A new time for a key replaces the old one."""
        if at_ns <= self.now_ns:
            self._refuse(Refusal.WAKE_IN_THE_PAST)
            return False
        self.wakes.append((at_ns, key))
        return True

    def _move(
        self,
        kind: type[Load] | type[Unload],
        lane: int,
        model: int,
        earliest_ns: int,
        latest_ns: int,
        expected_ns: int,
        expected_end_ns: int,
    ) -> int | None:
        gpu = self._check(lane, model, earliest_ns, latest_ns)
        if gpu is None:
            return None
        action_id = self._next_id
        self._next_id = action_id + 1
        action = kind(action_id, lane, model, earliest_ns, latest_ns, expected_ns, expected_end_ns)
        self.sent.append((gpu, action))
        return action_id

    def _check(self, lane: int, model: int, earliest_ns: int, latest_ns: int) -> int | None:
        gpu = self.gpu_of_lane.get(lane)
        if gpu is None:
            return self._refuse(Refusal.UNKNOWN_LANE)
        if gpu in self.lost:
            return self._refuse(Refusal.WORKER_LOST)
        if not 0 <= model < len(self._batch_sizes):
            return self._refuse(Refusal.UNKNOWN_MODEL)
        if latest_ns < earliest_ns or latest_ns < self.now_ns:
            return self._refuse(Refusal.BAD_WINDOW)
        return gpu

    def _forget(self, request_id: int) -> None:
        """A request ends: what its tasks still do is nobody's."""
        self.work.pop(request_id, None)
        if self.members:
            for task in self.members.pop(request_id, ()):
                self.work.pop(task, None)

    def _refuse(self, why: Refusal) -> int | None:
        """Count a refusal; None, which is what its caller returns."""
        self.refusals[why] += 1
        return None


def lost(action: Action, now_ns: int, why: Why) -> Result:
    """The result of an action of which nobody will hear again."""
    return Result(action, Status.LOST, why, now_ns, now_ns, 0)


@mypyc_attr(allow_interpreted_subclasses=True)
class Controller:
    """A policy and its books. A world calls the handlers, then empties `out`'s lists."""

    def __init__(
        self,
        policy: Policy,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
    ) -> None:
        self.policy = policy
        self.out = Actions(gpus, models)
        self.admitted = 0
        self.gpus = gpus
        self.models = models
        self._rng = rng
        self._copies = [0] * len(models)
        self._resident: list[set[int]] = [set() for _ in gpus]

    def start(self, now_ns: int) -> None:
        """Introduce the cluster to the policy."""
        self.out.now_ns = now_ns
        self.policy.on_start(now_ns, self.gpus, self.models, self._rng, self.out)

    def request(self, now_ns: int, request: Request) -> None:
        """Admit a request."""
        out = self.out
        out.now_ns = now_ns
        assert request.id not in out.live, f"request {request.id} arrived twice"
        request.cold = not self._copies[request.model]
        out.live[request.id] = request
        self.admitted += 1
        self.policy.on_request(now_ns, request, out)

    def result(self, now_ns: int, result: Result) -> None:
        """Take a worker's report."""
        out = self.out
        out.now_ns = now_ns
        action = result.action
        done = result.status is Status.DONE
        if type(action) is Infer:
            work = out.work
            for task in action.tasks:
                # A request that ended meanwhile has no entry any more.
                if work.get(task) is action:
                    if done:
                        work[task] = result
                    else:
                        del work[task]
        elif done:
            resident = self._resident[out.gpu_of_lane[action.lane]]
            if type(action) is Load:
                resident.add(action.model)
                self._copies[action.model] += 1
            else:
                resident.discard(action.model)
                self._copies[action.model] -= 1
        self.policy.on_result(now_ns, result, out)

    def worker(self, now_ns: int, change: WorkerChange) -> None:
        """A worker has gone or come back. The world reports next what was outstanding on it.

        A policy that has no `on_worker` hears of lost actions only, and of those it may not send.
        """
        out = self.out
        out.now_ns = now_ns
        if change.change is Change.LOST:
            assert change.gpu not in out.lost, f"worker {change.gpu} was lost twice"
            out.lost.add(change.gpu)
            resident = self._resident[change.gpu]
            for model in resident:
                self._copies[model] -= 1
            resident.clear()
        else:
            out.lost.remove(change.gpu)
        on_worker = getattr(self.policy, "on_worker", None)
        if on_worker is not None:
            on_worker(now_ns, change, out)

    def wake(self, now_ns: int, key: Hashable) -> None:
        """The time has come that the policy asked for."""
        self.out.now_ns = now_ns
        self.policy.on_wake(now_ns, key, self.out)

    def feedback(self, now_ns: int, feedback: Feedback) -> None:
        """What would have been right, for a policy that learns."""
        self.out.now_ns = now_ns
        learn = getattr(self.policy, "on_feedback", None)
        if learn is not None:
            learn(now_ns, feedback, self.out)

    def stop(self) -> Iterable[Request]:
        """The run is over: hand out the requests that have not ended, in order of admission."""
        left = list(self.out.live.values())
        self.out.live.clear()
        self.out.work.clear()
        self.out.members.clear()
        return left
