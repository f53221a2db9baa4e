"""What a policy is: events in, actions out.

A policy is a plain object. It has no clock, no I/O, no threads, and no randomness but the
generator that it is handed; so it cannot tell whether the GPUs are simulated or real.

    class MyPolicy:
        class Params(msgspec.Struct, forbid_unknown_fields=True): ...
        def __init__(self, params: Params) -> None: ...

and the handlers below. `now_ns` is the moment at which the controller begins to handle the event.
One that learns has `on_feedback(now_ns, feedback, out)` too: what would have been right, where a
world knows that (records.Feedback).
"""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from scheduler.records import GpuInfo, ModelInfo, Request, Result, WorkerChange

if TYPE_CHECKING:
    from scheduler.ledger import Actions


class Policy(Protocol):
    """The handlers of a policy. Each may call `out` any number of times."""

    def on_start(
        self,
        now_ns: int,
        gpus: tuple[GpuInfo, ...],
        models: tuple[ModelInfo, ...],
        rng: np.random.Generator,
        out: "Actions",
    ) -> None:
        """Learn the cluster and the models, before anything else happens."""

    def on_request(self, now_ns: int, request: Request, out: "Actions") -> None:
        """A request was admitted."""

    def on_result(self, now_ns: int, result: Result, out: "Actions") -> None:
        """A worker reported what became of an action."""

    def on_wake(self, now_ns: int, key: Hashable, out: "Actions") -> None:
        """The time asked for with `out.wake_at(at_ns, key)` has come."""


class StandsLoss(Protocol):
    """What a policy has besides if workers may go away and come back; all of ours have it."""

    def on_worker(self, now_ns: int, change: WorkerChange, out: "Actions") -> None:
        """A worker has gone, and all that was on it; or it is back, and empty.

        After a loss `on_result` is called with `Status.LOST` for each action outstanding there,
        before anything else happens.
        """
