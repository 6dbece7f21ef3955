"""For scripts that tests start: an emulated H100 in this process, and the operators that a step records.

Importing this installs the device, which cannot be undone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from maya.emulator.device import DeviceSettings, install_device
from maya.hardware import find_gpu
from maya.traces import OPERATION_DTYPE

GPU = "H100-SXM5-80GB"
native = install_device(DeviceSettings(find_gpu(GPU)))


def record(step: Callable[[], object]) -> list[dict[str, Any]]:
    """What `step` recorded, in issue order: operator, kind, host_thread and the metadata (args, out)."""
    native.drain()
    native.recording(True)
    step()
    native.recording(False)
    rows = np.frombuffer(native.drain()[0], OPERATION_DTYPE)
    operators, metadata = (native.interned(table, 0) for table in ("operators", "metadata"))
    return [
        {
            "operator": operators[row["operator"]],
            "kind": int(row["kind"]),
            "host_thread": int(row["host_thread"]),
            **(json.loads(metadata[row["metadata"]]) if row["metadata"] >= 0 else {}),
        }
        for row in rows
    ]
