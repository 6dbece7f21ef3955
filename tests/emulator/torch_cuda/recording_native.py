"""A backend that computes nothing: it answers like the native module and records what was called."""

from __future__ import annotations

import itertools
from typing import Any

from maya.emulator.torch_cuda.native import Native


def zero() -> dict[str, int]:
    return {"current": 0, "peak": 0, "allocated": 0, "freed": 0}


def pools() -> dict[str, dict[str, int]]:
    return {"all": zero(), "small_pool": zero(), "large_pool": zero()}


POOL_STATISTICS = (
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "requested_bytes",
    "inactive_split_bytes",
    "allocation",
    "segment",
    "active",
    "inactive_split",
)


class RecordingNative:
    """Functions not written out here are recorded in `calls` and give None."""

    def __init__(self, devices: int, total_bytes: int) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._devices = devices
        self._total_bytes = total_bytes
        self._current = 0
        self._streams: dict[int, int] = {}
        self._pool_ids = itertools.count(1)
        self._capturing = False

    def __getattr__(self, name: str) -> Any:
        if name not in vars(Native):
            raise AttributeError(name)

        def record(*arguments: Any) -> None:
            self.calls.append((name, *arguments))

        return record

    def current_device(self) -> int:
        return self._current

    def set_device(self, device: int) -> None:
        self._current = device

    def exchange_device(self, device: int) -> int:
        before, self._current = self._current, device if device >= 0 else self._current
        return before

    def device_count(self) -> int:
        return self._devices

    def current_stream(self, device: int) -> int:
        return self._streams.get(device, 0)

    def set_current_stream(self, device: int, stream: int) -> None:
        self.calls.append(("set_current_stream", device, stream))
        self._streams[device] = stream
        self._current = device

    def memory_stats(self, _device: int) -> dict[str, Any]:
        named = {name: pools() for name in POOL_STATISTICS}
        return {
            **named,
            "num_alloc_retries": 0,
            "num_ooms": 0,
            "oversize_allocations": zero(),
            "oversize_segments": zero(),
        }

    def memory_snapshot(self, pool: tuple[int, int] = (0, 0)) -> dict[str, Any]:
        segments = [
            {
                "device": 0,
                "address": 4096,
                "segment_pool_id": (0, number),
                "blocks": [
                    {"address": 4096, "size": 512, "state": "active_allocated"},
                    {"address": 4608, "size": 512, "state": "inactive"},
                ],
            }
            for number in (0, 7)
            if pool in ((0, 0), (0, number))
        ]
        return {"segments": segments, "device_traces": [["a trace"]], "allocator_settings": {}}

    def memory_info(self, _device: int) -> tuple[int, int]:
        return self._total_bytes - (1 << 30), self._total_bytes

    def get_memory_fraction(self, _device: int) -> float:
        return 0.5

    def allocator_backend(self) -> str:
        return "native"

    def pool_new(self) -> tuple[int, int]:
        return 0, next(self._pool_ids)

    def default_generator(self, device: int) -> Any:
        return f"generator {device}"

    def is_capturing(self) -> bool:
        return self._capturing

    def capture_begin(self, pool: tuple[int, int]) -> int:
        self.calls.append(("capture_begin", pool))
        self._capturing = True
        return 7

    def capture_end(self) -> None:
        self.calls.append(("capture_end",))
        self._capturing = False
