"""Where the ranks of a call sit: islands of fast links, and the network between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from maya.hardware import ClusterSpec, GpuSpec

LINK_KINDS = ("nvswitch", "mesh", "bridge", "pcie")


@dataclass(frozen=True)
class Placement:
    """Ranks of one call as an algorithm sees them.

    Attributes:
        ranks: how many.
        islands: groups of ranks joined by `link`; more than one: they meet over the network.
        per_island: ranks of the largest island.
        link: one of `LINK_KINDS`, inside an island.
        link_gbps: one GPU's share of that link, one direction, 1e9 bytes/s.
        network_gbps: what the ranks of one island can send over the network together; 0 without one.
    """

    ranks: int
    islands: int
    per_island: int
    link: str
    link_gbps: float
    network_gbps: float


def place(ranks: Sequence[int], gpu: GpuSpec, cluster: ClusterSpec, ranks_per_node: int) -> Placement:
    """How these global ranks are joined; rank r sits on node r // ranks_per_node.

    Nodes of one NVLink domain (a rack of NVL72) are one island. A pair joined by a bridge is fast alone;
    in a larger group the PCIe links between pairs decide.

    Raises:
        ValueError: no ranks, a negative or repeated one, or ranks_per_node below 1.
    """
    if ranks_per_node < 1:
        raise ValueError(f"ranks_per_node must be at least 1, not {ranks_per_node}")
    if not ranks:
        raise ValueError("a communication needs at least one rank")
    if min(ranks) < 0 or len(set(ranks)) != len(ranks):
        raise ValueError(f"ranks must be distinct and >= 0, not {list(ranks)[:16]}")
    domain = cluster.nvlink_domain_gpus
    # An NVLink domain holds whole nodes, or is part of one.
    island_ranks = ranks_per_node * max(1, domain // cluster.gpus_per_node)
    counts = Counter(rank // island_ranks for rank in ranks)
    per_island = max(counts.values())
    link, gbps = _link(ranks, gpu, cluster, ranks_per_node)
    nodes_an_island = min(len({rank // ranks_per_node for rank in ranks}), -(-island_ranks // ranks_per_node))
    nics = cluster.nics_per_node * nodes_an_island
    # A rank uses the cards nearest to it: an island that is partly used drives part of its cards.
    used = min(1.0, per_island / (cluster.gpus_per_node * nodes_an_island))
    cards = max(1.0, nics * used) if nics else 0.0
    return Placement(len(ranks), len(counts), per_island, link, gbps, cards * cluster.nic_gbps)


def _link(ranks: Sequence[int], gpu: GpuSpec, cluster: ClusterSpec, ranks_per_node: int) -> tuple[str, float]:
    if cluster.intra_node == "nvswitch" and gpu.nvlink_gbps > 0:
        return "nvswitch", gpu.nvlink_gbps
    domain = cluster.nvlink_domain_gpus
    if cluster.intra_node == "nvlink-mesh" and gpu.nvlink_gbps > 0:
        if domain >= cluster.gpus_per_node:
            return "mesh", gpu.nvlink_gbps
        pairs = {(rank // ranks_per_node, rank % ranks_per_node // domain) for rank in ranks}
        if len(pairs) == 1:
            return "bridge", gpu.nvlink_gbps
    return "pcie", gpu.pcie_gbps
