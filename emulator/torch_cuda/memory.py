"""The caching allocator's Python face: statistics, snapshots, fractions, settings, raw allocation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from maya.emulator.torch_cuda.device import EmulatedDevices

_STAT = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
_DURATION = {"total": 0, "max": 0, "min": 0, "count": 0, "avg": 0}


class CudaAllocator:
    """Stands for `torch._C._cuda_CUDAAllocator`, the handle of the allocator in use."""


class PluggableAllocator(CudaAllocator):
    """Stands for `torch._C._CUDAPluggableAllocator`: functions of a user's library, never called."""

    def __init__(self, alloc_function: int, free_function: int) -> None:
        self.alloc_function = alloc_function
        self.free_function = free_function


@dataclass
class AllocatorState:
    """Stands for `torch._C._cuda_CUDAAllocator_AllocatorState`: a remembered state of one pool."""

    device: int
    pool: tuple[int, int]


class Memory:
    """`torch._C._cuda_*` about device memory, answered by the modelled allocator."""

    def __init__(self, devices: EmulatedDevices) -> None:
        self._devices = devices
        self._native = devices.native
        self._allocator = CudaAllocator()
        self._caching_enabled = True
        self._history_enabled = False
        self._metadata = ""
        self._plain_set_settings = torch._C._accelerator_setAllocatorSettings

    def stats(self, device: int) -> dict[str, Any]:
        return self._native.memory_stats(self._devices.index(device))

    def reset_accumulated(self, device: int) -> None:
        self._native.reset_accumulated_memory_stats(self._devices.index(device))

    def reset_peak(self, device: int) -> None:
        self._native.reset_peak_memory_stats(self._devices.index(device))

    def snapshot(self, pool: tuple[Any, ...] | None = None) -> dict[str, Any]:
        """The allocator's snapshot; `pool` is (id, id[, include traces]), None and (0, 0) mean all."""
        if pool is None:
            return self._native.memory_snapshot()
        found = self._native.memory_snapshot((pool[0], pool[1]))
        without_traces = len(pool) > 2 and not pool[2]
        return {**found, "device_traces": []} if without_traces else found

    def set_fraction(self, fraction: float, device: int) -> None:
        self._native.set_memory_fraction(fraction, self._devices.index(device))

    def get_fraction(self, device: int) -> float:
        return self._native.get_memory_fraction(self._devices.index(device))

    def set_allocator_settings(self, settings: str) -> None:
        """torch's own copy first: it checks the keys and answers `_accelerator_getAllocatorSettings`."""
        self._plain_set_settings(settings)
        self._native.set_allocator_settings(settings)

    def enable_caching(self, enabled: bool) -> None:
        self._caching_enabled = bool(enabled)

    def record_history(self, enabled: str | None, *_: Any, **__: Any) -> None:
        """`enabled` is None, "state" or "all"; the other arguments choose which stacks to keep."""
        self._history_enabled = enabled is not None
        self._native.record_memory_history(self._history_enabled)

    def record_history_legacy(self, enabled: bool, *_: Any, **__: Any) -> None:
        self._history_enabled = bool(enabled)
        self._native.record_memory_history(self._history_enabled)

    def attach_observer(self, _observer: Any) -> None:
        """For a post-mortem of an out-of-memory error. Never called: Maya reports what was held itself."""

    def change_allocator(self, allocator: CudaAllocator) -> None:
        if allocator is not self._allocator:
            raise RuntimeError(
                "Maya's emulated CUDA device models the native caching allocator only: "
                "torch.cuda.memory.change_current_allocator is not possible"
            )

    def set_metadata(self, metadata: str) -> None:
        self._metadata = metadata

    def host_stats(self) -> dict[str, Any]:
        """Statistics of pinned host memory, which the emulated device does not count."""
        counts = ("allocations", "active_requests", "allocated_bytes", "active_bytes")
        return {
            "num_host_alloc": 0,
            "num_host_free": 0,
            **{name: dict(_STAT) for name in counts},
            "host_alloc_time": dict(_DURATION),
            "host_free_time": dict(_DURATION),
        }

    def names(self) -> dict[str, Any]:
        """The `torch._C` attributes about device memory."""
        native = self._native
        return {
            "_cuda_CUDAAllocator": CudaAllocator,
            "_CUDAPluggableAllocator": PluggableAllocator,
            "_cuda_CUDAAllocator_AllocatorState": AllocatorState,
            "_cuda_memoryStats": self.stats,
            "_cuda_resetAccumulatedMemoryStats": self.reset_accumulated,
            "_cuda_resetPeakMemoryStats": self.reset_peak,
            "_cuda_memorySnapshot": self.snapshot,
            "_cuda_emptyCache": native.empty_cache,
            "_cuda_setMemoryFraction": self.set_fraction,
            "_cuda_getMemoryFraction": self.get_fraction,
            "_cuda_hostMemoryStats": self.host_stats,
            "_cuda_resetAccumulatedHostMemoryStats": _nothing,
            "_cuda_resetPeakHostMemoryStats": _nothing,
            "_host_emptyCache": _nothing,
            "_cuda_cudaCachingAllocator_raw_alloc": native.raw_alloc,
            "_cuda_cudaCachingAllocator_raw_delete": native.raw_delete,
            "_cuda_cudaCachingAllocator_enable": self.enable_caching,
            "_cuda_cudaCachingAllocator_is_enabled": lambda: self._caching_enabled,
            "_accelerator_setAllocatorSettings": self.set_allocator_settings,
            "_cuda_getAllocatorBackend": native.allocator_backend,
            "_cuda_getAllocator": lambda: self._allocator,
            "_cuda_customAllocator": PluggableAllocator,
            "_cuda_changeCurrentAllocator": self.change_allocator,
            "_cuda_cudaHostAllocator": lambda: 0,
            "_cuda_record_memory_history": self.record_history,
            "_cuda_record_memory_history_legacy": self.record_history_legacy,
            "_cuda_isHistoryEnabled": lambda: self._history_enabled,
            "_cuda_allocationTraceback": lambda _pointer: None,
            "_cuda_attach_out_of_memory_observer": self.attach_observer,
            "_cuda_memoryMetadataSupported": lambda: True,
            "_cuda_setMemoryMetadata": self.set_metadata,
            "_cuda_getMemoryMetadata": lambda: self._metadata,
            "_cuda_annotateMemory": lambda _pointer, _metadata: None,
        }


def _nothing(*_: Any) -> None:
    """For requests about pinned host memory: it comes from the C library and is freed at once."""
