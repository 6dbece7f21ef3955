"""Allocated and reserved device memory over the host's time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.simulator.timeline import Timeline
from maya.traces.operations import MemoryAction


@dataclass(frozen=True)
class MemoryCurve:
    """Memory of one device after each event of its caching allocator.

    The allocator works when the host calls it, not when the device gets there, so times are the
    host lane's.

    Attributes:
        time_ns: int64[n], non-decreasing.
        allocated_bytes: int64[n], held by tensors.
        reserved_bytes: int64[n], taken from the device by the caching allocator.
    """

    time_ns: NDArray[np.int64]
    allocated_bytes: NDArray[np.int64]
    reserved_bytes: NDArray[np.int64]

    @property
    def peak_allocated_bytes(self) -> int:
        """As `torch.cuda.max_memory_allocated`."""
        return int(self.allocated_bytes.max(initial=0))

    @property
    def peak_reserved_bytes(self) -> int:
        """As `torch.cuda.max_memory_reserved`."""
        return int(self.reserved_bytes.max(initial=0))


def memory_curve(
    timeline: Timeline, memory: NDArray[np.void], *, rank: int | None = None, device: int | None = None
) -> MemoryCurve:
    """Place a rank's allocator events in time.

    Args:
        timeline: result of `simulate`.
        memory: [n] of MEMORY_DTYPE, in order. An event happens when the host turns to the operation
            that follows it; events after the last operation happen when the host is done.
        rank: default: the lowest simulated rank.
        device: default: the lowest device in `memory`.

    Raises:
        ValueError: events out of order, sizes negative, or unknown rank.
    """
    hosts = timeline.hosts_of(timeline.ranks[0] if rank is None else rank)
    if len(memory) and device is None:
        device = int(memory["device"].min())
    rows = memory[memory["device"] == device] if len(memory) else memory
    if (np.diff(rows["operation"]) < 0).any() or (rows["operation"] < 0).any():
        raise ValueError("memory events must be ordered by operation, starting at 0")
    if (rows["size_bytes"] < 0).any():
        raise ValueError("memory events must not have negative sizes")
    last = hosts["end_ns"][-1:] if len(hosts) else np.zeros(1, dtype=np.int64)
    times = np.concatenate([hosts["start_ns"], last])
    sizes = rows["size_bytes"].astype(np.int64)
    return MemoryCurve(
        time_ns=times[np.minimum(rows["operation"], len(hosts))].astype(np.int64),
        allocated_bytes=_running(rows, sizes, MemoryAction.ALLOCATE, MemoryAction.FREE),
        reserved_bytes=_running(rows, sizes, MemoryAction.SEGMENT_ALLOCATE, MemoryAction.SEGMENT_FREE),
    )


def _running(
    rows: NDArray[np.void], sizes: NDArray[np.int64], grows: MemoryAction, shrinks: MemoryAction
) -> NDArray[np.int64]:
    change = np.where(rows["action"] == grows, sizes, 0) - np.where(rows["action"] == shrinks, sizes, 0)
    return np.cumsum(change, dtype=np.int64)
