"""Copies between the GPUs of one process, which `torch.nn.DataParallel` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

HOST_DEVICE = -1
"""What `gather` calls host memory."""


def broadcast(tensor: Any, devices: Sequence[int]) -> list[Any]:
    """`tensor` on each of `devices`; the one it lives on gets the tensor itself."""
    return [tensor.to(_device(index), non_blocking=True) for index in devices]


def broadcast_out(tensor: Any, out: Sequence[Any]) -> Sequence[Any]:
    for target in out:
        if target is not tensor:
            target.copy_(tensor, non_blocking=True)
    return out


def broadcast_coalesced(
    tensors: Sequence[Any],
    devices: Sequence[int],
    buffer_size: int,  # noqa: ARG001 - how much NCCL would send at once
) -> list[list[Any]]:
    """One list of copies per device."""
    return [[tensor.to(_device(index), non_blocking=True) for tensor in tensors] for index in devices]


def scatter(
    tensor: Any,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[Any] | None = None,
) -> list[Any]:
    """Slices of `tensor` along `dim`, one per device, each copied on its stream if it has one."""
    if chunk_sizes is not None:
        chunks = tensor.split(list(chunk_sizes), dim)
    else:
        chunks = tensor.chunk(len(devices), dim)
    copies = []
    for position, (index, chunk) in enumerate(zip(devices, chunks, strict=False)):
        with torch.cuda.stream(streams[position] if streams else None):
            copies.append(chunk.contiguous().to(_device(index), non_blocking=True))
    return copies


def scatter_out(tensor: Any, out: Sequence[Any], dim: int = 0, streams: Any = None) -> Sequence[Any]:
    chunks = tensor.split([target.size(dim) for target in out], dim)
    for position, (target, chunk) in enumerate(zip(out, chunks, strict=True)):
        with torch.cuda.stream(streams[position] if streams else None):
            target.copy_(chunk, non_blocking=True)
    return out


def gather(tensors: Sequence[Any], dim: int, destination_index: int | None = None) -> Any:
    """`tensors` joined along `dim` on one GPU, or in host memory for index -1."""
    if destination_index == HOST_DEVICE:
        target = torch.device("cpu")
    elif destination_index is None:
        target = torch.device("cuda", torch.cuda.current_device())
    else:
        target = _device(destination_index)
    return torch.cat([tensor.to(target, non_blocking=True) for tensor in tensors], dim)


def gather_out(tensors: Sequence[Any], out: Any, dim: int) -> Any:
    chunks = out.split([tensor.size(dim) for tensor in tensors], dim)
    for chunk, tensor in zip(chunks, tensors, strict=True):
        chunk.copy_(tensor, non_blocking=True)
    return out


def _device(index: int) -> Any:
    return torch.device("cuda", index)


def names() -> dict[str, Any]:
    """The `torch._C` attributes about copies between GPUs."""
    return {
        "_broadcast": broadcast,
        "_broadcast_out": broadcast_out,
        "_broadcast_coalesced": broadcast_coalesced,
        "_scatter": scatter,
        "_scatter_out": scatter_out,
        "_gather": gather,
        "_gather_out": gather_out,
    }
