"""One rank that uses one stream: nothing overlaps on the device, so one pass computes everything.

Gives what the general engine gives (a property test holds them equal), several times faster. Most
single-GPU training scripts are of this kind.
"""

from __future__ import annotations

from maya.simulator.program import Action, Program
from maya.simulator.schedule import Schedule
from maya.simulator.settings import Settings


def run_single_stream(program: Program, settings: Settings) -> Schedule:
    """Times of a program for which `len(program.used_streams()) <= 1` and nothing is a TRANSFER.

    On one stream every entry starts at the latest of: its arrival (launch call + latency), the end
    of the entry before it, and for a kernel the gap after the kernel before it. An entry beyond
    the queue's depth is launched when the entry `depth` places before it has left the queue.
    """
    launch, record, stream_wait = int(Action.LAUNCH), int(Action.RECORD), int(Action.STREAM_WAIT)
    handle_wait, data_wait, event_sync = (
        int(Action.HANDLE_WAIT),
        int(Action.DATA_WAIT),
        int(Action.EVENT_SYNC),
    )
    stream_sync, device_sync, passing = int(Action.STREAM_SYNC), int(Action.DEVICE_SYNC), int(Action.PASS)
    latency, depth = settings.launch_latency_ns, settings.launch_queue_depth
    kernel_gap, sync_return = settings.kernel_gap_ns, settings.sync_return_ns
    used = program.used_streams()
    only = next(iter(used)) if used else -1
    device = program.stream_keys[only][0] if used else -1

    work = program.work
    handles, events, streams = program.handles, program.events, program.streams
    first_item = program.first_item
    issues: list[int] = []
    passes: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    left_queue: list[int] = []  # when each entry so far left the stream's queue
    event_done: dict[int, int] = {}
    handle_done: dict[int, int] = {}
    now = 0  # the host lane
    done = -sync_return  # the stream: nothing enqueued yet, so nothing to wait for
    free = 0  # when the next kernel may start
    entries = -depth  # minus depth: the index whose leaving makes room for the next entry

    for operation, (action, gap, blocks) in enumerate(
        zip(program.actions, program.gaps, program.blocking, strict=True)
    ):
        now += gap
        issues.append(now)
        if action == launch:
            for item in range(first_item[operation], first_item[operation + 1]):
                if entries >= 0 and left_queue[entries] > now:
                    now = left_queue[entries]
                entries += 1
                start = now + latency
                if start < done:
                    start = done
                if start < free:
                    start = free
                done = start + work[item]
                free = done + kernel_gap
                left_queue.append(start)
                starts.append(start)
                ends.append(done)
            if handles[operation] >= 0:  # a communicator of one: an event follows its kernels
                if entries >= 0 and left_queue[entries] > now:
                    now = left_queue[entries]
                entries += 1
                done = max(done, now + latency)
                left_queue.append(done)
                handle_done[handles[operation]] = done
            if blocks and now < done + sync_return:
                now = done + sync_return
        elif action == passing:
            pass
        elif action == record or (
            # waiting for something earlier on the same stream only takes a place in the queue
            (action == stream_wait and events[operation] in event_done)
            or (action == handle_wait and handles[operation] in handle_done)
        ):
            if entries >= 0 and left_queue[entries] > now:
                now = left_queue[entries]
            entries += 1
            done = max(done, now + latency)
            left_queue.append(done)
            if action == record:
                event_done[events[operation]] = done
            elif action == handle_wait and blocks:
                now = max(now, done + sync_return)
        elif action == event_sync:
            if events[operation] in event_done:
                now = max(now, event_done[events[operation]] + sync_return)
        elif (action == stream_sync and streams[operation] == only) or (
            action == device_sync and program.stream_keys[streams[operation]][0] == device
        ):
            now = max(now, done + sync_return)
        elif action == data_wait:
            now += program.data_wait_ns
        passes.append(now)
    return Schedule(issue_ns=issues, pass_ns=passes, start_ns=starts, end_ns=ends)
