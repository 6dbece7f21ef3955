"""What the allocator's log says about peaks, and about who held memory when it ran out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.emulator.memory_owners import Owners
from maya.traces import MemoryAction, Phase


def peaks(memory: NDArray[np.void], device: int = 0) -> tuple[int, int]:
    """Peak of allocated and of reserved bytes on a device.

    Args:
        memory: [n] of MEMORY_DTYPE, one rank's log.
    """
    rows = memory[memory["device"] == device]
    return (
        _peak(rows, MemoryAction.ALLOCATE, MemoryAction.FREE),
        _peak(rows, MemoryAction.SEGMENT_ALLOCATE, MemoryAction.SEGMENT_FREE),
    )


def fullest_device(memory: NDArray[np.void]) -> int:
    """The device whose reserved memory peaks highest: the one that a rank trains on; 0 if none was used.

    Args:
        memory: [n] of MEMORY_DTYPE, one rank's log.
    """
    devices = [int(device) for device in np.unique(memory["device"])]
    return max(devices, key=lambda device: (peaks(memory, device)[1], -device), default=0)


def _peak(rows: NDArray[np.void], grows: MemoryAction, shrinks: MemoryAction) -> int:
    sizes = rows["size_bytes"]
    changes = np.where(rows["action"] == grows, sizes, np.where(rows["action"] == shrinks, -sizes, 0))
    return int(max(np.cumsum(changes).max(initial=0), 0))


def out_of_memory(
    memory: NDArray[np.void], modules: list[str], source_line: str, owners: Owners
) -> dict[str, Any] | None:
    """The last allocation that failed, and the memory held then by module and kind, largest first.

    Args:
        memory: [n] of MEMORY_DTYPE, one rank's log.
        modules: paths that its `module` column indexes.
        source_line: the user's line that asked.
        owners: what is known of allocations beyond who was running when they were made.

    Returns:
        None if none failed; otherwise requested_bytes, module, source_line and held.
    """
    failures = np.flatnonzero(memory["action"] == MemoryAction.OUT_OF_MEMORY)
    if not len(failures):
        return None
    failed = memory[failures[-1]]
    before = memory[: failures[-1]]
    before = before[before["device"] == failed["device"]]
    freed = np.unique(before["allocation"][before["action"] == MemoryAction.FREE])
    live = before[before["action"] == MemoryAction.ALLOCATE]
    live = live[~np.isin(live["allocation"], freed)]
    held: dict[tuple[str, str], int] = {}
    for row in live:
        running = _module(int(row["module"]), modules), Phase(int(row["phase"])).name.lower()
        owner = owners.get(int(row["allocation"]), running)
        held[owner] = held.get(owner, 0) + int(row["size_bytes"])
    return {
        "requested_bytes": int(failed["requested_bytes"]),
        "module": _module(int(failed["module"]), modules),
        "source_line": source_line,
        "held": [
            {"module": module, "phase": phase, "bytes": size}
            for (module, phase), size in sorted(held.items(), key=lambda item: (-item[1], item[0]))
        ],
    }


def _module(index: int, modules: list[str]) -> str:
    return modules[index] if 0 <= index < len(modules) else ""
