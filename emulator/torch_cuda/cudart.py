"""The stand-in for the CUDA runtime functions that `torch.cuda.cudart()` offers."""

from __future__ import annotations

import types

from maya.emulator.torch_cuda.device import EmulatedDevices

ERROR_STRINGS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    999: "unknown error",
}
"""`cudaGetErrorString` for the codes a script may ask about (CUDA Runtime API, cudaError)."""


class CudaError(int):
    """Stands for the enumeration `cudaError`; equal to its number."""

    success: CudaError


CudaError.success = CudaError(0)
CudaError.__name__ = CudaError.__qualname__ = "cudaError"


def cudart_module(devices: EmulatedDevices) -> types.ModuleType:
    """Stands for `torch._C._cudart`, with the functions the real one has and no others."""
    module = types.ModuleType("torch._C._cudart")

    def memory_info(device: int) -> tuple[int, int]:
        """(free, total) bytes."""
        return devices.native.memory_info(devices.index(device))

    def error_string(error: int) -> str:
        return ERROR_STRINGS.get(int(error), "unrecognized error code")

    def succeed(*_arguments: int) -> CudaError:
        """Pinning a range of host memory, starting a profiler: nothing to do and no way to fail."""
        return CudaError.success

    module.cudaError = CudaError  # type: ignore[attr-defined]
    module.cudaMemGetInfo = memory_info  # type: ignore[attr-defined]
    module.cudaGetErrorString = error_string  # type: ignore[attr-defined]
    for name in (
        "cudaHostRegister",
        "cudaHostUnregister",
        "cudaProfilerStart",
        "cudaProfilerStop",
        "cudaStreamCreate",
        "cudaStreamDestroy",
    ):
        setattr(module, name, succeed)
    return module
