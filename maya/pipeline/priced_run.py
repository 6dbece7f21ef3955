"""One rank's trace, priced and simulated: everything a prediction is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec, HostSpec
from maya.kernel_models import KernelCostModel, KernelTimes, host_gaps
from maya.reports.report import SimulatedRun
from maya.simulator import RankInput, Settings, Timeline, iteration_times, simulate
from maya.traces import MARK_DATA_WAIT_BEGIN, Kind, RankTrace, read_rank


@dataclass(frozen=True)
class Window:
    """The part of a run that a prediction is about: some iterations, or all of it.

    Attributes:
        first, last: operations `first <= id < last`.
        start_ns, end_ns: on the simulated timeline.
        iterations: how many it holds; 1 for a whole run.
        is_whole_run: the script never stepped.
    """

    first: int
    last: int
    start_ns: int
    end_ns: int
    iterations: int
    is_whole_run: bool

    @property
    def iteration_ns(self) -> int:
        """Mean time of one iteration, rounded to a ns (half up)."""
        return (2 * (self.end_ns - self.start_ns) + self.iterations) // (2 * self.iterations)


@dataclass(frozen=True)
class PricedRun:
    """A trace with its kernel times, host gaps and simulated timeline."""

    trace: RankTrace
    gpu: GpuSpec
    host: HostSpec
    times: KernelTimes
    host_gap_ns: NDArray[np.int64]
    settings: Settings
    timeline: Timeline
    window: Window

    def kernels_in_window(self) -> slice:
        """Rows of `times` that belong to the window's operations."""
        offsets = self.times.operation_offsets
        return slice(int(offsets[self.window.first]), int(offsets[self.window.last]))

    def simulated(self) -> SimulatedRun:
        """What a timeline is drawn from."""
        return SimulatedRun(self.trace, self.times, self.timeline, self.gpu.name, self.window.first)

    def iteration_ns_with(self, rank_input: RankInput) -> int:
        """Mean iteration time if kernels or host gaps took other times."""
        timeline = simulate([rank_input], settings=self.settings)
        return _window(timeline, self.trace, self.window.first, self.window.iterations).iteration_ns


def price_run(
    run_dir: Path,
    *,
    rank: int,
    gpu: GpuSpec,
    host: HostSpec,
    model: KernelCostModel,
    warmup: int,
    data_wait_ns: int = 0,
) -> PricedRun:
    """Read, price and simulate one rank.

    Args:
        run_dir: run folder, whole or partial.
        rank: the rank that ran.
        gpu, host: what it is priced for.
        model: how long kernels take.
        warmup: iterations to leave out.
        data_wait_ns: measured time of all waits for data together, spread evenly over them; 0 leaves
            waiting out.

    Raises:
        MayaError: the trace is missing or damaged.
    """
    trace = read_rank(run_dir, rank)
    times = model.predict(trace.operations, trace.tables, gpu)
    gaps = host_gaps(trace.operations, trace.tables, host)
    settings = Settings(data_wait_ns=_wait_of_each(trace, data_wait_ns))
    timeline = simulate([RankInput(rank, trace.operations, times, gaps, trace.tables)], settings=settings)
    ends = trace.tables.iteration_ends
    if ends:
        skipped = min(warmup, len(ends) - 1)
        first = 0 if skipped == 0 else ends[skipped - 1] + 1
        window = _window(timeline, trace, first, len(ends) - skipped)
    else:
        window = _window(timeline, trace, 0, 1)
    return PricedRun(trace, gpu, host, times, gaps, settings, timeline, window)


def _window(timeline: Timeline, trace: RankTrace, first: int, iterations: int) -> Window:
    ends = trace.tables.iteration_ends
    count = trace.operations.count
    if not ends:
        return Window(0, count, 0, timeline.makespan_ns, 1, is_whole_run=True)
    spans = iteration_times(timeline, ends)
    start_ns = int(spans.start_ns[len(ends) - iterations])
    return Window(first, ends[-1] + 1, start_ns, int(spans.end_ns[-1]), iterations, is_whole_run=False)


def _wait_of_each(trace: RankTrace, data_wait_ns: int) -> int:
    if data_wait_ns == 0 or MARK_DATA_WAIT_BEGIN not in trace.tables.operators:
        return 0
    rows = trace.operations.rows
    begins = rows["operator"] == trace.tables.operators.index(MARK_DATA_WAIT_BEGIN)
    waits = int(np.count_nonzero(begins & (rows["kind"] == Kind.MARKER)))
    return data_wait_ns // waits if waits else 0
