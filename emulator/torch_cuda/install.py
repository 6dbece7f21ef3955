"""The door: makes this process's torch believe in the GPUs asked for."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.backends.cuda
import torch.backends.cudnn
import torch.cuda._graph_annotations

from maya.emulator.nvml import NvmlGpu, nvml_module
from maya.emulator.torch_cuda import (
    attention,
    cudart,
    graphs,
    launchers,
    legacy_types,
    nccl,
    nvtx,
    peer_copies,
    pools,
    profiling,
    properties,
    storage,
    streams,
    tensors,
)
from maya.emulator.torch_cuda.blas_and_cudnn import LibrarySettings, cudnn_module
from maya.emulator.torch_cuda.cusparselt import cusparselt_module
from maya.emulator.torch_cuda.device import DriverVersions, EmulatedDevices
from maya.emulator.torch_cuda.memory import Memory
from maya.emulator.torch_cuda.native import Native, check_native
from maya.emulator.torch_cuda.rebinding import rebind
from maya.emulator.torch_cuda.registry import Registry
from maya.emulator.torch_cuda.tunable import TunableSettings
from maya.errors import MayaError
from maya.hardware import GpuSpec

NEW_IN_TORCH_2_14 = frozenset(
    {
        "_cuda_annotateMemory",
        "_cuda_memoryMetadataSupported",
        "_cuda_tunableop_get_cublaslt_requested_algo_count",
        "_cuda_tunableop_set_cublaslt_requested_algo_count",
        "_get_cublaslt_prefer_grouped_gemm",
        "_set_cublaslt_prefer_grouped_gemm",
        "_set_storage_data_ptr_access_error_msg",
        "_clear_storage_data_ptr_access_error_msg",
    }
)
"""Names of `torch._C` that a CUDA build of 2.13 may lack. Every other one must exist there."""


def install_torch_cuda(
    native: Native, gpu: GpuSpec, visible_gpus: int, driver: DriverVersions | None = None
) -> Registry:
    """Puts `visible_gpus` emulated GPUs of kind `gpu` into this process's torch. Cannot be undone.

    Call it once per process, after `native` is loaded and before the user's script; code that was
    imported earlier is made to see the new names. CUDA's lazy initialisation stays lazy.

    Args:
        native: the compiled backend (`maya.emulator.backend.load()`).
        driver: versions that a CPU build of torch claims; None takes those that fit the GPU.

    Returns:
        the registry of every name that was set, with what it was before.

    Raises:
        MayaError: this torch lacks a name the device replaces, or the backend lacks a function.
        ValueError: `visible_gpus` is below 1.
    """
    if visible_gpus < 1:
        raise ValueError(f"visible_gpus must be at least 1, not {visible_gpus}")
    if getattr(torch._C, "_maya_emulated", False):
        raise MayaError("the emulated CUDA device is already installed in this process")
    check_native(native)
    cuda_build = torch.version.cuda is not None
    versions = driver or DriverVersions.for_gpu(gpu)
    if cuda_build:
        versions = versions.of_build(torch.version.cuda)
    devices = EmulatedDevices(native, gpu, visible_gpus, versions)
    registry = Registry()
    _install_extension_names(registry, devices, cuda_build=cuda_build)
    _install_nvml(registry, devices)
    _install_torch_cuda_names(registry, devices)
    storage.install(registry, devices)
    if not cuda_build:
        legacy_types.install(registry)
        profiling.install(registry)
    rebind(registry)
    registry.add(torch._C, "_maya_emulated", True)
    return registry


def _install_extension_names(registry: Registry, devices: EmulatedDevices, *, cuda_build: bool) -> None:
    """Sets every name a CUDA build of torch has in `torch._C` and the emulated device must answer."""
    groups: list[dict[str, Any]] = [
        devices.names(cuda_build=cuda_build),
        properties.names(),
        streams.names(devices),
        Memory(devices).names(),
        pools.names(devices),
        graphs.names(devices),
        tensors.names(),
        launchers.names(),
        LibrarySettings(devices).names(),
        TunableSettings().names(),
        attention.names(devices),
        nccl.names(devices, cuda_build=cuda_build),
        peer_copies.names(),
    ]
    groups.append({"_cudart": cudart.cudart_module(devices), "_nvtx": nvtx.nvtx_module()})
    for names in groups:
        for name, value in names.items():
            if cuda_build and name not in NEW_IN_TORCH_2_14:
                registry.replace(torch._C, name, value)
            else:
                registry.add(torch._C, name, value)
    for flag in ("_has_cuda", "_has_cudnn", "_has_magma", "_has_cusparselt"):
        registry.replace(torch._C, flag, True)
    if not cuda_build:
        registry.add(torch._C, "_cudnn", cudnn_module(devices.driver))
        registry.add(torch._C, "_cusparselt", cusparselt_module())
        registry.replace(torch.version, "cuda", devices.driver.cuda_text)


def _install_torch_cuda_names(registry: Registry, devices: EmulatedDevices) -> None:
    """Sets what `torch.cuda` has bound at import, and what would look at a real driver."""

    @functools.cache
    def get_device_properties(device: int) -> properties.CudaDeviceProperties:
        return properties.device_properties(devices, device)

    replaced: dict[str, Any] = {
        "_is_in_bad_fork": torch._C._cuda_isInBadFork,
        "_exchange_device": torch._C._cuda_exchangeDevice,
        "_maybe_exchange_device": torch._C._cuda_maybeExchangeDevice,
        "_CudaDeviceProperties": torch._C._CudaDeviceProperties,
        "_cudart": torch._C._cudart,
        "has_magma": True,
        "_HAS_PYNVML": True,
        "_PYNVML_ERR": None,
        "_cached_device_count": None,
        "_raw_device_count_nvml": devices.device_count,
        "_device_count_nvml": devices.device_count,
        "_raw_device_uuid_nvml": lambda: [_nvml_uuid(devices, i) for i in range(devices.visible_gpus)],
        "_get_nvml_device_index": _nvml_index(devices),
    }
    for name, value in replaced.items():
        registry.replace(torch.cuda, name, value)
    registry.replace(torch.cuda, "_compile_kernel", launchers.compile_kernel)
    # Asks the real driver otherwise; graphs of the emulated device have no nodes to annotate.
    registry.replace(torch.cuda._graph_annotations, "_is_tools_id_unavailable", lambda: True)
    registry.add(torch.cuda, "pynvml", sys.modules["pynvml"])
    registry.add(torch.cuda, "_get_device_properties", get_device_properties)
    torch.cuda._check_bf16_tensor_supported.cache_clear()


def _nvml_uuid(devices: EmulatedDevices, device: int) -> str:
    return f"GPU-{properties.gpu_uuid(devices.gpu.name, device)}"


def _nvml_index(devices: EmulatedDevices) -> Callable[[Any], int]:
    """NVML counts the node's GPUs; CUDA_VISIBLE_DEVICES does not renumber the emulated ones."""

    def index_of(device: Any) -> int:
        index = torch.cuda._utils._get_device_index(device, optional=True)
        if not 0 <= index < devices.device_count():
            raise RuntimeError(f"device {index} is not visible ({devices.device_count()} GPUs are)")
        return int(index)

    return index_of


def _install_nvml(registry: Registry, devices: EmulatedDevices) -> types.ModuleType:
    gpu = devices.gpu
    listed = [
        NvmlGpu(
            name=gpu.torch_name,
            uuid=_nvml_uuid(devices, index),
            compute_capability=gpu.compute_capability,
            reserved_bytes=gpu.memory_bytes - gpu.total_memory_bytes,
            pci_bus=properties.pci_bus_id(index),
            power_limit_watts=gpu.tdp_watts,
            sm_clock_mhz=gpu.boost_clock_mhz,
            memory_clock_mhz=gpu.memory_clock_mhz,
            memory_bus_bits=gpu.memory_bus_bits,
            generation=gpu.generation,
            has_nvlink=gpu.nvlink_gbps > 0,
        )
        for index in range(devices.visible_gpus)
    ]
    module = nvml_module(listed, devices.driver.driver, devices.driver.cuda, devices.native.memory_info)
    registry.modules["pynvml"] = sys.modules.get("pynvml")
    sys.modules["pynvml"] = module
    return module
