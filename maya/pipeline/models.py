"""Which models a job is predicted with: of kernels, and of communication between its ranks."""

from __future__ import annotations

from dataclasses import dataclass

from maya.hardware import GpuSpec
from maya.kernel_models import CollectiveModel, LearnedModel
from maya.traces import Manifest

NPROC_PER_NODE = "nproc_per_node"
"""Key of `Manifest.options`: ranks on each node; rank r lies on node r // that. Absent: as many as the
nodes have GPUs of the cluster in which the GPU most often stands."""


@dataclass(frozen=True)
class Models:
    """Maya's own models of one job."""

    kernels: LearnedModel
    transfers: CollectiveModel


def default_models(manifest: Manifest, gpu: GpuSpec) -> Models:
    """Maya's own models. A job of one rank may have process groups too, of one member."""
    collectives = CollectiveModel(gpu, ranks_per_node=manifest.options.get(NPROC_PER_NODE))
    return Models(LearnedModel(collectives=collectives), collectives)
