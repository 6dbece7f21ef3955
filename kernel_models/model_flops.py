"""Model FLOPs: what the mathematics of the model needs, for MFU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.contract import KernelTimes
from maya.traces.operations import Operations, Phase
from maya.traces.tables import Tables

COUNTED = {
    "gemm": 1.0,
    "grouped_gemm": 1.0,
    "convolution": 1.0,
    "depthwise": 1.0,
    "recurrent": 1.0,
    "attention_forward": 1.0,
    # A flash backward recomputes QKᵀ, one of its five products: that is not the model's work.
    "attention_backward": 0.8,
}
"""Family → share of its kernels' flops that is model work. Causal attention counts the lower triangle."""


def model_flops(operations: Operations, tables: Tables, kernel_times: KernelTimes) -> NDArray[np.int64]:
    """[n] flops of matrix products, convolutions and attention; 0 for recomputed operations.

    Args:
        operations: n operations.
        tables: unused beyond the contract (flops come from the kernels).
        kernel_times: of these very operations.

    Raises:
        ValueError: `kernel_times` belongs to other operations.
    """
    del tables
    if len(kernel_times.operation_offsets) != operations.count + 1:
        raise ValueError(
            f"kernel times of {len(kernel_times.operation_offsets) - 1} operations for {operations.count}"
        )
    share = np.asarray([COUNTED.get(family, 0.0) for family in kernel_times.families] or [0.0])
    counted = (
        kernel_times.flops
        if kernel_times.count == 0
        else np.rint(kernel_times.flops * share[kernel_times.family]).astype(np.int64)
    )
    total = np.zeros(kernel_times.count + 1, dtype=np.int64)
    np.cumsum(counted, out=total[1:])
    flops = total[kernel_times.operation_offsets[1:]] - total[kernel_times.operation_offsets[:-1]]
    flops[operations.rows["phase"] == Phase.RECOMPUTE] = 0
    return flops
