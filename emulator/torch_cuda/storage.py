"""Storages on the emulated device: creating one by hand and resizing one in place."""

from __future__ import annotations

from typing import Any

import torch

from maya.emulator.torch_cuda.device import EmulatedDevices
from maya.emulator.torch_cuda.registry import Registry


def install(registry: Registry, devices: EmulatedDevices) -> None:
    """Replaces the methods of `torch.UntypedStorage` that torch's C++ binds to CUDA's own allocator."""
    native = devices.native
    plain_resize = torch.UntypedStorage.resize_
    plain_new = torch._C.StorageBase.__new__

    def resize_(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return plain_resize(self, size)
        if size != self.nbytes():
            native.resize_storage(self._cdata, size)
        return self

    def new(cls: Any, *arguments: Any, **options: Any) -> Any:
        asked = options.get("device")
        device = None if asked is None else torch.device(asked)
        if device is None or device.type != "cuda":
            return plain_new(cls, *arguments, **options)
        contents = arguments[0] if arguments else 0
        if isinstance(contents, int):
            return torch.empty(contents, dtype=torch.uint8, device=device).untyped_storage()
        return torch.tensor(list(contents), dtype=torch.uint8, device=device).untyped_storage()

    def share(self: Any, *_: Any) -> Any:
        raise RuntimeError(
            "Maya's emulated CUDA device cannot share device memory between processes "
            f"({self.nbytes():,} bytes on {self.device}); send the tensor through host memory: tensor.cpu()"
        )

    registry.replace(torch.UntypedStorage, "_share_cuda_", share)
    registry.replace(torch.UntypedStorage, "resize_", resize_)
    registry.add(torch.UntypedStorage, "__new__", staticmethod(new))
