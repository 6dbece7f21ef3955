"""Matrix products: the best of a library's output tiles and split-K factors, with wave quantisation.

A GEMM of m x n x k runs as tiles on SMs. A tile's rate grows with its arithmetic intensity;
the last wave is partly empty; each wave pays a prologue; operands come from HBM once and from the
L2 once a tile. cuBLAS chooses among such kernels, so the formula takes the fastest.
The rows it is fitted to are CUDA-graph replays, whose operands stay in the L2 if they fit
(`resident`); a training step's weights do not, so memory-bound products below about half the L2 may
come out up to a third too fast (L2 over HBM rate as fitted). Compute-bound ones are not affected.
`work.shape` is (batch, m, n, k, A along k, B along k).
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
        (128, 64),
        (64, 128),
        (64, 64),
        (32, 128),
        (128, 32),
        (32, 64),
        (64, 32),
        (16, 64),
        (64, 16),
    ],
    dtype=np.float64,
)
"""Output tiles of cuBLAS's kernels, rows by columns."""
SPLITS = np.array([1, 2, 4, 8, 16], dtype=np.float64)
"""How many blocks may share one tile's k."""
FILL_K = 512.0
"""Depth at which half of the fill latency shows."""


def time_ns(p: Mapping[str, float], work: WorkColumns, device: DeviceColumns) -> Floats:
    """Nanoseconds of each GEMM, [k]."""
    batch, m, n, k = (np.maximum(work.shape[:, column], 1.0)[:, None] for column in range(4))
    factor = np.maximum(work.flops[:, None] / (2.0 * batch * m * n * k), 1.0)
    columns = [
        np.broadcast_to(np.asarray(value, dtype=np.float64), work.flops.shape)[:, None]
        for value in (device.bandwidth, device.l2_bandwidth, device.l2_bytes, device.sm_count, work.peak)
    ]
    bandwidth, l2_bandwidth, l2_bytes, sm_count, peak = columns
    rows, cols = np.repeat(TILES[:, 0], len(SPLITS))[None], np.repeat(TILES[:, 1], len(SPLITS))[None]
    split = np.tile(SPLITS, len(TILES))[None]
    item = _item_bytes(work)[:, None]

    slice_k = np.ceil(k / split)
    tiles = batch * np.ceil(m / rows) * np.ceil(n / cols) * split
    waves = tiles / sm_count
    quantised = waves + p["quantisation"] * (np.ceil(waves) - waves)
    quantised = np.where(waves < 1.0, 1.0, quantised)
    intensity = rows * cols / (rows + cols)
    rate = peak / sm_count * p["efficiency"] * intensity / (intensity + p["intensity_half"])
    rate = rate * slice_k / (slice_k + p["k_half"])
    arithmetic = quantised * 2.0 * factor * rows * cols * slice_k / rate
    shared_traffic = tiles * (rows + cols) * slice_k * item / (l2_bandwidth * p["l2"])
    partial = np.where(split > 1, batch * m * n * split * 8.0, 0.0) / (l2_bandwidth * p["l2"])
    moved = work.moved_bytes[:, None]
    resident = 1.0 / (1.0 + (moved / np.maximum(p["resident"] * l2_bytes, 1.0)) ** 4)
    memory = moved * ((1.0 - resident) / (bandwidth * p["hbm"]) + resident / (l2_bandwidth * p["l2_read"]))
    body = smooth_maximum(arithmetic, shared_traffic, memory)
    # Filling the pipeline along k is latency that no parallelism hides.
    extra = np.where(split > 1, p["split_ns"], 0.0) + p["fill_ns"] * slice_k / (slice_k + FILL_K)
    body = (1e9 * (body + partial) + extra).min(axis=1)
    along_k = work.shape[:, 4] + 2.0 * work.shape[:, 5]
    # TN is (1, 1) = 3; NN has A along k only = 1; NT neither = 0.
    layout = np.where(along_k == 3.0, 1.0, np.where(along_k == 1.0, p["layout_nn"], p["layout_nt"]))
    narrow = ((m[:, 0] % 8 != 0) & (along_k == 0.0)) | (n[:, 0] % 8 != 0) | (k[:, 0] % 8 != 0)
    aligned = np.where(narrow & (item[:, 0] <= 2), p["misaligned"], 1.0)
    bounded = np.maximum(body * layout * aligned, 1e9 * work.flops / work.peak)
    result: Floats = p["floor_ns"] + bounded
    return result


def _item_bytes(work: WorkColumns) -> Floats:
    """Bytes an operand's element has, from the traffic: exact when nothing else is read."""
    batch, m, n, k = (np.maximum(work.shape[:, column], 1.0) for column in range(4))
    elements = batch * (m * k + k * n + m * n)
    result: Floats = np.clip(work.moved_bytes / elements, 0.5, 8.0)
    return result


def drivers(work: WorkColumns) -> Floats:
    """[k, 5]: logs of rows, columns, depth and flops; and the layout (NT 0, NN 1, TN 3), as it must have been
    measured."""
    sizes = np.stack([work.shape[:, 0] * work.shape[:, 1], work.shape[:, 2], work.shape[:, 3], work.flops], 1)
    layout = work.shape[:, 4:5] + 2.0 * work.shape[:, 5:6]
    result: Floats = np.concatenate([np.log(np.maximum(sizes, 1.0)), layout], axis=1)
    return result


GEMM = Form(
    "gemm",
    (
        Parameter("floor_ns", 2_200.0, 500.0, 20_000.0),
        Parameter("efficiency", 0.85, 0.05, 1.6),
        Parameter("intensity_half", 8.0, 0.1, 200.0),
        Parameter("k_half", 64.0, 1.0, 2_000.0),
        Parameter("quantisation", 0.7, 0.01, 1.0),
        Parameter("hbm", 0.8, 0.05, 1.0),
        Parameter("l2", 0.8, 0.05, 8.0),
        Parameter("l2_read", 0.6, 0.05, 1.5),
        Parameter("resident", 0.5, 0.001, 2.0),
        Parameter("split_ns", 1_500.0, 10.0, 20_000.0),
        Parameter("fill_ns", 1_000.0, 50.0, 10_000.0),
        Parameter("layout_nn", 1.0, 0.8, 2.0),
        Parameter("layout_nt", 1.0, 0.8, 2.0),
        Parameter("misaligned", 1.3, 1.0, 6.0),
    ),
    time_ns,
    drivers,
    ("rows", "columns", "depth", "flops", "layout"),
)
