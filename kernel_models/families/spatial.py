"""Pooling, resampling and grids: windows over images. `shape` is (window elements,)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    distinct_bytes,
    integers,
    main_tensor,
    names,
    on_device,
)
from maya.traces.tables import OperatorMetadata

ELEMENTS_PER_BLOCK = 256
LINEAR_TAPS, CUBIC_TAPS = 4, 16


def _works(name: str, metadata: OperatorMetadata, taps: int) -> list[KernelWork]:
    outputs = on_device(metadata.output_tensors())
    tensor = outputs[0] if outputs else main_tensor(metadata)
    elements = tensor.numel if tensor is not None else 1
    source = max((item.numel for item in on_device(metadata.input_tensors())), default=elements)
    threads = max(elements, 1)
    return [
        KernelWork(
            "spatial",
            f"{name} {'x'.join(map(str, tensor.shape)) if tensor is not None else ''}",
            "fp32",
            2 * taps * min(elements, source) if "backward" in name else 2 * taps * elements,
            max(1, distinct_bytes(metadata)),
            max(1, ceil_div(threads, ELEMENTS_PER_BLOCK)),
            (float(taps),),
        )
    ]


def expand_pool(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Max, average and adaptive pooling; an adaptive window is the ratio of the sizes."""
    dimensions = 3 if "3d" in name else 2 if "2d" in name else 1
    if "adaptive" in name:
        inputs = on_device(metadata.input_tensors())
        outputs = on_device(metadata.output_tensors())
        sizes = [tensor.numel for tensor in inputs + outputs] or [1]
        return _works(name, metadata, max(1, max(sizes) // max(1, min(sizes))))
    return _works(name, metadata, prod(integers(metadata, "kernel_size", dimensions, 2)))


def expand_resample(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Interpolation and grid sampling."""
    if "cubic" in name:
        taps = CUBIC_TAPS
    elif "nearest" in name:
        taps = 1
    else:
        taps = 2 * LINEAR_TAPS if "3d" in name or "trilinear" in name else LINEAR_TAPS
    return _works(name, metadata, taps)


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
    **dict.fromkeys(names(POOLS), expand_pool),
    **dict.fromkeys(names(RESAMPLES), expand_resample),
    **{f"{name}_backward": expand_resample for name in names(RESAMPLES)},
}
