"""Which cluster a GPU most likely stands in, for a user who names only the GPU."""

from __future__ import annotations

from dataclasses import replace

from maya.hardware.cluster import ClusterSpec, all_clusters
from maya.hardware.gpu import GENERATIONS, GpuSpec
from maya.hardware.host import default_host

BOX_GPUS = 8
"""GPUs in a PCIe box: what 4U servers of every generation hold."""
BOX_NICS = 2
"""Network cards of a PCIe box (assumed; one for each processor socket)."""
NIC_RATES_GBPS = (12.5, 25.0, 50.0)
"""100, 200 and 400 Gbit/s: a box has the fastest card that its PCIe slots feed."""
BRIDGED = 2
"""GPUs that an NVLink bridge joins."""

_CARD_WORDS = ("PCIE", "NVL")
"""Words in the names of products that are cards although their generation has an SXM board."""
BOARD_NVLINK_GBPS = 150.0
"""Links of an SXM board since Volta (6 x 25); bridges of cards without those words reach 112.5 at most."""
_UNBRIDGED_WORDS = ("RTX",)
"""GeForce cards have a bridge's connector at most, and the bridge is rarely bought."""


def cluster_for(gpu: GpuSpec) -> ClusterSpec:
    """The cluster that `gpu` is most often found in.

    In this order: the first cluster of the catalogue with this very GPU; a PCIe box for a card; the
    catalogue's NVSwitch or mesh cluster of the nearest generation with its GPUs replaced (H800 → DGX-H100).
    The `source` of a derived cluster says what was assumed.
    """
    for cluster in all_clusters():
        if cluster.gpu == gpu.name:
            return cluster
    if is_card(gpu):
        return _box(gpu)
    return _like_nearest(gpu)


def is_card(gpu: GpuSpec) -> bool:
    """Whether it sits in a PCIe slot (and has at most a bridge to one neighbour)."""
    words = gpu.name.upper().replace("_", "-").split("-")
    if any(word.startswith("SXM") for word in words):
        return False
    return gpu.nvlink_gbps < BOARD_NVLINK_GBPS or any(word in words for word in _CARD_WORDS)


def _box(gpu: GpuSpec) -> ClusterSpec:
    name = gpu.name.upper()
    bridged = gpu.nvlink_gbps > 0 and not any(name.startswith(word) for word in _UNBRIDGED_WORDS)
    rates = [rate for rate in NIC_RATES_GBPS if rate <= gpu.pcie_gbps]
    return ClusterSpec(
        name=f"PCIE-{BOX_GPUS}x{gpu.name}",
        aliases=(),
        gpu=gpu.name,
        host=default_host().name,
        gpus_per_node=BOX_GPUS,
        nvlink_domain_gpus=BRIDGED if bridged else 1,
        intra_node="nvlink-mesh" if bridged else "pcie",
        nics_per_node=BOX_NICS,
        nic_gbps=max(rates, default=NIC_RATES_GBPS[0]),
        network="ethernet",
        source="assumed: a PCIe box of 8 cards" + (", joined in pairs by NVLink bridges" if bridged else ""),
    )


def _like_nearest(gpu: GpuSpec) -> ClusterSpec:
    from maya.hardware.gpu_catalogue import find_gpu

    here = GENERATIONS.index(gpu.generation) if gpu.generation in GENERATIONS else len(GENERATIONS)

    def distance(cluster: ClusterSpec) -> tuple[int, int, int]:
        there = GENERATIONS.index(find_gpu(cluster.gpu).generation)
        domain_differs = (cluster.nvlink_domain_gpus > cluster.gpus_per_node) != _is_rack(gpu)
        return (abs(there - here), int(domain_differs), -there)

    joined = [cluster for cluster in all_clusters() if cluster.nvlink_domain_gpus > 1]
    nearest = min(joined, key=distance)
    return replace(
        nearest,
        name=f"{nearest.name} with {gpu.name}",
        aliases=(),
        gpu=gpu.name,
        source=f"assumed: as {nearest.name} ({nearest.source}) with {gpu.name}",
    )


def _is_rack(gpu: GpuSpec) -> bool:
    """Grace-Blackwell products are sold as NVL72 racks."""
    return gpu.name.upper().startswith("GB")
