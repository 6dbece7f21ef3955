"""Convolutions by the library or kernel that a GPU calls by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from maya.emulator.shapes.layout import convolution_format, empty

Ints = Sequence[int]


def convolved(sizes: Ints, weight: Ints, stride: Ints, padding: Ints, dilation: Ints) -> list[int]:
    """Output sizes of a convolution; `sizes` and `weight` with batch and channels in front."""
    spatial = [
        (size + 2 * p - d * (kernel - 1) - 1) // s + 1
        for size, kernel, s, p, d in zip(sizes[2:], weight[2:], stride, padding, dilation, strict=True)
    ]
    return [sizes[0], weight[0], *spatial]


def transposed(
    sizes: Ints,
    weight: Ints,
    groups: int,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    dilation: Ints,
) -> list[int]:
    """Output sizes of a transposed convolution."""
    spatial = [
        (size - 1) * s - 2 * p + d * (kernel - 1) + extra + 1
        for size, kernel, s, p, extra, d in zip(
            sizes[2:], weight[2:], stride, padding, output_padding, dilation, strict=True
        )
    ]
    return [sizes[0], weight[1] * groups, *spatial]


def _repeated(values: Ints, dims: int) -> list[int]:
    return list(values) * dims if len(values) == 1 else list(values)


def _batched(tensor: Tensor, spatial_dims: int) -> list[int]:
    sizes = list(tensor.shape)
    return sizes if len(sizes) == spatial_dims + 2 else [1, *sizes]


def _in_format(like: Tensor, sizes: Ints, *operands: Tensor) -> Tensor:
    return torch.empty(
        tuple(sizes), dtype=like.dtype, device=like.device, memory_format=convolution_format(*operands)
    )


def cudnn_convolution(
    input: Tensor, weight: Tensor, padding: Ints, stride: Ints, dilation: Ints, *_: Any, **__: Any
) -> Tensor:
    dims = input.dim() - 2
    sizes = convolved(
        input.shape, weight.shape, *(_repeated(values, dims) for values in (stride, padding, dilation))
    )
    return _in_format(input, sizes, input, weight)


def cudnn_convolution_out(
    input: Tensor, weight: Tensor, padding: Ints, stride: Ints, dilation: Ints, *rest: Any, out: Tensor
) -> Tensor:
    return out.resize_(cudnn_convolution(input, weight, padding, stride, dilation, *rest).shape)


def cudnn_convolution_transpose(
    input: Tensor,
    weight: Tensor,
    padding: Ints,
    output_padding: Ints,
    stride: Ints,
    dilation: Ints,
    groups: int,
    *_: Any,
) -> Tensor:
    dims = input.dim() - 2
    pads = [_repeated(values, dims) for values in (stride, padding, output_padding, dilation)]
    return _in_format(input, transposed(input.shape, weight.shape, groups, *pads), input, weight)


def cudnn_convolution_relu(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints, *_: Any
) -> Tensor:
    del bias
    return cudnn_convolution(input, weight, padding, stride, dilation)


def cudnn_convolution_add_relu(
    input: Tensor,
    weight: Tensor,
    z: Tensor,
    alpha: Any,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    *_: Any,
) -> Tensor:
    del z, alpha, bias
    return cudnn_convolution(input, weight, padding, stride, dilation)


def _direct(spatial_dims: int) -> Any:
    """A kernel of PyTorch's own with the arguments kernel_size, bias, stride, padding, dilation."""

    def shape(
        input: Tensor,
        weight: Tensor,
        kernel_size: Ints,
        bias: Tensor | None = None,
        stride: Ints = (1,),
        padding: Ints = (0,),
        dilation: Ints = (1,),
    ) -> Tensor:
        del kernel_size, bias
        sizes = _batched(input, spatial_dims)
        spread = (_repeated(values, spatial_dims) for values in (stride, padding, dilation))
        result = convolved(sizes, weight.shape, *spread)
        return empty(input, result if input.dim() == spatial_dims + 2 else result[1:])

    return shape


def slow_conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    kernel_size: Ints,
    bias: Tensor | None = None,
    stride: Ints = (1,),
    padding: Ints = (0,),
    output_padding: Ints = (0,),
    dilation: Ints = (1,),
) -> Tensor:
    del kernel_size, bias
    spread = [_repeated(values, 3) for values in (stride, padding, output_padding, dilation)]
    result = transposed(_batched(input, 3), weight.shape, 1, *spread)
    return empty(input, result if input.dim() == 5 else result[1:])


def slow_conv2d_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, *_: Any, output_mask: Sequence[bool] | None = None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    mask = output_mask if output_mask is not None else _[-1]
    return (
        empty(input, input.shape) if mask[0] else None,
        empty(weight, weight.shape) if mask[1] else None,
        empty(grad_output, [grad_output.shape[1]]) if mask[2] else None,
    )


SHAPES: dict[str, Any] = {
    "cudnn_convolution": cudnn_convolution,
    "cudnn_convolution.out": cudnn_convolution_out,
    "cudnn_convolution_transpose": cudnn_convolution_transpose,
    "cudnn_convolution_relu": cudnn_convolution_relu,
    "cudnn_convolution_add_relu": cudnn_convolution_add_relu,
    "_conv_depthwise2d": _direct(2),
    "conv_depthwise3d": _direct(3),
    "_slow_conv2d_forward": _direct(2),
    "_slow_conv2d_backward.output_mask": slow_conv2d_backward,
    "slow_conv_dilated2d": _direct(2),
    "slow_conv_dilated3d": _direct(3),
    "slow_conv_transpose3d": slow_conv_transpose3d,
}
