"""Parameters of the network between nodes, from all-reduces over whole nodes of eight."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.collectives.algorithms import network_times
from maya.kernel_models.collectives.placement import Placement
from maya.kernel_models.fit.collective_data import CollectiveRows
from maya.kernel_models.fit.collective_fit import COLLECTIVE_OF_FAMILY, Range, solve, weights_of

Floats = NDArray[np.float64]

RANGES: Mapping[str, Range] = {
    "base_ns": (2_000.0, 1.0, 60_000.0),
    "ll_step_ns": (5_000.0, 500.0, 60_000.0),
    "ll128_step_ns": (8_000.0, 500.0, 80_000.0),
    "simple_step_ns": (14_000.0, 500.0, 150_000.0),
    "efficiency": (0.85, 0.3, 1.0),
    "ll_share": (0.25, 0.02, 0.5),
    "ll128_share": (0.9, 0.05, 0.9375),
}
"""Start, least, most. NCCL's tuner assumes 5, 8.5 and 14 us for a step over InfiniBand; a protocol has its
share of the network's bandwidth: at most its data bytes over all that it sends."""
FIXED = {"simple_share": 1.0, "message_ns": 9_000.0, "message_efficiency": 0.72}
"""One pair over the network, beside a pair inside a node: Vidur's H100 rows (18 us against 7 us at 16 KiB,
36 GB/s of a 50 GB/s card at 64 MiB)."""


def network_row_times(
    rows: CollectiveRows, inside: Mapping[str, float], network: Mapping[str, float]
) -> Floats:
    """[k] ns of the fastest algorithm for each row of several whole nodes.

    Args:
        rows: rows with `nodes` above 1.
        inside: parameters of the family inside a node.
        network: parameters of the network.
    """
    collective = COLLECTIVE_OF_FAMILY[rows.family]
    result = np.zeros(len(rows.size))
    for gpu_index, gpu in enumerate(rows.gpus):
        cells = np.unique(np.stack([rows.ranks, rows.nodes, rows.network_gbps.astype(np.int64)]), axis=1)
        for ranks, nodes, gbps in cells.T:
            mask = (rows.gpu == gpu_index) & (rows.ranks == ranks)
            mask &= (rows.nodes == nodes) & (rows.network_gbps == gbps)
            if not mask.any():
                continue
            per_node = int(ranks // nodes)
            where = Placement(int(ranks), int(nodes), per_node, "nvswitch", gpu.nvlink_gbps, float(gbps))
            times = network_times(collective, where, inside, network, rows.size[mask])
            result[mask] = np.min(list(times.values()), axis=0)
    return result


def fit_network(rows: CollectiveRows, inside: Mapping[str, float]) -> dict[str, float]:
    """The network's parameters, given those inside a node."""
    start = {name: value for name, (value, _, _) in RANGES.items()}
    _, found = solve(
        lambda p: network_row_times(rows, inside, p | FIXED), rows.time_ns, weights_of(rows), start, RANGES
    )
    return found | FIXED
