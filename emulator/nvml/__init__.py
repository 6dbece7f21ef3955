"""A `pynvml` that answers for the emulated GPUs."""

from maya.emulator.nvml.library import NvmlGpu
from maya.emulator.nvml.module import nvml_module

__all__ = ["NvmlGpu", "nvml_module"]
