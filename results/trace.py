"""A run as a trace for the Perfetto UI (https://ui.perfetto.dev): who waited for what, and where.

    GPU 0      execution │ ████ resnet50 x4 ████      one slice per batch that ran
               copy      │      ██ load bert ██       one per load; unloads are marks
               not run   │  ▼                         actions that missed their window or failed
    requests   client 0  │ ▼───────flow──────▼        arrival, then how the request ended

A flow leads from each request's arrival to the batch whose prediction answered it, if one did, and
on to its end. Batches that overlap on a GPU that containers share lie on several tracks of one
name, which the UI draws as one.

The protobuf messages are those of the `perfetto` package (docs/reference/synthetic-track-event in
Perfetto's documentation). Rows are read and written in blocks; what stays in memory is 16 bytes
for each answered request, to find the requests of a batch. The trace processor puts events in
order of time and keeps those of one instant as they are in the file, so arrivals come first, then
actions, then ends: a flow must be met in that order.
Not here: what to choose and where to write (mainspring/trace_cli.py).
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from results.columns import Ints
from results.errors import ResultsError
from results.files import ACTIONS, OUTCOMES, naming, part_of, publish
from results.reader import blocks, read_summary
from scheduler.records import FOREVER

ENDINGS: Final = (".perfetto-trace", ".pftrace")

_BLOCK: Final = 8_192
"""Packets that are kept before they are written."""

_FIRST_FLOW: Final = 1
"""The flow of request 0: in Perfetto's messages 0 often stands for none."""

Progress = Callable[[int, int], None]
"""Called with the rows that are done, and all rows. Requests count twice."""


class Traced(NamedTuple):
    """What a trace shows. slices: actions that ran and took an engine; unloads: those that were
    done; not_run: actions that missed their window or failed before they began."""

    requests: int
    slices: int
    unloads: int
    not_run: int


def write_trace(
    directory: Path,
    path: Path,
    *,
    from_s: float | None = None,
    until_s: float | None = None,
    progress: Progress | None = None,
) -> Traced:
    """Write the trace of a finished run: whole, or not at all.

    from_s, until_s: only what is under way from then to then, in seconds of the run, and the
    batches that served these requests outside of it, so that every flow is complete.
    Raises ResultsError where the directory is no finished run or one of an earlier version, where
    nothing lies in that time, where the file cannot be written or has another ending, and where
    `perfetto` is missing.
    """
    if path.suffix not in ENDINGS:
        raise ResultsError(f"{path}: expected a name that ends with {' or '.join(ENDINGS)}")
    gpus = len(read_summary(directory).gpu_utilisation)
    window = _Window(from_s, until_s, progress)
    packets = _packets()
    part = part_of(path)
    try:
        with naming(path), part.open("wb") as file:
            traced = _write(_Events(file, packets), directory, gpus, window)
        if not traced.requests and not traced.slices:
            raise ResultsError(
                f"{directory}: nothing is under way in that time; expected some of the "
                f"{window.last_ns / 1e9:g} s of this run"
            )
        publish(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return traced


def _packets() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise ResultsError(
            f"traces need {error.name}; install it with pip install 'mainspring[trace]'"
        ) from None
    return perfetto_trace_pb2


class _Window:
    """Which rows are shown, and how far we are."""

    def __init__(
        self, from_s: float | None, until_s: float | None, progress: Progress | None
    ) -> None:
        since_s, until_s = from_s or 0.0, math.inf if until_s is None else until_s
        if since_s < 0:
            raise ResultsError(f"from {since_s:g} s; expected 0, where a run starts, or later")
        if not since_s < until_s:
            raise ResultsError(
                f"from {since_s:g} s until {until_s:g} s; expected an end that is after its start"
            )
        self.start_ns = round(min(since_s * 1e9, FOREVER))
        self.stop_ns = round(min(until_s * 1e9, FOREVER))
        self.last_ns = 0
        """The latest end of any row so far."""
        self.total = 0
        self._done = 0
        self._progress = progress

    def under_way(self, c: Mapping[str, Ints], start: str) -> np.ndarray:
        """Which rows have some part in the window."""
        self.last_ns = max(self.last_ns, int(c["end_ns"].max(initial=0)))
        under_way: np.ndarray = (c[start] < self.stop_ns) & (c["end_ns"] >= self.start_ns)
        return under_way

    def step(self, rows: int) -> None:
        """So many rows more are done."""
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self.total)


def _write(events: "_Events", directory: Path, gpus: int, window: _Window) -> Traced:
    outcomes, actions = blocks(directory / OUTCOMES), blocks(directory / ACTIONS)
    if "action" not in outcomes.columns:
        raise ResultsError(
            f"{directory / OUTCOMES}: does not say which action served a request, for it is of an "
            "earlier version; run it again"
        )
    window.total = 2 * outcomes.rows + actions.rows
    clients = _Clients(events)
    riders = _write_arrivals(events, outcomes.each(), clients, window)
    count = _write_actions(events, actions.each(), gpus, riders, window)
    requests = _write_ends(events, outcomes.each(), clients, window)
    events.flush()
    return Traced(requests, count["slices"], count["unloads"], count["not_run"])


# -- requests --------------------------------------------------------------------------------------


class _Clients:
    """A track for each client, made when its first request comes."""

    def __init__(self, events: "_Events") -> None:
        self._events = events
        self._tracks: dict[int, int] = {}
        self._group = events.track("requests", rank=0)

    def track(self, client: int) -> int:
        """The client's track."""
        track = self._tracks.get(client)
        if track is None:
            track = self._events.track(f"client {client}", self._group, rank=client)
            self._tracks[client] = track
        return track


class _Riders(NamedTuple):
    """The shown requests that a batch answered, in the order of its id."""

    actions: Ints
    requests: Ints

    def spans(self, actions: Ints) -> tuple[Ints, Ints]:
        """Where the requests of each of these actions begin and end."""
        return (
            np.searchsorted(self.actions, actions, "left"),
            np.searchsorted(self.actions, actions, "right"),
        )


def _write_arrivals(
    events: "_Events", tables: Iterator[pa.Table], clients: _Clients, window: _Window
) -> _Riders:
    served: list[Ints] = []
    requests: list[Ints] = []
    for table in tables:
        c = _ints(table, "id", "client", "arrival_ns", "end_ns", "action")
        shown = window.under_way(c, "arrival_ns")
        answered = shown & (c["action"] >= 0)
        served.append(c["action"][answered])
        requests.append(c["id"][answered])
        models = _words(table, "model", shown)
        columns = (c[name][shown].tolist() for name in ("id", "client", "arrival_ns"))
        for model, request, client, at_ns in zip(models, *columns, strict=True):
            events.mark(
                at_ns, clients.track(client), f"arrival: {model}", "arrival",
                {"request": request}, flow=request,
            )  # fmt: skip
        window.step(table.num_rows)
    by_action = np.concatenate([np.zeros(0, np.int64), *served])
    order = np.argsort(by_action, kind="stable")
    return _Riders(by_action[order], np.concatenate([np.zeros(0, np.int64), *requests])[order])


def _write_ends(
    events: "_Events", tables: Iterator[pa.Table], clients: _Clients, window: _Window
) -> int:
    count = 0
    for table in tables:
        c = _ints(table, "id", "client", "arrival_ns", "end_ns", "deadline_ns", "batch")
        shown = window.under_way(c, "arrival_ns")
        words = (_words(table, name, shown) for name in ("model", "outcome", "reason", "kind"))
        columns = (values[shown].tolist() for values in c.values())
        for (model, outcome, reason, kind), numbers in zip(
            zip(*words, strict=True), zip(*columns, strict=True), strict=True
        ):
            request, client, arrival_ns, end_ns, deadline_ns, batch = numbers
            notes: dict[str, int | str] = {"request": request, "latency_ns": end_ns - arrival_ns}
            if deadline_ns < FOREVER:
                notes["left_ns"] = deadline_ns - end_ns
            if batch:
                notes["batch"] = batch
            if kind not in ("none", "prediction"):
                notes["answer"] = kind
            why = "" if reason == "nothing" else f" ({reason})"
            events.mark(
                end_ns, clients.track(client), f"{outcome}{why}: {model}", outcome, notes,
                flow=request, last=True,
            )  # fmt: skip
            count += 1
        window.step(table.num_rows)
    return count


# -- actions ---------------------------------------------------------------------------------------


class _Engine:
    """The tracks of one engine: one, and as many more as batches overlap.

    Actions come in order of their ends; each goes to the track that has been free for the shortest
    time. No other choice needs fewer tracks (Carlisle and Lloyd 1995, k-colouring of intervals).
    """

    def __init__(self, events: "_Events", name: str, group: int, rank: int) -> None:
        self._events = events
        self._about = (name, group, rank)
        self.first = self._add()
        self._free_ns = [-FOREVER]  # ascending
        self._tracks = [self.first]

    def take(self, start_ns: int, end_ns: int) -> int:
        """The track of what runs from then to then."""
        at = bisect_right(self._free_ns, start_ns) - 1
        track = self._add() if at < 0 else self._tracks[at]
        if at >= 0:
            del self._free_ns[at], self._tracks[at]
        at = bisect_right(self._free_ns, end_ns)
        self._free_ns.insert(at, end_ns)
        self._tracks.insert(at, track)
        return track

    def _add(self) -> int:
        name, group, rank = self._about
        return self._events.track(name, group, rank)


class _Gpu:
    """The tracks of one GPU. That of what did not run is made when there is something."""

    def __init__(self, events: "_Events", gpu: int) -> None:
        self._events = events
        self._group = events.track(f"GPU {gpu}", rank=gpu + 1)
        self._execution = _Engine(events, "execution", self._group, 0)
        self._copy = _Engine(events, "copy", self._group, 1)
        self._not_run: int | None = None

    def show(
        self, a: Mapping[str, int], kind: str, model: str, status: str, why: str, flows: list[int]
    ) -> str:
        """Write an action, whose numbers are in `a`; says as what, by the names of `Traced`."""
        name = f"{model} x{a['batch']}" if kind == "infer" else f"{kind} {model}"
        notes = _notes(a, kind, status, why)
        start_ns, end_ns = a["start_ns"], a["end_ns"]
        if status == "done" and kind == "unload":  # is done at once, and takes no engine
            self._events.mark(end_ns, self._copy.first, name, kind, notes)
            return "unloads"
        if status == "done" or end_ns > start_ns:  # else it went wrong while it ran
            engine = self._execution if kind == "infer" else self._copy
            track = engine.take(start_ns, end_ns)
            self._events.slice(start_ns, end_ns, track, name, kind, notes, flows)
            return "slices"
        if self._not_run is None:
            self._not_run = self._events.track("not run", self._group, 2)
        what = "missed window" if status == "missed" else f"{status} ({why})"
        self._events.mark(start_ns, self._not_run, f"{what}: {name}", status, notes)
        return "not_run"


def _notes(a: Mapping[str, int], kind: str, status: str, why: str) -> dict[str, int | str]:
    """What the UI tells of an action, beside its name and times."""
    notes: dict[str, int | str] = {"action": a["id"]}
    if kind == "infer":
        notes["tasks"] = a["tasks"]
    notes |= {"sent_ns": a["sent_ns"], "earliest_ns": a["earliest_ns"]}
    if a["latest_ns"] < FOREVER:
        notes["latest_ns"] = a["latest_ns"]
    if kind != "unload":
        notes["expected_ns"] = a["expected_ns"]
    if status != "done":
        notes["why"] = why
    return notes


def _write_actions(
    events: "_Events", tables: Iterator[pa.Table], gpus: int, riders: _Riders, window: _Window
) -> Counter[str]:
    """How many were written as what."""
    of = [_Gpu(events, gpu) for gpu in range(gpus)]
    count: Counter[str] = Counter()
    for table in tables:
        c = _ints(
            table, "id", "gpu", "batch", "tasks", "earliest_ns", "latest_ns", "expected_ns",
            "sent_ns", "start_ns", "end_ns",
        )  # fmt: skip
        first, last = riders.spans(c["id"])
        shown = window.under_way(c, "start_ns") | (last > first)
        words = (_words(table, name, shown) for name in ("type", "model", "status", "why"))
        columns = (values[shown].tolist() for values in (first, last, *c.values()))
        for texts, (low, high, *numbers) in zip(
            zip(*words, strict=True), zip(*columns, strict=True), strict=True
        ):
            a = dict(zip(c, numbers, strict=True))
            flows = riders.requests[low:high].tolist()
            count[of[a["gpu"]].show(a, *texts, flows)] += 1
        window.step(table.num_rows)
    return count


# -- the file --------------------------------------------------------------------------------------


class _Events:
    """Track events, written in blocks. Words are written once and then known by a number."""

    def __init__(self, file: IO[bytes], packets: Any) -> None:
        self._file = file
        self._pb = packets
        self._trace = packets.Trace()
        self._tracks = 0
        self._words: dict[tuple[str, str], int] = {}
        self._flags = packets.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED

    def track(self, name: str, parent: int = 0, rank: int = 0) -> int:
        """A new track, below another one where parent is not 0. rank: its place there."""
        self._tracks += 1
        descriptor = self._packet().track_descriptor
        descriptor.uuid = self._tracks
        descriptor.name = name
        descriptor.sibling_order_rank = rank
        descriptor.child_ordering = self._pb.TrackDescriptor.EXPLICIT
        if parent:
            descriptor.parent_uuid = parent
        return self._tracks

    def mark(
        self,
        at_ns: int,
        track: int,
        name: str,
        category: str,
        notes: Mapping[str, int | str],
        *,
        flow: int | None = None,
        last: bool = False,
    ) -> None:
        """Something at one instant. flow: of this request; last: and it ends here."""
        event = self._event(at_ns, track, self._pb.TrackEvent.TYPE_INSTANT, name, category, notes)
        if flow is not None:
            (event.terminating_flow_ids if last else event.flow_ids).append(flow + _FIRST_FLOW)

    def slice(
        self,
        start_ns: int,
        end_ns: int,
        track: int,
        name: str,
        category: str,
        notes: Mapping[str, int | str],
        flows: list[int],
    ) -> None:
        """Something that takes time. flows: the requests that it serves."""
        kind = self._pb.TrackEvent
        event = self._event(start_ns, track, kind.TYPE_SLICE_BEGIN, name, category, notes)
        event.flow_ids.extend([flow + _FIRST_FLOW for flow in flows])
        self._bare(end_ns, track, kind.TYPE_SLICE_END)

    def flush(self) -> None:
        """Write what is kept."""
        self._file.write(self._trace.SerializeToString())  # traces end to end are a trace
        self._trace = self._pb.Trace()

    def _event(
        self,
        at_ns: int,
        track: int,
        kind: int,
        name: str,
        category: str,
        notes: Mapping[str, int | str],
    ) -> Any:
        packet, event = self._bare(at_ns, track, kind)
        event.name_iid = self._number(packet, "event_names", name)
        event.category_iids.append(self._number(packet, "event_categories", category))
        for key, value in notes.items():
            note = event.debug_annotations.add()
            note.name_iid = self._number(packet, "debug_annotation_names", key)
            if isinstance(value, str):
                note.string_value = value
            else:
                note.int_value = value
        return event

    def _bare(self, at_ns: int, track: int, kind: int) -> tuple[Any, Any]:
        packet = self._packet()
        packet.timestamp = at_ns
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        return packet, event

    def _packet(self) -> Any:
        if len(self._trace.packet) >= _BLOCK:
            self.flush()
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = 1
        packet.sequence_flags = self._flags
        self._flags = self._pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        return packet

    def _number(self, packet: Any, kind: str, word: str) -> int:
        number = self._words.get((kind, word))
        if number is None:
            number = self._words[kind, word] = len(self._words) + 1
            getattr(packet.interned_data, kind).add(iid=number, name=word)
        return number


def _ints(table: pa.Table, *names: str) -> dict[str, Ints]:
    return {name: table[name].to_numpy().astype(np.int64) for name in names}


def _words(table: pa.Table, name: str, shown: np.ndarray) -> list[str]:
    words: list[str] = table[name].filter(pa.array(shown)).to_pylist()
    return words
