"""The host thread of a rank: issues operations in order and blocks where CUDA would.

The lane may run ahead of the device's clock: it reads the device only where it blocks, so what it
enqueues carries its own time of arrival, and the device takes it up no earlier.
"""

from __future__ import annotations

from collections.abc import Iterator

from maya.simulator.engine.state import Entry, EntryKind, Lane, Signal, Stream, TransferGroup
from maya.simulator.program import Action
from maya.simulator.settings import Settings


def run_lane(lane: Lane, ready: list[Stream], settings: Settings) -> Iterator[None]:
    """Coroutine of one lane; resumed (with `lane.resumed_ns` set) when what it waits for happens.

    Streams that were parked and got an entry are appended to `ready`.
    """
    launch, passing = int(Action.LAUNCH), int(Action.PASS)
    work_entry, record_entry = int(EntryKind.WORK), int(EntryKind.RECORD)
    program = lane.program
    gaps, streams_of, blocking = program.gaps, program.streams, program.blocking
    first_item, handles = program.first_item, program.handles
    latency, depth = settings.launch_latency_ns, settings.launch_queue_depth
    sync_return = settings.sync_return_ns
    streams = lane.streams
    issue, passed = lane.issue_ns.append, lane.pass_ns.append
    events: dict[int, Signal] = {}
    handle_signals: dict[int, Signal] = {}
    group_signals: dict[int, Signal] = {}
    now = 0

    for operation, action in enumerate(program.actions):
        now += gaps[operation]
        issue(now)
        lane.operation = operation
        if action == passing:
            passed(now)
            continue
        stream = streams[streams_of[operation]]
        entries: list[Entry] = []
        if action == launch:
            for item in range(first_item[operation], first_item[operation + 1]):
                if len(stream.queue) >= depth:
                    stream.slot_waiter = lane
                    lane.blocked_on = stream
                    yield
                    if now < lane.resumed_ns:
                        now = lane.resumed_ns
                stream.queue.append((work_entry, now + latency, operation, item))
                if stream.parked:
                    stream.parked = False
                    ready.append(stream)
            if handles[operation] >= 0:  # a communicator of one: its kernels are the communication
                handle_signals[handles[operation]] = signal = Signal(operation)
                entries = [(record_entry, now + latency, operation, signal)]
            elif not blocking[operation]:
                passed(now)
                continue
        elif action == Action.RECORD:
            events[program.events[operation]] = signal = Signal(operation)
            entries = [(record_entry, now + latency, operation, signal)]
        elif action == Action.STREAM_WAIT:
            recorded = events.get(program.events[operation])
            if recorded is not None:  # waiting for an event never recorded does nothing, as in CUDA
                entries = [(int(EntryKind.WAIT), now + latency, operation, recorded)]
        elif action == Action.HANDLE_WAIT:
            finished = handle_signals.get(handles[operation])
            if finished is not None:
                entries = [(int(EntryKind.WAIT), now + latency, operation, finished)]
        elif action == Action.TRANSFER:
            group = program.transfer_group[operation]
            signal = group_signals.setdefault(group, Signal(operation))
            if handles[operation] >= 0:
                handle_signals[handles[operation]] = signal
            if operation in program.group_items:  # the last of its group launches all of it
                transfer = TransferGroup(program.group_items[operation], signal)
                entries = [(int(EntryKind.TRANSFER), now + latency, operation, transfer)]

        for entry in entries:
            if len(stream.queue) >= depth:
                stream.slot_waiter = lane
                lane.blocked_on = stream
                yield
                now = max(now, lane.resumed_ns)
                entry = (entry[0], now + latency, entry[2], entry[3])
            stream.queue.append(entry)
            if stream.parked:
                stream.parked = False
                ready.append(stream)

        drains: list[Stream] = []
        if action == Action.STREAM_SYNC or (
            blocking[operation]
            and (action in (launch, Action.TRANSFER) or (entries and action == Action.HANDLE_WAIT))
        ):
            drains = [stream]
        elif action == Action.DEVICE_SYNC:
            drains = [other for other in streams if other.device is stream.device]
        elif action == Action.EVENT_SYNC:
            waited = events.get(program.events[operation])
            if waited is not None:
                if waited.done_ns < 0:
                    waited.lanes.append(lane)
                    lane.blocked_on = waited
                    yield
                now = max(now, waited.done_ns + sync_return)
        elif action == Action.DATA_WAIT:
            now += program.data_wait_ns
        for drained in drains:
            if not drained.parked:
                drained.drain_waiter = lane
                lane.blocked_on = drained
                yield
            now = max(now, drained.done_ns + sync_return)
        passed(now)
    lane.finished = True
    lane.blocked_on = None
    yield
