"""Whose memory an allocation is: parameters, gradients and optimizer states by module.

The allocator's log knows who was running when memory was taken; parameters are made before any
module runs. When memory has run out, the modules and optimizers that still live say the rest.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, Protocol

Owners = dict[int, tuple[str, str]]
"""Allocation id → (module path, what it is: "parameters", "gradients", "optimizer states", "buffers")."""


class OwnersNative(Protocol):
    """The part of the native module that this file calls."""

    def allocation_id(self, tensor: Any, /) -> int: ...


def memory_owners(native: OwnersNative) -> Owners:
    """The owners that can be found among the living objects of this process."""
    import torch

    # By type: isinstance would ask objects with a __class__ of their own, and wake deprecation warnings.
    modules = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
    optimizers = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.optim.Optimizer)]
    owners: Owners = {}
    path_of_parameter: dict[int, str] = {}
    for root in _roots(modules):
        for path, module in _walk(root):
            for parameter in module._parameters.values():
                if parameter is None:
                    continue
                path_of_parameter[id(parameter)] = path
                owners[native.allocation_id(parameter)] = (path, "parameters")
                if parameter.grad is not None:
                    owners[native.allocation_id(parameter.grad)] = (path, "gradients")
            for buffer in module._buffers.values():
                if buffer is not None:
                    owners[native.allocation_id(buffer)] = (path, "buffers")
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            path = path_of_parameter.get(id(parameter), type(optimizer).__name__)
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    owners[native.allocation_id(value)] = (path, "optimizer states")
    owners.pop(-1, None)  # tensors on the host
    return owners


def _roots(modules: list[Any]) -> list[Any]:
    children = {id(child) for module in modules for child in module._modules.values()}
    return [module for module in modules if id(module) not in children]


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    name = type(root).__name__
    for path, module in root.named_modules():
        yield (f"{name}.{path}" if path else name), module
