"""Convolutions of one to three dimensions, forward and both gradients, as cuDNN runs them.

The kernel's `shape` is (batch, c_in per group, c_out per group, output pixels, kernel size,
groups, direction, input pixels, stride, channels last), directions 0 forward, 1 data gradient, 2 weight
gradient.
A transposed convolution's forward is a data gradient and the other way round. In PyTorch float32 convolutions
may use TF32 unless told otherwise (`torch.backends.cudnn.allow_tf32` is True by default).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from maya.kernel_models.work import (
    IncompleteMetadata,
    KernelWork,
    ceil_div,
    integers,
    item_bytes,
    matrix_math,
    on_device,
    tensor_argument,
    tensor_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

FORWARD, DATA, WEIGHT = range(3)
DIRECTIONS = ("forward", "data gradient", "weight gradient")
TILE = 128


def is_channels_last(tensor: TensorMetadata) -> bool:
    """Whether neighbours in memory are channels of one pixel."""
    return len(tensor.shape) > 2 and tensor.stride[1] == 1 and tensor.shape[1] > 1


def convolution_work(
    math: str,
    direction: int,
    image: TensorMetadata,
    weight: TensorMetadata,
    result: TensorMetadata,
    groups: int,
    stride: int,
) -> KernelWork:
    """One cuDNN kernel; `image`, `weight`, `result` are those of the plain forward convolution."""
    batch, c_in = image.shape[0], image.shape[1]
    c_out = weight.shape[0]
    window = prod(weight.shape[2:])
    pixels = prod(result.shape[2:])
    per_group = c_in // max(groups, 1)
    flops = 2 * batch * pixels * c_out * per_group * window
    edges = {
        FORWARD: (batch * pixels, c_out),
        DATA: (batch * prod(image.shape[2:]), c_in),
        WEIGHT: (c_out, per_group * window),
    }[direction]
    size = f"{batch}x{c_in}x{'x'.join(map(str, image.shape[2:]))} -> {c_out}, {window} taps"
    return KernelWork(
        family="convolution" if per_group > 1 or groups == 1 else "depthwise",
        name=f"convolution {DIRECTIONS[direction]} {math} {size}",
        math=math,
        flops=flops,
        moved_bytes=tensor_bytes(image) + tensor_bytes(weight) + tensor_bytes(result),
        blocks=max(1, ceil_div(edges[0], TILE) * ceil_div(edges[1], TILE)),
        shape=tuple(
            map(
                float,
                (
                    batch,
                    per_group,
                    c_out // max(groups, 1),
                    pixels,
                    window,
                    groups,
                    direction,
                    prod(image.shape[2:]),
                    stride,
                    is_channels_last(image) or is_channels_last(result),
                ),
            )
        ),
    )


def _math(metadata: OperatorMetadata, dtype: str) -> str:
    allowed = metadata.args.get("allow_tf32")
    if not isinstance(allowed, bool):
        allowed = metadata.math != "ieee"
    return matrix_math(dtype, tf32=allowed)


def _groups(
    metadata: OperatorMetadata, image: TensorMetadata, weight: TensorMetadata, transposed: bool
) -> int:
    groups = metadata.args.get("groups")
    if isinstance(groups, int) and groups > 0:
        return groups
    channels = weight.shape[0] if transposed else weight.shape[1]
    if transposed or channels == 0:
        return 1
    return max(1, image.shape[1] // channels)


def _stride(metadata: OperatorMetadata) -> int:
    return prod(integers(metadata, "stride", 2, 1)[:1])


def _bias_sum(result: TensorMetadata) -> KernelWork:
    channels = result.shape[1]
    return KernelWork(
        "reduction",
        "convolution bias gradient",
        "fp32",
        result.numel,
        tensor_bytes(result) + channels * item_bytes(result.dtype),
        max(1, channels),
        (float(channels), float(result.numel // max(channels, 1))),
    )


def expand_forward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """convolution, cudnn_convolution and the fused relu/add variants."""
    image = tensor_argument(metadata, "input", "self")
    weight = tensor_argument(metadata, "weight")
    outputs = on_device(metadata.output_tensors())
    if not outputs or len(image.shape) < 3:
        raise IncompleteMetadata(f"{name} needs a batched input and its output")
    result = outputs[0]
    transposed = bool(metadata.args.get("transposed")) or "transpose" in name
    groups = _groups(metadata, image, weight, transposed)
    math = _math(metadata, image.dtype)
    if transposed:
        works = [convolution_work(math, DATA, result, weight, image, groups, _stride(metadata))]
    else:
        works = [convolution_work(math, FORWARD, image, weight, result, groups, _stride(metadata))]
    bias = metadata.args.get("bias")
    if isinstance(bias, TensorMetadata) and "relu" not in name:
        moved = 2 * tensor_bytes(result) + tensor_bytes(bias)
        blocks = ceil_div(result.numel, 512)
        works.append(KernelWork("pointwise", "convolution bias", "fp32", result.numel, moved, blocks))
    return works


def expand_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """convolution_backward: the gradients that `output_mask` asks for."""
    gradient = tensor_argument(metadata, "grad_output")
    image = tensor_argument(metadata, "input", "self")
    weight = tensor_argument(metadata, "weight")
    if len(image.shape) < 3:
        raise IncompleteMetadata(f"{name} needs a batched input")
    transposed = bool(metadata.args.get("transposed"))
    groups = _groups(metadata, image, weight, transposed)
    math = _math(metadata, image.dtype)
    mask = metadata.args.get("output_mask")
    wanted = list(mask) if isinstance(mask, list) else [True, True, False]
    plain_image, plain_result = (gradient, image) if transposed else (image, gradient)
    data = FORWARD if transposed else DATA
    stride = _stride(metadata)
    works = []
    if wanted[0]:
        works.append(convolution_work(math, data, plain_image, weight, plain_result, groups, stride))
    if len(wanted) > 1 and wanted[1]:
        works.append(convolution_work(math, WEIGHT, plain_image, weight, plain_result, groups, stride))
    if len(wanted) > 2 and wanted[2]:
        works.append(_bias_sum(gradient))
    return works


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        (
            "convolution",
            "_convolution",
            "convolution_overrideable",
            "conv1d",
            "conv2d",
            "conv3d",
            "cudnn_convolution",
            "cudnn_convolution_relu",
            "cudnn_convolution_add_relu",
            "cudnn_convolution_transpose",
            "miopen_convolution",
            "miopen_convolution_relu",
            "miopen_convolution_add_relu",
            "miopen_convolution_transpose",
            "miopen_depthwise_convolution",
            "_conv_depthwise2d",
            "conv_depthwise3d",
            "slow_conv_dilated2d",
            "slow_conv_dilated3d",
            "slow_conv_transpose2d",
            "slow_conv_transpose3d",
            "_slow_conv2d_forward",
        ),
        expand_forward,
    ),
    **dict.fromkeys(
        ("convolution_backward", "_slow_conv2d_backward", "convolution_backward_overrideable"),
        expand_backward,
    ),
}
