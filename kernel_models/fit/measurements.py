"""Measured times as the fit wants them: kernels, segments, GPUs and hold-out groups."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from maya.errors import UsageError
from maya.hardware import GpuSpec, find_gpu
from maya.kernel_models.work import KernelWork

HELD_OUT_FOLD = 0
FOLDS = 5

GPU_SYNONYMS = {
    "A100-SXM4-40GB(PG509)": "A100-SXM4-40GB",
    "H100(form factor unstated)": "H100-SXM5-80GB",
}


def resolve_gpu(name: str) -> GpuSpec | None:
    """The catalogue's GPU of a data set's name; None if the catalogue has none."""
    try:
        return find_gpu(GPU_SYNONYMS.get(name, name))
    except UsageError:
        return None


def fold_of(size_family: object) -> int:
    """A size family's fold, from its text alone: the same on every machine."""
    digest = hashlib.sha256(repr(size_family).encode()).digest()
    return digest[0] % FOLDS


@dataclass
class Measurements:
    """Rows of one family. A row is one measured time of one or more kernels run in sequence.

    Attributes:
        works: every kernel.
        segment: row of every kernel.
        gpus: GPU of every kernel.
        time_ns: of every row.
        fold: of every row, by its size family.
        extra: of every row: index into `extra_names` of an additive overhead of its timing method
            (event pairs around an eager call), fitted and dropped; -1 for none.
        sources: of every row.
    """

    family: str
    works: list[KernelWork] = field(default_factory=list)
    segment: list[int] = field(default_factory=list)
    gpus: list[GpuSpec] = field(default_factory=list)
    time_ns: list[float] = field(default_factory=list)
    fold: list[int] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    extra_names: list[str] = field(default_factory=list)

    def add(
        self,
        works: Sequence[KernelWork],
        gpu: GpuSpec,
        time_us: float,
        size_family: object,
        source: str,
        extra: str = "",
    ) -> None:
        """One row."""
        if not works or not np.isfinite(time_us) or time_us <= 0:
            return
        row = len(self.time_ns)
        for work in works:
            self.works.append(work)
            self.segment.append(row)
            self.gpus.append(gpu)
        self.time_ns.append(1e3 * float(time_us))
        self.fold.append(fold_of(size_family))
        self.sources.append(source)
        if extra and extra not in self.extra_names:
            self.extra_names.append(extra)
        self.extra.append(self.extra_names.index(extra) if extra else -1)

    def extend(self, other: Measurements) -> None:
        """Append the rows of `other`, of the same family."""
        rows = len(self.time_ns)
        self.works += other.works
        self.gpus += other.gpus
        self.segment += [row + rows for row in other.segment]
        self.time_ns += other.time_ns
        self.fold += other.fold
        self.sources += other.sources
        for name in other.extra_names:
            if name not in self.extra_names:
                self.extra_names.append(name)
        self.extra += [self.extra_names.index(other.extra_names[e]) if e >= 0 else -1 for e in other.extra]

    def grouped(self) -> dict[tuple[str, str], list[int]]:
        """(arithmetic, generation) → rows."""
        groups: dict[tuple[str, str], list[int]] = {}
        seen = -1
        for position, row in enumerate(self.segment):
            if row != seen:
                key = (self.works[position].math, self.gpus[position].generation)
                groups.setdefault(key, []).append(row)
                seen = row
        return groups
