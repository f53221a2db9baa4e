"""Clipper's upper half: which models answer a request, and what is learned from feedback.

All models of a run answer the same question, and which one a request names does not matter:

    clipper-exp3    one model a request, drawn by weight
    clipper-exp4    all of them, combined by weight: an ensemble

Below is the prototype (clipper.py, AIMD, a queue for each container). A request becomes a task for
each model that is asked. With `defaults`, what is there at the deadline is the answer: stragglers
are not waited for, the answer is partial, and where nothing is there it is the default. Without,
a request waits for all of its tasks (the paper's "blocking").

Labels come with the results where a world simulates them, and feedback some time after the answer;
it is put to what was said then, with the probabilities of then. Weights are kept for each client.
Sources: the paper, sections 5.1 and 5.2; scheduler/selection.py has the rules.
"""

from collections.abc import Hashable, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta

from scheduler.ledger import Actions, member_of
from scheduler.policies.clipper import ClipperAimd, PrototypeParams
from scheduler.records import Feedback, GpuInfo, ModelInfo, Reason, Request, Result
from scheduler.selection import Draw, Exp3, Exp4, Exp4Rule, Vote


class SelectionParams(PrototypeParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both have besides."""

    eta: Annotated[
        float,
        Meta(
            gt=0,
            le=10,
            description="how fast weights follow the losses",
            extra={"source": "Clipper, pull request 48"},
        ),
    ] = 0.01
    remember: Annotated[
        int,
        Meta(
            ge=1,
            le=10**8,
            description="for how many answers feedback is still taken",
            extra={"unit": "requests", "source": "ours, so that memory is bounded"},
        ),
    ] = 100_000


class Exp4Params(SelectionParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Exp4 has besides."""

    rule: Annotated[
        Literal["loss", "label"],
        Meta(
            description="loss: each model's loss over its share; label: the label is drawn, and "
            "its loss weighed by its probability",
            extra={"source": "Clipper, pull request 48; the notebook of the paper's figure 8"},
        ),
    ] = "loss"


class _Asked:
    """A request under way. left: models that have not said anything yet."""

    __slots__ = ("labels", "left", "request", "what")

    def __init__(self, request: Request, models: int, left: int, what: Draw | None) -> None:
        self.request = request
        self.labels: list[int | None] = [None] * models
        self.left = left
        self.what = what


class _Choosing(ClipperAimd):
    """What both share."""

    CHOOSES: ClassVar[bool] = True

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.cache = None  # it knows models, and not who combines them
        self.judged = 0
        """How many answers feedback came for; `right`: how many of them were right."""
        self.right = 0
        self._eta = params.eta
        self._remember = params.remember
        self._asked: dict[int, _Asked] = {}
        self._said: dict[int, tuple[Any, _Asked]] = {}  # by request, until feedback comes
        self._states: dict[Hashable, Any] = {}

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: Actions,
    ) -> None:
        self._all = range(len(models))
        super().on_start(now_ns, gpus, models, rng, out)

    def state(self, client: int) -> Any:
        """A client's weights."""
        state = self._states.get(client)
        if state is None:
            state = self._states[client] = self.fresh()
        return state

    def fresh(self) -> Any:
        """Weights of a client that is new."""
        raise NotImplementedError

    def choose(self, client: int) -> tuple[Sequence[int], Draw | None]:
        """The models to ask."""
        raise NotImplementedError

    def conclude(self, asked: _Asked) -> Any:
        """What the answer is, from what was said."""
        raise NotImplementedError

    def learn(self, answer: Any, asked: _Asked, truth: int) -> bool:
        """Feedback on an answer. Returns whether it was right."""
        raise NotImplementedError

    def on_feedback(self, now_ns: int, feedback: Feedback, out: Actions) -> None:
        said = self._said.pop(feedback.request, None)
        if said is not None:
            self.judged += 1
            self.right += self.learn(*said, feedback.truth)

    def _push(self, now_ns: int, request: Request, out: Actions) -> None:
        models, what = self.choose(request.client)
        self._asked[request.id] = _Asked(request, len(self._all), len(models), what)
        for model in models:
            self._push_to(now_ns, request, model, out)

    def _take(self, result: Result, tasks: tuple[int, ...], out: Actions) -> None:
        values = result.values or (None,) * len(tasks)
        for task, label in zip(tasks, values, strict=True):
            self._heard(task, label, out)

    def _give_up(self, task: int, out: Actions, reason: Reason = Reason.WORKER_FAILED) -> None:
        self._heard(task, None, out)

    def _heard(self, task: int, label: int | None, out: Actions) -> None:
        """A model has said something, or never will."""
        request_id, model = member_of(task, len(self._all))
        asked = self._asked.get(request_id)
        if asked is None:
            return  # answered without it
        asked.labels[model] = label
        asked.left -= 1
        if not asked.left:
            self._end(asked, Reason.WORKER_FAILED, out)

    def _default(self, request: Request, out: Actions) -> None:
        asked = self._asked.get(request.id)
        if asked is None:  # its deadline was over before it came
            super()._default(request, out)
        else:
            self._end(asked, Reason.DEADLINE, out)

    def _end(self, asked: _Asked, reason: Reason, out: Actions) -> None:
        """Answer with what is there; reason: why there is nothing, if so."""
        request = asked.request
        del self._asked[request.id]
        if not out.served_by(request.id):
            if reason is Reason.DEADLINE:
                super()._default(request, out)
            else:
                del self._open[request.id]
                out.reject(request.id, reason)
            return
        del self._open[request.id]
        out.answer_with(request.id, len(self._all) if asked.what is None else 1)
        if any(label is not None for label in asked.labels):
            self._said[request.id] = self.conclude(asked), asked
            if len(self._said) > self._remember:
                del self._said[next(iter(self._said))]


class ClipperExp3(_Choosing):
    """One model a request, drawn by weight."""

    Params = SelectionParams

    def fresh(self) -> Exp3:
        return Exp3(len(self._all), self._eta)

    def choose(self, client: int) -> tuple[Sequence[int], Draw | None]:
        draw = self.state(client).select(self._rng)
        return (draw.model,), draw

    def conclude(self, asked: _Asked) -> int:
        assert asked.what is not None
        label = asked.labels[asked.what.model]
        assert label is not None
        return label

    def learn(self, answer: int, asked: _Asked, truth: int) -> bool:
        self.state(asked.request.client).observe(asked.what, float(answer != truth))
        return answer == truth


class ClipperExp4(_Choosing):
    """All models, combined by weight."""

    Params = Exp4Params

    def __init__(self, params: Exp4Params) -> None:
        super().__init__(params)
        self.confidence = 0.0
        """Sum over the answers of the share of members that agree."""
        self._rule = Exp4Rule(params.rule)

    def fresh(self) -> Exp4:
        return Exp4(len(self._all), self._eta, self._rule)

    def choose(self, client: int) -> tuple[Sequence[int], Draw | None]:
        return self._all, None

    def conclude(self, asked: _Asked) -> Vote:
        vote: Vote = self.state(asked.request.client).combine(asked.labels, self._rng)
        self.confidence += vote.confidence
        return vote

    def learn(self, answer: Vote, asked: _Asked, truth: int) -> bool:
        self.state(asked.request.client).observe(answer, asked.labels, truth)
        return answer.label == truth
