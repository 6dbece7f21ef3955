"""Kernels and devices as columns: what the parametric time formulas compute on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.kernel_models.work import KernelWork

Floats = NDArray[np.float64]

PEAK_FALLBACK = {
    "tf32": "fp32",
    "bf16": "fp16",
    "fp16": "fp32",
    "fp8": "bf16",
    "fp4": "fp8",
    "int8": "fp16",
    "fp64_tensor": "fp64",
    "fp64": "fp32",
}
"""What a GPU without the arithmetic in question computes with instead."""
EMULATED_FP64_RATE = 1 / 64
"""Share of the fp32 rate where the catalogue gives no fp64 (GeForce: CUDA programming guide, table of
arithmetic throughput)."""
EMULATED_BF16_GENERATIONS = frozenset(("pascal", "volta", "turing"))
"""Without bf16 in tensor cores PyTorch's products run on CUDA cores in float32."""
INTEGER_LANES = 64
"""32-bit integer additions and multiplications an SM starts in a clock, Volta to Blackwell (CUDA programming
guide, table of arithmetic throughput; Pascal emulates multiplications)."""
L2_OVER_HBM = 2.5
"""L2 over HBM bandwidth where no measurement is in the catalogue (A100: 4.4/1.56, H100: 5.5/3.35, both by
Chips and Cheese's bandwidth tests)."""


@dataclass(frozen=True)
class DeviceColumns:
    """What formulas need of a device: scalars for one GPU, or [k] columns when a fit mixes GPUs.

    Attributes:
        bandwidth: HBM bytes per second.
        l2_bytes: size of the L2.
        l2_bandwidth: bytes per second.
        sm_count: streaming multiprocessors.
        link: bytes per second to the host, one direction.
        peer: bytes per second to another GPU, one direction.
        vector: float32 operations per second of the CUDA cores.
    """

    bandwidth: Floats
    l2_bytes: Floats
    l2_bandwidth: Floats
    sm_count: Floats
    link: Floats
    peer: Floats
    vector: Floats


@dataclass(frozen=True)
class WorkColumns:
    """k kernels of one family.

    Attributes:
        flops, moved_bytes, blocks: [k].
        shape: [k, s], meaning by family.
        peak: [k] operations per second of the kernel's arithmetic on its device.
    """

    flops: Floats
    moved_bytes: Floats
    blocks: Floats
    shape: Floats
    peak: Floats


def peak_flops(gpu: GpuSpec, math: str) -> float:
    """Dense operations per second of `math` on `gpu`, with what it falls back to ("integer": CUDA cores)."""
    key = math
    if math == "integer":
        return float(INTEGER_LANES * gpu.sm_count * gpu.boost_clock_mhz) * 1e6
    if math == "bf16" and gpu.generation in EMULATED_BF16_GENERATIONS:
        key = "fp32"
    while key not in gpu.peak_tflops and key in PEAK_FALLBACK:
        if key == "fp64":
            return gpu.peak_tflops["fp32"] * EMULATED_FP64_RATE * 1e12
        key = PEAK_FALLBACK[key]
    return float(gpu.peak_tflops[key]) * 1e12


def device_columns(gpus: Sequence[GpuSpec]) -> DeviceColumns:
    """[len(gpus)] columns."""
    table = [
        (
            gpu.hbm_bandwidth_gbps * 1e9,
            float(gpu.l2_bytes),
            (gpu.l2_bandwidth_gbps or L2_OVER_HBM * gpu.hbm_bandwidth_gbps) * 1e9,
            float(gpu.sm_count),
            gpu.pcie_gbps * 1e9,
            max(gpu.nvlink_gbps, gpu.pcie_gbps) * 1e9,
            float(gpu.peak_tflops["fp32"]) * 1e12,
        )
        for gpu in gpus
    ]
    array = np.asarray(table, dtype=np.float64).reshape(len(gpus), 7)
    return DeviceColumns(*array.T)


def work_columns(works: Sequence[KernelWork], peaks: Sequence[float]) -> WorkColumns:
    """Columns of kernels that belong to one family; shapes are padded with zeros to one width."""
    width = max((len(work.shape) for work in works), default=0)
    shape = np.zeros((len(works), max(width, 1)), dtype=np.float64)
    for row, work in enumerate(works):
        shape[row, : len(work.shape)] = work.shape
    return WorkColumns(
        flops=np.asarray([work.flops for work in works], dtype=np.float64),
        moved_bytes=np.asarray([work.moved_bytes for work in works], dtype=np.float64),
        blocks=np.asarray([work.blocks for work in works], dtype=np.float64),
        shape=shape,
        peak=np.asarray(peaks, dtype=np.float64),
    )
