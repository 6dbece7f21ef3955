"""What predicting a table of calls gives: one time and its 80% interval a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TablePrediction:
    """Times of n rows, in the rows' order.

    Attributes:
        time_ns, low_ns, high_ns: [n] float64; 0 < low <= time <= high.
        source: [n] uint8 of `Source`.
    """

    time_ns: NDArray[np.float64]
    low_ns: NDArray[np.float64]
    high_ns: NDArray[np.float64]
    source: NDArray[np.uint8]

    def __len__(self) -> int:
        """How many rows."""
        return len(self.time_ns)

    @classmethod
    def empty(cls, count: int) -> TablePrediction:
        """`count` rows to be filled in by `put`."""
        zeros = np.zeros(count, dtype=np.float64)
        return cls(zeros, zeros.copy(), zeros.copy(), np.zeros(count, dtype=np.uint8))

    def put(self, rows: NDArray[np.int64], other: TablePrediction) -> None:
        """Write `other` into these rows."""
        self.time_ns[rows] = other.time_ns
        self.low_ns[rows] = other.low_ns
        self.high_ns[rows] = other.high_ns
        self.source[rows] = other.source

    def take(self, rows: NDArray[np.int64] | Sequence[int]) -> TablePrediction:
        """Some rows."""
        return TablePrediction(self.time_ns[rows], self.low_ns[rows], self.high_ns[rows], self.source[rows])
