"""The event loop: moves all ranks from one instant to the next until nothing is left to do.

At each instant everything that can happen without time passing happens first (completions, then
hosts that go on, streams that take up their next entry, copy engines that pick their next copy; each in
order of rank and operation). Then the rates of the devices where something changed are set anew, and
the clock moves to the next completion, arrival or network event.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from maya.simulator.engine.deadlock import describe_deadlock
from maya.simulator.engine.host_lane import run_lane
from maya.simulator.engine.rendezvous import Meeting
from maya.simulator.engine.sharing import slowdowns
from maya.simulator.engine.state import (
    CopyEngine,
    Device,
    EntryKind,
    Job,
    Lane,
    Signal,
    Stream,
    TransferGroup,
)
from maya.simulator.engine.transfers import Transfers
from maya.simulator.network import NetworkModel
from maya.simulator.program import Engine, Program
from maya.simulator.schedule import Schedule
from maya.simulator.settings import Settings

_ROUNDING_NS = 1e-3
"""Tolerance when rounding an end up to a whole ns: far above float error, far below a ns."""

_WORK, _RECORD, _WAIT = int(EntryKind.WORK), int(EntryKind.RECORD), int(EntryKind.WAIT)
_SM = int(Engine.SM)


def run_general(
    programs: Sequence[Program], network: NetworkModel | None, settings: Settings
) -> list[Schedule]:
    """Times of any set of ranks. Raises MayaError for a deadlock or a communication without network."""
    return _Loop(programs, network, settings).run()


class _Loop:
    def __init__(self, programs: Sequence[Program], network: NetworkModel | None, settings: Settings) -> None:
        self.settings = settings
        self.transfers = Transfers(network, {program.source.rank for program in programs}, settings)
        self.shares_links = self.transfers.network_shares_links
        self.now = 0
        self.heap: list[tuple[int, int, Job | Stream]] = []
        self.pushed = 0  # breaks ties in the heap, so that jobs are never compared
        self.ready: list[Stream] = []
        self.resumed: list[Lane] = []
        self.dirty_devices: list[Device] = []
        self.dirty_engines: list[CopyEngine] = []
        self.lanes = [self._make_lane(program) for program in programs]
        self.resumed.extend(self.lanes)

    def _make_lane(self, program: Program) -> Lane:
        lane = Lane(program)
        devices = {device: Device() for device, _ in program.stream_keys}
        lane.streams = [
            Stream(lane, index, key, devices[key[0]], -self.settings.sync_return_ns)
            for index, key in enumerate(program.stream_keys)
        ]
        lane.run = run_lane(lane, self.ready, self.settings)
        return lane

    def run(self) -> list[Schedule]:
        heap, ready = self.heap, self.ready
        while True:
            self._settle()
            self._drop_stale()
            upcoming = self.transfers.next_event_ns(self.now)
            if heap and (upcoming is None or heap[0][0] <= upcoming):
                self.now = now = heap[0][0]
            elif upcoming is not None:
                self.now = now = upcoming
            else:
                break
            while heap and heap[0][0] == now:
                happened = heapq.heappop(heap)[2]
                if type(happened) is Stream:
                    ready.append(happened)
                elif type(happened) is Job and happened.end_ns == now:
                    self._complete(happened)
                elif type(happened) is Job and happened.event_ns == now:
                    self._at_end(happened)
            if upcoming == now:
                for meeting in self.transfers.finished(now):
                    self._finish(meeting)
        if any(not lane.finished for lane in self.lanes) or any(
            not stream.parked for lane in self.lanes for stream in lane.streams
        ):
            raise describe_deadlock(self.lanes, self.now)
        return [
            Schedule(lane.issue_ns, lane.pass_ns, lane.item_start_ns, lane.item_end_ns, lane.item_ready_ns)
            for lane in self.lanes
        ]

    def _drop_stale(self) -> None:
        """Take events off the heap's top that mean no end: a slowed job's early one is moved on."""
        heap = self.heap
        while heap:
            time_ns, _, what = heap[0]
            if type(what) is not Job or what.end_ns == time_ns:
                return
            heapq.heappop(heap)
            if what.event_ns == time_ns:
                self._at_end(what)

    def _settle(self) -> None:
        """Everything that happens at this instant without time passing."""
        ready, resumed = self.ready, self.resumed
        while True:
            if resumed:
                going = sorted(resumed, key=lambda lane: lane.rank)
                resumed.clear()
                for lane in going:
                    lane.resumed_ns = self.now
                    lane.blocked_on = None
                    next(lane.run)
            elif ready:
                heads = ready[:]
                ready.clear()
                if len(heads) > 1:
                    heads.sort(key=lambda stream: (stream.lane.rank, stream.head_operation()))
                for stream in heads:
                    self._advance(stream)
            elif self.dirty_engines:
                engines = self.dirty_engines[:]
                self.dirty_engines.clear()
                for engine in engines:
                    self._grant(engine)
            elif self.dirty_devices:
                devices = self.dirty_devices[:]
                self.dirty_devices.clear()
                for device in devices:
                    self._retime(device)
            else:
                return

    def _advance(self, stream: Stream) -> None:
        """Take up entries from the head of a stream that runs nothing, until one takes time."""
        now = self.now
        queue = stream.queue
        stream.blocked_on = None
        while queue:
            kind, arrival, operation, payload = queue[0]
            if kind == _WORK and stream.free_ns > arrival:
                arrival = stream.free_ns
            if arrival > now:
                self._at(arrival, stream)
                return
            if kind == _WORK:
                assert type(payload) is int
                job = Job(stream, payload)
                if job.engine == _SM:
                    self._pop(stream)
                    self._begin(job)
                else:
                    engine = stream.device.copy_engines[Engine(job.engine)]
                    heapq.heappush(engine.waiting, (now, operation, stream.index, stream))
                    stream.blocked_on = engine
                    self.dirty_engines.append(engine)
                return
            if kind == _RECORD:
                assert type(payload) is Signal
                self._pop(stream)
                self._fire(payload)
            elif kind == _WAIT:
                assert type(payload) is Signal
                if payload.done_ns < 0:
                    payload.streams.append(stream)
                    stream.blocked_on = payload
                    return
                self._pop(stream)
            else:
                assert type(payload) is TransferGroup
                self._pop(stream)
                stream.blocked_on = payload
                for item in payload.items:
                    stream.lane.item_ready_ns[item] = now
                for meeting in self.transfers.arrive(stream, operation, payload, now):
                    self._start(meeting)
                return
            stream.done_ns = now
        stream.parked = True
        if stream.drain_waiter is not None:
            self.resumed.append(stream.drain_waiter)
            stream.drain_waiter = None

    def _pop(self, stream: Stream) -> None:
        stream.queue.popleft()
        if stream.slot_waiter is not None:
            self.resumed.append(stream.slot_waiter)
            stream.slot_waiter = None

    def _fire(self, signal: Signal) -> None:
        signal.done_ns = self.now
        self.ready.extend(signal.streams)
        self.resumed.extend(signal.lanes)
        signal.streams.clear()
        signal.lanes.clear()

    def _begin(self, job: Job) -> None:
        stream = job.stream
        stream.lane.item_start_ns[job.item] = self.now
        job.updated_ns = self.now
        stream.blocked_on = job
        self._occupy(job)

    def _occupy(self, job: Job) -> None:
        device = job.stream.device
        device.active.append(job)
        if not device.dirty:
            device.dirty = True
            self.dirty_devices.append(device)

    def _release(self, job: Job) -> None:
        device = job.stream.device
        device.active.remove(job)
        if device.active and not device.dirty:
            device.dirty = True
            self.dirty_devices.append(device)

    def _complete(self, job: Job) -> None:
        """A kernel or copy has done its work."""
        stream = job.stream
        if stream.blocked_on is not job:
            return  # a second event for the same end, left over from re-timing
        self._release(job)
        stream.lane.item_end_ns[job.item] = self.now
        if job.engine != _SM:
            engine = stream.device.copy_engines[Engine(job.engine)]
            engine.busy = False
            self.dirty_engines.append(engine)
        self._free(stream)

    def _free(self, stream: Stream) -> None:
        stream.blocked_on = None
        stream.done_ns = self.now
        stream.free_ns = self.now + self.settings.kernel_gap_ns
        self.ready.append(stream)

    def _grant(self, engine: CopyEngine) -> None:
        """Let the copy that has waited longest have a free copy engine."""
        if engine.busy or not engine.waiting:
            return
        stream = heapq.heappop(engine.waiting)[3]
        item = stream.queue[0][3]
        assert type(item) is int
        engine.busy = True
        self._pop(stream)
        self._begin(Job(stream, item))

    def _retime(self, device: Device) -> None:
        """Set the rates of everything that runs on a device, and when each will end."""
        device.dirty = False
        now = self.now
        for job, factor in zip(device.active, slowdowns(device.active, self.shares_links), strict=True):
            if factor == job.slowdown:
                continue
            if job.slowdown > 0.0:
                job.remaining_ns = max(job.remaining_ns - (now - job.updated_ns) / job.slowdown, 0.0)
            job.updated_ns = now
            job.slowdown = factor
            if job.meeting is not None:
                self.transfers.set_speed(job.meeting, now)
                continue
            job.end_ns = now + math.ceil(job.remaining_ns * factor - _ROUNDING_NS)
            if job.event_ns < 0 or job.end_ns < job.event_ns:
                self._at_end(job)

    def _at_end(self, job: Job) -> None:
        job.event_ns = job.end_ns
        self._at(job.end_ns, job)

    def _at(self, time_ns: int, what: Job | Stream) -> None:
        self.pushed += 1
        heapq.heappush(self.heap, (time_ns, self.pushed, what))

    def _start(self, meeting: Meeting) -> None:
        """A communication's last member has arrived."""
        for member in meeting.arrived.values():
            member.job.stream.lane.item_start_ns[member.job.item] = self.now
            self._occupy(member.job)

    def _finish(self, meeting: Meeting) -> None:
        for member in meeting.arrived.values():
            self._release(member.job)
            stream = member.job.stream
            stream.lane.item_end_ns[member.job.item] = self.now
            member.group.pending -= 1
            if member.group.pending == 0:
                self._fire(member.group.signal)
                self._free(stream)
