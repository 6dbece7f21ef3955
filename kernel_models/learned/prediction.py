"""Times, intervals and sources of calls of a learned family."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.columns import Floats
from maya.kernel_models.contract import Source
from maya.kernel_models.learned.artifact import Trained
from maya.kernel_models.learned.calls import Calls
from maya.kernel_models.learned.intervals import INSIDE, OTHER_GENERATION, OTHER_GPU, OUTSIDE
from maya.kernel_models.table_prediction import TablePrediction

RANGE_SLACK = float(np.log(1.25))
"""A size up to a quarter beyond the training range still counts as inside."""


def predict_calls(trained: Trained, calls: Calls) -> TablePrediction:
    """Price k calls; each call's result depends on that call alone."""
    family = trained.family
    if not len(calls):
        return TablePrediction.empty(0)
    time_ns = family.base_ns(trained.parameters, calls) * np.exp(trained.log_factor(family.features(calls)))
    time_ns = np.maximum(time_ns, family.bound_ns(calls) / family.most_efficiency)
    time_ns = np.maximum(time_ns, 1.0)
    groups = groups_of(calls)
    where = standing(trained, calls, groups)
    variant = np.asarray(family.variants)[calls.variant]
    low, high = trained.intervals.ends(variant, groups, where, time_ns)
    source = np.where(where == INSIDE, Source.LEARNED, Source.EXTRAPOLATED).astype(np.uint8)
    return TablePrediction(time_ns, time_ns * np.exp(low), time_ns * np.exp(high), source)


def groups_of(calls: Calls) -> NDArray[np.str_]:
    """[k] "math/generation"."""
    generations = np.asarray([gpu.generation for gpu in calls.devices.gpus])[calls.devices.index]
    return np.char.add(np.char.add(calls.math.astype(str), "/"), generations)


def standing(trained: Trained, calls: Calls, groups: NDArray[np.str_]) -> NDArray[np.int64]:
    """[k] of INSIDE, OUTSIDE, OTHER_GPU, OTHER_GENERATION."""
    result = np.full(len(calls), OTHER_GENERATION, dtype=np.int64)
    drivers: Floats = trained.family.drivers(calls)
    for group in np.unique(groups):
        known = trained.ranges.get(str(group))
        if known is None:
            continue
        here = np.flatnonzero(groups == group)
        inside = (
            (drivers[here] >= known.low - RANGE_SLACK) & (drivers[here] <= known.high + RANGE_SLACK)
        ).all(axis=1)
        variant_known = np.asarray([name in known.variants for name in trained.family.variants])
        inside &= variant_known[calls.variant[here]]
        gpu_known = np.asarray([gpu.name in known.gpus for gpu in calls.devices.gpus])
        result[here] = np.where(
            gpu_known[calls.devices.index[here]], np.where(inside, INSIDE, OUTSIDE), OTHER_GPU
        )
    return result
