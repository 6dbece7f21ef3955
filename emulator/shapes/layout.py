"""Layout rules that several shape functions share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_REDUCED = (torch.float16, torch.bfloat16)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which CUDA kernels keep statistics (`at::toAccumulateType` on CUDA)."""
    return torch.float32 if dtype in _REDUCED else dtype


def convolution_format(*tensors: Tensor) -> torch.memory_format:
    """Channels-last if any tensor is, and not float64 (`cudnn_conv_suggest_memory_format`)."""
    for tensor in tensors:
        if tensor.dtype == torch.float64:
            return torch.contiguous_format
        if tensor.dim() == 4 and is_channels_last(tensor, torch.channels_last):
            return torch.channels_last
        if tensor.dim() == 5 and is_channels_last(tensor, torch.channels_last_3d):
            return torch.channels_last_3d
    return torch.contiguous_format


def is_channels_last(tensor: Tensor, memory_format: torch.memory_format) -> bool:
    """Channels-last and not contiguous as well (one channel, or a 1×1 image)."""
    return tensor.is_contiguous(memory_format=memory_format) and not tensor.is_contiguous()


def empty(like: Tensor, sizes: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """A contiguous meta tensor."""
    return torch.empty(tuple(sizes), dtype=dtype or like.dtype, device=like.device)
