"""The timeline of a run for https://ui.perfetto.dev: streams, host, iterations, phases, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from maya.errors import MayaError
from maya.kernel_models import Source
from maya.reports.memory_curve import memory_curves
from maya.reports.perfetto_packets import TraceStream
from maya.reports.rendezvous import arrows, described
from maya.reports.report import Report, SimulatedRank, SimulatedRun
from maya.reports.shapes import shapes_of
from maya.simulator import Activity, Timeline, iteration_times, union
from maya.traces import Phase

FLOWS_OF_A_RANK = 1 << 40
"""Ids of arrows that belong to one rank; more than it has operations."""
WAITS = "waits for its peers"
PHASE_NAMES = {phase: phase.name.lower() for phase in Phase}


class PerfettoRenderer:
    """A Perfetto trace, protobuf `TrackEvent`s."""

    def render(self, report: Report, out: BinaryIO) -> None:
        """Write the timeline. Raises MayaError if nothing was simulated."""
        if report.simulated is None:
            raise MayaError(
                "this run has no timeline: the script ran nothing on the GPU",
                hint="`--format text` shows why",
            )
        render_timeline(report.simulated, out)


def render_timeline(run: SimulatedRun, out: BinaryIO) -> None:
    """Write the timeline of every rank that was simulated, one process each."""
    stream = TraceStream(out)
    meetings = arrows(run)
    for rank in run.ranks:
        number = rank.trace.rank
        others = f", as {len(rank.stands_for) - 1} more" if len(rank.stands_for) > 1 else ""
        process = stream.process(f"rank {number} ({run.gpu}){others}", number + 1)
        drawing = _Drawing(rank, run.timeline, stream, process, meetings[number])
        drawing.iterations()
        drawing.phases()
        drawing.hosts()
        drawing.streams()
        drawing.memory()
    stream.close()


class _Drawing:
    """One rank being drawn."""

    def __init__(
        self,
        rank: SimulatedRank,
        timeline: Timeline,
        stream: TraceStream,
        process: int,
        meetings: dict[int, int],
    ) -> None:
        self._simulated = rank
        self._meetings = meetings
        self._timeline = timeline
        self._stream = stream
        self._process = process
        self._rank = rank.trace.rank
        self._rows = rank.trace.operations.rows
        self._tables = rank.trace.tables
        self._hosts = timeline.hosts_of(self._rank)
        self._kernels = timeline.kernels_of(self._rank)
        self._first_flow = self._rank * FLOWS_OF_A_RANK + 1
        self._shown = np.flatnonzero(self._hosts["end_ns"] > self._hosts["start_ns"])

    def iterations(self) -> None:
        ends = self._tables.iteration_ends
        if not ends:
            return
        track = self._stream.track("iterations", self._process)
        spans = iteration_times(self._timeline, ends, rank=self._rank)
        kinds = [
            self._stream.slice_kind(
                track, f"iteration {index}" + (" (warm-up)" if end < self._simulated.first_operation else "")
            )
            for index, end in enumerate(ends)
        ]
        self._stream.slices(track, spans.start_ns.tolist(), spans.end_ns.tolist(), kinds)

    def phases(self) -> None:
        """Runs of one phase as the host issues them; a process's threads take turns: none overlap."""
        rows = self._rows[self._shown]
        if not len(rows):
            return
        hosts = self._hosts[self._shown]
        changes = np.flatnonzero(np.diff(rows["phase"])) + 1
        begins = np.concatenate([[0], changes])
        ends = np.concatenate([changes, [len(rows)]]) - 1
        track = self._stream.track("phases", self._process)
        kinds = {phase: self._stream.slice_kind(track, name) for phase, name in PHASE_NAMES.items()}
        self._stream.slices(
            track,
            hosts["start_ns"][begins].tolist(),
            hosts["end_ns"][ends].tolist(),
            [kinds[Phase(phase)] for phase in rows["phase"][begins].tolist()],
        )

    def hosts(self) -> None:
        hosts = self._hosts[self._shown]
        rows = self._rows[self._shown]
        launches = np.zeros(len(self._rows), dtype=bool)
        launches[self._kernels["operation"]] = True
        for thread in np.unique(hosts["thread"]).tolist():
            chosen = hosts["thread"] == thread
            track = self._stream.track(f"host thread {thread}", self._process)
            operations = hosts["operation"][chosen]
            kinds = self._kinds(
                track,
                rows[chosen],
                ("operator", "metadata", "module", "source_line", "phase"),
                self._host_name,
            )
            flows = np.where(launches[operations], operations + self._first_flow, 0)
            self._stream.slices(
                track,
                hosts["start_ns"][chosen].tolist(),
                hosts["end_ns"][chosen].tolist(),
                kinds,
                flows.tolist(),
            )

    def streams(self) -> None:
        kernels = self._kernels
        places = np.unique(kernels[["device", "stream"]])
        for device, number in places.tolist():
            here = kernels[(kernels["device"] == device) & (kernels["stream"] == number)]
            here = here[np.argsort(here["start_ns"], kind="stable")]
            label = "default stream" if number == 0 else f"stream {number}"
            for activity in np.unique(here["activity"]).tolist():
                part = here[here["activity"] == activity]
                name = label if activity == Activity.COMPUTE else f"{label} {Activity(activity).name.lower()}"
                for number_of_lane, lane in enumerate(_lanes(part), start=1):
                    beside = f" {number_of_lane}" if number_of_lane > 1 else ""
                    track = self._stream.track(f"GPU {device} {name}{beside}", self._process)
                    self._stream_slices(track, lane)
            self._waits(f"GPU {device} {label} {WAITS}", here)

    def _waits(self, name: str, kernels: NDArray[np.void]) -> None:
        """When communications of a stream had been reached and other ranks had not come yet."""
        if not (kernels["ready_ns"] < kernels["start_ns"]).any():
            return
        starts, ends = union((kernels["ready_ns"], kernels["start_ns"]))
        track = self._stream.track(name, self._process)
        kind = self._stream.slice_kind(track, WAITS)
        self._stream.slices(track, starts.tolist(), ends.tolist(), [kind] * len(starts))

    def memory(self) -> None:
        for device, curve in memory_curves(self._simulated.trace, self._hosts).items():
            for name, values in (("allocated", curve.allocated), ("reserved", curve.reserved)):
                track = self._stream.byte_counter(f"GPU {device} memory {name}", self._process)
                self._stream.counter(track, curve.times_ns.tolist(), values.tolist())

    def _stream_slices(self, track: int, kernels: NDArray[np.void]) -> None:
        times = self._simulated.times
        index = kernels["kernel"]
        rows = self._rows[kernels["operation"]]
        priced = index >= 0
        names = (
            np.where(priced, times.name[np.maximum(index, 0)], -1) if times.count else np.full(len(index), -1)
        )
        source = times.source[np.maximum(index, 0)] if times.count else np.zeros(len(index), np.uint8)
        columns = np.empty(
            len(kernels),
            dtype=[
                ("operator", "<i4"),
                ("metadata", "<i4"),
                ("module", "<i4"),
                ("source_line", "<i4"),
                ("phase", "u1"),
                ("name", "<i4"),
                ("source", "u1"),
                ("communication", "<i4"),
            ],
        )
        for field in ("operator", "metadata", "module", "source_line", "phase", "communication"):
            columns[field] = rows[field]
        columns["name"] = names
        columns["source"] = source
        kinds = self._kinds(track, columns, columns.dtype.names or (), self._kernel_name)
        first_of_operation = np.ones(len(kernels), dtype=bool)
        first_of_operation[1:] = kernels["operation"][1:] != kernels["operation"][:-1]
        flows = np.where(first_of_operation, kernels["operation"] + self._first_flow, 0)
        meetings = [self._meetings.get(operation, 0) for operation in kernels["operation"].tolist()]
        self._stream.slices(
            track, kernels["start_ns"].tolist(), kernels["end_ns"].tolist(), kinds, flows.tolist(), meetings
        )

    def _kinds(
        self,
        track: int,
        rows: NDArray[np.void],
        fields: tuple[str, ...],
        name_of: Callable[[dict[str, int]], str],
    ) -> list[bytes]:
        """`slice_kind` of each row, made once for each distinct combination of `fields`."""
        made: dict[tuple[int, ...], bytes] = {}
        kinds = []
        for key in zip(*(rows[field].tolist() for field in fields), strict=True):
            kind = made.get(key)
            if kind is None:
                values = dict(zip(fields, key, strict=True))
                kind = made[key] = self._stream.slice_kind(track, name_of(values), self._annotations(values))
            kinds.append(kind)
        return kinds

    def _annotations(self, values: dict[str, int]) -> bytes:
        tables = self._tables
        shown: dict[str, str | int] = {"operator": tables.operators[values["operator"]]}
        if values["metadata"] >= 0:
            shapes = shapes_of(tables.metadata[values["metadata"]])
            shown["inputs"], shown["outputs"] = shapes.inputs, shapes.outputs
        if values["module"] >= 0:
            shown["module"] = tables.modules[values["module"]]
        if values["source_line"] >= 0:
            shown["source line"] = tables.source_lines[values["source_line"]]
        shown["phase"] = PHASE_NAMES[Phase(values["phase"])]
        if values.get("communication", -1) >= 0:
            shown |= described(self._simulated.trace, values["communication"])
        if values.get("name", -1) >= 0:
            shown["time rests on"] = Source(values["source"]).name.lower()
        return self._stream.annotations(shown)

    def _host_name(self, values: dict[str, int]) -> str:
        return self._tables.operators[values["operator"]]

    def _kernel_name(self, values: dict[str, int]) -> str:
        return self._simulated.times.names[values["name"]] if values["name"] >= 0 else self._host_name(values)


def _lanes(kernels: NDArray[np.void]) -> list[NDArray[np.void]]:
    """Kernels of one stream, by start, apart where they overlap: communications of one group do."""
    if len(kernels) < 2 or bool((kernels["start_ns"][1:] >= kernels["end_ns"][:-1]).all()):
        return [kernels]
    free_ns: list[int] = []
    lane_of = []
    for start_ns, end_ns in zip(kernels["start_ns"].tolist(), kernels["end_ns"].tolist(), strict=True):
        lane = next((lane for lane, free in enumerate(free_ns) if free <= start_ns), len(free_ns))
        free_ns[lane : lane + 1] = [end_ns]
        lane_of.append(lane)
    return [kernels[np.array(lane_of) == lane] for lane in range(len(free_ns))]
