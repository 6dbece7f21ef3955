"""Pooling, resampling and grids: windows over images. `shape` is (window elements,).

A pool's forward looks at every element of every window. Its backward gathers: each input element finds the
windows that cover it by integer division and compares their stored indices; with channels last that
index arithmetic is shared by the channels of a pixel. No public measurement of channels-last pools was found.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from maya.kernel_models.families.convolution import is_channels_last
from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    distinct_bytes,
    integers,
    main_tensor,
    names,
    on_device,
    tensor_argument,
    tensor_bytes,
    total_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

ELEMENTS_PER_BLOCK = 256
LINEAR_TAPS, CUBIC_TAPS = 4, 16

INTEGER = "integer"
"""The arithmetic that bounds a pool: its backward's rate follows the integer units (64 an SM in all
generations: A100 1.7 times V100, H100 1.9 times A100) and not the float32 peak, which doubled with Hopper."""
INDEX_ARITHMETIC = 8
"""Instructions of the division into windows, in units of one comparison: backward passes of 2x2 and 3x3
pools run at 83 and 73 elements a ns on H100 (TrioSim), with 1 and 2.25 windows an element."""


def _work(
    family: str, name: str, tensor: TensorMetadata | None, math: str, flops: int, moved: int, taps: int
) -> list[KernelWork]:
    size = "x".join(map(str, tensor.shape)) if tensor is not None else ""
    elements = tensor.numel if tensor is not None else 1
    blocks = max(1, ceil_div(elements, ELEMENTS_PER_BLOCK))
    return [KernelWork(family, f"{name} {size}", math, flops, max(1, moved), blocks, (float(taps),))]


def _window(name: str, metadata: OperatorMetadata) -> int:
    """Elements of a window; an adaptive one is the ratio of the sizes."""
    dimensions = 3 if "3d" in name else 2 if "2d" in name else 1
    if "adaptive" not in name:
        return prod(integers(metadata, "kernel_size", dimensions, 2))
    tensors = on_device(metadata.input_tensors()) + on_device(metadata.output_tensors())
    sizes = [tensor.numel for tensor in tensors] or [1]
    return max(1, max(sizes) // max(1, min(sizes)))


def expand_pool(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Max, average and adaptive pooling."""
    outputs = on_device(metadata.output_tensors())
    tensor = outputs[0] if outputs else main_tensor(metadata)
    taps = _window(name, metadata)
    elements = tensor.numel if tensor is not None else 1
    return _work("pool", name, tensor, INTEGER, taps * elements, distinct_bytes(metadata), taps)


def expand_pool_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Reads the windows' gradients (and indices), writes the image's after a fill with zeros; of the image
    only the shape matters."""
    outputs = on_device(metadata.output_tensors())
    tensor = outputs[0] if outputs else main_tensor(metadata)
    gradient = tensor_argument(metadata, "grad_output", "grad", "self")
    indices = metadata.args.get("indices")
    taps = _window(name, metadata)
    elements = tensor.numel if tensor is not None else 1
    shared = tensor is not None and is_channels_last(tensor)
    moved = tensor_bytes(gradient) + 2 * total_bytes(outputs)
    if isinstance(indices, TensorMetadata):
        moved += tensor_bytes(indices)
    flops = taps * gradient.numel + (0 if shared else INDEX_ARITHMETIC) * elements
    return _work("pool", name, tensor, INTEGER, flops, moved, taps)


def expand_resample(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Interpolation and grid sampling."""
    if "cubic" in name:
        taps = CUBIC_TAPS
    elif "nearest" in name:
        taps = 1
    else:
        taps = 2 * LINEAR_TAPS if "3d" in name or "trilinear" in name else LINEAR_TAPS
    outputs = on_device(metadata.output_tensors())
    tensor = outputs[0] if outputs else main_tensor(metadata)
    elements = tensor.numel if tensor is not None else 1
    source = max((item.numel for item in on_device(metadata.input_tensors())), default=elements)
    touched = min(elements, source) if "backward" in name else elements
    return _work("spatial", name, tensor, "fp32", 2 * taps * touched, distinct_bytes(metadata), taps)


POOLS = (
    "max_pool2d max_pool3d max_pool1d max_pool2d_with_indices max_pool2d_with_indices_backward "
    "max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool1d avg_pool2d "
    "avg_pool2d_backward avg_pool3d avg_pool3d_backward adaptive_avg_pool2d _adaptive_avg_pool2d "
    "_adaptive_avg_pool2d_backward adaptive_avg_pool3d _adaptive_avg_pool3d "
    "_adaptive_avg_pool3d_backward adaptive_avg_pool3d_backward adaptive_max_pool2d "
    "adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward "
    "fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d "
    "fractional_max_pool3d_backward max_unpool2d max_unpool3d "
)
RESAMPLES = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
    "upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "grid_sampler_2d grid_sampler_3d cudnn_grid_sampler upsample_lanczos2d_aa _upsample_lanczos2d_aa"
)

OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **{name: expand_pool_backward if "backward" in name else expand_pool for name in names(POOLS)},
    **dict.fromkeys(names(RESAMPLES), expand_resample),
    **{f"{name}_backward": expand_resample for name in names(RESAMPLES)},
}
