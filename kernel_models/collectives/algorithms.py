"""How long NCCL's algorithms take: latency of their steps plus bytes over the scarcest link.

Inside an island (GPUs that reach each other over one kind of link) a call runs a ring with one of
three protocols, or in the NVSwitch (NVLS). LL sends 8-byte words of which half are flags: the lowest
latency at under half the bandwidth; LL128 sends 120 of 128 bytes; Simple waits for memory fences and
has the whole bandwidth. Time of a protocol:

    base + step · steps(n) + wire(S, n) / (link · efficiency · share(n))

with n ranks and S bytes (`kinds.whole_bytes`). Steps and wire bytes are those of a ring; a tree inside a
node is a chain, so that it has as many steps. Between islands a ring crosses the network once for each
island, a double binary tree goes log2(islands) deep and halves its traffic at two islands; whichever of the
island's links and the network takes longer decides, as chunks are pipelined. A call takes the fastest
of what is open to it, which is what NCCL's tuner aims at.

Everything is vectorised over S; times in ns, bandwidths in 1e9 bytes/s (= bytes a ns).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.collectives.kinds import Collective
from maya.kernel_models.collectives.placement import Placement

Floats = NDArray[np.float64]
Parameters = Mapping[str, float]

PROTOCOLS = ("LL", "LL128", "Simple")
NVLS_LEAST_RANKS = 3
"""NCCL uses the switch's reduction only from three ranks on (for two a direct exchange is as short)."""

RING_FAMILIES = ("all_reduce", "all_gather", "reduce_scatter")
FAMILIES = (*RING_FAMILIES, "all_to_all", "message")
"""Kinds of call with parameters of their own; the others are derived."""

FAMILY_OF = {
    Collective.MESSAGE: "message",
    Collective.ALL_REDUCE: "all_reduce",
    Collective.BARRIER: "all_reduce",
    Collective.REDUCE: "reduce_scatter",
    Collective.REDUCE_SCATTER: "reduce_scatter",
    Collective.REDUCE_SCATTER_BLOCK: "reduce_scatter",
    Collective.ALL_GATHER: "all_gather",
    Collective.BROADCAST: "all_gather",
    Collective.ALL_TO_ALL: "all_to_all",
    Collective.GATHER: "all_to_all",
    Collective.SCATTER: "all_to_all",
}
"""Whose parameters a collective runs with: a broadcast is an all-gather's ring that carries one buffer past
every rank, a gather or scatter what an all-to-all is for its root."""

MEASURED = frozenset(
    (
        Collective.ALL_REDUCE,
        Collective.ALL_GATHER,
        Collective.REDUCE_SCATTER,
        Collective.ALL_TO_ALL,
        Collective.MESSAGE,
    )
)
"""Collectives that the table has rows of; the rest follow from them and are never LEARNED."""

MESH_LINKS = {2: 1.0, 3: 2.0, 4: 4.0, 5: 1.7, 6: 2.0, 7: 4.0, 8: 6.0}
"""Of the six links of a GPU in DGX-1's hybrid cube mesh, how many the rings over the first n GPUs can use:
the cube's faces are complete graphs with one double edge a GPU. Five GPUs leave one ring each way, less the
detour; read off the measured table."""
MESH_LINK_COUNT = 6.0


def steps(collective: Collective, ranks: int) -> int:
    """Steps of a ring one after another; messages of a rank for all-to-all."""
    if collective == Collective.MESSAGE:
        return 1
    once = ranks - 1
    return 2 * once if collective in (Collective.ALL_REDUCE, Collective.BARRIER) else once


def wire_share(collective: Collective, ranks: int) -> float:
    """Bytes that a rank sends, as a share of the whole."""
    if collective in (Collective.MESSAGE, Collective.BROADCAST, Collective.REDUCE):
        return 1.0
    return steps(collective, ranks) / ranks


def link_share(link: str, ranks: int, parameters: Parameters) -> float:
    """What n ranks can use of each GPU's link, over what two can (a whole one for a mesh).

    GPUs behind one host bridge share it: `sharing` is 0 where they do not, 1 where all share one.
    """
    if link == "mesh":
        return MESH_LINKS.get(ranks, MESH_LINK_COUNT) / MESH_LINK_COUNT
    if link == "pcie":
        return float((2.0 / max(2, ranks)) ** parameters.get("sharing", 0.0))
    return 1.0


def island_times(
    collective: Collective, ranks: int, link: str, link_gbps: float, p: Parameters, size: Floats
) -> dict[str, Floats]:
    """Times of the algorithms open to `ranks` GPUs of one island, by name.

    Args:
        collective: which.
        ranks: at least 2.
        link, link_gbps: as in `Placement`.
        p: fitted parameters of the link and the collective's family.
        size: [k] whole bytes.
    """
    wire = size * wire_share(collective, ranks)
    hops = steps(collective, ranks)
    gbps = link_gbps * link_share(link, ranks, p)
    prefix = "ring" if FAMILY_OF[collective] in RING_FAMILIES else "direct"
    times: dict[str, Floats] = {}
    for protocol in PROTOCOLS:
        key = protocol.lower()
        if f"{key}_efficiency" in p:
            fixed = p["base_ns"] + p.get(f"{key}_extra_ns", 0.0) + p[f"{key}_step_ns"] * hops
            times[f"{prefix} {protocol}"] = fixed + wire / (gbps * p[f"{key}_efficiency"])
    if "nvls_efficiency" in p and ranks >= NVLS_LEAST_RANKS:
        # Every GPU sends the whole to the switch and receives the whole from it. (Its own reduced shard, 1/n
        # more, does not show: 4 and 8 ranks measure alike.)
        times["NVLS"] = p["base_ns"] + p["nvls_extra_ns"] + size / (link_gbps * p["nvls_efficiency"])
    return times


def network_times(
    collective: Collective, where: Placement, p: Parameters, network: Parameters, size: Floats
) -> dict[str, Floats]:
    """Times of the algorithms open to ranks on several islands, by name.

    Args:
        collective: which.
        where: at least two islands.
        p: parameters inside an island, of the collective's family.
        network: parameters of the network.
        size: [k] whole bytes.
    """
    if where.network_gbps <= 0:
        raise ValueError("ranks on several nodes need a cluster with a network")
    family = FAMILY_OF[collective]
    net_gbps = where.network_gbps * network["efficiency"]
    inside, islands = where.per_island, where.islands
    if family in ("all_to_all", "message"):
        return _pairwise(collective, where, p, network, size)
    times: dict[str, Floats] = {}
    # A ring over all ranks: its edges inside islands and those between them work at the same time.
    passes = 2 if steps(collective, 2) == 2 else 1
    share = wire_share(collective, where.ranks)
    gbps = where.link_gbps * link_share(where.link, inside, p)
    for protocol in PROTOCOLS:
        key = protocol.lower()
        if f"{key}_efficiency" not in p:
            continue
        extra = p["base_ns"] + p.get(f"{key}_extra_ns", 0.0) + network["base_ns"]
        net_step = network[f"{key}_step_ns"]
        net_wire = size / (net_gbps * network[f"{key}_share"])
        link_wire = size / (gbps * p[f"{key}_efficiency"])
        hops = passes * (where.ranks - islands)
        fixed = extra + p[f"{key}_step_ns"] * hops + net_step * passes * islands
        times[f"ring {protocol}"] = fixed + share * np.maximum(net_wire, link_wire)
        if family == "all_reduce":
            depth = 2 * ceil(log2(islands))
            fixed = extra + 2 * p[f"{key}_step_ns"] * (inside - 1) + net_step * depth
            across = 2.0 * (islands - 1) / islands * net_wire
            around = 2.0 * link_wire if inside > 1 else 0.0 * link_wire
            times[f"tree {protocol}"] = fixed + np.maximum(across, around)
    if family == "all_reduce" and "nvls_efficiency" in p and inside >= NVLS_LEAST_RANKS:
        depth = 2 * ceil(log2(islands))
        fixed = p["base_ns"] + p["nvls_extra_ns"] + network["base_ns"] + network["simple_step_ns"] * depth
        through = size / (where.link_gbps * p["nvls_efficiency"])
        across = 2.0 * (islands - 1) / islands * size / (net_gbps)
        times["NVLS tree"] = fixed + np.maximum(through, across)
    return times


def _pairwise(
    collective: Collective, where: Placement, p: Parameters, network: Parameters, size: Floats
) -> dict[str, Floats]:
    """Every rank (or the root) exchanges with every other one; far ones share the island's network cards."""
    far_ranks = where.ranks - where.per_island
    messages = 1 if collective == Collective.MESSAGE else where.ranks - 1
    if collective == Collective.MESSAGE:
        far, near = size, 0.0 * size
        gbps = where.network_gbps
    else:
        far, near = size * far_ranks / where.ranks, size * (where.per_island - 1) / where.ranks
        # A root alone has the cards near it; in an all-to-all every rank of the island sends at once.
        gbps = where.network_gbps / where.per_island
    if where.link == "pcie":
        near = near + far  # the network cards hang on the same PCIe links
    link = where.link_gbps * link_share(where.link, where.per_island, p)
    times: dict[str, Floats] = {}
    for protocol in PROTOCOLS:
        key = protocol.lower()
        if f"{key}_efficiency" not in p:
            continue
        fixed = p["base_ns"] + p.get(f"{key}_extra_ns", 0.0) + network["message_ns"]
        fixed += p[f"{key}_step_ns"] * messages
        across = far / (gbps * network["message_efficiency"] * network[f"{key}_share"])
        times[f"direct {protocol}"] = fixed + np.maximum(across, near / (link * p[f"{key}_efficiency"]))
    return times
