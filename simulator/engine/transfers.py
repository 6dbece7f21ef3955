"""Communications in flight: between the engine, the rendezvous of members and the network model."""

from __future__ import annotations

from maya.errors import MayaError
from maya.simulator.engine.rendezvous import Meeting, Participant, Rendezvous
from maya.simulator.engine.state import Job, Stream, TransferGroup
from maya.simulator.network import NetworkModel
from maya.simulator.settings import Settings


class Transfers:
    """Starts communications once all members have arrived, sets their speed, collects their ends."""

    def __init__(self, network: NetworkModel | None, ranks: set[int], settings: Settings) -> None:
        """`ranks` are the simulated ones; `network` may be None where nobody communicates."""
        self._network = network
        self._rendezvous = Rendezvous(ranks, settings)
        self._running: dict[int, Meeting] = {}
        self.network_shares_links = network is not None and network.shares_links

    def arrive(self, stream: Stream, operation: int, group: TransferGroup, now_ns: int) -> list[Meeting]:
        """A stream has reached a group of communications; returns those that start now.

        Raises:
            MayaError: there is no network model, or members disagree (see Rendezvous.arrive).
        """
        program = stream.lane.program
        if self._network is None:
            raise MayaError(
                f"rank {stream.lane.rank}: {program.source.operation_name(operation)} communicates with "
                "other ranks, but no network model was given",
                hint="pass network= to simulate",
            )
        started = []
        for item in group.items:
            job = Job(stream, item)
            group.jobs.append(job)
            participant = Participant(stream.lane.rank, int(program.item_operation[item]), job, group)
            meeting = self._rendezvous.arrive(participant)
            if meeting.transfer is not None:
                self._running[meeting.transfer.id] = meeting
                self._network.begin(meeting.transfer, now_ns)
                started.append(meeting)
        return started

    def set_speed(self, meeting: Meeting, now_ns: int) -> None:
        """Tell the network when neighbours change a transfer's speed: that of its most disturbed member."""
        assert meeting.transfer is not None
        assert self._network is not None
        slowest = max(member.job.slowdown for member in meeting.arrived.values())
        speed = 1.0 / max(slowest, 1.0)
        if speed != meeting.speed:
            meeting.speed = speed
            self._network.set_speed(meeting.transfer.id, speed, now_ns)

    def next_event_ns(self, now_ns: int) -> int | None:
        """When the network wants `finished` to be called; None: nothing is in flight.

        Raises:
            ValueError: the network model names a time that has passed.
        """
        if self._network is None or not self._running:
            return None
        upcoming = self._network.next_event_ns()
        if upcoming is not None and upcoming < now_ns:
            raise ValueError(f"the network model went back in time: {upcoming} ns at {now_ns} ns")
        return upcoming

    def finished(self, now_ns: int) -> list[Meeting]:
        """Move the network to now; returns the communications that have ended, in order of start."""
        assert self._network is not None
        return [self._running.pop(transfer) for transfer in self._network.advance(now_ns)]
