"""Memory pools: `torch.cuda.MemPool` and the functions that direct allocations into one."""

from __future__ import annotations

from typing import Any

from maya.emulator.torch_cuda.device import EmulatedDevices
from maya.emulator.torch_cuda.memory import AllocatorState
from maya.emulator.torch_cuda.native import Native

Pool = tuple[int, int]


class PoolUse:
    """One counted use of a pool, given back by `release` or when the last reference to this goes."""

    def __init__(self, native: Native, device: int, pool: Pool) -> None:
        """Takes over a use that the backend has counted already."""
        self._native = native
        self._device = device
        self.pool = pool
        self._held = True

    def release(self) -> None:
        """A second call does nothing."""
        if self._held:
            self._held = False
            self._native.pool_release(self._device, self.pool)

    def __del__(self) -> None:
        self.release()


def mem_pool_base(devices: EmulatedDevices) -> type:
    """The class `torch.cuda.MemPool` derives from."""
    native = devices.native

    class _MemPool:
        def __init__(
            self,
            allocator: Any = None,  # where segments come from; the same number of bytes either way
            is_user_created: bool = True,  # noqa: ARG002 - only numbers the pool differently in torch
            use_on_oom: bool = False,
            no_split: bool = False,
        ) -> None:
            self._maya_allocator = allocator
            self._maya_device = native.current_device()
            pool = native.pool_new()
            native.pool_retain(self._maya_device, pool)
            self._maya_use = PoolUse(native, self._maya_device, pool)
            if use_on_oom:
                native.pool_set_use_on_oom(self._maya_device, pool, True)
            if no_split:
                native.pool_set_no_split(self._maya_device, pool)

        @property
        def id(self) -> Pool:
            return self._maya_use.pool

        @property
        def allocator(self) -> Any:
            return self._maya_allocator

        def use_count(self) -> int:
            return native.pool_use_count(self._maya_device, self._maya_use.pool)

        def __del__(self) -> None:
            use = getattr(self, "_maya_use", None)
            if use is not None:  # None when __init__ raised
                use.release()
                native.empty_cache(use.pool)

    _MemPool.__module__ = "torch._C"
    return _MemPool


def names(devices: EmulatedDevices) -> dict[str, Any]:
    """The `torch._C` attributes about memory pools."""
    native = devices.native

    def begin(device: int, pool: Pool) -> None:
        native.pool_begin(devices.index(device), pool, False)

    def begin_this_thread(device: int, pool: Pool) -> None:
        native.pool_begin(devices.index(device), pool, True)

    def end(device: int, pool: Pool) -> None:
        native.pool_end(devices.index(device), pool)

    def release(device: int, pool: Pool) -> None:
        native.pool_release(devices.index(device), pool)

    def get_checkpoint_state(device: int, pool: Pool) -> AllocatorState:
        return AllocatorState(devices.index(device), pool)

    def set_checkpoint_state(
        device: int, state: AllocatorState, stale_storages: list[int], live_storages: list[int]
    ) -> None:
        raise RuntimeError(
            "Maya's emulated CUDA device cannot put a pool back into an earlier state (CUDA graph trees): "
            f"pool {state.pool} of device {device}, {len(stale_storages)} stale and {len(live_storages)} "
            "live storages"
        )

    def check_live_allocations(device: int, pool: Pool, live_pointers: set[int]) -> bool:
        """True when exactly the blocks at `live_pointers` are in use in `pool`."""
        index = devices.index(device)
        found = {
            block["address"]
            for segment in native.memory_snapshot(pool)["segments"]
            if segment["device"] == index
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
        return found == live_pointers

    return {
        "_MemPool": mem_pool_base(devices),
        "_cuda_beginAllocateToPool": begin,
        "_cuda_beginAllocateCurrentThreadToPool": begin_this_thread,
        "_cuda_beginAllocateCurrentStreamToPool": begin_this_thread,
        "_cuda_endAllocateToPool": end,
        "_cuda_releasePool": release,
        "_cuda_checkPoolLiveAllocations": check_live_allocations,
        "_cuda_getCheckpointState": get_checkpoint_state,
        "_cuda_setCheckpointPoolState": set_checkpoint_state,
    }
