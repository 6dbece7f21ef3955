"""The functions behind `torch.cuda.nvtx`: ranges nest, nothing shows them."""

from __future__ import annotations

import itertools
import threading
import types


class _Depth(threading.local):
    value = 0


def nvtx_module() -> types.ModuleType:
    """Stands for `torch._C._nvtx`; return values are those of the NVTX library without a profiler."""
    module = types.ModuleType("torch._C._nvtx")
    depth = _Depth()
    ids = itertools.count(1)

    def range_push(_message: str) -> int:
        """The zero-based depth of the range opened."""
        depth.value += 1
        return depth.value - 1

    def range_pop() -> int:
        """The zero-based depth of the range closed, negative if none was open."""
        depth.value = max(depth.value - 1, -1)
        closed = depth.value
        depth.value = max(depth.value, 0)
        return closed

    def range_start(_message: str, _stream: int = 0) -> int:
        return next(ids)

    def range_end(range_id: int, _stream: int = 0) -> None:
        """Ranges that start and end anywhere are not tracked."""

    def mark(_message: str) -> None:
        """A mark in the profiler's timeline, of which there is none."""

    module.rangePushA = range_push  # type: ignore[attr-defined]
    module.rangePop = range_pop  # type: ignore[attr-defined]
    module.rangeStartA = range_start  # type: ignore[attr-defined]
    module.rangeEnd = range_end  # type: ignore[attr-defined]
    module.markA = mark  # type: ignore[attr-defined]
    module.deviceRangeStart = range_start  # type: ignore[attr-defined]
    module.deviceRangeEnd = range_end  # type: ignore[attr-defined]
    return module
