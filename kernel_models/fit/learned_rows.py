"""Measured calls of a learned family, and how they are held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.columns import Floats
from maya.kernel_models.learned.calls import Calls, Devices
from maya.kernel_models.learned.family import LearnedFamily
from maya.kernel_models.learned.hashing import hashed

FOLDS = 5
RELATIVE = "relative"
"""Rows whose source begins so were made of another kernel's: learned from, but neither scored nor counted as
measured."""
HELD_OUT = 0


@dataclass(frozen=True)
class MeasuredCalls:
    """Calls and their measured times.

    Attributes:
        calls: k calls.
        time_ns: [k] as their source timed them.
        weight: [k] of each row in training.
        source: [k] index into `sources`.
    """

    calls: Calls
    time_ns: Floats
    weight: Floats
    source: NDArray[np.int64]
    sources: tuple[str, ...]

    def __len__(self) -> int:
        """How many rows."""
        return len(self.time_ns)

    @property
    def own(self) -> NDArray[np.bool_]:
        """[k] which were measured themselves."""
        each = np.asarray([not name.startswith(RELATIVE) for name in self.sources], dtype=bool)
        return each[self.source] if len(each) else np.ones(len(self), dtype=bool)

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> MeasuredCalls:
        """Some rows."""
        return MeasuredCalls(
            self.calls.take(chosen),
            self.time_ns[chosen],
            self.weight[chosen],
            self.source[chosen],
            self.sources,
        )


def folds(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """[k] fold 0..FOLDS-1 of each key."""
    return hashed(keys) % FOLDS


def size_folds(family: LearnedFamily, calls: Calls) -> NDArray[np.int64]:
    """[k] fold of each call's size family."""
    return folds(family.size_family(calls))


def shape_folds(calls: Calls) -> NDArray[np.int64]:
    """[k] fold of each single shape: the same shape on all GPUs and in all variants."""
    return folds(hashed(*(calls.columns[name] for name in sorted(calls.columns))))


def balanced(calls: Calls, power: float = 0.5) -> Floats:
    """[k] weights by which each (GPU, arithmetic, variant) counts as its row count to `1 - power`; mean 1."""
    math = np.unique(calls.math, return_inverse=True)[1]
    key = (calls.devices.index * 64 + math) * 4096 + calls.variant
    _, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
    weight = count[inverse].astype(np.float64) ** -power
    result: Floats = weight / weight.mean()
    return result


def sampled(measured: MeasuredCalls, most_rows: int) -> MeasuredCalls:
    """At most so many rows, the same ones every time; small groups of GPU and variant are kept whole first.

    Each (GPU, arithmetic, variant) gives rows in proportion to the square root of its count.
    """
    if len(measured) <= most_rows:
        return measured
    calls = measured.calls
    math = np.unique(calls.math, return_inverse=True)[1]
    key = (calls.devices.index * 64 + math) * 4096 + calls.variant
    _, inverse, count = np.unique(key, return_inverse=True, return_counts=True)
    quota = _quotas(count, most_rows)
    order = hashed(np.arange(len(measured)))
    ranked = np.lexsort((order, inverse))
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    position = np.empty(len(measured), dtype=np.int64)
    position[ranked] = np.arange(len(measured)) - starts[inverse[ranked]]
    return measured.take(np.flatnonzero(position < quota[inverse]))


def _quotas(count: NDArray[np.int64], most_rows: int) -> NDArray[np.int64]:
    share = np.sqrt(count)
    low, high = 0.0, float(most_rows)
    for _ in range(60):
        middle = 0.5 * (low + high)
        if np.minimum(count, share * middle).sum() > most_rows:
            high = middle
        else:
            low = middle
    return np.maximum(1, np.minimum(count, (share * low).astype(np.int64)))


def concatenated(parts: Sequence[MeasuredCalls]) -> MeasuredCalls:
    """All rows of several parts of one family."""
    names = list(parts[0].calls.columns)
    gpus = [gpu for part in parts for gpu in part.calls.devices.gpus]
    offsets = np.cumsum([0] + [len(part.calls.devices.gpus) for part in parts])
    merged = Devices.of_rows(gpus)
    index = np.concatenate(
        [
            merged.index[part.calls.devices.index + offset]
            for part, offset in zip(parts, offsets, strict=False)
        ]
    )
    sources: dict[str, int] = {}
    source = [
        np.asarray([sources.setdefault(text, len(sources)) for text in part.sources] or [0])[part.source]
        for part in parts
    ]
    calls = Calls(
        {name: np.concatenate([part.calls.columns[name] for part in parts]) for name in names},
        np.concatenate([part.calls.math.astype(str) for part in parts]),
        np.concatenate([part.calls.variant for part in parts]),
        Devices(merged.gpus, index),
    )
    return MeasuredCalls(
        calls,
        np.concatenate([part.time_ns for part in parts]),
        np.concatenate([part.weight for part in parts]),
        np.concatenate(source),
        tuple(sources),
    )
