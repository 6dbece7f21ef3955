"""Element by element or along one dimension: scans, minima and maxima, fake quantization."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maya.emulator.shapes.layout import empty


def _like_first(input: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(input)


def _logcumsumexp_out(input: Tensor, dim: int, *, out: Tensor) -> Tensor:
    del dim
    return out.resize_(input.shape)


def _scan_in_place(*_: Any) -> None:
    return None


def _aminmax(input: Tensor) -> tuple[Tensor, Tensor]:
    return empty(input, []), empty(input, [])


def _aminmax_dim(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    sizes = list(input.shape)
    if sizes:
        if keepdim:
            sizes[dim] = 1
        else:
            del sizes[dim]
    return empty(input, sizes), empty(input, sizes)


def _glu_backward_jvp(grad_x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(grad_x)


def _quantized_with_mask(input: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(input), torch.empty_like(input, dtype=torch.bool)


def _learnable_backward(
    grad: Tensor, input: Tensor, scale: Tensor, zero_point: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    del grad
    return (
        torch.empty_like(input),
        empty(input, scale.shape),
        empty(input, zero_point.shape),
    )


SHAPES: dict[str, Any] = {
    "_logcumsumexp": _like_first,
    "_logcumsumexp.out": _logcumsumexp_out,
    "_cummax_helper": _scan_in_place,
    "_cummin_helper": _scan_in_place,
    "_aminmax": _aminmax,
    "_aminmax.dim": _aminmax_dim,
    "glu_jvp": _like_first,
    "glu_backward_jvp": _glu_backward_jvp,
    "fake_quantize_per_tensor_affine_cachemask": _quantized_with_mask,
    "fake_quantize_per_channel_affine_cachemask": _quantized_with_mask,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _quantized_with_mask,
    "_fake_quantize_learnable_per_tensor_affine": _like_first,
    "_fake_quantize_learnable_per_channel_affine": _like_first,
    "_fake_quantize_learnable_per_tensor_affine_backward": _learnable_backward,
    "_fake_quantize_learnable_per_channel_affine_backward": _learnable_backward,
}
