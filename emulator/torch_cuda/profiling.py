"""`torch.profiler` in a CPU build: asking for CUDA activities is fine, there are just none to see."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.profiler
import torch.profiler

from maya.emulator.torch_cuda.registry import Registry


def install(registry: Registry) -> None:
    """Lets a profile of CPU and CUDA run as one of the CPU, and `emit_nvtx` as nothing.

    Without it torch falls back to timing every operator with CUDA events, which a CUDA build would
    not do, and reports for each that it cannot.
    """
    activities = torch.profiler.ProfilerActivity
    plain_activities = torch._C._autograd._supported_activities

    def supported_activities() -> set[Any]:
        return {*plain_activities(), activities.CUDA}

    class EmitNvtx(torch.autograd.profiler.emit_nvtx):  # type: ignore[misc]
        """Annotates operators for NVIDIA's profilers, of which none watches."""

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing was switched on."""

    EmitNvtx.__name__ = EmitNvtx.__qualname__ = "emit_nvtx"
    registry.replace(torch._C._autograd, "_supported_activities", supported_activities)
    registry.replace(torch.autograd.profiler, "_supported_activities", supported_activities)
    registry.replace(torch.autograd.profiler, "emit_nvtx", EmitNvtx)
