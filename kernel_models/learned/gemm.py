"""Matrix products: gemm and bmm, TN, NN and NT, by cuBLAS and by the libraries that were measured.

A call's columns: batch, m, n, k, item_bytes (of an operand), out_bytes (of a result's element), a_along_k,
b_along_k (1 where that operand is contiguous along k).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.kernel_models.columns import Floats, WorkColumns
from maya.kernel_models.fitted_math import fitted_math
from maya.kernel_models.forms.gemm import GEMM as FORM
from maya.kernel_models.learned.calls import Calls, Devices, codes_of
from maya.kernel_models.learned.family import LearnedFamily, Table, Training
from maya.kernel_models.learned.hashing import hashed
from maya.kernel_models.work import KernelWork

VARIANTS = ("torch",)
ITEM = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "fp8_block": 1.0, "int8": 1.0, "fp4": 0.5}


def of_works(works: Sequence[KernelWork], gpu: GpuSpec) -> Calls:
    """Products that operators launch."""
    shape = np.asarray([work.shape[:6] for work in works], dtype=np.float64).reshape(len(works), 6)
    moved = np.asarray([work.moved_bytes for work in works], dtype=np.float64)
    math = np.asarray([fitted_math(work.math, gpu.generation) for work in works], dtype=str)
    batch, m, n, k = (np.maximum(shape[:, column], 1.0) for column in range(4))
    item = np.clip(moved / (batch * (m * k + k * n + m * n)), 0.5, 8.0)
    columns = {
        "batch": batch,
        "m": m,
        "n": n,
        "k": k,
        "item_bytes": item,
        "out_bytes": item,
        "a_along_k": shape[:, 4],
        "b_along_k": shape[:, 5],
    }
    return Calls(columns, math, np.zeros(len(works), dtype=np.int64), Devices.all_the_same(gpu, len(works)))


def of_table(table: Table, gpus: Sequence[GpuSpec]) -> Calls:
    """Rows of gemm.parquet."""
    count = len(gpus)
    dtype = np.asarray(table["dtype"], dtype=str)
    layout = np.asarray(table["layout"], dtype=str)
    item = np.asarray([ITEM.get(each, 2.0) for each in dtype], dtype=np.float64)
    math = np.asarray(
        [fitted_math(each, gpu.generation) for each, gpu in zip(dtype, gpus, strict=True)], dtype=str
    )
    columns = {name: np.asarray(table[name], dtype=np.float64) for name in ("batch", "m", "n", "k")}
    columns |= {
        "item_bytes": item,
        "out_bytes": np.maximum(item, 2.0),
        "a_along_k": (layout != "NT").astype(np.float64),
        "b_along_k": (layout == "TN").astype(np.float64),
    }
    return Calls(columns, math, codes_of(None, VARIANTS, count), Devices.of_rows(gpus))


def _work(calls: Calls) -> WorkColumns:
    batch, m, n, k = (calls[name] for name in ("batch", "m", "n", "k"))
    moved = batch * ((m * k + k * n) * calls["item_bytes"] + m * n * calls["out_bytes"])
    shape = np.stack([batch, m, n, k, calls["a_along_k"], calls["b_along_k"]], axis=1)
    blocks = batch * np.ceil(m / 128.0) * np.ceil(n / 128.0)
    return WorkColumns(2.0 * batch * m * n * k, moved, blocks, shape, calls.peak)


def base_ns(parameters: Mapping[str, float], calls: Calls) -> Floats:
    """The tile model, with one set of parameters for all GPUs."""
    return FORM.time_ns(parameters, _work(calls), calls.devices.columns)


def bound_ns(calls: Calls) -> Floats:
    """Arithmetic at the peak (operands may be in the L2)."""
    result: Floats = 1e9 * _work(calls).flops / calls.peak
    return result


FEATURES = (
    "log_m", "log_n", "log_k", "log_batch", "waves_128", "tail_128", "waves_256", "tail_256",
    "intensity_over_ridge", "bytes_over_l2", "log_flop_time", "log_byte_time", "m_mod", "n_mod", "k_mod",
    "layout", "item_bytes", "generation", "log_sm", "log_clock", "ridge", "variant",
)  # fmt: skip


def features(calls: Calls) -> Floats:
    """[k, f]."""
    work, device = _work(calls), calls.devices.columns
    batch, m, n, k = (calls[name] for name in ("batch", "m", "n", "k"))
    waves = [
        batch * np.ceil(m / rows) * np.ceil(n / cols) / device.sm_count
        for rows, cols in ((128, 128), (128, 256))
    ]
    ridge = calls.peak / device.bandwidth
    columns = [
        np.log(m), np.log(n), np.log(k), np.log(batch),
        np.log(waves[0]), np.ceil(waves[0]) / waves[0], np.log(waves[1]), np.ceil(waves[1]) / waves[1],
        np.log(work.flops / work.moved_bytes / ridge), np.log(work.moved_bytes / device.l2_bytes),
        np.log(work.flops / calls.peak), np.log(work.moved_bytes / device.bandwidth),
        *(_alignment(size) for size in (m, n, k)),
        calls["a_along_k"] + 2.0 * calls["b_along_k"], calls["item_bytes"],
        calls.devices.generation, np.log(device.sm_count), np.log(calls.devices.clock_hz), np.log(ridge),
        calls.variant.astype(np.float64),
    ]  # fmt: skip
    return np.stack(columns, axis=1)


def _alignment(size: Floats) -> Floats:
    """The largest of 128, 64, ... 1 that divides the size, as a power of two."""
    result = np.zeros(len(size))
    for power in range(1, 8):
        result = np.where(size % (1 << power) == 0, float(power), result)
    return result


def drivers(calls: Calls) -> Floats:
    """[k, 4]: logs of rows, columns, depth, batch."""
    return np.log(np.stack([calls["m"], calls["n"], calls["k"], calls["batch"]], axis=1))


def size_family(calls: Calls) -> NDArray[np.int64]:
    """All rows of an (n, k) are held out together."""
    return hashed(calls["n"], calls["k"])


GEMM = LearnedFamily(
    name="gemm",
    families=("gemm",),
    variants=VARIANTS,
    parameters=FORM.parameters,
    base_ns=base_ns,
    bound_ns=bound_ns,
    most_efficiency=1.0,
    feature_names=FEATURES,
    features=features,
    driver_names=("m", "n", "k", "batch"),
    drivers=drivers,
    size_family=size_family,
    of_works=of_works,
    of_table=of_table,
    training=Training(),
)
