"""Putting the emulated GPU into this process."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from maya.emulator.backend.library import load, operators_of_build, shared_kernels_of_build
from maya.emulator.backend.operators import kernels_to_refuse
from maya.emulator.process_end import wait_for_autograd_at_exit
from maya.errors import UsageError
from maya.hardware import GpuSpec

MIB = 2**20


@dataclass(frozen=True)
class DeviceSettings:
    """The machine the script sees.

    Attributes:
        gpu: kind of every GPU.
        visible_gpus: how many there are.
        memory_bytes: capacity in place of the GPU's own; None keeps it.
        unlimited_memory: allocations never fail.
    """

    gpu: GpuSpec
    visible_gpus: int = 1
    memory_bytes: int | None = None
    unlimited_memory: bool = False


def install_device(settings: DeviceSettings) -> ModuleType:
    """Make torch in this process believe in the GPUs asked for. Cannot be undone.

    Returns:
        the native module, through which the device is driven and observed.

    Raises:
        MayaError: the backend cannot be built, or this torch lacks something it hooks.
        UsageError: the memory asked for does not hold the CUDA context.
    """
    # The profiler's library would report on stderr that it finds no GPU.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    native = load()
    import torch

    from maya.emulator.shapes import register_missing_shapes
    from maya.emulator.torch_cuda import DriverVersions, install_torch_cuda

    gpu = settings.gpu
    total_bytes = gpu.total_memory_bytes if settings.memory_bytes is None else settings.memory_bytes
    if total_bytes <= gpu.context_bytes:
        raise UsageError(
            f"{total_bytes / MIB:,.0f} MiB of GPU memory are not enough for the CUDA context of {gpu.name}",
            hint=f"The context alone takes {gpu.context_bytes / MIB:,.0f} MiB; give --gpu-memory more.",
        )
    driver = DriverVersions.for_gpu(gpu)
    cuda_build = torch.version.cuda is not None
    native.install(
        device_count=settings.visible_gpus,
        total_memory_bytes=total_bytes,
        context_bytes=gpu.context_bytes,
        unlimited_memory=settings.unlimited_memory,
        capability=gpu.compute_capability,
        cudnn_version=_built_cudnn() if cuda_build else driver.cudnn_number,
        cuda_runtime_version=_built_cuda() if cuda_build else driver.cuda_number,
    )
    direct = set(native.direct_operators())
    native.register_operators([name for name in operators_of_build() if name not in direct])
    for key, names in kernels_to_refuse().items():
        native.refuse_operators(key, names)
    shared = shared_kernels_of_build()
    native.share_kernels("SparseCPU", "SparseCUDA", list(shared.sparse))
    native.share_kernels("CPU", "CUDA", list(shared.to_sparse))
    register_missing_shapes()
    install_torch_cuda(native, gpu, settings.visible_gpus, driver)
    wait_for_autograd_at_exit()
    for folder in _not_the_users():
        native.add_non_user_prefix(f"{folder}/")
    return native


def _not_the_users() -> list[Path]:
    """Folders whose code is torch's or ours. In a checkout our rooms lie beside the user's examples."""
    names = ("torch", "maya", "maya.emulator", "maya.kernel_models", "maya.traces")
    found = [importlib.util.find_spec(name) for name in names]
    return [Path(spec.origin).parent for spec in found if spec is not None and spec.origin is not None]


def _built_cudnn() -> int:
    import torch

    major, minor, patch = torch._C._cudnn.getCompileVersion()
    return int(major * 10000 + minor * 100 + patch)


def _built_cuda() -> int:
    import torch

    major, minor = (int(part) for part in (torch.version.cuda or "0.0").split(".")[:2])
    return major * 1000 + minor * 10
