"""Base classes of `torch.cuda.Stream` and `torch.cuda.Event`, and the current stream."""

from __future__ import annotations

from typing import Any

import torch

from maya.emulator.torch_cuda.device import DEVICE_TYPE_CUDA, EmulatedDevices

STREAM_PRIORITY_RANGE = (0, -3)
"""(least, greatest). GPUs since Volta offer 0 to -5; torch uses four levels (c10/cuda/CUDAStream.h)."""


def stream_base(devices: EmulatedDevices) -> type:
    """The class `torch.cuda.Stream` derives from."""
    native = devices.native

    class _CudaStreamBase(torch.Stream):  # type: ignore[misc]
        def __new__(
            cls,
            priority: int = 0,
            stream_id: int = 0,
            device_index: int = 0,
            device_type: int = 0,
            stream_ptr: int = 0,
            **_: Any,
        ) -> Any:
            if stream_ptr:  # a handle from elsewhere; ours are stream ids, so it finds its stream again
                return super().__new__(
                    cls,
                    stream_id=stream_ptr,
                    device_index=native.current_device(),
                    device_type=DEVICE_TYPE_CUDA,
                )
            if stream_id or device_index or device_type:
                return super().__new__(
                    cls, stream_id=stream_id, device_index=device_index, device_type=DEVICE_TYPE_CUDA
                )
            least, greatest = STREAM_PRIORITY_RANGE
            clamped = max(greatest, min(least, priority))
            return super().__new__(cls, device=f"cuda:{native.current_device()}", priority=clamped)

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id)

        @property
        def priority(self) -> int:
            return native.stream_priority(self.device_index, self.stream_id)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return STREAM_PRIORITY_RANGE

    _CudaStreamBase.__module__ = "torch._C"
    return _CudaStreamBase


def event_base(devices: EmulatedDevices) -> type:
    """The class `torch.cuda.Event` derives from."""
    native = devices.native

    class _CudaEventBase(torch.Event):  # type: ignore[misc]
        def __new__(
            cls,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,  # noqa: ARG004 - only matters to a captured graph's node kind
        ) -> Any:
            return super().__new__(
                cls, "cuda", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
            )

        @property
        def cuda_event(self) -> int:
            return int(self.event_id)

        def elapsed_time(self, end_event: Any) -> float:
            # torch.Event's own elapsed_time rejects subclasses.
            return native.event_elapsed_ms(self.event_id, end_event.event_id)

        def ipc_handle(self) -> bytes:
            raise RuntimeError(
                "Maya's emulated CUDA device cannot share events between processes (Event.ipc_handle)"
            )

        @classmethod
        def from_ipc_handle(cls, device: Any, handle: bytes) -> Any:
            raise RuntimeError(
                "Maya's emulated CUDA device cannot share events between processes (Event.from_ipc_handle): "
                f"{len(handle)} bytes for {device}"
            )

    _CudaEventBase.__module__ = "torch._C"
    return _CudaEventBase


def names(devices: EmulatedDevices) -> dict[str, Any]:
    """The `torch._C` attributes about streams and events."""
    native = devices.native

    def get_current_stream(device: int) -> tuple[int, int, int]:
        index = devices.index(device)
        return native.current_stream(index), index, DEVICE_TYPE_CUDA

    def get_default_stream(device: int) -> tuple[int, int, int]:
        return 0, devices.index(device), DEVICE_TYPE_CUDA

    def get_stream_from_external(data_ptr: int, device: int) -> tuple[int, int, int]:
        return data_ptr, devices.index(device), DEVICE_TYPE_CUDA

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        if device_type != DEVICE_TYPE_CUDA:
            raise RuntimeError(f"not a CUDA stream: device type {device_type}")
        native.set_current_stream(device_index, stream_id)

    def get_current_raw_stream(device: int) -> int:
        return native.current_stream(device)

    return {
        "_CudaStreamBase": stream_base(devices),
        "_CudaEventBase": event_base(devices),
        "_cuda_getCurrentStream": get_current_stream,
        "_cuda_getDefaultStream": get_default_stream,
        "_cuda_getStreamFromExternal": get_stream_from_external,
        "_cuda_setStream": set_stream,
        "_cuda_getCurrentRawStream": get_current_raw_stream,
    }
