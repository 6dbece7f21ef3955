"""A job's ranks, priced and simulated together: everything a prediction is computed from.

Every class of equal ranks is priced once. Where that is proved to give the same times, one rank of
each class is simulated for all of them (`maya.pipeline.representatives`), else every rank is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec, HostSpec
from maya.kernel_models import KernelCostModel, KernelTimes, host_gaps
from maya.pipeline.meeting import meeting_traces
from maya.pipeline.representatives import stand_for_their_classes
from maya.reports.report import SimulatedRank, SimulatedRun
from maya.simulator import (
    FixedTimeNetwork,
    RankInput,
    Settings,
    Timeline,
    TransferCost,
    iteration_times,
    simulate,
)
from maya.traces import (
    MARK_DATA_WAIT_BEGIN,
    Kind,
    RankClass,
    RankTrace,
    ranks_of_class,
    read_rank,
)

COMMUNICATION_KINDS = (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)


class TransferPrices(TransferCost, Protocol):
    """How long communications take, and the ends of the 80% interval of it."""

    def at(self, quantile: Literal["low", "high"]) -> TransferCost:
        """The same with every time at that end."""
        ...


@dataclass(frozen=True)
class Window:
    """The part of a rank's run that a prediction is about: some iterations, or all of it.

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
class PricedRank:
    """A simulated rank: its trace with kernel times and host gaps, and its part of the timeline.

    Attributes:
        trace: of the rank that was simulated.
        ranks: the ranks it stands for, itself among them.
        data_wait_ns: of each wait for data.
    """

    trace: RankTrace
    ranks: tuple[int, ...]
    times: KernelTimes
    host_gap_ns: NDArray[np.int64]
    data_wait_ns: int
    window: Window

    @property
    def rank(self) -> int:
        """Its global rank."""
        return self.trace.rank

    def kernels_in_window(self) -> slice:
        """Rows of `times` that belong to the window's operations."""
        offsets = self.times.operation_offsets
        return slice(int(offsets[self.window.first]), int(offsets[self.window.last]))

    def own_work_ns(self) -> int:
        """Kernels, copies and the host of an iteration, without communication or waiting."""
        part = slice(self.window.first, self.window.last)
        computes = ~np.isin(self.trace.operations.rows["kind"][part], COMMUNICATION_KINDS)
        kernels = self.times.operation_work_ns()[part][computes].sum()
        return int(kernels + self.host_gap_ns[part].sum()) // self.window.iterations

    def input(self) -> RankInput:
        """What the simulator is given of it."""
        trace = self.trace
        return RankInput(
            trace.rank, trace.operations, self.times, self.host_gap_ns, trace.tables, self.data_wait_ns
        )


@dataclass(frozen=True)
class PricedRun:
    """Priced ranks and their simulated timeline.

    Attributes:
        ranks: the simulated ones, ascending.
        prices: of communication; None for a job of one rank.
    """

    gpu: GpuSpec
    host: HostSpec
    settings: Settings
    timeline: Timeline
    ranks: tuple[PricedRank, ...]
    prices: TransferPrices | None = None

    @cached_property
    def slowest(self) -> PricedRank:
        """The rank whose iterations take longest, which is how long the job's take."""
        return slowest_of(self.ranks)

    @property
    def window(self) -> Window:
        """The slowest rank's."""
        return self.slowest.window

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return sum(len(rank.ranks) for rank in self.ranks)

    def simulated(self) -> SimulatedRun:
        """What a timeline is drawn from."""
        ranks = tuple(
            SimulatedRank(each.trace, each.times, each.window.first, each.ranks) for each in self.ranks
        )
        return SimulatedRun(ranks, self.timeline, self.gpu.name)

    def iteration_ns_with(
        self, change: Callable[[PricedRank], RankInput], prices: TransferCost | None
    ) -> int:
        """Mean iteration time of the job if kernels, host gaps or communications took other times."""
        timeline = _simulate([change(each) for each in self.ranks], prices, self.settings)
        return slowest_of([_with_window(each, timeline) for each in self.ranks]).window.iteration_ns


def price_run(
    run_dir: Path,
    classes: Sequence[RankClass],
    *,
    gpu: GpuSpec,
    host: HostSpec,
    model: KernelCostModel,
    warmup: int,
    data_wait_ns: Mapping[int, int] | None = None,
    prices: TransferPrices | None = None,
) -> PricedRun:
    """Read, price and simulate a job.

    Args:
        run_dir: run folder, whole or partial.
        classes: of the job's ranks.
        gpu, host: what it is priced for.
        model: how long kernels take.
        warmup: iterations to leave out.
        data_wait_ns: by a class's representative, the measured time of all its waits for data
            together, spread evenly over them; 0 or absent leaves waiting out.
        prices: how long communications take; needed where ranks communicate.

    Raises:
        CommunicationError: ranks do not agree on what they communicate, or wait for ever.
        MayaError: a trace is missing or damaged.
    """
    traces = [read_rank(run_dir, group.rank) for group in classes]
    alone = stand_for_their_classes(classes, traces)
    traces = meeting_traces(classes, traces, every_rank=not alone)
    ranks: list[PricedRank] = []
    for group, trace in zip(classes, traces, strict=True):
        first, last, iterations = _extent(trace, warmup)
        priced = PricedRank(
            trace=trace,
            ranks=group.ranks,
            times=model.predict(trace.operations, trace.tables, gpu),
            host_gap_ns=host_gaps(trace.operations, trace.tables, host),
            data_wait_ns=_wait_of_each(trace, (data_wait_ns or {}).get(group.rank, 0)),
            window=Window(first, last, 0, 0, iterations, not trace.tables.iteration_ends),
        )
        if alone:
            ranks.append(priced)
        else:
            members = ranks_of_class(trace, group)
            ranks.extend(replace(priced, trace=member, ranks=(rank,)) for rank, member in members.items())
    ranks.sort(key=lambda each: each.rank)
    settings = Settings(absent_members_arrive=alone)
    timeline = _simulate([each.input() for each in ranks], prices, settings)
    placed = tuple(_with_window(each, timeline) for each in ranks)
    return PricedRun(gpu, host, settings, timeline, placed, prices)


def _simulate(inputs: list[RankInput], prices: TransferCost | None, settings: Settings) -> Timeline:
    network = None if prices is None else FixedTimeNetwork(prices)
    return simulate(inputs, network=network, settings=settings)


def _extent(trace: RankTrace, warmup: int) -> tuple[int, int, int]:
    """First operation of the window, the one after its last, and its iterations."""
    ends = trace.tables.iteration_ends
    if not ends:
        return 0, trace.operations.count, 1
    skipped = min(warmup, len(ends) - 1)
    return 0 if skipped == 0 else ends[skipped - 1] + 1, ends[-1] + 1, len(ends) - skipped


def _with_window(rank: PricedRank, timeline: Timeline) -> PricedRank:
    """The rank with its window placed on a timeline."""
    ends = rank.trace.tables.iteration_ends
    if ends:
        spans = iteration_times(timeline, ends, rank=rank.rank)
        start_ns = int(spans.start_ns[len(ends) - rank.window.iterations])
        end_ns = int(spans.end_ns[-1])
    else:
        start_ns, end_ns = 0, timeline.makespan_ns
    return replace(rank, window=replace(rank.window, start_ns=start_ns, end_ns=end_ns))


def slowest_of(ranks: Sequence[PricedRank]) -> PricedRank:
    """The rank with the longest iterations. Where ranks wait for one another these are equally long: then
    the one that has most to do itself, which the others wait for.

    A rank that never steps (one that only serves data, say) counts only among its like.
    """
    stepping = [each for each in ranks if not each.window.is_whole_run] or ranks
    return max(stepping, key=lambda each: (each.window.iteration_ns, each.own_work_ns(), -each.rank))


def _wait_of_each(trace: RankTrace, data_wait_ns: int) -> int:
    if data_wait_ns == 0 or MARK_DATA_WAIT_BEGIN not in trace.tables.operators:
        return 0
    rows = trace.operations.rows
    begins = rows["operator"] == trace.tables.operators.index(MARK_DATA_WAIT_BEGIN)
    waits = int(np.count_nonzero(begins & (rows["kind"] == Kind.MARKER)))
    return data_wait_ns // waits if waits else 0
