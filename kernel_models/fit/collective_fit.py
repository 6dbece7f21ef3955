"""Parameters of NCCL's algorithms for one link and family, from measured rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from maya.kernel_models.collectives.algorithms import NVLS_LEAST_RANKS, island_times
from maya.kernel_models.collectives.kinds import Collective
from maya.kernel_models.fit.collective_data import CollectiveRows

Floats = NDArray[np.float64]
Range = tuple[float, float, float]

COLLECTIVE_OF_FAMILY = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_gather": Collective.ALL_GATHER,
    "reduce_scatter": Collective.REDUCE_SCATTER,
    "all_to_all": Collective.ALL_TO_ALL,
    "message": Collective.MESSAGE,
}
RANGES: Mapping[str, Range] = {
    "base_ns": (5_000.0, 500.0, 60_000.0),
    "ll_step_ns": (1_000.0, 50.0, 40_000.0),
    "ll_efficiency": (0.10, 0.001, 0.6),
    "ll128_extra_ns": (1_000.0, 1.0, 40_000.0),
    "ll128_step_ns": (2_000.0, 50.0, 60_000.0),
    "ll128_efficiency": (0.45, 0.004, 0.95),
    "simple_extra_ns": (8_000.0, 1.0, 100_000.0),
    "simple_step_ns": (3_000.0, 50.0, 60_000.0),
    "simple_efficiency": (0.75, 0.01, 1.1),
}
"""Start, least and most of each parameter. Starts are of NCCL's own tuning tables in order of magnitude."""
NVLS_RANGES: Mapping[str, Range] = {
    "nvls_extra_ns": (20_000.0, 1_000.0, 200_000.0),
    "nvls_efficiency": (0.7, 0.2, 1.1),
}
SHARING_RANGE = (0.5, 1e-3, 2.5)
NVLS_GENERATIONS = ("hopper", "blackwell")
LOSS_SCALE = 0.05
"""Relative errors beyond this count less than squared: rows of several environments lie side by side."""
STARTS = ((1.0, 1.0), (0.5, 0.7), (2.0, 1.3))
"""Factors on latencies and efficiencies to start from."""


def best_times(rows: CollectiveRows, p: Mapping[str, float]) -> Floats:
    """[k] ns of the fastest algorithm for each row."""
    collective = COLLECTIVE_OF_FAMILY[rows.family]
    link = rows.group.partition("-")[0]
    result = np.zeros(len(rows.size))
    for gpu_index, gpu in enumerate(rows.gpus):
        gbps = gpu.pcie_gbps if link == "pcie" else gpu.nvlink_gbps
        for ranks in np.unique(rows.ranks):
            mask = (rows.gpu == gpu_index) & (rows.ranks == ranks)
            if mask.any():
                times = island_times(collective, int(ranks), link, gbps, p, rows.size[mask])
                result[mask] = np.min(list(times.values()), axis=0)
    return result


SCALE = {"bandwidth": (1.0, 0.05, 2.0)}


def scaled(p: Mapping[str, float], bandwidth: float) -> dict[str, float]:
    """Parameters of a link that gives a multiple of a relative's bandwidth at its latencies."""
    return {name: value * (bandwidth if name.endswith("efficiency") else 1.0) for name, value in p.items()}


def fit_scale(rows: CollectiveRows, relative: Mapping[str, float]) -> float:
    """The factor on bandwidth that makes a relative's parameters fit the rows best."""
    _, found = solve(
        lambda factors: best_times(rows, scaled(relative, factors["bandwidth"])),
        rows.time_ns,
        weights_of(rows),
        {"bandwidth": 1.0},
        SCALE,
    )
    return found["bandwidth"]


def fit_parameters(rows: CollectiveRows) -> dict[str, float]:
    """All parameters of a link and family."""
    ranges = dict(RANGES)
    link, _, generation = rows.group.partition("-")
    if link == "nvswitch" and generation in NVLS_GENERATIONS and rows.family == "all_reduce":
        ranges |= NVLS_RANGES if rows.ranks.max() >= NVLS_LEAST_RANKS else {}
    if link == "pcie":
        ranges["sharing"] = SHARING_RANGE
    best: tuple[float, dict[str, float]] | None = None
    for latency, efficiency in STARTS:
        start = {
            name: value * (latency if name.endswith("_ns") else efficiency if "efficiency" in name else 1.0)
            for name, (value, _, _) in ranges.items()
        }
        cost, found = solve(lambda p: best_times(rows, p), rows.time_ns, weights_of(rows), start, ranges)
        if best is None or cost < best[0]:
            best = (cost, found)
    assert best is not None
    return best[1]


def weights_of(rows: CollectiveRows) -> Floats:
    """[k] so that each GPU's rank count and octave of sizes counts alike, however densely measured."""
    cells = np.stack([rows.gpu, rows.ranks, np.floor(np.log2(rows.size)).astype(np.int64)], axis=1)
    _, inverse, counts = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    result: Floats = 1.0 / counts[inverse.reshape(-1)]
    return result


def solve(
    predict: Callable[[dict[str, float]], Floats],
    measured: Floats,
    weights: Floats,
    start: Mapping[str, float],
    ranges: Mapping[str, Range],
) -> tuple[float, dict[str, float]]:
    """Robust least squares on log(predicted / measured): (cost, parameters), each within its range.

    Args:
        predict: parameters → [k] ns.
        measured, weights: [k].
        start: first guess.
        ranges: by parameter; the order of its keys is that of the search.
    """
    names = list(ranges)
    low = np.log([ranges[name][1] for name in names])
    high = np.log([ranges[name][2] for name in names])
    first = np.clip(np.log([start[name] for name in names]), low + 1e-6, high - 1e-6)
    root = np.sqrt(weights)

    def residual(x: Floats) -> Floats:
        result: Floats = np.log(predict(dict(zip(names, np.exp(x), strict=True))) / measured) * root
        return result

    done = least_squares(residual, first, bounds=(low, high), loss="soft_l1", f_scale=LOSS_SCALE)
    return float(done.cost), {name: float(v) for name, v in zip(names, np.exp(done.x), strict=True)}
