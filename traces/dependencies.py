"""Which earlier operations each operation must follow, found while the trace streams by.

Data dependencies, on the bytes of each storage: a reader follows the last writers of what it
reads; a writer follows those and the readers since (write after read). Control dependencies:

- device work follows the previous operation of its stream, and the last operation that held the
  issuing host thread (the host issues in order, but does not wait for what it issued);
- a stream's or the host's wait follows the event's record, or the communication it waits for;
- a stream or device synchronisation follows the last operation of each stream concerned;
- host operations follow each other. Where another thread takes over, it follows that thread too:
  the order of issue is the order seen, and a backward pass runs on autograd's own thread.

All dependencies are on smaller ids, so the graph cannot have a cycle. Memory is bounded by the
live storages and the streams: readers are kept once a stream (the stream's order implies the
earlier ones), freed storages are dropped, and old events and handles fold into one per stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from maya.traces.operations import Kind, Role

HOST_KINDS = frozenset({Kind.HOST, Kind.MARKER, Kind.EVENT_SYNC, Kind.STREAM_SYNC, Kind.DEVICE_SYNC})
"""Kinds that run on the host alone; everything else is queued on a stream."""

_EVENT_RECORD = int(Kind.EVENT_RECORD)
_STREAM_WAIT = int(Kind.STREAM_WAIT)
_EVENT_SYNC = int(Kind.EVENT_SYNC)
_STREAM_SYNC = int(Kind.STREAM_SYNC)
_DEVICE_SYNC = int(Kind.DEVICE_SYNC)
_WAIT = int(Kind.WAIT)
_READ = int(Role.READ)

MAX_LIVE_MARKS = 65_536
"""Events and handles remembered one by one; see `_Marks`."""

Stream = tuple[int, int]
"""(device, stream id): stream ids are only unique on a device."""

Segment = tuple[int, int, dict[Stream, int], dict[Stream, int]]
"""(first byte, end byte, last writers, last readers), the last two once for each stream."""

MAX_SEGMENTS = 64
"""Byte ranges followed apart within one storage. Beyond, they fold into one that keeps the last
writer and reader of each stream: the stream's order still implies the others."""


class _Marks:
    """Event id (or handle) → the operation that set it, bounded.

    The oldest are forgotten beyond MAX_LIVE_MARKS; whoever still waits for one of those follows the
    youngest forgotten of every stream instead: more than needed, never less.
    """

    def __init__(self) -> None:
        self._set: dict[tuple[int, int], tuple[int, Stream]] = {}
        self._forgotten: dict[Stream, int] = {}

    def put(self, mark: tuple[int, int], operation: int, stream: Stream) -> None:
        self._set.pop(mark, None)  # so that the dictionary's order is the order of setting
        self._set[mark] = (operation, stream)
        if len(self._set) > MAX_LIVE_MARKS:
            oldest = next(iter(self._set))
            operation, stream = self._set.pop(oldest)
            self._forgotten[stream] = operation

    def follow(self, mark: tuple[int, int], dependencies: set[int]) -> None:
        found = self._set.get(mark)
        if found is not None:
            dependencies.add(found[0])
        elif self._forgotten:
            dependencies.update(self._forgotten.values())


class DependencyTracker:
    """Finds the dependencies of operations fed in issue order.

    Attributes:
        live_storages: how many storages are being followed.
    """

    def __init__(self) -> None:
        self._storages: dict[int, list[Segment]] = {}
        self._last_of_stream: dict[Stream, int] = {}
        self._last_of_host: dict[int, int] = {}
        self._last_thread = 0
        self._events = _Marks()
        self._handles = _Marks()
        self._frees: deque[tuple[int, int]] = deque()

    @property
    def live_storages(self) -> int:
        """How many storages are being followed."""
        return len(self._storages)

    def free(self, storages: Sequence[int], operations: Sequence[int]) -> None:
        """Storages that are gone once the operations before the given ids are through (ascending)."""
        self._frees.extend(zip(operations, storages, strict=True))

    def control(
        self,
        operation: int,
        kind: int,
        stream: Stream,
        event: int,
        handle: tuple[int, int] | None,
        thread: int,
        blocking: int,
    ) -> set[int]:
        """Control dependencies of the next operation, which this also enters.

        Args:
            operation: its id, greater than every one before.
            kind: of `Kind`.
            stream: device and stream it is queued on.
            event: event id or -1.
            handle: (communicator, asynchronous handle) it sets or waits for; None without one.
            thread: issuing host thread.
            blocking: 1 if the host waits for it.
        """
        found: set[int] = set()
        hosts = self._last_of_host
        last = hosts.get(thread)
        if last is not None:
            found.add(last)
        if thread != self._last_thread:
            last = hosts.get(self._last_thread)
            if last is not None:
                found.add(last)
            self._last_thread = thread
        on_host = kind in HOST_KINDS
        if not on_host:
            last = self._last_of_stream.get(stream)
            if last is not None:
                found.add(last)
            self._last_of_stream[stream] = operation
            if kind == _EVENT_RECORD:
                self._events.put((event, 0), operation, stream)
            elif kind == _STREAM_WAIT:
                self._events.follow((event, 0), found)
            if handle is not None:
                if kind == _WAIT:
                    self._handles.follow(handle, found)
                else:
                    self._handles.put(handle, operation, stream)
        elif kind == _EVENT_SYNC:
            self._events.follow((event, 0), found)
        elif kind == _STREAM_SYNC:
            last = self._last_of_stream.get(stream)
            if last is not None:
                found.add(last)
        elif kind == _DEVICE_SYNC:
            device = stream[0]
            found.update(last for other, last in self._last_of_stream.items() if other[0] == device)
        if on_host or blocking:
            hosts[thread] = operation
        return found

    def data(
        self,
        operation: int,
        stream: Stream,
        storages: Sequence[int],
        offsets: Sequence[int],
        extents: Sequence[int],
        roles: Sequence[int],
    ) -> set[int]:
        """Data dependencies of the next operation of the device, whose uses this also enters.

        Operations of the host (views, allocations) are not for this: they look at no data, and a
        dependency would make the host wait for the device.

        Args:
            operation: its id.
            stream: device and stream it is queued on.
            storages: storage id of each tensor; -1 (host memory) is not followed.
            offsets: first byte of each tensor within its storage.
            extents: bytes from there to the end of its last element.
            roles: of `Role`.
        """
        found: set[int] = set()
        while self._frees and self._frees[0][0] <= operation:
            self._storages.pop(self._frees.popleft()[1], None)
        for storage, start, extent, role in zip(storages, offsets, extents, roles, strict=True):
            if storage < 0 or extent <= 0:
                continue
            end = start + extent
            segments = self._storages.get(storage)
            if segments is None:
                if role == _READ:
                    self._storages[storage] = [(start, end, {}, {stream: operation})]
                else:
                    self._storages[storage] = [(start, end, {stream: operation}, {})]
                continue
            if len(segments) == 1:
                first, last, writers, readers = segments[0]
                if first <= start and end <= last:
                    # By far the most common: the storage has one tensor, or one range of writes.
                    found.update(writers.values())
                    if role == _READ:
                        readers[stream] = operation
                        continue
                    if first == start and end == last:
                        found.update(readers.values())
                        segments[0] = (start, end, {stream: operation}, {})
                        continue
            if role == _READ:
                _read(segments, operation, stream, start, end, found)
            else:
                _write(segments, operation, stream, start, end, found)
            if len(segments) > MAX_SEGMENTS:
                segments[:] = [_fold(segments)]
        found.discard(operation)  # the same storage twice among one operation's tensors
        return found


def _read(
    segments: list[Segment], operation: int, stream: Stream, start: int, end: int, found: set[int]
) -> None:
    """Enter a read of the bytes [start, end) into a storage's segments (disjoint, ascending)."""
    gaps: list[Segment] = []
    covered = start
    for first, last, writers, readers in segments:
        if last <= start or first >= end:
            continue
        found.update(writers.values())
        # The whole segment counts as read: splitting it for each slice read would cost more than
        # the few needless write-after-read dependencies do.
        readers[stream] = operation
        if covered < first:
            gaps.append((covered, first, {}, {stream: operation}))
        covered = last
    if covered < end:
        gaps.append((covered, end, {}, {stream: operation}))
    if gaps:
        segments.extend(gaps)
        segments.sort(key=_first_byte)


def _write(
    segments: list[Segment], operation: int, stream: Stream, start: int, end: int, found: set[int]
) -> None:
    """Enter a write: what lies outside it keeps its history, what lies inside is replaced."""
    kept: list[Segment] = [(start, end, {stream: operation}, {})]
    for segment in segments:
        first, last, writers, readers = segment
        if last <= start or first >= end:
            kept.append(segment)
            continue
        found.update(writers.values())
        found.update(readers.values())
        if first < start:
            kept.append((first, start, dict(writers), dict(readers)))
        if last > end:
            kept.append((end, last, dict(writers), dict(readers)))
    kept.sort(key=_first_byte)
    segments[:] = kept


def _fold(segments: list[Segment]) -> Segment:
    """One segment for all, with the last writer and reader of each stream."""
    writers: dict[Stream, int] = {}
    readers: dict[Stream, int] = {}
    for _, _, segment_writers, segment_readers in segments:
        for kept, more in ((writers, segment_writers), (readers, segment_readers)):
            for stream, operation in more.items():
                kept[stream] = max(kept.get(stream, -1), operation)
    return (segments[0][0], segments[-1][1], writers, readers)


def _first_byte(segment: Segment) -> int:
    return segment[0]
