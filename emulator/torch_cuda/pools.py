"""Memory pools: `torch.cuda.MemPool` and the functions that direct allocations into one."""

from __future__ import annotations

from typing import Any

from maya.emulator.torch_cuda.device import EmulatedDevices
from maya.emulator.torch_cuda.memory import AllocatorState


def mem_pool_base(devices: EmulatedDevices) -> type:
    """The class `torch.cuda.MemPool` derives from."""
    native = devices.native

    class _MemPool:
        def __init__(
            self,
            allocator: Any = None,
            is_user_created: bool = True,
            use_on_oom: bool = False,
            no_split: bool = False,
        ) -> None:
            self._allocator = allocator
            self._user_created = is_user_created
            self._use_on_oom = use_on_oom
            self._no_split = no_split
            self._device = native.current_device()
            self._id = native.pool_new()

        @property
        def id(self) -> tuple[int, int]:
            return self._id

        @property
        def allocator(self) -> Any:
            return self._allocator

        def use_count(self) -> int:
            return 1

    _MemPool.__module__ = "torch._C"
    return _MemPool


def names(devices: EmulatedDevices) -> dict[str, Any]:
    """The `torch._C` attributes about memory pools."""
    native = devices.native

    def begin(device: int, pool: tuple[int, int]) -> None:
        native.pool_begin(devices.index(device), pool)

    def end(device: int, pool: tuple[int, int]) -> None:
        native.pool_end(devices.index(device), pool)

    def release(device: int, pool: tuple[int, int]) -> None:
        native.pool_release(devices.index(device), pool)

    def get_checkpoint_state(device: int, pool: tuple[int, int]) -> AllocatorState:
        return AllocatorState(devices.index(device), pool)

    def set_checkpoint_state(
        device: int, state: AllocatorState, stale_storages: list[int], live_storages: list[int]
    ) -> None:
        raise RuntimeError(
            "Maya's emulated CUDA device cannot put a pool back into an earlier state (CUDA graph trees): "
            f"pool {state.pool} of device {device}, {len(stale_storages)} stale and {len(live_storages)} "
            "live storages"
        )

    def check_live_allocations(device: int, pool: tuple[int, int], live_pointers: set[int]) -> bool:
        """True when exactly the blocks at `live_pointers` are in use in `pool`."""
        found = set()
        for segment in native.memory_snapshot()["segments"]:
            if segment["device"] == devices.index(device) and tuple(segment["segment_pool_id"]) == pool:
                address = segment["address"]
                for block in segment["blocks"]:
                    if block["state"] == "active_allocated":
                        found.add(block.get("address", address))
                    address += block["size"]
        return found == live_pointers

    return {
        "_MemPool": mem_pool_base(devices),
        "_cuda_beginAllocateToPool": begin,
        "_cuda_beginAllocateCurrentThreadToPool": begin,
        "_cuda_beginAllocateCurrentStreamToPool": begin,
        "_cuda_endAllocateToPool": end,
        "_cuda_releasePool": release,
        "_cuda_checkPoolLiveAllocations": check_live_allocations,
        "_cuda_getCheckpointState": get_checkpoint_state,
        "_cuda_setCheckpointPoolState": set_checkpoint_state,
    }
