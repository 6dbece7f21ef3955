"""The contract of a kernel cost model: operations in, time and occupancy of every kernel out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.traces.operations import Operations
from maya.traces.tables import Tables


class Source(IntEnum):
    """What a kernel's time rests on, best first.

    The parametric model of this room claims LEARNED only where its family's efficiency was fitted
    to measurements of the same family, arithmetic and GPU generation and the kernel lies inside
    the fitted range of sizes. The same fit outside that range, or carried over from other
    generations, is EXTRAPOLATED. Physics with an assumed efficiency is ROOFLINE.
    """

    MEASURED = 0
    """This very operator, shape and GPU is in a profile."""
    LEARNED = 1
    EXTRAPOLATED = 2
    ROOFLINE = 3


@dataclass(frozen=True)
class KernelTimes:
    """Times of the kernels of n operations, k kernels in issue order.

    `work_ns` is the time of a kernel that runs alone, launched back to back with others (its host
    cost is not in it). `low_ns`..`high_ns` is an 80% interval. Shares are what the kernel takes of
    the GPU's SMs, of its HBM bandwidth and of the host or peer link while it runs.

    Attributes:
        operation_offsets: [n + 1]; kernels of operation i are `offsets[i]:offsets[i + 1]`.
        work_ns, low_ns, high_ns: [k] int64, at least 1.
        source: [k] uint8 of Source.
        family: [k] int32 index into `families`.
        name: [k] int32 index into `names`, kernel names as shown to the user.
        flops, moved_bytes: [k] int64, the algorithm's arithmetic and its compulsory traffic.
        sm_share, hbm_share, link_share: [k] float32 in 0..1.
        unknown_operators: operators no family knows, priced by their bytes; sorted.
    """

    operation_offsets: NDArray[np.int64]
    work_ns: NDArray[np.int64]
    low_ns: NDArray[np.int64]
    high_ns: NDArray[np.int64]
    source: NDArray[np.uint8]
    family: NDArray[np.int32]
    families: tuple[str, ...]
    name: NDArray[np.int32]
    names: tuple[str, ...]
    flops: NDArray[np.int64]
    moved_bytes: NDArray[np.int64]
    sm_share: NDArray[np.float32]
    hbm_share: NDArray[np.float32]
    link_share: NDArray[np.float32]
    unknown_operators: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many kernels."""
        return len(self.work_ns)

    def operation_work_ns(self) -> NDArray[np.int64]:
        """[n] sum of `work_ns` over each operation's kernels."""
        total = np.zeros(self.count + 1, dtype=np.int64)
        np.cumsum(self.work_ns, out=total[1:])
        return total[self.operation_offsets[1:]] - total[self.operation_offsets[:-1]]


class KernelCostModel(Protocol):
    """Anything that can price operations on a GPU."""

    def predict(self, operations: Operations, tables: Tables, gpu: GpuSpec) -> KernelTimes:
        """Price every operation.

        Args:
            operations: n operations of one rank.
            tables: what they index into.
            gpu: the device asked for.

        Raises:
            ValueError: a row indexes outside the tables, or a metadata text is malformed.
        """
        ...
