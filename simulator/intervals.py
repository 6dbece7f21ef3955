"""Unions of time intervals and how much of them lies in a window, vectorised and exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Spans = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(starts, ends), int64[n] each, half-open, ns."""


def union(*spans: Spans) -> Spans:
    """Disjoint, ascending spans covering exactly what the given ones cover; empty ones vanish."""
    starts = np.concatenate([span[0] for span in spans]).astype(np.int64)
    ends = np.concatenate([span[1] for span in spans]).astype(np.int64)
    kept = ends > starts
    starts, ends = starts[kept], ends[kept]
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    opens = np.concatenate([[True], starts[1:] > reach[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return starts[opens], reach[closes]


def measure_until(spans: Spans, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[t]: how much of disjoint ascending spans lies before each time."""
    starts, ends = spans
    if not len(starts):
        return np.zeros(len(times_ns), dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    index = np.searchsorted(starts, times_ns, side="right")  # spans begun by then
    beyond = np.where(index > 0, np.maximum(ends[index - 1] - times_ns, 0), 0)
    measured: NDArray[np.int64] = before[index] - beyond
    return measured


def busy_ns(starts: NDArray[np.int64], ends: NDArray[np.int64], begin_ns: int, end_ns: int) -> int:
    """How much of begin..end the spans cover, overlaps counted once."""
    measured = measure_until(union((starts, ends)), np.array([begin_ns, end_ns], dtype=np.int64))
    return int(measured[1] - measured[0])
