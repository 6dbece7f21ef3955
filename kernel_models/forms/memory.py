"""Bandwidth-bound kernels: pointwise, reductions, norms, softmax, copies, optimizers and the like.

Traffic runs at HBM speed once the working set outgrows the L2, faster while it fits; a grid with
few blocks cannot draw the whole bandwidth; arithmetic may bound instead.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maya.kernel_models.columns import DeviceColumns, Floats, WorkColumns
from maya.kernel_models.forms.form import LOG_SIZES, Form, Parameter, log_sizes, smooth_maximum

TRANSITION = 2.0
"""Steepness of the change from L2 to HBM speed over the working set's size."""


def time_ns(p: Mapping[str, float], work: WorkColumns, device: DeviceColumns) -> Floats:
    """Nanoseconds of each kernel, [k]."""
    capacity = p["l2_capacity"] * device.l2_bytes
    outside = 1.0 / (1.0 + (capacity / np.maximum(work.moved_bytes, 1.0)) ** TRANSITION)
    slow = device.bandwidth * p["hbm"]
    fast = np.maximum(device.l2_bandwidth * p["l2"], slow)
    traffic = work.moved_bytes * (outside / slow + (1.0 - outside) / fast)
    # One SM can draw a few times its even share of the bandwidth, not all of it.
    of_one_block = work.moved_bytes / np.maximum(work.blocks, 1.0)
    lonely = of_one_block / (device.bandwidth / device.sm_count * p["per_block"])
    arithmetic = work.flops / (work.peak * p["compute"])
    result: Floats = p["floor_ns"] + 1e9 * smooth_maximum(traffic, lonely, arithmetic)
    return result


MEMORY = Form(
    "memory",
    (
        Parameter("floor_ns", 2_000.0, 500.0, 200_000.0),
        Parameter("hbm", 0.8, 0.02, 1.0),
        Parameter("l2", 0.6, 0.02, 1.5),
        Parameter("l2_capacity", 0.7, 0.05, 2.0),
        Parameter("per_block", 4.0, 0.1, 64.0),
        Parameter("compute", 0.5, 0.002, 1.0),
    ),
    time_ns,
    log_sizes,
    LOG_SIZES,
)
