"""Measured products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from maya.kernel_models.fit.learned_rows import MeasuredCalls, balanced
from maya.kernel_models.fit.parquet_columns import columns_of, known_rows
from maya.kernel_models.learned.gemm import of_table


def load_gemm_calls(data: Path) -> MeasuredCalls:
    """Rows of gemm.parquet."""
    table = pd.read_parquet(data / "kernels" / "gemm.parquet")
    table = table[table["dtype"].astype(str).isin(["bf16", "fp16", "fp32"])]
    table, gpus = known_rows(table)
    origins, source = np.unique(table["source"].astype(str).str.split(":").str[0], return_inverse=True)
    calls = of_table(columns_of(table), gpus)
    time_ns = 1e3 * table["time_us"].to_numpy(dtype=np.float64)
    return MeasuredCalls(calls, time_ns, balanced(calls), source, tuple(map(str, origins)))
