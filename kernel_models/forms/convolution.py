"""Convolutions as implicit GEMMs, with Winograd where it applies and layout conversions.

`work.shape` is (batch, c_in per group, c_out per group, output pixels, taps, groups, direction, input
pixels, stride). The efficiency may exceed one for 3x3 stride-1 float32 convolutions only: Winograd
needs 2.25 times fewer multiplications for a 2x2 tile (Lavin and Gray 2016, arXiv:1509.09308).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maya.kernel_models.columns import DeviceColumns, Floats, WorkColumns
from maya.kernel_models.forms.form import Form, Parameter, smooth_maximum

TILE = 64.0
TENSOR_CORE_RATE = 4e11
"""Operations per second and SM above which the peak is a tensor core's (CUDA cores: 128 at 2 GHz = 2.6e11
multiply-adds)."""


def time_ns(p: Mapping[str, float], work: WorkColumns, device: DeviceColumns) -> Floats:
    """Nanoseconds of each convolution kernel, [k]."""
    batch, c_in, c_out, pixels, taps, groups, direction, source, stride = (
        work.shape[:, column] for column in range(9)
    )
    result_rows = np.where(direction == 0, batch * pixels, np.where(direction == 1, batch * source, c_out))
    result_cols = np.where(direction == 0, c_out, np.where(direction == 1, c_in, c_in * taps))
    depth = np.where(direction == 0, c_in * taps, np.where(direction == 1, c_out * taps, batch * pixels))
    tiles = np.maximum(groups, 1.0) * np.ceil(result_rows / TILE) * np.ceil(result_cols / TILE)
    # A weight gradient's long depth is always split over idle SMs.
    split = np.clip(device.sm_count / tiles, 1.0, np.maximum(depth / (4.0 * TILE), 1.0))
    waves = tiles * np.where(direction == 2, split, np.minimum(split, 4.0)) / device.sm_count
    quantised = np.where(waves < 1.0, 1.0, waves + p["quantisation"] * (np.ceil(waves) - waves))
    idle = quantised / np.maximum(waves, 1e-9)
    ragged = (
        np.ceil(result_rows / TILE) * TILE / result_rows * np.ceil(result_cols / TILE) * TILE / result_cols
    )
    rate = p["efficiency"] * depth / (depth + p["depth_half"])
    rate = rate * result_cols / (result_cols + p["channels_half"])
    winograd = (taps == 9.0) & (stride == 1.0) & (groups <= 1.0)
    rate = np.where(winograd, rate * p["winograd"], rate)
    rate = np.where(direction == 1, rate * p["data"], np.where(direction == 2, rate * p["weight"], rate))
    tensor_core = work.peak > TENSOR_CORE_RATE * 2.0 * device.sm_count
    odd = tensor_core & ((c_in % 8 != 0) | (c_out % 8 != 0)) & (c_in > 4)
    rate = np.where(odd, rate / p["misaligned"], rate)
    arithmetic = work.flops * idle * ragged ** p["raggedness"] / (work.peak * rate)
    memory = work.moved_bytes / (device.bandwidth * p["hbm"])
    result: Floats = p["floor_ns"] + 1e9 * smooth_maximum(arithmetic, memory)
    return result


def drivers(work: WorkColumns) -> Floats:
    """[k, 4]: logs of output pixels, channels in and out, flops."""
    sizes = np.stack(
        [work.shape[:, 0] * work.shape[:, 3], work.shape[:, 1], work.shape[:, 2], work.flops], axis=1
    )
    result: Floats = np.log(np.maximum(sizes, 1.0))
    return result


CONVOLUTION = Form(
    "convolution",
    (
        Parameter("floor_ns", 5_000.0, 500.0, 15_000.0),
        Parameter("efficiency", 0.55, 0.02, 1.0),
        Parameter("depth_half", 100.0, 1.0, 4_000.0),
        Parameter("channels_half", 16.0, 0.1, 1_000.0),
        Parameter("winograd", 1.0, 0.5, 4.0),
        Parameter("data", 0.9, 0.3, 1.3),
        Parameter("weight", 0.8, 0.2, 1.3),
        Parameter("quantisation", 0.5, 0.01, 1.0),
        Parameter("misaligned", 1.5, 1.0, 8.0),
        Parameter("raggedness", 0.5, 0.01, 1.0),
        Parameter("hbm", 0.6, 0.05, 1.0),
    ),
    time_ns,
    drivers,
    ("pixels", "c_in", "c_out", "flops"),
)
