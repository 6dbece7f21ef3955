"""A table of measurements as the columns a model sees: never the times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.kernel_models.fit.measurements import resolve_gpu

FORBIDDEN = ("time", "frac_", "busbw_gbps", "count")
FORBIDDEN_ENDS = ("_us",)


def is_measured(name: str) -> bool:
    """Whether a column tells the answer."""
    return name.startswith(FORBIDDEN) or name.endswith(FORBIDDEN_ENDS)


def columns_of(table: pd.DataFrame) -> dict[str, NDArray[np.generic]]:
    """Columns without any that tells a time; categories become texts."""
    result: dict[str, NDArray[np.generic]] = {}
    for name in table.columns:
        if is_measured(str(name)):
            continue
        values = table[name]
        if pd.api.types.is_numeric_dtype(values.dtype):
            result[str(name)] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            result[str(name)] = values.astype(str).to_numpy(dtype=str)
    return result


def gpus_of(table: pd.DataFrame) -> list[GpuSpec | None]:
    """The GPU of every row; None where the catalogue has none."""
    names = table["gpu"].astype(str)
    found: dict[str, GpuSpec | None] = {name: resolve_gpu(name) for name in names.unique()}
    return [found[name] for name in names]


def known_rows(table: pd.DataFrame) -> tuple[pd.DataFrame, Sequence[GpuSpec]]:
    """Rows whose GPU is in the catalogue and whose time is a positive number, and those GPUs."""
    gpus = gpus_of(table)
    time = table["time_us"].to_numpy(dtype=np.float64)
    keep = np.asarray([gpu is not None for gpu in gpus]) & np.isfinite(time) & (time > 0)
    chosen = np.flatnonzero(keep)
    return table.iloc[chosen], [gpu for row in chosen.tolist() if (gpu := gpus[row]) is not None]
