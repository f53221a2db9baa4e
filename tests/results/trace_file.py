"""Reads a trace back as Perfetto's trace processor does, with the protobufs of its package.

Events are put in order of time, those of one instant as they are in the file. Numbers of words are
looked up. A slice ends where its track says so; a flow leads from event to event.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

FIRST_FLOW = 1


class Event(NamedTuple):
    """A slice, or a mark, whose end is its start. track: (name of its group, its name, uuid)."""

    start_ns: int
    end_ns: int
    track: tuple[str, str, int]
    name: str
    category: str
    notes: dict[str, int | str]


class TraceFile(NamedTuple):
    """A trace. flows: by request, the events in order; ended: requests whose flow was ended."""

    tracks: list[tuple[str, str, int]]
    slices: list[Event]
    marks: list[Event]
    flows: dict[int, list[Event]]
    ended: set[int]

    def on(self, name: str) -> list[Event]:
        """The slices on tracks of that name."""
        return [each for each in self.slices if each.track[1] == name]


def read_trace(path: Path) -> TraceFile:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

    trace = pb.Trace()
    trace.ParseFromString(path.read_bytes())
    descriptors: dict[int, Any] = {}
    words: dict[tuple[str, int], str] = {}
    events = []
    for i, packet in enumerate(trace.packet):
        first = packet.sequence_flags == pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        assert first == (i == 0), "only the first packet forgets the words"
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            for word in getattr(packet.interned_data, kind):
                assert (kind, word.iid) not in words
                words[kind, word.iid] = word.name
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            assert descriptor.uuid not in descriptors
            descriptors[descriptor.uuid] = descriptor
        else:
            event = packet.track_event
            assert event.track_uuid in descriptors, "a track is described before it is used"
            events.append((packet.timestamp, i, event))
    tracks = {
        uuid: (descriptors[each.parent_uuid].name, each.name, uuid)
        for uuid, each in descriptors.items()
        if each.parent_uuid
    }

    slices: list[Event] = []
    marks: list[Event] = []
    flows: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    ended: set[int] = set()
    open_slices: dict[int, int] = {}  # by track, the place in `slices`
    for at_ns, _, event in sorted(events, key=lambda each: each[:2]):
        track = tracks[event.track_uuid]
        if event.type == pb.TrackEvent.TYPE_SLICE_END:
            at = open_slices.pop(event.track_uuid)
            slices[at] = slices[at]._replace(end_ns=at_ns)
            continue
        (category,) = event.category_iids
        made = Event(
            at_ns,
            at_ns,
            track,
            words["event_names", event.name_iid],
            words["event_categories", category],
            {
                words["debug_annotation_names", note.name_iid]: getattr(
                    note, note.WhichOneof("value")
                )
                for note in event.debug_annotations
            },
        )
        is_slice = event.type == pb.TrackEvent.TYPE_SLICE_BEGIN
        if is_slice:
            assert event.track_uuid not in open_slices, f"{made} begins inside of another slice"
            open_slices[event.track_uuid] = len(slices)
        else:
            assert event.type == pb.TrackEvent.TYPE_INSTANT
        into = slices if is_slice else marks
        for flow in (*event.flow_ids, *event.terminating_flow_ids):
            assert flow - FIRST_FLOW not in ended, "a flow goes on after its end"
            flows[flow - FIRST_FLOW].append((len(into), is_slice))
        ended |= {flow - FIRST_FLOW for flow in event.terminating_flow_ids}
        into.append(made)
    assert not open_slices, "a slice has no end"
    return TraceFile(
        tracks=list(tracks.values()),
        slices=slices,
        marks=marks,
        flows={
            flow: [(slices if is_slice else marks)[at] for at, is_slice in steps]
            for flow, steps in flows.items()
        },
        ended=ended,
    )
