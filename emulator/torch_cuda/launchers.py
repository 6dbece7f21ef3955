"""Launchers of compiled GPU code: there is none to launch on the emulated device."""

from __future__ import annotations

from typing import Any

from maya.errors import MayaError


class StaticCudaLauncher:
    """Stands for `torch._C._StaticCudaLauncher`, which Inductor loads Triton's cubins with."""

    @staticmethod
    def _load_kernel(*_: Any) -> Any:
        raise MayaError(_NO_KERNELS)

    @staticmethod
    def _launch_kernel(*_: Any) -> Any:
        raise MayaError(_NO_KERNELS)

    @staticmethod
    def _unload_kernel(*_: Any) -> None:
        """None was loaded."""


_NO_KERNELS = "the emulated CUDA device cannot launch compiled GPU code"


def jiterate(_code: str, kernel_name: str, *_: Any) -> Any:
    raise MayaError(
        f"{_NO_KERNELS}: torch.cuda.jiterator kernel {kernel_name}",
        hint="Give the operation in PyTorch operators when it runs under Maya.",
    )


def compile_kernel(_source: str, kernel_name: str, *_: Any, **__: Any) -> Any:
    raise MayaError(
        f"{_NO_KERNELS}: torch.cuda._compile_kernel of {kernel_name}",
        hint="Give the operation in PyTorch operators when it runs under Maya.",
    )


def names() -> dict[str, Any]:
    """The `torch._C` attributes that launch compiled code."""
    return {
        "_StaticCudaLauncher": StaticCudaLauncher,
        "_cuda_jiterator_compile_and_launch_kernel": jiterate,
    }
