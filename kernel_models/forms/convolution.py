"""Convolutions as implicit GEMMs: the best of a library's output tiles and split-K factors.

`work.shape` is (batch, c_in per group, c_out per group, output pixels, taps, groups, direction, input
pixels, stride, channels last). A convolution of any direction is a product of `rows` x `cols` x `depth` whose
tiles run on SMs as a GEMM's do; tensor cores take channels in eights, padding the rest. What else decides:

- a product too small or too ragged for tensor cores still runs on CUDA cores, which need no padding;
- 3x3 stride-1 float32 convolutions may run as Winograd, 2.25 to 4 times fewer multiplications (Lavin and Gray
  2016, arXiv:1509.09308), at the cost of transformed images in memory;
- tensor-core kernels want channels last: channels-first images and weights are converted before and after,
  unless the convolution is 1x1 with stride 1 on an image that fills tiles: a plain product for each image,
  whose weight gradients are then added up.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maya.kernel_models.columns import DeviceColumns, Floats, WorkColumns
from maya.kernel_models.forms.form import Form, Parameter, smooth_maximum

TILES = np.array(
    [
        (256, 128),
        (128, 256),
        (128, 128),
        (256, 64),
        (64, 256),
        (128, 64),
        (64, 128),
        (64, 64),
        (128, 32),
        (32, 128),
    ],
    dtype=np.float64,
)
"""Output tiles of cuDNN's implicit-GEMM kernels, rows by columns (names of kernels in the traces)."""
SPLITS = np.array([1, 2, 4, 8, 16, 32], dtype=np.float64)
"""How many blocks may share one tile's depth."""
TENSOR_CORE_CHANNELS = 8.0
MOST_OF_PEAK = 0.85
"""No measured tensor-core convolution passes 0.77 of the peak (DeepBench V100, TF32 in the A100 trace)."""
TENSOR_CORE_RATE = 4e11
"""Operations per second and SM above which the peak is a tensor core's (CUDA cores: 128 at 2 GHz = 2.6e11
multiply-adds)."""
WINOGRAD_TRAFFIC = 2 * 2.25
"""Transformed images, written and read: 36 values for each 16 results of a 4x4 tile."""
PLAIN_PIXELS = 128.0
"""Pixels from which cuDNN takes a channels-first 1x1 convolution as one product an image (of the A100
trace's, those of 14x14 pixels are plain and those of 7x7 converted)."""
FORWARD, DATA, WEIGHT = 0, 1, 2


def time_ns(p: Mapping[str, float], work: WorkColumns, device: DeviceColumns) -> Floats:
    """Nanoseconds of each convolution kernel, [k]."""
    batch, c_in, c_out, pixels, taps, groups, direction, source, stride, last = (
        work.shape[:, column] for column in range(10)
    )
    groups = np.maximum(groups, 1.0)
    tensor_core = work.peak > TENSOR_CORE_RATE * 2.0 * device.sm_count
    rows = np.where(direction == FORWARD, batch * pixels, np.where(direction == DATA, batch * source, c_out))
    cols = np.where(direction == FORWARD, c_out, np.where(direction == DATA, c_in, c_in * taps))
    depth = np.maximum(work.flops / (2.0 * rows * cols * groups), 1.0)
    # Of the channels those that are summed over or spread along a tile are padded by the kernel itself.
    padded = np.where(tensor_core, np.where(direction == DATA, _padding(c_out), _padding(c_in)), 1.0)
    plain = tensor_core & (last == 0.0) & (taps == 1.0) & (stride == 1.0) & (pixels >= PLAIN_PIXELS)
    product = _product_seconds(p, work, device, rows, cols, depth * padded, groups)
    if plain.any():
        each = np.where(plain, batch, 1.0)
        per_image = (
            np.where(direction == WEIGHT, 1.0, 1.0 / each),
            np.where(direction == WEIGHT, 1.0 / each, 1.0),
        )
        apart = _product_seconds(
            p, work, device, rows * per_image[0], cols, depth * padded * per_image[1], groups * each
        )
        summed = np.where(direction == WEIGHT, each * rows * cols * 8.0, 0.0) / device.bandwidth
        share = np.where(plain, p["apart"], 0.0)
        product = product * (1.0 - share) + (apart + summed) * share
    slower = np.where(direction == DATA, p["data"], np.where(direction == WEIGHT, p["weight"], 1.0))
    slower = slower * np.where((direction == DATA) & (stride > 1.0), p["strided"], 1.0)
    odd = (
        tensor_core
        & ((c_in % TENSOR_CORE_CHANNELS != 0) | (c_out % TENSOR_CORE_CHANNELS != 0))
        & (c_in > 4.0)
    )
    slower = slower * np.where(odd, p["misaligned"], 1.0)
    least = np.where(tensor_core, work.flops / (MOST_OF_PEAK * work.peak), 0.0)
    product = np.maximum(product * slower, least)

    images = batch * groups * (c_in * source + c_out * pixels)
    image_bytes = images * work.moved_bytes / (images + groups * c_in * c_out * taps)
    winograd = (taps == 9.0) & (stride == 1.0) & (groups <= 1.0) & ~tensor_core
    transformed = np.where(winograd, WINOGRAD_TRAFFIC * image_bytes, 0.0) / (device.bandwidth * p["hbm"])
    channels = np.minimum(c_in, c_out)
    fewer = work.flops / (work.peak * p["winograd"] * channels / (channels + p["winograd_half"]))
    fewer = smooth_maximum(fewer * slower, transformed)
    product = np.where(winograd, np.minimum(product, fewer), product)

    vector = work.flops / (device.vector * p["vector"]) + 2.0 * p["floor_ns"] * 1e-9
    arithmetic = np.where(tensor_core, np.minimum(product, vector), product)
    memory = work.moved_bytes / (device.bandwidth * p["hbm"])
    weight_bytes = work.moved_bytes - image_bytes
    converted = 2.0 * (image_bytes * p["conversion"] + weight_bytes * p["weight_conversion"])
    conversion = np.where(tensor_core & (last == 0.0) & ~plain, converted / device.bandwidth, 0.0)
    result: Floats = p["floor_ns"] + 1e9 * (smooth_maximum(arithmetic, memory) + conversion)
    return result


def _padding(channels: Floats) -> Floats:
    """Channels as tensor cores take them, over channels."""
    result: Floats = np.ceil(channels / TENSOR_CORE_CHANNELS) * TENSOR_CORE_CHANNELS / channels
    return result


def _product_seconds(
    p: Mapping[str, float],
    work: WorkColumns,
    device: DeviceColumns,
    rows: Floats,
    cols: Floats,
    depth: Floats,
    groups: Floats,
) -> Floats:
    """[k] seconds of the implicit product by the best tile and split."""
    sm_count, l2, peak = (
        np.broadcast_to(np.asarray(value, dtype=np.float64), work.flops.shape)[:, None]
        for value in (device.sm_count, device.l2_bandwidth, work.peak)
    )
    tall, wide = np.repeat(TILES[:, 0], len(SPLITS))[None], np.repeat(TILES[:, 1], len(SPLITS))[None]
    split = np.tile(SPLITS, len(TILES))[None]
    m, n, k, count = (column[:, None] for column in (rows, cols, depth, groups))
    part = np.ceil(k / split)
    waves = count * np.ceil(m / tall) * np.ceil(n / wide) * split / sm_count
    quantised = np.where(waves < 1.0, 1.0, waves + p["quantisation"] * (np.ceil(waves) - waves))
    intensity = tall * wide / (tall + wide)
    rate = peak / sm_count * p["efficiency"] * intensity / (intensity + p["intensity_half"])
    rate = rate * part / (part + p["depth_half"])
    arithmetic = quantised * 2.0 * tall * wide * part / rate
    # Partial sums of a split tile go through the L2 and are added by another kernel.
    partial = np.where(split > 1.0, count * m * n * split * 8.0 / l2 + 1e-9 * p["split_ns"], 0.0)
    result: Floats = (arithmetic + partial).min(axis=1)
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
        Parameter("efficiency", 0.75, 0.02, 1.0),
        Parameter("intensity_half", 10.0, 0.1, 200.0),
        Parameter("depth_half", 60.0, 1.0, 4_000.0),
        Parameter("quantisation", 0.7, 0.01, 1.0),
        Parameter("split_ns", 3_000.0, 100.0, 30_000.0),
        Parameter("winograd", 1.5, 0.3, 4.0),
        Parameter("winograd_half", 32.0, 1.0, 1_000.0),
        Parameter("data", 1.1, 0.8, 2.0),
        Parameter("weight", 1.2, 0.85, 3.0),
        Parameter("strided", 1.5, 0.8, 8.0),
        Parameter("misaligned", 1.5, 1.0, 8.0),
        Parameter("vector", 0.6, 0.05, 1.0),
        Parameter("conversion", 1.2, 0.05, 3.0),
        Parameter("weight_conversion", 5.0, 0.05, 50.0),
        Parameter("apart", 0.5, 0.01, 1.0),
        Parameter("hbm", 0.75, 0.05, 1.0),
    ),
    time_ns,
    drivers,
    ("pixels", "c_in", "c_out", "flops"),
)
