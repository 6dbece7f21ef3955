"""Errors and intervals of collectives by class of size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.collectives.card import SIZE_CLASSES
from maya.kernel_models.fit.collective_data import MIB

Floats = NDArray[np.float64]

CLASS_EDGES = (64 << 10, MIB)
TAIL = 0.1
"""Left out at each end of an 80% interval."""


def size_class(size: Floats) -> NDArray[np.int64]:
    """[k] index into SIZE_CLASSES."""
    return np.searchsorted(CLASS_EDGES, size, side="right")


def octave(size: Floats) -> NDArray[np.int64]:
    """[k] floor(log2(size))."""
    return np.floor(np.log2(size) + 1e-9).astype(np.int64)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """The value below which `share` of the weight lies."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][min(len(values) - 1, int(np.searchsorted(total, share * total[-1])))])


def summary(log_ratio: Floats, classes: NDArray[np.int64]) -> dict[str, Any]:
    """Errors |predicted / measured - 1| by size class."""
    error = np.exp(-log_ratio) - 1.0
    result: dict[str, Any] = {}
    for index, name in enumerate(SIZE_CLASSES):
        part = error[classes == index]
        if len(part):
            size = np.abs(part)
            result[name] = {
                "rows": len(part),
                "p50": round(float(np.median(size)), 4),
                "p90": round(float(np.quantile(size, 0.9)), 4),
                "max": round(float(size.max()), 4),
                "bias": round(float(np.median(part)), 4),
            }
    return result


def ends(
    log_ratio: Floats, classes: NDArray[np.int64], weights: Floats, default: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """([3] low, [3] high) log of measured/predicted at the ends of an 80% interval, by size class."""
    low, high = default[0].copy(), default[1].copy()
    for index in range(len(SIZE_CLASSES)):
        mask = classes == index
        if mask.any():
            low[index] = min(0.0, weighted_quantile(log_ratio[mask], weights[mask], TAIL))
            high[index] = max(0.0, weighted_quantile(log_ratio[mask], weights[mask], 1.0 - TAIL))
    return low, high
