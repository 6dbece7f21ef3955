"""Fused attention: tensor-core bound, with the fill of the SMs and the length of the inner loop.

`work.shape` is (b, h, h_kv, s_q, s_kv, d, d_v, causal, backend). The rate saturates with head size
(products of width d) and with the number of key blocks a query block runs over.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from maya.kernel_models.columns import DeviceColumns, Floats, WorkColumns
from maya.kernel_models.forms.form import Form, Parameter, smooth_maximum


def time_ns(p: Mapping[str, float], work: WorkColumns, device: DeviceColumns) -> Floats:
    """Nanoseconds of each attention kernel, [k]."""
    queries, keys, head = (np.maximum(work.shape[:, column], 1.0) for column in (3, 4, 5))
    causal = work.shape[:, 7]
    backend = work.shape[:, 8]
    loop = np.where(causal > 0, keys / 2.0, keys)
    rate = p["efficiency"] * head / (head + p["head_half"]) * loop / (loop + p["keys_half"])
    rate = rate * np.where(causal > 0, p["causal"], 1.0)
    rate = rate * np.where(backend == 2, p["efficient"], np.where(backend == 1, p["cudnn"], 1.0))
    # Head sizes are padded to multiples of 32, query rows to a block; few blocks leave SMs idle.
    padded = np.ceil(head / 32.0) * 32.0 / head * (queries + p["queries_half"]) / queries
    waves = np.maximum(work.blocks / device.sm_count, 1e-9)
    quantised = np.where(waves < 1.0, 1.0, waves + p["quantisation"] * (np.ceil(waves) - waves))
    idle = quantised / waves
    arithmetic = work.flops * padded * idle / (work.peak * rate)
    memory = work.moved_bytes / (device.bandwidth * p["hbm"])
    result: Floats = p["floor_ns"] + 1e9 * smooth_maximum(arithmetic, memory)
    return result


def drivers(work: WorkColumns) -> Floats:
    """[k, 5]: logs of batch x heads, queries, keys, head size; the backend, as it must have been measured."""
    sizes = np.stack(
        [work.shape[:, 0] * work.shape[:, 1], work.shape[:, 3], work.shape[:, 4], work.shape[:, 5]], axis=1
    )
    result: Floats = np.concatenate([np.log(np.maximum(sizes, 1.0)), work.shape[:, 8:9]], axis=1)
    return result


ATTENTION = Form(
    "attention",
    (
        Parameter("floor_ns", 4_000.0, 500.0, 40_000.0),
        Parameter("efficiency", 0.6, 0.02, 1.0),
        Parameter("head_half", 10.0, 0.1, 400.0),
        Parameter("keys_half", 150.0, 1.0, 4_000.0),
        Parameter("causal", 0.9, 0.3, 1.1),
        Parameter("cudnn", 1.0, 0.5, 3.0),
        Parameter("efficient", 0.7, 0.2, 1.0),
        Parameter("queries_half", 16.0, 0.5, 256.0),
        Parameter("quantisation", 0.5, 0.01, 1.0),
        Parameter("hbm", 0.7, 0.05, 1.0),
    ),
    time_ns,
    drivers,
    ("heads", "queries", "keys", "head_size", "backend"),
)
