"""The columns of an operation: what the emulator records and every later room reads.

One record is one operation in host issue order. Durations are not here: they change with the
GPU asked for and live beside the trace. The iteration and microbatch of an operation are not
stored per record either: they follow from the iteration ends and the backward markers
(`maya.traces.iterations`), because an iteration's end can be known only after the fact.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Kind(IntEnum):
    """What an operation asks of the device (or that it asks nothing: HOST, MARKER)."""

    KERNEL = 0
    """An operator that launches kernels; how many is the kernel model's knowledge."""
    MEMCPY = 1
    """A copy by a copy engine; direction and bytes are in the metadata's `memcpy` entry."""
    MEMSET = 2
    EVENT_RECORD = 3
    STREAM_WAIT = 4
    """Later work of `stream` waits for `event`."""
    EVENT_SYNC = 5
    """The host waits for `event`."""
    STREAM_SYNC = 6
    DEVICE_SYNC = 7
    COLLECTIVE = 8
    SEND = 9
    RECV = 10
    WAIT = 11
    """A stream or the host waits for an asynchronous communication's handle."""
    HOST = 12
    """An operator that costs the host a dispatch and launches nothing: a view, an allocation."""
    MARKER = 13
    """A point in the program (`maya::...` operators below). Costs nothing."""


class Phase(IntEnum):
    """The part of a training step that issued the operation."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    RECOMPUTE = 3
    OPTIMIZER = 4
    DATA = 5


class Role(IntEnum):
    """How an operation uses a tensor."""

    READ = 0
    WRITE = 1
    READ_WRITE = 2


class MemoryAction(IntEnum):
    """What happened in the caching allocator."""

    ALLOCATE = 0
    """A block was handed out. `allocation` is the storage id."""
    FREE = 1
    """The owner let go of a block (it may stay reserved for other streams' events)."""
    RECLAIM = 2
    """A block that waited for other streams (record_stream) became free for reuse."""
    SEGMENT_ALLOCATE = 3
    """cudaMalloc (or mapping of an expandable segment): reserved memory grows."""
    SEGMENT_FREE = 4
    """cudaFree: reserved memory shrinks."""
    OUT_OF_MEMORY = 5
    """An allocation failed; `size_bytes` is what was asked for after rounding."""


OPERATION_DTYPE = np.dtype(
    [
        ("id", "<i8"),  # dense from 0 in host issue order
        ("sequence", "<i8"),  # autograd sequence number of the forward node, -1 if none
        ("stream", "<i8"),  # stream id, 0 = the default stream of `device`
        ("event", "<i8"),  # event id of EVENT_RECORD, STREAM_WAIT, EVENT_SYNC; else -1
        ("operator", "<i4"),  # index into Tables.operators, e.g. "aten::add.Tensor"
        ("metadata", "<i4"),  # index into Tables.metadata
        ("module", "<i4"),  # index into Tables.modules, -1 outside every module
        ("source_line", "<i4"),  # index into Tables.source_lines, -1 if unknown
        ("communication", "<i4"),  # row of the communication table, -1 if none
        ("graph", "<i4"),  # CUDA graph capture id, -1 outside a capture
        ("host_thread", "<i4"),  # dense index of the issuing thread, 0 = the first
        ("tensor_count", "<i4"),  # how many rows of the tensor table belong to it
        ("device", "<i2"),  # device index
        ("kind", "u1"),  # Kind
        ("phase", "u1"),  # Phase
        ("blocking", "u1"),  # 1: the host waits until it has finished on the device
        ("wraps_autograd", "u1"),  # 1: the dispatch also built an autograd node (host cost)
        ("padding", "<i2"),
    ]
)
"""One operation. Matches `struct Operation` of emulator/csrc/recording/records.h, 72 bytes."""

TENSOR_DTYPE = np.dtype(
    [
        ("storage", "<i8"),  # allocation id; -1: host memory
        ("offset_bytes", "<i8"),  # of the view's first element within the storage
        ("extent_bytes", "<i8"),  # from there to the end of its last element
        ("argument", "<i2"),  # position in the operator's schema; outputs: 256 + position
        ("role", "u1"),  # Role
        ("padding", "u1"),
        ("padding_2", "<i4"),
    ]
)
"""A tensor an operation reads or writes. Matches `struct TensorUse`, 32 bytes.

A tensor is identified by its storage id, its offset and its shape (in the metadata)."""

MEMORY_DTYPE = np.dtype(
    [
        ("operation", "<i8"),  # id of the next operation to be recorded when it happened
        ("allocation", "<i8"),  # allocation (storage) id; -1 for segments
        ("address", "<i8"),
        ("size_bytes", "<i8"),  # after rounding
        ("requested_bytes", "<i8"),
        ("stream", "<i8"),
        ("module", "<i4"),  # who allocated; -1 outside every module
        ("device", "<i2"),
        ("action", "u1"),  # MemoryAction
        ("phase", "u1"),  # Phase at the time
    ]
)
"""One event of the caching allocator. Matches `struct MemoryEvent`, 56 bytes."""

COMMUNICATION_DTYPE = np.dtype(
    [
        ("communicator", "<i4"),  # index into Tables.communicators
        ("sequence_in_communicator", "<i4"),
        ("collective", "<i4"),  # Chakra's CollectiveCommType; -1 for send, recv, wait
        ("reduce_op", "<i4"),
        ("input_bytes", "<i8"),  # of one rank
        ("output_bytes", "<i8"),  # of one rank
        ("peer", "<i4"),
        ("tag", "<i4"),
        ("coalescing_group", "<i4"),
        ("async_handle", "<i4"),
    ]
)
"""What a COLLECTIVE, SEND, RECV or WAIT adds to its operation."""

# Operators of Kind.MARKER. Their metadata carries what they announce.
MARK_ITERATION_END = "maya::iteration_end"
MARK_BACKWARD_BEGIN = "maya::backward_begin"
MARK_BACKWARD_END = "maya::backward_end"
MARK_OPTIMIZER_BEGIN = "maya::optimizer_begin"
MARK_OPTIMIZER_END = "maya::optimizer_end"
MARK_DATA_WAIT_BEGIN = "maya::data_wait_begin"
MARK_DATA_WAIT_END = "maya::data_wait_end"
MARK_BATCH = "maya::batch"
"""args: samples, tokens (0 where it cannot be inferred) of one forward of the root module."""


@dataclass(frozen=True)
class Operations:
    """Operations of one rank as columns, a contiguous run in issue order.

    Attributes:
        rows: [n] of OPERATION_DTYPE.
        tensors: [m] of TENSOR_DTYPE, grouped by operation in the same order.
        communications: [c] of COMMUNICATION_DTYPE.
    """

    rows: NDArray[np.void]
    tensors: NDArray[np.void]
    communications: NDArray[np.void]

    @property
    def count(self) -> int:
        """How many operations."""
        return len(self.rows)

    def tensor_offsets(self) -> NDArray[np.int64]:
        """[n + 1]: operation i's tensors are `tensors[offsets[i]:offsets[i + 1]]`."""
        offsets = np.zeros(len(self.rows) + 1, dtype=np.int64)
        np.cumsum(self.rows["tensor_count"], out=offsets[1:])
        return offsets


def no_communications() -> NDArray[np.void]:
    """An empty communication table."""
    return np.zeros(0, dtype=COMMUNICATION_DTYPE)
