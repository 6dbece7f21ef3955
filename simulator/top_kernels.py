"""Which kernels took the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from maya.simulator.timeline import Timeline

COMMUNICATION_NAME = "(communication)"
"""Shown for transfers that have no kernel of their own."""


class NamedKernels(Protocol):
    """The part of KernelTimes that names kernels: `names[name[k]]` is kernel k's name."""

    @property
    def name(self) -> NDArray[np.int32]: ...
    @property
    def names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class TopKernel:
    """All runs of the kernels of one name within a span.

    Attributes:
        name: as the kernel model shows it.
        calls: how often it ran.
        total_ns: sum of its durations as simulated (slow-down by neighbours included).
        share: of the sum of all kernels' durations in the span, 0..1.
    """

    name: str
    calls: int
    total_ns: int
    share: float


def top_kernels(
    timeline: Timeline,
    kernels: NamedKernels,
    *,
    rank: int | None = None,
    start_ns: int = 0,
    end_ns: int | None = None,
    limit: int = 10,
) -> list[TopKernel]:
    """Names by total time, longest first, ties by name.

    Args:
        timeline: result of `simulate`.
        kernels: the names of the rank's kernels.
        rank: default: the lowest simulated rank.
        start_ns, end_ns: kernels that start in [start, end) count; default: all.
        limit: how many names at most.

    Raises:
        ValueError: names do not fit the timeline, unknown rank.
    """
    rows = timeline.kernels_of(timeline.ranks[0] if rank is None else rank)
    if len(rows) and int(rows["kernel"].max()) >= len(kernels.name):
        raise ValueError(
            f"the timeline has kernel {int(rows['kernel'].max())}, names only {len(kernels.name)}"
        )
    inside = rows["start_ns"] >= start_ns
    if end_ns is not None:
        inside &= rows["start_ns"] < end_ns
    rows = rows[inside]
    labels = (*kernels.names, COMMUNICATION_NAME)
    padded = np.concatenate([np.asarray(kernels.name, dtype=np.int64), [len(labels) - 1]])
    label_of = padded[rows["kernel"]]  # kernel -1 picks the padding
    totals = np.zeros(len(labels), dtype=np.int64)
    np.add.at(totals, label_of, rows["end_ns"] - rows["start_ns"])
    calls = np.bincount(label_of, minlength=len(labels))
    everything = max(int(totals.sum()), 1)
    ranking = sorted(np.flatnonzero(calls).tolist(), key=lambda index: (-int(totals[index]), labels[index]))
    return [
        TopKernel(labels[index], int(calls[index]), int(totals[index]), int(totals[index]) / everything)
        for index in ranking[:limit]
    ]
