"""Imported by test scripts: puts two emulated H100s into this process's torch."""

from __future__ import annotations

import torch

from maya.emulator.backend import load
from maya.emulator.backend.library import operators_of_build
from maya.emulator.torch_cuda import DriverVersions, install_torch_cuda
from maya.hardware import find_gpu

GPUS = 2
cuda_build = torch.version.cuda is not None
gpu = find_gpu("H100-SXM5-80GB")
versions = DriverVersions.for_gpu(gpu)
native = load()
native.install(
    device_count=GPUS,
    total_memory_bytes=gpu.total_memory_bytes,
    context_bytes=gpu.context_bytes,
    unlimited_memory=False,
    capability=gpu.compute_capability,
    cudnn_version=versions.cudnn_number,
    cuda_runtime_version=versions.cuda_number,
)
native.register_operators(sorted(set(operators_of_build()) - set(native.direct_operators())))
install_torch_cuda(native, gpu, GPUS, versions)
