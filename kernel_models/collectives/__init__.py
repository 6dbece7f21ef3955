"""How long communications between GPUs take: a model of NCCL's algorithms, fitted to measured times."""

from maya.kernel_models.collectives.kinds import Collective, whole_bytes
from maya.kernel_models.collectives.model import CollectiveModel, CollectiveTime
from maya.kernel_models.collectives.occupancy import Occupancy
from maya.kernel_models.collectives.placement import Placement

__all__ = ["Collective", "CollectiveModel", "CollectiveTime", "Occupancy", "Placement", "whole_bytes"]
