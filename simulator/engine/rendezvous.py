"""Brings the members of a communication together: it starts when the last one's stream arrives."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from maya.simulator.engine.state import Job, TransferGroup
from maya.simulator.errors import CommunicationError
from maya.simulator.network import MESSAGE, Transfer
from maya.simulator.settings import Settings
from maya.traces.operations import Kind
from maya.traces.tables import Communicator


@dataclass
class Participant:
    """A rank's part in a communication that has reached the head of its stream."""

    rank: int
    operation: int
    job: Job
    group: TransferGroup


@dataclass
class Meeting:
    """A communication that waits for members, or runs.

    Attributes:
        key: what its members agree on.
        expected: ranks that have to arrive.
        arrived: by rank.
    """

    key: tuple[object, ...]
    communicator: Communicator
    sequence: int
    collective: int
    reduce_op: int
    expected: tuple[int, ...]
    tag: int
    input_bytes: int = 0
    output_bytes: int = 0
    arrived: dict[int, Participant] = field(default_factory=dict)
    transfer: Transfer | None = None
    speed: float = 1.0

    def missing(self) -> list[int]:
        """Ranks that have not arrived."""
        return [rank for rank in self.expected if rank not in self.arrived]


class Rendezvous:
    """Open meetings of all communicators."""

    def __init__(self, ranks: set[int], settings: Settings) -> None:
        self._ranks = ranks
        self._settings = settings
        self._open: dict[tuple[object, ...], Meeting] = {}
        self._messages: dict[tuple[object, ...], deque[Meeting]] = {}
        self._message_count: dict[tuple[object, ...], int] = {}
        self._started = 0

    def arrive(self, participant: Participant) -> Meeting:
        """Enter a participant; the meeting's `transfer` is set once nobody is missing.

        Raises:
            CommunicationError: members disagree on the operation, or a member is not simulated.
        """
        source = participant.job.stream.lane.program.source
        row = source.operations.rows[participant.operation]
        details = source.operations.communications[int(row["communication"])]
        assert source.tables is not None  # compile_program has refused collectives without tables
        communicator = source.tables.communicators[int(details["communicator"])]
        if int(row["kind"]) == Kind.COLLECTIVE:
            meeting = self._collective(participant, communicator, details)
        else:
            meeting = self._message(participant, communicator, details, int(row["kind"]) == Kind.SEND)
        meeting.input_bytes = max(meeting.input_bytes, int(details["input_bytes"]))
        meeting.output_bytes = max(meeting.output_bytes, int(details["output_bytes"]))
        meeting.arrived[participant.rank] = participant
        participant.job.meeting = meeting
        if not meeting.missing():
            self._start(meeting)
        return meeting

    def _collective(self, participant: Participant, communicator: Communicator, details: object) -> Meeting:
        row = _Details(details)
        key = ("collective", communicator.name, communicator.ranks, row.sequence)
        meeting = self._open.get(key)
        if meeting is None:
            expected = self._expected(participant, communicator.ranks)
            meeting = Meeting(key, communicator, row.sequence, row.collective, row.reduce_op, expected, 0)
            self._open[key] = meeting
        elif meeting.collective != row.collective or participant.rank in meeting.arrived:
            other = next(iter(meeting.arrived.values()))
            raise CommunicationError(
                f"collective {row.sequence} of communicator '{communicator.name}' differs between ranks: "
                f"{_describe(participant)}, but {_describe(other)}",
                hint="all members of a process group must call the same collectives in the same order",
            )
        return meeting

    def _message(
        self, participant: Participant, communicator: Communicator, details: object, sends: bool
    ) -> Meeting:
        row = _Details(details)
        me, peer = participant.rank, row.peer
        pair = (me, peer) if sends else (peer, me)
        channel = ("message", communicator.name, communicator.ranks, pair, row.tag)
        waiting = self._messages.setdefault(channel, deque())
        for meeting in waiting:
            if me not in meeting.arrived:
                return meeting
        count = self._message_count.get(channel, 0)
        self._message_count[channel] = count + 1
        expected = self._expected(participant, pair)
        meeting = Meeting((*channel, count), communicator, count, MESSAGE, row.reduce_op, expected, row.tag)
        waiting.append(meeting)
        return meeting

    def _expected(self, participant: Participant, members: tuple[int, ...]) -> tuple[int, ...]:
        absent = [rank for rank in members if rank not in self._ranks]
        if participant.rank not in members:
            raise CommunicationError(
                f"{_describe(participant)} is not a member of its communicator {list(members)}"
            )
        if absent and not self._settings.absent_members_arrive:
            raise CommunicationError(
                f"{_describe(participant)} needs ranks {absent[:8]} which are not simulated",
                hint="simulate every member, or set Settings.absent_members_arrive",
            )
        return tuple(rank for rank in members if rank in self._ranks)

    def _start(self, meeting: Meeting) -> None:
        meeting.transfer = Transfer(
            id=self._started,
            communicator=meeting.communicator,
            sequence=meeting.sequence,
            collective=meeting.collective,
            reduce_op=meeting.reduce_op,
            input_bytes=meeting.input_bytes,
            output_bytes=meeting.output_bytes,
            ranks=meeting.expected,
            tag=meeting.tag,
        )
        self._started += 1
        if meeting.collective == MESSAGE:
            self._messages[meeting.key[:-1]].remove(meeting)
        else:
            del self._open[meeting.key]


class _Details:
    """The fields of a COMMUNICATION_DTYPE row that matching needs, as Python integers."""

    def __init__(self, row: object) -> None:
        sequence, collective, reduce_op, peer, tag = (
            int(row[name])  # type: ignore[index]
            for name in ("sequence_in_communicator", "collective", "reduce_op", "peer", "tag")
        )
        self.sequence, self.collective, self.reduce_op = sequence, collective, reduce_op
        self.peer, self.tag = peer, tag


def _describe(participant: Participant) -> str:
    source = participant.job.stream.lane.program.source
    return f"rank {participant.rank} calls {source.operation_name(participant.operation)}"
