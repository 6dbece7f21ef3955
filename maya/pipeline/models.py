"""Which models a job is predicted with: of kernels, and of communication between its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maya.hardware import GpuSpec
from maya.kernel_models import KernelCostModel, RooflineModel
from maya.pipeline.priced_run import TransferPrices
from maya.simulator import Transfer
from maya.traces import CollectiveType, Manifest


@dataclass(frozen=True)
class Models:
    """`transfers` is None for a job of one rank."""

    kernels: KernelCostModel
    transfers: TransferPrices | None


def default_models(manifest: Manifest, gpu: GpuSpec) -> Models:
    """Maya's own models for a job."""
    if manifest.world_size == 1:
        return Models(RooflineModel(), None)
    return Models(RooflineModel(), RingPrices(gpu.nvlink_gbps or gpu.pcie_gbps))


@dataclass(frozen=True)
class RingPrices:
    """A bandwidth-optimal ring (Patarasuk and Yuan 2009) on one link, until measured tables are there.

    Attributes:
        link_gbps: one GPU's links, one direction, 1e9 bytes/s.
        factor: of every time.
    """

    link_gbps: float
    factor: float = 1.0

    LATENCY_NS = 10_000
    """Of one communication kernel: the order of what NCCL's smallest collectives take."""

    def duration_ns(self, transfer: Transfer) -> int:
        """See TransferCost."""
        members = max(2, len(transfer.communicator.ranks))
        passes = 2.0 if transfer.collective == CollectiveType.ALL_REDUCE else 1.0
        moved = max(transfer.input_bytes, transfer.output_bytes) * passes * (members - 1) / members
        return round(self.factor * (self.LATENCY_NS + moved / self.link_gbps))

    def at(self, quantile: Literal["low", "high"]) -> RingPrices:
        """See TransferPrices."""
        return RingPrices(self.link_gbps, self.factor * (0.8 if quantile == "low" else 1.5))
