"""80% intervals from held-out residuals, wider the less a call resembles what was learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.columns import Floats

SMALL_NS = 10_000.0
"""Kernels below this are scored, and have their intervals, apart: their time is mostly latency."""
LEAST_WIDTH = 0.02
"""Least half-width in log time: timers repeat no better."""

INSIDE, OUTSIDE, OTHER_GPU, OTHER_GENERATION = range(4)
"""How a call lies to the training rows: in their range; beyond its sizes; on a GPU that is not among them; on
a whole generation (or arithmetic) that is not."""
STANDINGS = ("inside", "outside", "other_gpu", "other_generation")


@dataclass(frozen=True)
class Intervals:
    """Quantiles of log(measured / predicted).

    Attributes:
        quantiles: key → (10%, 90%). Keys from fine to coarse, see `keys`.
    """

    quantiles: Mapping[str, tuple[float, float]]

    def ends(
        self, variant: NDArray[np.str_], group: NDArray[np.str_], standing: NDArray[np.int64], time_ns: Floats
    ) -> tuple[Floats, Floats]:
        """[k] log of low/time (at most 0) and of high/time (at least 0)."""
        small = (time_ns < SMALL_NS).astype(np.int64)
        texts = np.asarray(
            [
                "\x00".join(each)
                for each in zip(
                    variant.tolist(), group.tolist(), map(str, standing), map(str, small), strict=True
                )
            ]
        )
        distinct, index = np.unique(texts, return_inverse=True) if len(texts) else (texts, texts.astype(int))
        table = np.zeros((len(distinct), 2), dtype=np.float64)
        for position, text in enumerate(distinct):
            a, b, c, d = str(text).split("\x00")
            table[position] = self._find(a, b, int(c), bool(int(d)))
        low = np.minimum(table[index, 0], -LEAST_WIDTH)
        high = np.maximum(table[index, 1], LEAST_WIDTH)
        return low, high

    def _find(self, variant: str, group: str, standing: int, small: bool) -> tuple[float, float]:
        for key in keys(variant, group, standing, small):
            if key in self.quantiles:
                return self.quantiles[key]
        return (-0.7, 0.7)


def keys(variant: str, group: str, standing: int, small: bool) -> tuple[str, ...]:
    """From fine to coarse: where to look a call's quantiles up, and where its residual counts."""
    where, size = STANDINGS[standing], "small" if small else "large"
    return (
        f"{where}/{size}/{group}/{variant}",
        f"{where}/{size}/{group}",
        f"{where}/{size}/{variant}",
        f"{where}/{size}",
        where,
    )


def quantiles_of(residual: Floats) -> tuple[float, float]:
    """10% and 90%, conformally: of n residuals the ceil((n + 1) q)-th."""
    count = len(residual)
    ordered = np.sort(residual)
    low = int(np.floor((count + 1) * 0.1)) - 1
    high = int(np.ceil((count + 1) * 0.9)) - 1
    return float(ordered[max(low, 0)]), float(ordered[min(high, count - 1)])
