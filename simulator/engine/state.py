"""What the general engine keeps for each host lane, stream, device and running kernel."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from maya.simulator.program import Engine, Program

if TYPE_CHECKING:
    from maya.simulator.engine.rendezvous import Meeting


class EntryKind(IntEnum):
    """What an entry of a stream's queue does at its head."""

    WORK = 0
    RECORD = 1
    WAIT = 2
    TRANSFER = 3


Entry = tuple[int, int, int, object]
"""(EntryKind, arrival_ns, operation, payload): payload is an item (WORK), a Signal (RECORD, WAIT)
or a TransferGroup (TRANSFER)."""


class Signal:
    """Something that happens once on a device and can be waited for: one recording of an event."""

    __slots__ = ("done_ns", "lanes", "operation", "streams")

    def __init__(self, operation: int) -> None:
        self.operation = operation
        self.done_ns = -1
        self.streams: list[Stream] = []
        self.lanes: list[Lane] = []


class TransferGroup:
    """Communications that a stream starts together (one ncclGroup); one or more items."""

    __slots__ = ("items", "jobs", "pending", "signal")

    def __init__(self, items: tuple[int, ...], signal: Signal) -> None:
        self.items = items
        self.jobs: list[Job] = []  # of the items, once the stream has reached the group
        self.pending = len(items)
        self.signal = signal


class Job:
    """A running item: remaining work and the factor by which its neighbours stretch it."""

    __slots__ = (
        "end_ns",
        "engine",
        "event_ns",
        "hbm",
        "item",
        "link",
        "meeting",
        "remaining_ns",
        "slowdown",
        "sm",
        "stream",
        "updated_ns",
    )

    def __init__(self, stream: Stream, item: int, meeting: Meeting | None = None) -> None:
        program = stream.lane.program
        self.stream = stream
        self.item = item
        self.engine = program.engines[item]
        self.sm, self.hbm, self.link = program.shares[item]
        self.meeting = meeting
        self.remaining_ns = float(program.work[item])
        self.slowdown = 0.0  # not timed yet
        self.updated_ns = 0
        self.end_ns = -1
        self.event_ns = -1  # when the loop will look at it next; at most end_ns


class CopyEngine:
    """Runs one copy at a time, in the order in which streams reach theirs."""

    __slots__ = ("busy", "waiting")

    def __init__(self) -> None:
        self.busy = False
        self.waiting: list[tuple[int, int, int, Stream]] = []
        """Heap of (ready_ns, operation, stream index, stream)."""


class Device:
    """One GPU of one rank: what runs on it now."""

    __slots__ = ("active", "copy_engines", "dirty")

    def __init__(self) -> None:
        self.active: list[Job] = []
        self.copy_engines = {engine: CopyEngine() for engine in (*Engine,) if engine != Engine.SM}
        self.dirty = False


class Stream:
    """A FIFO of device work."""

    __slots__ = (
        "blocked_on",
        "device",
        "done_ns",
        "drain_waiter",
        "free_ns",
        "index",
        "key",
        "lane",
        "parked",
        "queue",
        "slot_waiter",
    )

    def __init__(self, lane: Lane, index: int, key: tuple[int, int], device: Device, done_ns: int) -> None:
        self.lane = lane
        self.index = index
        self.key = key
        self.device = device
        self.queue: deque[Entry] = deque()
        self.parked = True  # nothing runs, waits or is scheduled: a new entry must wake it
        self.done_ns = done_ns  # when its last entry finished
        self.free_ns = 0  # when its next kernel may start (the gap between kernels)
        self.blocked_on: object = None  # Job, Signal, CopyEngine or TransferGroup
        self.slot_waiter: Lane | None = None
        self.drain_waiter: Lane | None = None

    def head_operation(self) -> int:
        """The operation this stream will take up next; -1: none."""
        return self.queue[0][2] if self.queue else -1


class Lane:
    """The host thread of one rank, as a coroutine that yields where it blocks."""

    __slots__ = (
        "blocked_on",
        "finished",
        "issue_ns",
        "item_end_ns",
        "item_ready_ns",
        "item_start_ns",
        "operation",
        "pass_ns",
        "program",
        "rank",
        "resumed_ns",
        "run",
        "streams",
    )

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rank = program.source.rank
        self.streams: list[Stream] = []
        self.run: Iterator[None] = iter(())
        self.resumed_ns = 0
        self.operation = 0
        self.finished = False
        self.blocked_on: object = None  # Stream or Signal
        self.issue_ns: list[int] = []
        self.pass_ns: list[int] = []
        self.item_start_ns = [-1] * len(program.work)
        self.item_end_ns = [-1] * len(program.work)
        self.item_ready_ns: dict[int, int] = {}  # of transfers
