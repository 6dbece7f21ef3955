"""A hash of numbers that is the same on every machine: what decides which rows are held out together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4)."""


def hashed(*columns: NDArray[np.generic]) -> NDArray[np.int64]:
    """[k] a well-spread non-negative integer of each row's values."""
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            bits = np.ascontiguousarray(column.astype(np.float64)).view(np.uint64)
            total = (total ^ (bits * _MULTIPLIER)) * _MULTIPLIER
            total ^= total >> np.uint64(29)
    return (total >> np.uint64(2)).astype(np.int64)
