"""The live controller with clients in front of it: arrivals come over HTTP instead of a workload.

Policy, books, workers and rows are those of `executor/controller.py`. A request is admitted when
its post has been read, and its row, the one that goes to the results, is what its client is told.
The HTTP server runs in the controller's own loop.
Not here: what is on the wire (executor/front.py), files and processes (mainspring/serve.py).
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from executor.address import is_open
from executor.controller import LiveCluster
from executor.counts import Counts
from executor.front import Answer, Limits, build_app
from executor.oip import Refused, ServedModel
from executor.server import HttpServer
from executor.tensors import packed, unpacked
from executor.wire import Condition, Do, Report, Tensor
from scheduler.records import (
    FOREVER,
    REQUEST_COLUMNS,
    Action,
    Infer,
    Outcome,
    Reason,
    Request,
)
from scheduler.rows import Sink

_NOTHING: Final = {"output": np.zeros(0, np.uint8)}
"""What a model that spins has computed."""
_R: Final = {name: i for i, name in enumerate(REQUEST_COLUMNS)}


class Service(LiveCluster):
    """One live run whose requests come over HTTP; its arguments are LiveCluster's, and these.

    served: the models as clients see them; real: which of them compute anything, and so are given
    their inputs and asked for their outputs. counts: what /metrics says. Build it, start workers,
    call `serve` once.
    """

    def __init__(
        self,
        *,
        served: Sequence[ServedModel],
        real: Sequence[bool],
        sink: Sink,
        counts: Counts,
        limits: Limits,
        host: str,
        port: int,
        on_start: Callable[[str], None],
        **run: Any,
    ) -> None:
        self._futures: dict[int, Future[Answer]] = {}  # by request
        self._inputs: dict[int, dict[str, Tensor]] = {}  # of real models
        self._outputs: dict[int, dict[str, Tensor]] = {}
        self._real = real
        told = _Told(sink, counts, self._futures, self._inputs)
        super().__init__(chunks=iter(()), slo_ns=(), sink=told, **run)
        self._served = served
        self._counts = counts
        app = build_app(served, self, counts, limits, local=not is_open(f"{host}:{port}"))
        self._http = HttpServer(app, host, port, limits, counts)
        self._on_start = on_start

    def serve(self, drain_ns: int) -> None:
        """Serve until a signal, and until what is in flight then has ended.

        drain_ns: how long actions may still take once every client has its answer.
        Raises LiveError where the workers do not come up.
        """
        self._drain_ns = drain_ns
        self.run(FOREVER // 2, 0)

    def why_not_ready(self) -> str:
        """Nothing where a worker serves; else why not, in one line."""
        if self.serving:
            return ""
        return "every worker is lost; a lost one is started again, so try again"

    async def submit(
        self, model: int, slo_ns: int | None, inputs: Mapping[str, np.ndarray]
    ) -> Answer:
        """Ask the policy; the answer is the request's one end. slo_ns: None is the model's."""
        if slo_ns is None:
            slo_ns = self._served[model].slo_ns
        now_ns = self.now_ns
        deadline_ns = FOREVER if slo_ns is None else now_ns + slo_ns
        request = Request(self.arrived, model, now_ns, deadline_ns, 0)
        self.arrived += 1
        client: Future[Answer] = asyncio.get_running_loop().create_future()
        self._futures[request.id] = client
        if not self._real[model]:
            self._guarded(partial(self._enter, now_ns, request))
            return (await client)._replace(outputs=_NOTHING)
        self._inputs[request.id] = packed(inputs)
        try:
            self._guarded(partial(self._enter, now_ns, request))
            answer = await client
            if answer.outcome not in (Outcome.OK, Outcome.LATE):
                return answer
            return answer._replace(outputs=self._checked(model, self._outputs.get(request.id, {})))
        finally:
            self._outputs.pop(request.id, None)

    def _checked(self, model: int, outputs: Mapping[str, Tensor]) -> Mapping[str, np.ndarray]:
        """What the worker has sent, where it is what clients are promised."""
        promised = {
            spec.name: (spec.datatype, list(spec.shape)) for spec in self._served[model].outputs
        }
        if not outputs:
            raise Refused(500, "no_output", "the policy answered without running the model")
        if {name: (one.datatype, one.shape) for name, one in outputs.items()} != promised:
            raise Refused(500, "bad_output", "the model gave other tensors than its metadata says")
        try:
            return unpacked(outputs)
        except ValueError as error:
            raise Refused(500, "bad_output", f"the worker sent no tensor: {error}") from None

    def _enter(self, now_ns: int, request: Request) -> None:
        self.controller.request(now_ns, request)
        self._settle(now_ns)
        self._flush()
        self._call_for_timers()

    def _send(self, gpu: int, offset_ns: int, actions: list[Action]) -> None:
        """Send actions to a worker, those of real models with their inputs, each alone."""
        for action in actions:
            tasks = action.tasks if isinstance(action, Infer) else ()
            inputs = [self._inputs[task] for task in tasks if task in self._inputs]
            # An ensemble's tasks are no requests, and go without.
            whole = len(inputs) == len(tasks)
            self._tell(gpu, Do(offset_ns, [action], inputs if whole else []))

    def _told(self, gpu: int, condition: Condition) -> None:
        super()._told(gpu, condition)
        self._counts.condition(gpu, condition)

    def _reported(self, gpu: int, report: Report) -> None:
        sent = self._in_flight.get(report.id)
        if sent is not None and sent[0] == gpu and isinstance(sent[1], Infer):
            for task, outputs in zip(sent[1].tasks, report.outputs, strict=False):
                if task in self._inputs:
                    self._outputs[task] = outputs
        super()._reported(gpu, report)

    async def _serve(self, end_ns: int, drain_ns: int, watch: Callable[[int], bool]) -> bool:
        http = asyncio.create_task(self._http.serve(self._on_start))
        answered_ns = FOREVER

        def over(now_ns: int) -> bool:
            nonlocal answered_ns
            if not http.done():
                return False
            answered_ns = min(answered_ns, now_ns)
            idle = not (self._out.live or self._in_flight)
            return idle or now_ns > answered_ns + self._drain_ns

        try:
            return await super()._serve(end_ns, drain_ns, over)
        finally:
            for client in self._futures.values():
                if not client.done():
                    client.set_result(Answer(Outcome.UNFINISHED, Reason.NOTHING, 0, 0, {}))
            self._http.stop()
            await http


class _Told:
    """A sink that tells clients and counts what it writes down."""

    def __init__(
        self,
        sink: Sink,
        counts: Counts,
        futures: dict[int, Future[Answer]],
        inputs: dict[int, dict[str, Tensor]],
    ) -> None:
        self._sink, self._counts, self._futures, self._inputs = sink, counts, futures, inputs

    def request(self, row: tuple[int, ...]) -> None:
        """A request ended."""
        self._sink.request(row)
        self._counts.request(row)
        self._inputs.pop(row[_R["id"]], None)
        client = self._futures.pop(row[_R["id"]])
        if not client.done():  # else it was told that the run is over
            outcome = Outcome(row[_R["outcome"]])
            latency_ns = row[_R["end_ns"]] - row[_R["arrival_ns"]]
            reason = Reason(row[_R["reason"]])
            client.set_result(Answer(outcome, reason, latency_ns, row[_R["batch"]], {}))

    def action(self, row: tuple[object, ...]) -> None:
        """An action ended."""
        self._sink.action(row)
        self._counts.action(row)

    def worker_lost(self, gpu: int, at_ns: int) -> None:
        """A GPU's worker is gone, and what was on it."""
        self._sink.worker_lost(gpu, at_ns)
        self._counts.worker_lost(gpu)
