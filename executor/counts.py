"""What /metrics and the protocol's statistics say: a sink that sees every row of a run.

The rows are those that go to the results, so that the two cannot differ.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as Total
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from executor.wire import Condition
from scheduler.records import (
    ACTION_COLUMNS,
    REQUEST_COLUMNS,
    Outcome,
    Reason,
    Status,
    Why,
)

_R: Final = {name: i for i, name in enumerate(REQUEST_COLUMNS)}
_A: Final = {name: i for i, name in enumerate(ACTION_COLUMNS)}
_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128)

_CONDITION: Final = {
    "clock_hertz": "Of the cores, at the last look.",
    "temperature_celsius": "At the last look.",
    "throttled": "1 where the device said at the last look that it is slowed down.",
    "memory_used_bytes": "By weights, at the last look.",
}


class Counts:
    """Counters of one server. models: their names; pages_of_model, pages_of_gpu: by index."""

    def __init__(
        self, models: Sequence[str], pages_of_model: Sequence[int], pages_of_gpu: Sequence[int]
    ) -> None:
        self._models, self._pages_of_model = models, pages_of_model
        self._of = [_Model() for _ in models]
        self._registry = registry = CollectorRegistry()
        self._requests = Total(
            "mainspring_requests", "Requests that ended.", ["model", "outcome", "reason"],
            registry=registry,
        )  # fmt: skip
        self._latency = Histogram(
            "mainspring_latency_seconds", "From arrival to answer.", ["model"], buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self._actions = Total(
            "mainspring_actions", "Loads, unloads and batches by their end.",
            ["type", "status", "why"], registry=registry,
        )  # fmt: skip
        self._batch = Histogram(
            "mainspring_batch_size", "Executed batch sizes.", buckets=_BATCHES, registry=registry
        )
        self._refused = Total(
            "mainspring_http_refused", "Posts that ended in an error.", ["reason"],
            registry=registry,
        )  # fmt: skip
        self._connections = Gauge(
            "mainspring_http_connections", "Open connections.", registry=registry
        )
        self._held = Gauge(
            "mainspring_http_held_bytes", "Bodies, and answers not yet taken.", registry=registry
        )
        self._cut_off = Total(
            "mainspring_http_cut_off", "Connections that were refused, or closed on the client.",
            ["reason"], registry=registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "mainspring_waiting_requests", "Requests in the system.", registry=registry
        )
        self._pages = Gauge("mainspring_pages_used", "By weights.", ["gpu"], registry=registry)
        size = Gauge("mainspring_pages", "A GPU's room for weights.", ["gpu"], registry=registry)
        self._condition = {
            name: Gauge(f"mainspring_gpu_{name}", text, ["gpu"], registry=registry)
            for name, text in _CONDITION.items()
        }
        for gpu, pages in enumerate(pages_of_gpu):
            size.labels(gpu).set(pages)
            self._pages.labels(gpu).set(0)

    def request(self, row: tuple[int, ...]) -> None:
        """A request ended. row: in the order of REQUEST_COLUMNS."""
        model, outcome = row[_R["model"]], Outcome(row[_R["outcome"]])
        end_ns = row[_R["end_ns"]]
        latency_ns = end_ns - row[_R["arrival_ns"]]
        name = self._models[model]
        reason = Reason(row[_R["reason"]]).name.lower()
        self._requests.labels(name, outcome.name.lower(), reason).inc()
        of = self._of[model]
        if outcome in (Outcome.OK, Outcome.LATE):
            self._latency.labels(name).observe(latency_ns / 1e9)
            of.answered += 1
            of.answered_ns += latency_ns
        else:
            of.failed += 1
            of.failed_ns += latency_ns

    def action(self, row: tuple[Any, ...]) -> None:
        """An action ended. row: in the order of ACTION_COLUMNS."""
        kind, model = row[_A["type"]], row[_A["model"]]
        status = Status(row[_A["status"]])
        self._actions.labels(kind, status.name.lower(), Why(row[_A["why"]]).name.lower()).inc()
        if status is not Status.DONE:
            return
        if kind == "infer":
            batch, tasks, ns = row[_A["batch"]], row[_A["tasks"]], row[_A["duration_ns"]]
            self._batch.observe(batch)
            of = self._of[model]
            of.batches[batch] += 1
            of.batches_ns[batch] += ns
            of.computed += tasks
            of.computed_ns += tasks * ns
        else:
            pages = self._pages_of_model[model]
            self._pages.labels(row[_A["gpu"]]).inc(pages if kind == "load" else -pages)

    def worker_lost(self, gpu: int) -> None:
        """Its memory is empty, and nobody tells how its device is."""
        self._pages.labels(gpu).set(0)
        for gauge in self._condition.values():
            with suppress(KeyError):  # it has told nothing yet
                gauge.remove(gpu)

    def condition(self, gpu: int, now: Condition) -> None:
        """How a GPU's device is. What it can't say has no line."""
        told = {
            "clock_hertz": None if now.clock_mhz is None else now.clock_mhz * 1e6,
            "temperature_celsius": now.temperature_c,
            "throttled": bool(now.throttled),
            "memory_used_bytes": now.memory_used_bytes,
        }
        for name, value in told.items():
            if value is not None:
                self._condition[name].labels(gpu).set(value)

    def waiting(self, requests: int) -> None:
        """How many requests are in the system now."""
        self._waiting.set(requests)

    def refused(self, reason: str) -> None:
        """A post ended in an error."""
        self._refused.labels(reason).inc()

    def connections(self, open_: int) -> None:
        """How many connections are open now."""
        self._connections.set(open_)

    def held(self, size: int) -> None:
        """How many bytes clients make the server hold now."""
        self._held.set(size)

    def cut_off(self, reason: str) -> None:
        """A connection was refused, or had to be closed."""
        self._cut_off.labels(reason).inc()

    def exposition(self) -> tuple[bytes, str]:
        """All of it as Prometheus reads it, and the media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def stats(self, model: int, name: str) -> dict[str, Any]:
        """A model's numbers as the protocol's statistics extension has them.

        Inputs and outputs are part of the inference here, so they take no time of their own;
        perf_analyzer wants them counted as often.
        """
        of = self._of[model]
        return {
            "name": name,
            "version": "1",
            "last_inference": 0,
            "inference_count": of.computed,
            "execution_count": of.batches.total(),
            "inference_stats": {
                "success": {"count": of.answered, "ns": of.answered_ns},
                "fail": {"count": of.failed, "ns": of.failed_ns},
                "queue": {
                    "count": of.answered,
                    "ns": max(0, of.answered_ns - of.computed_ns),
                },
                **_compute(of.computed, of.computed_ns),
            },
            "batch_stats": [
                {"batch_size": batch, **_compute(count, of.batches_ns[batch])}
                for batch, count in sorted(of.batches.items())
            ],
        }


def _compute(count: int, ns: int) -> dict[str, Any]:
    nothing = {"count": count, "ns": 0}
    return {
        "compute_input": nothing,
        "compute_infer": {"count": count, "ns": ns},
        "compute_output": nothing,
    }


class _Model:
    def __init__(self) -> None:
        self.answered = self.answered_ns = self.failed = self.failed_ns = 0
        self.computed = self.computed_ns = 0
        self.batches: Counter[int] = Counter()
        self.batches_ns: Counter[int] = Counter()
