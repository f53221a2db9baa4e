"""The words that every part shares: requests, actions, results, outcomes.

The same records travel in memory, on the wire and in the journal. They hold integers only: times
are nanoseconds since the start of the run, models and lanes are indices into the lists that a
policy gets in `on_start`. This module imports nothing of ours; everyone may import it.
"""

from enum import IntEnum
from typing import Final

import msgspec

FOREVER: Final = 2**63 - 1
"""The end of a window that never closes, and the deadline of a request without an SLO."""

NOMINAL_MHZ: Final = 1380
"""The clock at which durations of profiles hold; what Clockwork locks a V100 to
(docs/environment.md of its artifact)."""

UNKNOWN: Final = -1
"""A time that nobody has told."""


class Request(msgspec.Struct, gc=False):
    """One question of one client.

    arrival_ns: when the client sent it. deadline_ns: when the answer must be with the client.
    client: who sent it, an index that the workload gives.
    cold: whether no GPU held the model when the controller admitted the request.
    key: which input it brings, for a prediction cache; -1 where inputs are not told apart.
    """

    id: int
    model: int
    arrival_ns: int
    deadline_ns: int
    client: int = 0
    cold: bool = False
    key: int = -1


class Load(msgspec.Struct, tag=True, gc=False):
    """Copy a model's weights to the GPU of a lane. The times are those of `Infer`."""

    id: int
    lane: int
    model: int
    earliest_ns: int
    latest_ns: int
    expected_ns: int
    expected_end_ns: int = UNKNOWN


class Unload(msgspec.Struct, tag=True, gc=False):
    """Give a model's pages back."""

    id: int
    lane: int
    model: int
    earliest_ns: int
    latest_ns: int
    expected_ns: int
    expected_end_ns: int = UNKNOWN


class Infer(msgspec.Struct, tag=True, gc=False):
    """Run one batch of a model that is already on the GPU.

    batch: the size that is executed and charged; at least len(tasks).
    earliest_ns, latest_ns: the window in which it may start, both ends included.
    expected_ns: how long the policy believes it takes.
    expected_end_ns: when the policy believes it ends; UNKNOWN if it does not say.
    """

    id: int
    lane: int
    model: int
    batch: int
    tasks: tuple[int, ...]
    earliest_ns: int
    latest_ns: int
    expected_ns: int
    expected_end_ns: int = UNKNOWN


Action = Load | Unload | Infer


class Status(IntEnum):
    """What became of an action. Every action gets exactly one."""

    DONE = 0
    MISSED = 1
    """It could not start inside its window, so it did not start."""
    FAILED = 2
    """It could not start for another reason (`Why`), or it went wrong."""
    LOST = 3
    """Nobody knows, or ever will: its worker is gone, or it never came to its worker."""


class Why(IntEnum):
    """Why an action was not done."""

    NOTHING = 0
    WINDOW = 1
    NOT_LOADED = 2
    ALREADY_LOADED = 3
    NO_PAGES = 4
    IN_USE = 5
    NO_SPACE = 6
    """Enough pages are free, but not side by side, where a model has to lie in one piece."""
    DEVICE_ERROR = 7
    """It started, and went wrong on the device."""
    SENT_TOO_LATE = 8
    """It waited too long for the link, and was not sent (Clockwork's networkSendTooLate)."""
    WORKER_LOST = 9
    """Its worker went away before there was a result. It may have run."""
    MESSAGE_LOST = 10
    """It never came to its worker, so it did not run. The worker is well."""


class Result(msgspec.Struct, gc=False):
    """What a worker did with an action.

    start_ns, end_ns: by the controller's clock; equal for an action that did not run.
    duration_ns: what the device itself measured.
    clock_mhz: of the GPU's cores meanwhile; NOMINAL_MHZ where it is not known to be another.
    values: what the model says to each task, a label; empty where answers are not simulated.
    """

    action: Action
    status: Status
    why: Why
    start_ns: int
    end_ns: int
    duration_ns: int
    clock_mhz: int = NOMINAL_MHZ
    values: tuple[int, ...] = ()


class Feedback(msgspec.Struct, gc=False):
    """What would have been right, some time after the answer. client: whose request it was."""

    request: int
    client: int
    truth: int


class Change(IntEnum):
    """What may become of a worker."""

    LOST = 0
    """It crashed, left, or has been silent for too long. What was on it is gone."""
    BACK = 1
    """It is there, and empty."""


class WorkerChange(msgspec.Struct, frozen=True, gc=False):
    """A worker has gone, or come back. gpu: which one.

    When it has gone, a result with `Status.LOST` follows at once for each action outstanding on
    it; until it is back, the ledger refuses actions for its lanes.
    """

    gpu: int
    change: Change


class Outcome(IntEnum):
    """How a request ended. Every request ends exactly once."""

    OK = 0
    """Answered by its deadline."""
    LATE = 1
    """Answered after it."""
    REJECTED = 2
    TIMED_OUT = 3
    FAILED = 4
    UNFINISHED = 5
    """The run stopped first."""


class Reason(IntEnum):
    """Why a policy gave a request up. `OUTCOME_OF` says how such a request ended."""

    NOTHING = 0
    CANNOT_START_IN_TIME = 1
    """No GPU is free early enough to finish it by its deadline."""
    SKIPPED = 2
    """A batch went ahead that would have been too late for it."""
    CANNOT_LOAD_IN_TIME = 3
    """The model is on no GPU, and loading it would take too long."""
    DEADLINE = 4
    """Its time ran out while it waited."""
    MISSED_WINDOW = 5
    """It was in a batch that the worker could not start in time."""
    WORKER_FAILED = 6
    """It was in a batch that failed at the worker."""
    WORKER_LOST = 7
    """It was in a batch that was lost with its worker, or on the way to it. It is not tried again,
    for it may have run."""
    QUEUE_FULL = 8
    """As many as may wait did."""


OUTCOME_OF: Final[dict[Reason, Outcome]] = {
    Reason.NOTHING: Outcome.REJECTED,
    Reason.CANNOT_START_IN_TIME: Outcome.REJECTED,
    Reason.SKIPPED: Outcome.REJECTED,
    Reason.CANNOT_LOAD_IN_TIME: Outcome.REJECTED,
    Reason.DEADLINE: Outcome.TIMED_OUT,
    Reason.MISSED_WINDOW: Outcome.FAILED,
    Reason.WORKER_FAILED: Outcome.FAILED,
    Reason.WORKER_LOST: Outcome.FAILED,
    Reason.QUEUE_FULL: Outcome.REJECTED,
}

REASON_OF: Final[dict[Status, Reason]] = {
    Status.MISSED: Reason.MISSED_WINDOW,
    Status.FAILED: Reason.WORKER_FAILED,
    Status.LOST: Reason.WORKER_LOST,
}
"""Why a policy gives up the requests of a batch that was not done, if it gives them up."""


class AnswerKind(IntEnum):
    """What stands behind an answer."""

    NONE = 0
    """There was no answer."""
    PREDICTION = 1
    CACHED = 2
    """The prediction for an equal input."""
    DEFAULT = 3
    """What the application gave for the case that there is none in time; no prediction."""
    PARTIAL = 4
    """What some members of an ensemble say, without those that were too late."""


class Refusal(IntEnum):
    """Why the ledger refused an action that a policy emitted. A refused action changes nothing."""

    UNKNOWN_LANE = 0
    UNKNOWN_MODEL = 1
    UNKNOWN_BATCH = 2
    """The model's profile has no such batch size."""
    TOO_MANY_TASKS = 3
    """More tasks than the batch has places, or none."""
    UNKNOWN_REQUEST = 4
    """Never seen, or already ended."""
    TASK_IN_FLIGHT = 5
    """Another action carries it."""
    NOT_SERVED = 6
    """A prediction for a request that no finished batch has carried."""
    BAD_WINDOW = 7
    """The window closes before it opens, or closed in the past."""
    WAKE_IN_THE_PAST = 8
    WRONG_MODEL = 9
    """The request asks for another model than the batch runs."""
    ALREADY_SERVED = 10
    """A finished batch has carried it; it waits to be answered."""
    UNKNOWN_REASON = 11
    WORKER_LOST = 12
    """The worker of this lane is gone."""


class GpuInfo(msgspec.Struct, frozen=True):
    """One GPU as a policy may know it. lanes: the lanes on it; pages: its room for weights."""

    id: int
    lanes: tuple[int, ...]
    pages: int


class ModelInfo(msgspec.Struct, frozen=True):
    """One model as a policy may know it before the first measurement.

    pages: room that its weights take. batch_sizes: what was measured, ascending.
    load_ns, exec_ns: what the profile expects (its 99th percentile); exec_ns is in the order of
    batch_sizes. input_bytes, output_bytes: a request's payload.
    """

    id: int
    name: str
    pages: int
    load_ns: int
    batch_sizes: tuple[int, ...]
    exec_ns: tuple[int, ...]
    input_bytes: int = 0
    output_bytes: int = 0


REQUEST_COLUMNS: Final = (
    "id", "model", "client", "arrival_ns", "deadline_ns", "end_ns",
    "outcome", "reason", "kind", "gpu", "batch", "cold", "action",
)  # fmt: skip
"""A world hands each request's fate to its sink as a tuple in this order. gpu is -1 and batch 0
where no GPU served it; where members of an ensemble did, gpu is -1 and batch is how many of them.
outcome, reason and kind are the enums above. action is the id of the batch whose prediction was the
answer, -1 where there was none, or several."""

ACTION_COLUMNS: Final = (
    "id", "type", "gpu", "model", "batch", "tasks", "earliest_ns", "latest_ns", "expected_ns",
    "sent_ns", "start_ns", "end_ns", "duration_ns", "status", "why", "expected_end_ns", "clock_mhz",
)  # fmt: skip
"""The same for actions. type is the record's name in lower case; tasks is their number."""
