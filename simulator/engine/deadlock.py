"""Says who waits for whom when nothing can go on."""

from __future__ import annotations

from collections.abc import Sequence

from maya.simulator.engine.state import Lane, Signal, Stream, TransferGroup
from maya.simulator.errors import CommunicationError

_MOST_RANKS_NAMED = 8
"""More would bury the message; the first ones show the pattern."""


def describe_deadlock(lanes: Sequence[Lane], now_ns: int) -> CommunicationError:
    """The error to raise; names ranks, operations, and what each waits for."""
    stuck = [lane for lane in lanes if not lane.finished or any(not stream.parked for stream in lane.streams)]
    lines = [f"deadlock after {now_ns} ns: {len(stuck)} of {len(lanes)} ranks cannot go on"]
    for lane in stuck[:_MOST_RANKS_NAMED]:
        lines.extend(_describe_lane(lane))
    if len(stuck) > _MOST_RANKS_NAMED:
        lines.append(f"... and {len(stuck) - _MOST_RANKS_NAMED} more ranks")
    return CommunicationError(
        "\n".join(lines),
        hint="a member never reaches a collective or message that others wait for: look for a rank that "
        "calls fewer, other, or differently ordered communications",
    )


def _describe_lane(lane: Lane) -> list[str]:
    name = lane.program.source.operation_name
    lines = []
    if not lane.finished:
        lines.append(f"rank {lane.rank}: the host is at {name(lane.operation)} and waits for {_target(lane)}")
    else:
        lines.append(f"rank {lane.rank}: the host has issued everything")
    for stream in lane.streams:
        blocker = stream.blocked_on
        if stream.parked or blocker is None:
            continue
        place = f"  stream {stream.key[1]} of device {stream.key[0]}"
        if isinstance(blocker, TransferGroup):
            lines.extend(f"{place}: {text}" for text in _unmet(stream, blocker))
        elif isinstance(blocker, Signal) and stream.queue:
            lines.append(f"{place}: {name(stream.queue[0][2])} waits for {name(blocker.operation)}")
    return lines


def _target(lane: Lane) -> str:
    blocker = lane.blocked_on
    if isinstance(blocker, Stream):
        full = blocker.slot_waiter is lane
        return f"{'room in the launch queue of ' if full else ''}stream {blocker.key[1]}"
    if isinstance(blocker, Signal):
        return lane.program.source.operation_name(blocker.operation)
    return "nothing known"


def _unmet(stream: Stream, group: TransferGroup) -> list[str]:
    program = stream.lane.program
    texts = []
    for item, job in zip(group.items, group.jobs, strict=True):
        operation = program.source.operation_name(int(program.item_operation[item]))
        meeting = job.meeting
        if meeting is not None and meeting.transfer is None:
            texts.append(
                f"{operation}, number {meeting.sequence} of communicator '{meeting.communicator.name}', "
                f"waits for ranks {meeting.missing()[:8]}"
            )
    return texts
