"""cuBLAS and cuDNN as `torch.backends` and `torch.cuda` see them: handles, workspaces, versions, modes."""

from __future__ import annotations

import os
import re
import types
from enum import IntEnum
from typing import Any

from maya.emulator.torch_cuda.device import DriverVersions, EmulatedDevices

KIB = 1024
HOPPER_WORKSPACE_BYTES = 4096 * 8 * KIB
OTHER_WORKSPACE_BYTES = (4096 * 2 + 16 * 8) * KIB
"""Defaults of `at::cuda::getChosenWorkspaceSize` (aten/src/ATen/cuda/CublasHandlePool.cpp)."""
HANDLE = 1
"""Any value that is not a null handle."""
CONV_BENCHMARK_LIMIT = 10
"""Default of `torch.backends.cudnn.benchmark_limit`."""


class RNNMode(IntEnum):
    """`cudnnRNNMode_t` of cudnn.h."""

    rnn_relu = 0
    rnn_tanh = 1
    lstm = 2
    gru = 3


class LibrarySettings:
    """State behind the `torch._C` functions about cuBLAS and cuDNN."""

    def __init__(self, devices: EmulatedDevices) -> None:
        self._native = devices.native
        self._capability = devices.gpu.compute_capability
        self._cublas_bytes: int | None = None
        self._cublaslt_bytes: int | None = None
        self._benchmark_limit = CONV_BENCHMARK_LIMIT
        self._benchmark_empty_cache = True
        self._prefer_grouped_gemm = False
        self._sync_debug_mode = 0

    def cublas_workspace_bytes(self) -> int:
        """Per handle and stream: what was set, else CUBLAS_WORKSPACE_CONFIG, else the GPU's default."""
        if self._cublas_bytes is not None:
            return self._cublas_bytes
        configured = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "")
        pairs = re.findall(r":(\d+):(\d+)", configured)
        if configured and pairs:
            return sum(int(size) * int(count) * KIB for size, count in pairs)
        hopper_or_newer = self._capability[0] in (9, 10)
        return HOPPER_WORKSPACE_BYTES if hopper_or_newer else OTHER_WORKSPACE_BYTES

    def cublaslt_workspace_bytes(self) -> int:
        """cuBLASLt shares cuBLAS' workspace unless told otherwise."""
        if self._cublaslt_bytes is not None:
            return self._cublaslt_bytes
        configured = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
        return int(configured) * KIB if configured.isdigit() else self.cublas_workspace_bytes()

    def names(self) -> dict[str, Any]:
        """The `torch._C` attributes about cuBLAS and cuDNN."""

        def setter(field: str) -> Any:
            return lambda value: setattr(self, field, value)

        def getter(field: str) -> Any:
            return lambda: getattr(self, field)

        return {
            "_cuda_getCurrentBlasHandle": lambda: HANDLE,
            "_cuda_getCurrentSolverHandle": lambda: HANDLE,
            "_cuda_clearCublasWorkspaces": self._native.clear_cublas_workspaces,
            "_cuda_getCublasWorkspaceSize": self.cublas_workspace_bytes,
            "_cuda_setCublasWorkspaceSize": setter("_cublas_bytes"),
            "_cuda_resetCublasWorkspaceSize": lambda: setattr(self, "_cublas_bytes", None),
            "_cuda_getCublasLtWorkspaceSize": self.cublaslt_workspace_bytes,
            "_cuda_setCublasLtWorkspaceSize": setter("_cublaslt_bytes"),
            "_cuda_resetCublasLtWorkspaceSize": lambda: setattr(self, "_cublaslt_bytes", None),
            "_get_cublaslt_prefer_grouped_gemm": getter("_prefer_grouped_gemm"),
            "_set_cublaslt_prefer_grouped_gemm": setter("_prefer_grouped_gemm"),
            "_cuda_get_cudnn_benchmark_limit": getter("_benchmark_limit"),
            "_cuda_set_cudnn_benchmark_limit": setter("_benchmark_limit"),
            "_cuda_get_conv_benchmark_empty_cache": getter("_benchmark_empty_cache"),
            "_cudnn_set_conv_benchmark_empty_cache": setter("_benchmark_empty_cache"),
            "_cudnn_clear_dropout_state": lambda: None,
            "_cuda_get_sync_debug_mode": getter("_sync_debug_mode"),
            "_cuda_set_sync_debug_mode": setter("_sync_debug_mode"),
        }


def cudnn_module(driver: DriverVersions) -> types.ModuleType:
    """Stands for `torch._C._cudnn` in a CPU build."""
    module = types.ModuleType("torch._C._cudnn")
    module.is_cuda = True  # type: ignore[attr-defined]
    module.RNNMode = RNNMode  # type: ignore[attr-defined]
    module.getVersionInt = lambda: driver.cudnn_number  # type: ignore[attr-defined]
    module.getRuntimeVersion = lambda: driver.cudnn  # type: ignore[attr-defined]
    module.getCompileVersion = lambda: driver.cudnn  # type: ignore[attr-defined]
    return module
