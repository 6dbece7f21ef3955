"""Batch normalization in pieces, as SyncBatchNorm calls it, and masked softmax.

Source of shapes and dtypes: aten/src/ATen/native/cuda/Normalization.cuh.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maya.emulator.shapes.layout import accumulation_dtype, empty

Statistics = tuple[Tensor, Tensor]


def _per_channel(input: Tensor) -> Statistics:
    dtype = accumulation_dtype(input.dtype)
    return empty(input, [input.shape[1]], dtype), empty(input, [input.shape[1]], dtype)


def batch_norm_stats(input: Tensor, eps: float) -> Statistics:
    del eps
    return _per_channel(input)


def batch_norm_update_stats(input: Tensor, *_: Any) -> Statistics:
    return _per_channel(input)


def batch_norm_elemt(input: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(input)


def batch_norm_elemt_out(input: Tensor, *_: Any, out: Tensor) -> Tensor:
    return out.resize_(input.shape)


def batch_norm_gather_stats(input: Tensor, *_: Any) -> Statistics:
    return _per_channel(input)


def batch_norm_backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    del grad_out, invstd
    channels = [input.shape[1]]
    parameter = weight if weight is not None else mean
    return (
        empty(mean, channels) if input_g else None,
        empty(mean, channels) if input_g else None,
        empty(parameter, channels) if weight_g else None,
        empty(parameter, channels) if bias_g else None,
    )


def batch_norm_backward_elemt(grad_out: Tensor, input: Tensor, *_: Any) -> Tensor:
    del grad_out
    return torch.empty_like(input)


def _masked_softmax(input: Tensor, mask: Tensor, *_: Any) -> Tensor:
    del mask
    return empty(input, input.shape)


def _masked_softmax_backward(grad_output: Tensor, *_: Any) -> Tensor:
    return empty(grad_output, grad_output.shape)


SHAPES: dict[str, Any] = {
    "batch_norm_stats": batch_norm_stats,
    "batch_norm_update_stats": batch_norm_update_stats,
    "batch_norm_elemt": batch_norm_elemt,
    "batch_norm_elemt.out": batch_norm_elemt_out,
    "batch_norm_gather_stats": batch_norm_gather_stats,
    "batch_norm_gather_stats_with_counts": batch_norm_gather_stats,
    "batch_norm_backward_reduce": batch_norm_backward_reduce,
    "batch_norm_backward_elemt": batch_norm_backward_elemt,
    "_masked_softmax": _masked_softmax,
    "_masked_softmax_backward": _masked_softmax_backward,
}
