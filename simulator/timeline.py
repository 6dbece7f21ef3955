"""The engine's result: when every kernel ran and when the host issued every operation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Activity(IntEnum):
    """What a device row is doing."""

    COMPUTE = 0
    COPY = 1
    """A copy engine at work: host to device, device to host or peer to peer."""
    COMMUNICATION = 2
    """A collective or a message between ranks."""


KERNEL_ROW_DTYPE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("ready_ns", "<i8"),  # communication: reached by its stream, and waited for its peers; else start
        ("operation", "<i8"),
        ("kernel", "<i8"),  # index into the rank's kernel columns, -1: communication without one
        ("stream", "<i8"),
        ("rank", "<i4"),
        ("device", "<i2"),
        ("activity", "u1"),  # Activity
        ("padding", "u1"),
    ]
)
"""One kernel, copy or transfer on a device."""

HOST_ROW_DTYPE = np.dtype(
    [
        ("start_ns", "<i8"),  # the host turned to the operation
        ("issue_ns", "<i8"),  # issued; from start to here the host was busy
        ("end_ns", "<i8"),  # the host went on; from issue to here it was blocked
        ("operation", "<i8"),
        ("rank", "<i4"),
        ("thread", "<i4"),
    ]
)
"""One operation on a host lane."""


@dataclass(frozen=True)
class Timeline:
    """When everything happened, in ns since the start of the run.

    Attributes:
        ranks: simulated ranks, ascending.
        kernels: [k] of KERNEL_ROW_DTYPE, ordered by rank, then issue order.
        hosts: [n] of HOST_ROW_DTYPE, one for each operation, ordered by rank, then operation.
        makespan_ns: when the last host lane and the last device were done.
    """

    ranks: tuple[int, ...]
    kernels: NDArray[np.void]
    hosts: NDArray[np.void]
    makespan_ns: int

    def kernels_of(self, rank: int) -> NDArray[np.void]:
        """A rank's kernel rows in issue order. Raises ValueError for a rank not simulated."""
        return self._rows_of(self.kernels, rank)

    def hosts_of(self, rank: int) -> NDArray[np.void]:
        """A rank's host rows, indexed by operation id. Raises ValueError for a rank not simulated."""
        return self._rows_of(self.hosts, rank)

    def _rows_of(self, rows: NDArray[np.void], rank: int) -> NDArray[np.void]:
        if rank not in self.ranks:
            raise ValueError(f"rank {rank} was not simulated; simulated ranks: {list(self.ranks)}")
        begin, end = np.searchsorted(rows["rank"], [rank, rank + 1])
        return rows[begin:end]


def completion_ns(timeline: Timeline, rank: int) -> NDArray[np.int64]:
    """[n_ops]: when the host had passed operation i and all device work issued up to i was done.

    Non-decreasing by construction. Raises ValueError for a rank not simulated.
    """
    hosts = timeline.hosts_of(rank)
    kernels = timeline.kernels_of(rank)
    done = hosts["end_ns"].astype(np.int64)
    np.maximum.at(done, kernels["operation"], kernels["end_ns"])
    completed: NDArray[np.int64] = np.maximum.accumulate(done) if len(done) else done
    return completed
