"""Which models a job is predicted with: of kernels, and of communication between its ranks."""

from __future__ import annotations

from dataclasses import dataclass

from maya.hardware import GpuSpec
from maya.kernel_models import CollectiveModel, KernelCostModel, RooflineModel
from maya.pipeline.priced_run import TransferPrices
from maya.traces import Manifest


@dataclass(frozen=True)
class Models:
    """`transfers` is None for a job of one rank."""

    kernels: KernelCostModel
    transfers: TransferPrices | None


def default_models(manifest: Manifest, gpu: GpuSpec) -> Models:
    """Maya's own models; several ranks fill the nodes of the cluster in which the GPU most often stands."""
    if manifest.world_size == 1:
        return Models(RooflineModel(), None)
    collectives = CollectiveModel(gpu)
    return Models(RooflineModel(collectives=collectives), collectives)
