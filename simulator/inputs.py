"""What one rank brings to a simulation, and the checks that make it safe to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maya.errors import MayaError
from maya.traces.operations import Kind, Operations
from maya.traces.tables import Tables

SHARE_TOLERANCE = 1e-6
"""Shares are float32 ratios; sums within this of 1 count as 1."""

LAUNCHING_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
"""Kinds whose kernels the kernel model prices."""

NETWORK_KINDS = (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)
"""Kinds whose time the network model decides (kernels give only what they occupy on the GPU)."""


class KernelWork(Protocol):
    """Kernels of a rank's operations as columns (the part of KernelTimes the engine needs).

    `operation_offsets` int64[n_ops + 1]; `work_ns` int64[k], the duration when alone; `sm_share`,
    `hbm_share`, `link_share` float[k] in 0..1, what it occupies of its GPU when alone.
    """

    @property
    def operation_offsets(self) -> NDArray[np.int64]: ...
    @property
    def work_ns(self) -> NDArray[np.int64]: ...
    @property
    def sm_share(self) -> NDArray[np.float32]: ...
    @property
    def hbm_share(self) -> NDArray[np.float32]: ...
    @property
    def link_share(self) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class KernelColumns:
    """A plain KernelWork: columns as `KernelWork` describes them."""

    operation_offsets: NDArray[np.int64]
    work_ns: NDArray[np.int64]
    sm_share: NDArray[np.float32]
    hbm_share: NDArray[np.float32]
    link_share: NDArray[np.float32]


def with_work(kernels: KernelWork, work_ns: NDArray[np.int64]) -> KernelColumns:
    """The same kernels with other durations, e.g. the low or high end of an interval.

    Args:
        kernels: where offsets and shares come from.
        work_ns: int64[k].
    """
    return KernelColumns(
        operation_offsets=kernels.operation_offsets,
        work_ns=work_ns,
        sm_share=kernels.sm_share,
        hbm_share=kernels.hbm_share,
        link_share=kernels.link_share,
    )


@dataclass(frozen=True)
class RankInput:
    """One rank's program and what it costs.

    All host threads of a rank share one lane in issue order: the backward pass runs on autograd's
    thread while the thread that called it waits, so that two lanes would not overlap either. A
    stream's dependencies are those in the trace (stream 0 has no implicit barrier, as between
    PyTorch's non-blocking streams); a wait for an event never recorded, or for a communication that
    the trace does not have, is none.

    Attributes:
        rank: global rank.
        operations: in issue order, ids dense from 0.
        kernels: what each operation launches.
        host_gap_ns: int64[n_ops], host time spent before each operation is issued.
        tables: names and metadata. Needed for collectives (members), copy directions, data waits
            and readable errors. Without them a blocking MEMCPY counts as device to host, another
            as host to device.
        data_wait_ns: time the host waits in each data-wait section; None: `Settings.data_wait_ns`.
    """

    rank: int
    operations: Operations
    kernels: KernelWork
    host_gap_ns: NDArray[np.int64]
    tables: Tables | None = None
    data_wait_ns: int | None = None

    def operation_name(self, operation: int) -> str:
        """`aten::mm (operation 17, train.py:3)`, or just the kind where names are missing."""
        row = self.operations.rows[operation]
        name, place = Kind(int(row["kind"])).name, ""
        if self.tables is not None:
            index, line = int(row["operator"]), int(row["source_line"])
            if 0 <= index < len(self.tables.operators):
                name = self.tables.operators[index]
            if 0 <= line < len(self.tables.source_lines):
                place = f", {self.tables.source_lines[line]}"
        return f"{name} (operation {operation}{place})"


def check_rank(rank: RankInput) -> None:
    """Refuse what cannot be simulated, naming the rank, the column and the first bad place.

    Raises:
        ValueError: lengths that disagree, negative or NaN times, shares outside 0..1.
        MayaError: the trace itself is inconsistent (ids, kinds, events, communication rows).
    """
    _check_operations(rank)
    rows = rank.operations.rows
    kernels = rank.kernels
    where = f"rank {rank.rank}"
    _check_times(rank.host_gap_ns, f"{where}: host_gap_ns", len(rows))
    if rank.data_wait_ns is not None:
        _check_times([rank.data_wait_ns], f"{where}: data_wait_ns", 1)
    offsets = np.asarray(kernels.operation_offsets)
    if offsets.shape != (len(rows) + 1,):
        raise ValueError(f"{where}: operation_offsets has shape {offsets.shape}, not ({len(rows) + 1},)")
    if not np.issubdtype(offsets.dtype, np.integer):
        raise ValueError(f"{where}: operation_offsets must be integers, not {offsets.dtype}")
    count = len(kernels.work_ns)
    if offsets[0] != 0 or offsets[-1] != count or (np.diff(offsets) < 0).any():
        raise ValueError(f"{where}: operation_offsets must rise from 0 to the number of kernels, {count}")
    _check_times(kernels.work_ns, f"{where}: work_ns", count)
    for name in ("sm_share", "hbm_share", "link_share"):
        _check_shares(getattr(kernels, name), f"{where}: {name}", count)
    launches = np.diff(offsets) > 0
    allowed = np.isin(rows["kind"], [int(kind) for kind in (*LAUNCHING_KINDS, *NETWORK_KINDS)])
    wrong = np.flatnonzero(launches & ~allowed)
    if len(wrong):
        raise ValueError(f"{where}: {rank.operation_name(int(wrong[0]))} cannot launch kernels but has some")


def _check_operations(rank: RankInput) -> None:
    rows = rank.operations.rows
    where = f"rank {rank.rank}"
    wrong = np.flatnonzero(rows["id"] != np.arange(len(rows)))
    if len(wrong):
        place = int(wrong[0])
        raise MayaError(
            f"{where}: operation {place} has id {int(rows['id'][place])}",
            hint="ids must be dense from 0 in issue order; the trace is damaged or was cut at its start",
        )
    wrong = np.flatnonzero(rows["kind"] > max(Kind))
    if len(wrong):
        place = int(wrong[0])
        raise MayaError(f"{where}: operation {place} has the unknown kind {int(rows['kind'][place])}")
    kinds = rows["kind"]
    uses_event = np.isin(kinds, [int(Kind.EVENT_RECORD), int(Kind.STREAM_WAIT), int(Kind.EVENT_SYNC)])
    wrong = np.flatnonzero(uses_event & (rows["event"] == -1))
    if len(wrong):
        raise MayaError(f"{where}: {rank.operation_name(int(wrong[0]))} names no event")
    communicates = np.isin(kinds, [int(kind) for kind in (*NETWORK_KINDS, Kind.WAIT)])
    index = rows["communication"]
    wrong = np.flatnonzero(communicates & ((index < 0) | (index >= len(rank.operations.communications))))
    if len(wrong):
        raise MayaError(f"{where}: {rank.operation_name(int(wrong[0]))} has no communication row")


def _check_times(values: Any, name: str, length: int) -> None:
    column = np.asarray(values)
    if column.shape != (length,):
        raise ValueError(f"{name} has shape {column.shape}, not ({length},)")
    if not np.issubdtype(column.dtype, np.integer):
        place = ""
        if np.issubdtype(column.dtype, np.floating) and not np.isfinite(column).all():
            bad = int(np.flatnonzero(~np.isfinite(column))[0])
            place = f"; entry {bad} is {column[bad]}"
        raise ValueError(f"{name} must be integer nanoseconds, not {column.dtype}{place}")
    negative = np.flatnonzero(column < 0)
    if len(negative):
        place_at = int(negative[0])
        raise ValueError(f"{name} must not be negative; entry {place_at} is {int(column[place_at])}")


def _check_shares(values: Any, name: str, length: int) -> None:
    column = np.asarray(values)
    if column.shape != (length,):
        raise ValueError(f"{name} has shape {column.shape}, not ({length},)")
    good = (column >= 0) & (column <= 1 + SHARE_TOLERANCE)  # false for NaN
    if not good.all():
        place = int(np.flatnonzero(~good)[0])
        raise ValueError(f"{name} must lie in 0..1; entry {place} is {column[place]}")
