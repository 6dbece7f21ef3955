"""GEMM rows: cuBLAS through PyTorch where there is a choice of backend."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from maya.kernel_models.families.gemm import product
from maya.kernel_models.fit.measurements import Measurements, resolve_gpu
from maya.kernel_models.fit.sampling import sample
from maya.kernel_models.fitted_math import fitted_math

ROWS_PER_GPU = 700
ITEM = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
EVENT_TIMED_MINIMUM_US = 60.0
"""NeuSight's loops are host-bound below about twice their 26-32 us floor; its rows above this are device
time plus a small constant."""
QUANTISE_US, QUANTISE_HBM = 2.0, 0.7
"""The quantise kernel of an fp8 linear: latency, and share of HBM bandwidth at which it reads bf16 and
writes fp8 (quantize_bf16_to_fp8 rows of pointwise_norm_softmax: 1.2-1.8 us and 0.6-0.8)."""
OUTPUT_ITEM = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 2}


def load_gemm(data: Path) -> list[Measurements]:
    """`gemm` and `grouped_gemm`."""
    table = pd.read_parquet(data / "kernels" / "gemm.parquet")
    table = table[table["dtype"].isin(list(ITEM))]
    source, backend = table["source"].astype(str), table["backend"].astype(str)
    serving = source.str.startswith("aiconfigurator")
    # vLLM's unquantised linear is torch.nn.functional.linear, so cuBLAS as in training.
    wanted = ~serving | backend.str.startswith("vllm")
    # Vidur's cuBLAS of 2023 is up to 1.8 times slower on H100 around m = 600 than later ones.
    wanted &= ~(source.str.startswith("vidur") & (table["gpu"] == "H100-SXM5-80GB"))
    event_timed = source.str.startswith("NeuSight")
    wanted &= ~event_timed | (table["time_us"] > EVENT_TIMED_MINIMUM_US)
    result = Measurements("gemm")
    for keys, rows in table[wanted].groupby(["gpu", "dtype", "op", "layout"], observed=True, sort=True):
        gpu = resolve_gpu(str(keys[0]))
        if gpu is None:
            continue
        for row in sample(rows, ROWS_PER_GPU).itertuples(index=False):
            along = {"TN": (True, True), "NN": (True, False), "NT": (False, False)}[str(row.layout)]
            shape = (int(row.batch), int(row.m), int(row.n), int(row.k))
            item = ITEM[str(row.dtype)]
            moved = shape[0] * (
                (shape[1] * shape[3] + shape[3] * shape[2]) * item
                + shape[1] * shape[2] * OUTPUT_ITEM[str(row.dtype)]
            )
            math = fitted_math(str(row.dtype), gpu.generation)
            work = product("mm", math, shape, moved, a_along_k=along[0], b_along_k=along[1])
            origin = str(row.source)
            time_us = float(row.time_us)
            if row.dtype == "fp8":
                # The serving layer quantises its activations first; that kernel is not the product's.
                spent = QUANTISE_US + 3e-3 * shape[1] * shape[3] / (QUANTISE_HBM * gpu.hbm_bandwidth_gbps)
                if spent > 0.5 * time_us:
                    continue
                time_us -= spent
            extra = ""
            if origin.startswith("NeuSight"):
                extra = f"NeuSight {gpu.name}"
            elif origin.startswith("vidur") or row.op == "bmm":
                # Vidur's profiler steps and the latent-attention products' reshapes add a constant that
                # torch.nn.functional.linear in a CUDA graph does not have.
                extra = "vidur" if origin.startswith("vidur") else "serving bmm"
            result.add([work], gpu, time_us, (shape[2], shape[3]), origin.split(":")[0], extra)
    return [result, _grouped(data)]


def _grouped(data: Path) -> Measurements:
    result = Measurements("grouped_gemm")
    for row in pd.read_parquet(data / "kernels" / "grouped_gemm.parquet").itertuples(index=False):
        gpu = resolve_gpu(str(row.gpu))
        if gpu is None:
            continue
        m, n, k = int(row.m_per_group), int(row.n), int(row.k)
        along = {"fwd": (True, True), "bwd_data": (True, False), "bwd_weight": (False, False)}
        direction = str(row.op).removeprefix("grouped_gemm_")
        groups = int(row.num_groups)
        moved = 2 * groups * (m * k + k * n + m * n)
        work = product(
            "_grouped_mm",
            "bf16",
            (groups, m, n, k),
            moved,
            a_along_k=along[direction][0],
            b_along_k=along[direction][1],
            family="grouped_gemm",
        )
        result.add([work], gpu, row.time_us, (n, k), str(row.source))
    return result
