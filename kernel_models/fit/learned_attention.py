"""Measured attention: forward, backward and decode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from maya.kernel_models.fit.attention_figures import published_forward
from maya.kernel_models.fit.attention_relatives import relative_rows
from maya.kernel_models.fit.learned_rows import MeasuredCalls, balanced
from maya.kernel_models.fit.parquet_columns import columns_of, known_rows
from maya.kernel_models.learned.attention import sizes_of_table

RELATIVE_WEIGHT = 0.3
"""Of a stand-in's row beside a measured one."""


def load_attention_calls(data: Path) -> MeasuredCalls:
    """Forward rows of attention.parquet, published figures, and stand-ins for stock PyTorch's kernels."""
    table = pd.read_parquet(data / "kernels" / "attention.parquet")
    table = table[table["op"].astype(str) == "attention_fwd"]
    return measured_attention(_joined(table, published_forward(), relative_rows(table)))


def _joined(*parts: pd.DataFrame) -> pd.DataFrame:
    texts = ("gpu", "dtype", "kv_dtype", "op", "backend", "kernel", "source")
    plain = [part.astype({name: str for name in texts if name in part}) for part in parts]
    return pd.concat(plain, ignore_index=True)


def measured_attention(table: pd.DataFrame) -> MeasuredCalls:
    """Rows of attention.parquet or attention_decode.parquet."""
    table, gpus = known_rows(table)
    origins, source = np.unique(table["source"].astype(str).str.split(";").str[0], return_inverse=True)
    calls = sizes_of_table(columns_of(table), gpus)
    time_ns = 1e3 * table["time_us"].to_numpy(dtype=np.float64)
    found = MeasuredCalls(calls, time_ns, balanced(calls), source, tuple(map(str, origins)))
    return replace(found, weight=found.weight * np.where(found.own, 1.0, RELATIVE_WEIGHT))
