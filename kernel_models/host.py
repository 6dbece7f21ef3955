"""Host time before each operation: Python and dispatch, by class of operation.

Defaults for the reference host; to be replaced by the fitted card.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maya.hardware import HostSpec
from maya.traces.operations import Kind, Operations, Phase
from maya.traces.tables import Tables

PLAIN_NS = 6_000
AUTOGRAD_NODE_NS = 2_500
BACKWARD_NS = 7_000
VIEW_NS = 1_500
MEMCPY_NS = 9_000
SYNC_NS = 2_000
FOREACH_NS = 25_000


def host_gaps(operations: Operations, tables: Tables, host: HostSpec) -> NDArray[np.int64]:
    """[n] host nanoseconds before each operation is issued; 0 for markers."""
    rows = operations.rows
    kind, phase = rows["kind"], rows["phase"]
    gap = np.full(len(rows), PLAIN_NS, dtype=np.float64)
    heavy = np.asarray(
        [name.startswith(("aten::_foreach", "aten::_fused_")) for name in tables.operators] or [False]
    )
    gap[phase == Phase.BACKWARD] = BACKWARD_NS
    gap[heavy[rows["operator"]]] = FOREACH_NS
    gap[(kind == Kind.MEMCPY)] = MEMCPY_NS
    gap[kind == Kind.HOST] = VIEW_NS
    gap[
        np.isin(
            kind, (Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.EVENT_SYNC, Kind.STREAM_SYNC, Kind.DEVICE_SYNC)
        )
    ] = SYNC_NS
    gap += AUTOGRAD_NODE_NS * (rows["wraps_autograd"] == 1)
    gap[kind == Kind.MARKER] = 0
    result: NDArray[np.int64] = np.rint(gap * host.dispatch_scale).astype(np.int64)
    return result
