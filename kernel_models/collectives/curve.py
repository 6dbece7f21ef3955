"""Time as a function of size for one call's ranks: the formula times a correction, never falling.

The formula of `algorithms` misses what the tuner's thresholds and buffer sizes do to sizes in between;
a correction, learned for each rank count and smooth in the size, takes that up. It is bounded, fades
into a constant outside the sizes it was learned at, and between rank counts is interpolated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log2

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KNOTS_LOG2 = np.arange(0.0, 42.5, 0.5)
"""Half octaves from 1 byte to 4 TiB: between knots a line in log-log errs by under 1.5% on a + b·S."""
LARGEST_CORRECTION = 0.6
"""Bound on the log of a correction: it may not replace the physics."""


@dataclass(frozen=True)
class Correction:
    """log(measured / formula) at `first_log2`, `first_log2` + 0.5, ... of log2(bytes), for one rank count."""

    first_log2: float
    log_ratio: tuple[float, ...]

    def at(self, size_log2: Floats) -> Floats:
        """[k] interpolated, constant outside."""
        own = self.first_log2 + 0.5 * np.arange(len(self.log_ratio))
        return np.clip(np.interp(size_log2, own, self.log_ratio), -LARGEST_CORRECTION, LARGEST_CORRECTION)


def correction_at(corrections: Mapping[int, Correction], ranks: int, size_log2: Floats) -> Floats:
    """[k] log of the correction for any rank count: linear in log2(ranks), constant outside; 0 if none."""
    if not corrections:
        return np.zeros(len(size_log2))
    known = sorted(corrections)
    upper = bisect_right(known, ranks)
    if upper == 0 or known[upper - 1] == ranks or upper == len(known):
        return corrections[known[max(0, upper - 1)]].at(size_log2)
    below, above = known[upper - 1], known[upper]
    part = (log2(ranks) - log2(below)) / (log2(above) - log2(below))
    low, high = corrections[below].at(size_log2), corrections[above].at(size_log2)
    result: Floats = (1.0 - part) * low + part * high
    return result


def never_falling(values: Floats) -> Floats:
    """The mean of the least rising curve above and the greatest rising curve below: rising, and close."""
    above = np.maximum.accumulate(values)
    below = np.minimum.accumulate(values[::-1])[::-1]
    result: Floats = 0.5 * (above + below)
    return result


@dataclass(frozen=True)
class Curve:
    """log(ns) at `KNOTS_LOG2`, and which algorithm is the fastest from there on."""

    log_ns: tuple[float, ...]
    algorithms: tuple[str, ...]

    def time_ns(self, size: int) -> float:
        """Time of `size` bytes (at least 1)."""
        place = 2.0 * log2(size)
        knot = int(place)
        if knot >= len(self.log_ns) - 1:
            return exp(self.log_ns[-1]) * size / float(2.0 ** KNOTS_LOG2[-1])
        part = place - knot
        return exp((1.0 - part) * self.log_ns[knot] + part * self.log_ns[knot + 1])

    def algorithm(self, size: int) -> str:
        """Name of the fastest algorithm."""
        return self.algorithms[min(int(2.0 * log2(size)), len(self.algorithms) - 1)]


def make_curve(times: Mapping[str, Floats], log_correction: Floats) -> Curve:
    """The curve of the fastest algorithms.

    Args:
        times: by algorithm, ns at `KNOTS_LOG2`.
        log_correction: [k] there.
    """
    names = list(times)
    table = np.stack([times[name] for name in names])
    fastest = np.argmin(table, axis=0)
    log_ns = never_falling(np.log(table.min(axis=0)) + log_correction)
    return Curve(tuple(map(float, log_ns)), tuple(names[index] for index in fastest))
