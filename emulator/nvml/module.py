"""Builds the module that is imported as `pynvml`."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from maya.emulator.nvml.errors import ERROR_CLASSES, ERRORS, NVMLError
from maya.emulator.nvml.library import NOT_SUPPORTED, NvmlGpu, NvmlLibrary

CONSTANTS: dict[str, int] = {
    "NVML_SUCCESS": 0,
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_CLOCK_GRAPHICS": 0,
    "NVML_CLOCK_SM": 1,
    "NVML_CLOCK_MEM": 2,
    "NVML_CLOCK_VIDEO": 3,
    "NVML_DEVICE_MIG_DISABLE": 0,
    "NVML_DEVICE_MIG_ENABLE": 1,
    "NVML_FEATURE_DISABLED": 0,
    "NVML_FEATURE_ENABLED": 1,
    "NVML_INIT_FLAG_NO_GPUS": 1,
    "NVML_P2P_STATUS_OK": 0,
    "NVML_P2P_CAPS_INDEX_READ": 0,
    "NVML_P2P_CAPS_INDEX_WRITE": 1,
    "NVML_P2P_CAPS_INDEX_NVLINK": 2,
    "NVML_P2P_CAPS_INDEX_ATOMICS": 3,
    "NVML_P2P_CAPS_INDEX_PCI": 4,
    "NVML_NVLINK_MAX_LINKS": 18,
    "NVML_DEVICE_ARCH_PASCAL": 4,
    "NVML_DEVICE_ARCH_VOLTA": 5,
    "NVML_DEVICE_ARCH_TURING": 6,
    "NVML_DEVICE_ARCH_AMPERE": 7,
    "NVML_DEVICE_ARCH_ADA": 8,
    "NVML_DEVICE_ARCH_HOPPER": 9,
    "NVML_DEVICE_ARCH_BLACKWELL": 10,
    "nvmlMemory_v2": 0x02000028,
}
"""Values of nvml.h."""
ALIASES = {
    "DeviceGetCount_v2": "DeviceGetCount",
    "DeviceGetHandleByIndex_v2": "DeviceGetHandleByIndex",
    "DeviceGetHandleByPciBusId_v2": "DeviceGetHandleByPciBusId",
    "DeviceGetPciInfo_v3": "DeviceGetPciInfo",
    "DeviceGetComputeRunningProcesses_v2": "DeviceGetComputeRunningProcesses",
    "DeviceGetComputeRunningProcesses_v3": "DeviceGetComputeRunningProcesses",
    "DeviceGetGraphicsRunningProcesses_v2": "DeviceGetGraphicsRunningProcesses",
    "DeviceGetGraphicsRunningProcesses_v3": "DeviceGetGraphicsRunningProcesses",
    "DeviceGetApplicationsClock_v1": "DeviceGetApplicationsClock",
    "SystemGetCudaDriverVersion_v2": "SystemGetCudaDriverVersion",
}
"""Versioned names of the same function."""


def nvml_module(
    gpus: Sequence[NvmlGpu],
    driver: str,
    cuda: tuple[int, int],
    memory_info: Callable[[int], tuple[int, int]],
) -> types.ModuleType:
    """A module with `pynvml`'s names. Every other `nvml*` function raises NVMLError_NotSupported.

    Args:
        gpus: the node's GPUs in index order.
        driver: version of the driver, such as "570.172.08".
        cuda: the newest CUDA version that driver serves.
        memory_info: device -> (free, total) bytes.
    """
    library = NvmlLibrary(gpus, driver, cuda, memory_info)
    module = types.ModuleType("pynvml", "Maya's stand-in: answers for the emulated GPUs.")
    contents: dict[str, Any] = dict(CONSTANTS)
    contents["__version__"] = "12.575.51"  # of nvidia-ml-py, whose interface this is
    contents["NVMLError"] = NVMLError
    for code, (name, _) in ERRORS.items():
        contents[f"NVMLError_{name}"] = ERROR_CLASSES[code]
        contents[f"NVML_ERROR_{_constant_name(name)}"] = code
    for name in vars(NvmlLibrary):
        if name[0].isupper():
            contents[f"nvml{name}"] = getattr(library, name)
    for alias, name in ALIASES.items():
        contents[f"nvml{alias}"] = getattr(library, name)
    vars(module).update(contents)
    vars(module)["__getattr__"] = _unsupported
    return module


def _constant_name(name: str) -> str:
    """NotSupported -> NOT_SUPPORTED."""
    return "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(name)).upper()


def _unsupported(name: str) -> Any:
    if not name.startswith("nvml"):
        raise AttributeError(f"module 'pynvml' has no attribute {name!r}")

    def unsupported(*_: Any, **__: Any) -> Any:
        raise NVMLError(NOT_SUPPORTED)

    return unsupported
