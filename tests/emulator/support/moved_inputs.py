"""Copies of a call's arguments for one device: layouts and shared memory kept, values equal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Mover:
    """Copies arguments to a device; tensors on one storage stay on one storage.

    Args:
        device: where to.
        requires_grad: whether copies of tensors that require gradients do.
    """

    def __init__(self, device: str, requires_grad: bool = False) -> None:
        self.device = device
        self._requires_grad = requires_grad
        self._storages: dict[int, Any] = {}
        self._tensors: dict[int, Tensor] = {}
        self._kept: list[Any] = []  # ids stay unique while the objects live

    def move(self, value: Any) -> Any:
        """A copy of an argument, whatever it is."""
        if isinstance(value, Tensor):
            return self._once(value)
        if isinstance(value, torch.Size):
            return value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.move(item) for item in value))
        if isinstance(value, list | tuple):
            return type(value)(self.move(item) for item in value)
        if isinstance(value, dict):
            return {key: self.move(item) for key, item in value.items()}
        if isinstance(value, torch.device):
            return torch.device(self.device) if value.type == "cpu" else value
        if isinstance(value, str) and value in ("cpu", "cpu:0"):
            return self.device
        if isinstance(value, torch.Generator):
            return torch.Generator(self.device).manual_seed(value.initial_seed())
        return value

    def move_all(self, values: Iterable[Any]) -> list[Any]:
        """Copies of several arguments."""
        return [self.move(value) for value in values]

    def _once(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = self._copied(tensor)
            self._kept.append(tensor)
        return self._tensors[id(tensor)]

    def _copied(self, tensor: Tensor) -> Tensor:
        with torch.no_grad():
            plain = tensor.detach()
            if tensor.layout != torch.strided or tensor.is_nested:
                copy = plain.clone().to(self.device)
            else:
                copy = self._on_storage(plain)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(copy, requires_grad=self._requires_grad and tensor.requires_grad)
        return copy.requires_grad_(self._requires_grad and tensor.requires_grad)

    def _on_storage(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            # As what it is: how large a tensor's values are followed depends on the dtype.
            whole = storage.nbytes() % tensor.itemsize == 0
            flat = torch.empty(0, dtype=tensor.dtype if whole else torch.uint8).set_(storage)
            self._storages[storage._cdata] = flat.clone().to(self.device).untyped_storage()
            self._kept.append(storage)
        copy = torch.empty(0, dtype=tensor.dtype, device=self.device)
        copy.set_(self._storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())
        if tensor.is_conj():
            copy = copy.conj()
        if tensor.is_neg():
            copy = torch._neg_view(copy)
        return copy
