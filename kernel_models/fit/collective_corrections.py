"""What the formula of collectives misses, as a smooth curve over the size for each rank count."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.collectives.curve import LARGEST_CORRECTION, Correction, correction_at
from maya.kernel_models.fit.collective_data import CollectiveRows

Floats = NDArray[np.float64]

SMOOTHNESS = 0.3
"""Weight of squared second differences against a row's squared error."""
PULL = 0.02
"""Weight that draws knots without rows to 0."""
ROBUST_SCALE = 0.05
ROUNDS = 5


def fit_corrections(rows: CollectiveRows, log_ratio: Floats, weights: Floats) -> dict[int, Correction]:
    """A curve for each rank count.

    Args:
        rows: k measured rows.
        log_ratio: [k] log(measured / formula).
        weights: [k].
    """
    found: dict[int, Correction] = {}
    for ranks in np.unique(rows.ranks):
        mask = rows.ranks == ranks
        found[int(ranks)] = _fit(np.log2(rows.size[mask]), log_ratio[mask], weights[mask])
    return found


def _fit(place: Floats, values: Floats, weights: Floats) -> Correction:
    first = np.floor(2.0 * place.min()) / 2.0
    count = round(2.0 * (np.ceil(2.0 * place.max()) / 2.0 - first)) + 1
    position = np.clip(2.0 * (place - first), 0, max(0, count - 1))
    left = np.minimum(position.astype(np.int64), max(0, count - 2))
    part = position - left
    design = np.zeros((len(place), count))
    design[np.arange(len(place)), left] = 1.0 - part
    if count > 1:
        design[np.arange(len(place)), left + 1] += part
    bends = np.diff(np.eye(count), n=2, axis=0) if count > 2 else np.zeros((0, count))
    prior = SMOOTHNESS * bends.T @ bends + PULL * np.eye(count)
    robust = np.ones(len(place))
    solution = np.zeros(count)
    for _ in range(ROUNDS):
        weighted = design * (weights * robust)[:, None]
        solution = np.linalg.solve(weighted.T @ design + prior, weighted.T @ values)
        miss = np.abs(values - design @ solution)
        robust = np.minimum(1.0, ROBUST_SCALE / np.maximum(miss, 1e-9))
    clipped = np.clip(solution, -LARGEST_CORRECTION, LARGEST_CORRECTION)
    return Correction(float(first), tuple(round(float(value), 4) for value in clipped))


def corrections_of_rows(corrections: Mapping[int, Correction], rows: CollectiveRows) -> Floats:
    """[k] log correction of each row."""
    result = np.zeros(len(rows.size))
    for ranks in np.unique(rows.ranks):
        mask = rows.ranks == ranks
        result[mask] = correction_at(corrections, int(ranks), np.log2(rows.size[mask]))
    return result
