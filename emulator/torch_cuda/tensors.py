"""Tensor functions of `torch._C` that only CUDA builds have; CUDA graph trees use most of them."""

from __future__ import annotations

from typing import Any

import torch


def pointers_equal(tensors: list[Any], pointers: list[int | None], indices: list[int]) -> bool:
    """Whether the data pointers of the tensors at `indices` are still those in `pointers`."""
    return all(
        pointers[index] in (None, tensors[index].data_ptr())
        for index in indices
        if isinstance(tensors[index], torch.Tensor)
    )


def tensor_from_storage(metadata: dict[str, Any], storage: Any) -> Any:
    """A tensor on `storage` with the size, stride, offset and dtype that `metadata` gives."""
    tensor = torch.empty(0, dtype=metadata["dtype"], device=storage.device)
    return tensor.set_(
        storage, metadata["storage_offset"], tuple(metadata["size"]), tuple(metadata["stride"])
    )


def has_standard_deleter(_storage_pointer: int) -> bool:
    return True


def clear_storage_access_error(_storage: Any) -> None:
    """Takes back what `set_storage_access_error` did: nothing."""


def set_storage_access_error(_storage: Any, _message: str) -> None:
    """Would make reading the storage raise; graph trees call it when they free a tensor's memory."""


def _refuse(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"Maya's emulated CUDA device has no torch._C.{name}")

    return refuse


def names() -> dict[str, Any]:
    """The `torch._C` attributes about single tensors and storages."""
    return {
        "_tensors_data_ptrs_at_indices_equal": pointers_equal,
        "_construct_CUDA_Tensor_From_Storage_And_Metadata": tensor_from_storage,
        "_has_Standard_Deleter": has_standard_deleter,
        "_set_storage_access_error_msg": set_storage_access_error,
        "_set_storage_data_ptr_access_error_msg": set_storage_access_error,
        "_clear_storage_data_ptr_access_error_msg": clear_storage_access_error,
        "_free_And_Remove_DeleterFn": _refuse("_free_And_Remove_DeleterFn"),
        "_storage_throw_on_immutable_data_ptr": _refuse("_storage_throw_on_immutable_data_ptr"),
        "_storage_throw_on_mutable_data_ptr": _refuse("_storage_throw_on_mutable_data_ptr"),
    }
