"""Memory of each GPU over the simulated time, from the allocator's log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.traces import MemoryAction, RankTrace

_ALLOCATED = {MemoryAction.ALLOCATE: 1, MemoryAction.FREE: -1}
_RESERVED = {MemoryAction.SEGMENT_ALLOCATE: 1, MemoryAction.SEGMENT_FREE: -1}


@dataclass(frozen=True)
class MemoryCurve:
    """Samples after each change, [n] each: ns and bytes."""

    times_ns: NDArray[np.int64]
    allocated: NDArray[np.int64]
    reserved: NDArray[np.int64]


def memory_curves(trace: RankTrace, hosts: NDArray[np.void]) -> dict[int, MemoryCurve]:
    """GPU index → its curve.

    The allocator works on the host, so an event happens when the host issues the operation that
    follows it; of the events of one operation only the state after the last is kept.

    Args:
        trace: with the allocator's log.
        hosts: HOST_ROW_DTYPE rows by operation id.
    """
    curves: dict[int, MemoryCurve] = {}
    if not len(hosts):
        return curves
    for device in np.unique(trace.memory["device"]).tolist():
        events = trace.memory[trace.memory["device"] == device]
        allocated = np.cumsum(_signed(events, _ALLOCATED))
        reserved = np.cumsum(_signed(events, _RESERVED))
        operation = np.minimum(events["operation"], len(hosts) - 1)
        times_ns = np.maximum.accumulate(hosts["issue_ns"][operation].astype(np.int64))
        last = np.ones(len(events), dtype=bool)
        last[:-1] = times_ns[1:] != times_ns[:-1]
        curves[device] = MemoryCurve(times_ns[last], allocated[last], reserved[last])
    return curves


def _signed(events: NDArray[np.void], sign_of: dict[MemoryAction, int]) -> NDArray[np.int64]:
    sign = np.zeros(len(MemoryAction), dtype=np.int64)
    for action, value in sign_of.items():
        sign[action] = value
    signed: NDArray[np.int64] = sign[events["action"]] * events["size_bytes"]
    return signed
