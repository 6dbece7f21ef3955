"""Which attention kernels the emulated GPU could use; the backend decides."""

from __future__ import annotations

from typing import Any

from maya.emulator.torch_cuda.device import EmulatedDevices


def names(devices: EmulatedDevices) -> dict[str, Any]:
    """The `torch._C` attributes about scaled-dot-product attention.

    `is_flash_attention_available` says how torch was built, not what the GPU can do.
    """
    native = devices.native

    def can_use_flash(params: Any, debug: bool = False) -> bool:
        return native.can_use_flash(params, debug)

    def can_use_efficient(params: Any, debug: bool = False) -> bool:
        return native.can_use_efficient(params, debug)

    def can_use_cudnn(params: Any, debug: bool = False) -> bool:
        return native.can_use_cudnn(params, debug)

    return {
        "_is_flash_attention_available": lambda: True,
        "_can_use_flash_attention": can_use_flash,
        "_can_use_mem_efficient_attention": can_use_efficient,
        "_can_use_cudnn_attention": can_use_cudnn,
    }
