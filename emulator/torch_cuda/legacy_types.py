"""`torch.cuda.FloatTensor` and its kind, which a CPU build of torch has but refuses to call."""

from __future__ import annotations

from typing import Any

import torch

from maya.emulator.torch_cuda.registry import Registry

LEGACY_DTYPES = {
    "BFloat16Tensor": "bfloat16",
    "BoolTensor": "bool",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "DoubleTensor": "float64",
    "FloatTensor": "float32",
    "HalfTensor": "float16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "ShortTensor": "int16",
}
"""Class in `torch.cuda` -> name of its dtype."""


class _LegacyType(type):
    """Calls make tensors and `isinstance` looks at dtype and device, as with `torch.tensortype`."""

    dtype: Any
    layout = torch.strided
    is_cuda = True
    is_sparse = False

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        device = options.pop("device", "cuda")
        if options:
            raise TypeError(f"{cls.__name__} takes no keyword arguments but device, not {sorted(options)}")
        if not arguments:
            return torch.empty(0, dtype=cls.dtype, device=device)
        first = arguments[0]
        if isinstance(first, torch.Size) or all(isinstance(size, int) for size in arguments):
            sizes = first if isinstance(first, torch.Size) else arguments
            return torch.empty(sizes, dtype=cls.dtype, device=device)
        if isinstance(first, torch.Tensor):
            return first.detach().to(device=device, dtype=cls.dtype)
        return torch.tensor(first, dtype=cls.dtype, device=device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Tensor) and instance.is_cuda and instance.dtype == cls.dtype


def install(registry: Registry) -> None:
    """Replaces the legacy types of `torch.cuda` and lets one of them be the default tensor type."""
    types_by_name: dict[str, _LegacyType] = {}
    for name, dtype in LEGACY_DTYPES.items():
        full_name = f"torch.cuda.{name}"
        # The full name as __name__: Tensor.type(cls) reads the C-level name of the class.
        made = _LegacyType(full_name, (), {"__module__": "torch.cuda", "__qualname__": full_name})
        made.dtype = getattr(torch, dtype)
        types_by_name[full_name] = made
        registry.replace(torch.cuda, name, made)

    plain_set_default = torch.set_default_tensor_type

    def set_default_tensor_type(t: Any) -> None:
        chosen = types_by_name.get(t) if isinstance(t, str) else t
        if not isinstance(chosen, _LegacyType):
            plain_set_default(t)
            return
        if not chosen.dtype.is_floating_point:
            raise TypeError("only floating-point types are supported as the default type")
        torch.set_default_dtype(chosen.dtype)
        torch.set_default_device("cuda")

    registry.replace(torch, "set_default_tensor_type", set_default_tensor_type)
