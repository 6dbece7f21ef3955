"""Writes Perfetto's TrackEvent format: tracks, slices, counters, flows; encoded by hand.

A trace of 25,000 kernels has some 100,000 packets; building a message object for each takes many
seconds, joining prepared bytes takes a fraction of one. Field numbers are those of
https://github.com/google/perfetto `protos/perfetto/trace/` (trace_packet.proto,
track_event/track_event.proto, track_descriptor.proto, interned_data.proto), which never reuses one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import BinaryIO

# Wire tags: field number << 3 | wire type (0 varint, 1 eight bytes, 2 length and bytes).
_PACKET = b"\x0a"  # Trace.packet = 1
_TIMESTAMP = b"\x40"  # TracePacket.timestamp = 8
_SEQUENCE_ID = b"\x50"  # TracePacket.trusted_packet_sequence_id = 10
_TRACK_EVENT = b"\x5a"  # TracePacket.track_event = 11
_INTERNED_DATA = b"\x62"  # TracePacket.interned_data = 12
_SEQUENCE_FLAGS = b"\x68"  # TracePacket.sequence_flags = 13
_TRACK_DESCRIPTOR = b"\xe2\x03"  # TracePacket.track_descriptor = 60
_TYPE = b"\x48"  # TrackEvent.type = 9
_TRACK = b"\x58"  # TrackEvent.track_uuid = 11
_NAME_ID = b"\x50"  # TrackEvent.name_iid = 10
_ANNOTATION = b"\x22"  # TrackEvent.debug_annotations = 4
_COUNTER_VALUE = b"\xf0\x01"  # TrackEvent.counter_value = 30
_FLOW_ID = b"\xf9\x02"  # TrackEvent.flow_ids = 47, fixed64

_SLICE_BEGIN, _SLICE_END, _COUNTER = 1, 2, 4
_INCREMENTAL_STATE_CLEARED, _NEEDS_INCREMENTAL_STATE = 1, 2
_UNIT_SIZE_BYTES = 3
_CHILDREN_IN_GIVEN_ORDER = 3

_ONE_SEQUENCE = _SEQUENCE_ID + b"\x01"
_STATEFUL = _SEQUENCE_FLAGS + bytes([_NEEDS_INCREMENTAL_STATE])
_EVENT_NAMES, _ANNOTATION_NAMES, _ANNOTATION_STRINGS = 2, 3, 29
"""Fields of InternedData."""

_BUFFER_BYTES = 1 << 20


def varint(number: int) -> bytes:
    """A non-negative integer in protobuf's base-128 form."""
    if number < 128:
        return bytes((number,))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def _number(field: int, value: int) -> bytes:
    return _tag(field, 0) + varint(value & (1 << 64) - 1)


def _message(field: int, body: bytes) -> bytes:
    return _tag(field, 2) + varint(len(body)) + body


class TraceStream:
    """A Perfetto trace being written to a binary stream.

    Strings are interned: each is written once, before its first use. Events of one track must come
    in order of time.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._buffer = bytearray()
        self._tracks = 0
        self._ids: dict[int, dict[str, int]] = {
            _EVENT_NAMES: {},
            _ANNOTATION_NAMES: {},
            _ANNOTATION_STRINGS: {},
        }
        self._new_strings = bytearray()
        self._write(_ONE_SEQUENCE + _SEQUENCE_FLAGS + bytes([_INCREMENTAL_STATE_CLEARED]))

    def process(self, name: str, pid: int) -> int:
        """Describe a process; its track's id. Its children are shown in the order they are added."""
        described = _number(1, pid) + _message(6, name.encode())
        return self._describe(_message(3, described) + _number(11, _CHILDREN_IN_GIVEN_ORDER), None)

    def track(self, name: str, parent: int) -> int:
        """Describe a track of slices; its id."""
        return self._describe(_message(2, name.encode()), parent)

    def byte_counter(self, name: str, parent: int) -> int:
        """Describe a track that shows a number of bytes over time; its id."""
        unit = _message(8, _number(3, _UNIT_SIZE_BYTES))
        return self._describe(_message(2, name.encode()) + unit, parent)

    def annotations(self, values: Mapping[str, str | int]) -> bytes:
        """Encode the arguments of a slice once, for use with many slices."""
        out = bytearray()
        for name, value in values.items():
            body = _number(1, self._id(_ANNOTATION_NAMES, name))
            if isinstance(value, str):
                body += _number(17, self._id(_ANNOTATION_STRINGS, value))
            else:
                body += _number(4, value)
            out += _ANNOTATION + varint(len(body)) + body
        return bytes(out)

    def slice_kind(self, track: int, name: str, annotations: bytes = b"") -> bytes:
        """Encode what slices of one name on one track have in common."""
        name_id = self._id(_EVENT_NAMES, name)
        return (
            _TYPE + bytes([_SLICE_BEGIN]) + _TRACK + varint(track) + _NAME_ID + varint(name_id) + annotations
        )

    def slices(
        self,
        track: int,
        starts_ns: Sequence[int],
        ends_ns: Sequence[int],
        kinds: Sequence[bytes],
        *flows: Sequence[int],
    ) -> None:
        """Write slices of one track, ascending and not overlapping.

        Args:
            track: their track.
            starts_ns, ends_ns: when.
            kinds: `slice_kind` of each.
            flows: ids of the arrows that leave or enter each, 0 for none; any number of such columns.
        """
        self._flush_strings()
        end_event = _TYPE + bytes([_SLICE_END]) + _TRACK + varint(track)
        end_tail = _ONE_SEQUENCE + _TRACK_EVENT + varint(len(end_event)) + end_event
        buffer = self._buffer
        for index, (start_ns, end_ns, kind) in enumerate(zip(starts_ns, ends_ns, kinds, strict=True)):
            event = kind
            for arrows in flows:
                if arrows[index]:
                    event += _FLOW_ID + arrows[index].to_bytes(8, "little")
            begin = b"".join(
                (
                    _TIMESTAMP,
                    varint(start_ns),
                    _ONE_SEQUENCE,
                    _STATEFUL,
                    _TRACK_EVENT,
                    varint(len(event)),
                    event,
                )
            )
            end = _TIMESTAMP + varint(end_ns) + end_tail
            buffer += b"".join((_PACKET, varint(len(begin)), begin, _PACKET, varint(len(end)), end))
            if len(buffer) > _BUFFER_BYTES:
                self._flush()

    def counter(self, track: int, times_ns: Sequence[int], values: Sequence[int]) -> None:
        """Write samples of a counter, ascending in time."""
        head = _TYPE + bytes([_COUNTER]) + _TRACK + varint(track) + _COUNTER_VALUE
        for time_ns, value in zip(times_ns, values, strict=True):
            event = head + varint(value)
            self._write(
                _TIMESTAMP + varint(time_ns) + _ONE_SEQUENCE + _TRACK_EVENT + varint(len(event)) + event
            )

    def close(self) -> None:
        """Write what is still buffered; the stream stays open."""
        self._flush()

    def _describe(self, body: bytes, parent: int | None) -> int:
        self._tracks += 1
        described = _number(1, self._tracks) + body + _number(12, self._tracks)
        if parent is not None:
            described += _number(5, parent)
        self._write(_ONE_SEQUENCE + _TRACK_DESCRIPTOR + varint(len(described)) + described)
        return self._tracks

    def _id(self, table: int, text: str) -> int:
        known = self._ids[table]
        found = known.get(text)
        if found is None:
            found = known[text] = len(known) + 1
            self._new_strings += _message(table, _number(1, found) + _message(2, text.encode()))
        return found

    def _flush_strings(self) -> None:
        if self._new_strings:
            body = bytes(self._new_strings)
            self._new_strings.clear()
            self._write(_ONE_SEQUENCE + _STATEFUL + _INTERNED_DATA + varint(len(body)) + body)

    def _write(self, packet: bytes) -> None:
        self._buffer += _PACKET + varint(len(packet)) + packet
        if len(self._buffer) > _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._out.write(self._buffer)
        self._buffer.clear()
