"""A cost model as the duration oracle of the emulated device."""

from __future__ import annotations

from maya.hardware import GpuSpec
from maya.kernel_models.roofline import RooflineModel


class ModelOracle:
    """Implements `maya.traces.oracle.DurationOracle`.

    Args:
        model: what prices an operator.
        gpu: the emulated device.
    """

    def __init__(self, model: RooflineModel, gpu: GpuSpec) -> None:
        self._model = model
        self._gpu = gpu

    def duration_ns(self, operator: str, metadata_json: str) -> int:
        """Device time of all kernels of one call, 0 for none."""
        return int(self._model.price_operator(operator, metadata_json, self._gpu).work_ns.sum())
