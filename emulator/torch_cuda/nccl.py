"""`torch.cuda.nccl`: the version, and collectives of one process over its own GPUs."""

from __future__ import annotations

import os
from typing import Any

from maya.emulator.torch_cuda.device import EmulatedDevices

UNIQUE_ID_BYTES = 128
"""NCCL_UNIQUE_ID_BYTES of nccl.h."""


def names(devices: EmulatedDevices, *, cuda_build: bool) -> dict[str, Any]:
    """The `torch._C` attributes about NCCL; a CUDA build knows its own version."""
    major, minor, patch = devices.driver.nccl

    def unique_id() -> bytes:
        return os.urandom(UNIQUE_ID_BYTES)

    found: dict[str, Any] = {"_nccl_unique_id": unique_id}
    if not cuda_build:
        found["_nccl_version"] = lambda: major << 32 | minor << 16 | patch
        found["_nccl_version_suffix"] = lambda: b""
    for name in ("init_rank", "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter"):
        found[f"_nccl_{name}"] = _refuse(name)
    return found


def _refuse(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"Maya's emulated CUDA device has no single-process NCCL (torch.cuda.nccl.{name}); "
            "use torch.distributed with one process per GPU"
        )

    return refuse
