"""Kernel cost models: how long a kernel takes on a GPU, and what that number rests on."""

from maya.kernel_models.collectives import Collective, CollectiveModel, CollectiveTime
from maya.kernel_models.contract import KernelCostModel, KernelTimes, Source
from maya.kernel_models.families import family_known
from maya.kernel_models.host import host_gaps
from maya.kernel_models.model_flops import model_flops
from maya.kernel_models.oracle import ModelOracle
from maya.kernel_models.roofline import LearnedModel, RooflineModel

__all__ = [
    "Collective",
    "CollectiveModel",
    "CollectiveTime",
    "KernelCostModel",
    "KernelTimes",
    "LearnedModel",
    "ModelOracle",
    "RooflineModel",
    "Source",
    "family_known",
    "host_gaps",
    "model_flops",
]
