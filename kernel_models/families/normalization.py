"""Normalisations: layer, group, RMS and batch norm, forward and backward.

Backward is two kernels: the input's gradient, then the column sums that give weight and bias
theirs. The kernels' `shape` is (rows, columns): a row is what one mean is taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from maya.kernel_models.families.convolution import is_channels_last
from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    tensor_argument,
    tensor_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

FLOPS_FORWARD = 8
"""Mean, variance, scale and shift of one element (Welford: 5, apply: 3)."""
FLOPS_BACKWARD = 12
CHANNELS_LAST_ELEMENTS_PER_BLOCK = 4096


def _work(
    family: str,
    name: str,
    rows: int,
    columns: int,
    moved: int,
    elements: int,
    flops: int = FLOPS_FORWARD,
    blocks: int | None = None,
) -> KernelWork:
    shape = (float(rows), float(columns))
    return KernelWork(family, name, "fp32", flops * elements, moved, max(1, blocks or rows), shape)


def _layer_rows(metadata: OperatorMetadata, tensor: TensorMetadata) -> tuple[int, int]:
    shape = metadata.args.get("normalized_shape")
    columns = prod(shape) if isinstance(shape, list) else (tensor.shape[-1] if tensor.shape else 1)
    return tensor.numel // max(columns, 1), max(columns, 1)


def expand_layer_norm(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """native_layer_norm, _fused_rms_norm: one kernel."""
    tensor = tensor_argument(metadata, "input", "self")
    rows, columns = _layer_rows(metadata, tensor)
    moved = 2 * tensor_bytes(tensor) + 8 * rows + 8 * columns
    return [
        _work("norm_forward", f"{name} {tensor.dtype} {rows}x{columns}", rows, columns, moved, tensor.numel)
    ]


def expand_layer_norm_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """native_layer_norm_backward, _fused_rms_norm_backward: two kernels."""
    tensor = tensor_argument(metadata, "input", "self")
    rows, columns = _layer_rows(metadata, tensor)
    size = tensor_bytes(tensor)
    label = f"{tensor.dtype} {rows}x{columns}"
    mask = metadata.args.get("output_mask")
    wanted = list(mask) if isinstance(mask, list) else [True, True]
    works = []
    if wanted[0]:
        works.append(
            _work(
                "norm_backward",
                f"{name} input {label}",
                rows,
                columns,
                3 * size + 8 * rows,
                tensor.numel,
                FLOPS_BACKWARD,
            )
        )
    if any(wanted[1:]):
        works.append(
            _work(
                "norm_backward",
                f"{name} weight and bias {label}",
                rows,
                columns,
                2 * size + 8 * rows,
                tensor.numel,
                4,
            )
        )
    return works


def _channels(tensor: TensorMetadata) -> tuple[int, int]:
    channels = tensor.shape[1] if len(tensor.shape) > 1 else 1
    return max(channels, 1), tensor.numel // max(channels, 1)


def _batch_norm_blocks(tensor: TensorMetadata, channels: int) -> int:
    """Channels first: a block reduces one channel. Channels last: a block takes rows of pixels, all over
    the device."""
    if is_channels_last(tensor):
        return max(channels, ceil_div(tensor.numel, CHANNELS_LAST_ELEMENTS_PER_BLOCK))
    return channels


def _training(metadata: OperatorMetadata) -> bool:
    value = metadata.args.get("training", metadata.args.get("train"))
    return value is not False


def expand_batch_norm(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """cudnn_batch_norm (one kernel, reads its input twice), native_batch_norm (statistics, apply)."""
    tensor = tensor_argument(metadata, "input", "self")
    channels, rest = _channels(tensor)
    blocks = _batch_norm_blocks(tensor, channels)
    size = tensor_bytes(tensor)
    label = f"{tensor.dtype} {'x'.join(map(str, tensor.shape))}"
    if "elemt" in name or not _training(metadata):
        return [_work("norm_forward", f"{name} {label}", channels, rest, 2 * size, tensor.numel, 3, blocks)]
    if "stats" in name:
        return [_work("norm_forward", f"{name} {label}", channels, rest, size, tensor.numel, 5, blocks)]
    if "cudnn" in name or "miopen" in name:
        return [_work("batch_norm", f"{name} {label}", channels, rest, 3 * size, tensor.numel, blocks=blocks)]
    return [
        _work("batch_norm", f"{name} statistics {label}", channels, rest, size, tensor.numel, 5, blocks),
        _work("batch_norm", f"{name} apply {label}", channels, rest, 2 * size, tensor.numel, 3, blocks),
    ]


def expand_batch_norm_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """cuDNN: one kernel that reads input and gradient twice; native: reduce, then apply."""
    tensor = tensor_argument(metadata, "input", "self", "grad_out", "grad_output")
    channels, rest = _channels(tensor)
    blocks = _batch_norm_blocks(tensor, channels)
    size = tensor_bytes(tensor)
    label = f"{tensor.dtype} {'x'.join(map(str, tensor.shape))}"
    if "cudnn" in name or "miopen" in name:
        return [
            _work(
                "batch_norm_backward",
                f"{name} {label}",
                channels,
                rest,
                5 * size,
                tensor.numel,
                FLOPS_BACKWARD,
                blocks,
            )
        ]
    works = []
    if "elemt" not in name:
        works.append(
            _work(
                "batch_norm_backward",
                f"{name} reduce {label}",
                channels,
                rest,
                2 * size,
                tensor.numel,
                6,
                blocks,
            )
        )
    if "reduce" not in name:
        works.append(
            _work(
                "batch_norm_backward",
                f"{name} apply {label}",
                channels,
                rest,
                3 * size,
                tensor.numel,
                6,
                blocks,
            )
        )
    return works


def _groups(metadata: OperatorMetadata, tensor: TensorMetadata) -> tuple[int, int]:
    groups = metadata.args.get("group", metadata.args.get("num_groups"))
    batch = tensor.shape[0] if tensor.shape else 1
    rows = batch * groups if isinstance(groups, int) and groups > 0 else batch
    return max(rows, 1), tensor.numel // max(rows, 1)


def expand_group_norm(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """native_group_norm: row moments, then scale and shift."""
    tensor = tensor_argument(metadata, "input", "self")
    rows, columns = _groups(metadata, tensor)
    size = tensor_bytes(tensor)
    label = f"{tensor.dtype} {'x'.join(map(str, tensor.shape))}"
    return [
        _work("norm_forward", f"{name} moments {label}", rows, columns, size, tensor.numel, 5),
        _work("norm_forward", f"{name} apply {label}", rows, columns, 2 * size, tensor.numel, 3),
    ]


def expand_group_norm_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """native_group_norm_backward: per-channel sums, then the input's gradient."""
    tensor = tensor_argument(metadata, "input", "self")
    rows, columns = _groups(metadata, tensor)
    size = tensor_bytes(tensor)
    label = f"{tensor.dtype} {'x'.join(map(str, tensor.shape))}"
    return [
        _work("norm_backward", f"{name} sums {label}", rows, columns, 2 * size, tensor.numel, 4),
        _work("norm_backward", f"{name} input {label}", rows, columns, 3 * size, tensor.numel, 8),
    ]


def expand_gathered_statistics(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """SyncBatchNorm's small kernels over per-channel statistics."""
    tensor = tensor_argument(metadata, "mean", "input", "self")
    moved = sum(tensor_bytes(item) for item in metadata.input_tensors() if len(item.shape) <= 2)
    return [_work("norm_forward", name, max(1, tensor.numel // 128), 128, moved, tensor.numel)]


def expand_weight_norm(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """_weight_norm_interface and its backward: row norms and a rescale in one kernel."""
    tensor = tensor_argument(metadata, "v", "saved_v", "grad_w")
    rows = tensor.shape[0] if tensor.shape else 1
    passes = 4 if "backward" in name else 2
    columns = tensor.numel // max(rows, 1)
    family = "norm_backward" if "backward" in name else "norm_forward"
    moved = passes * tensor_bytes(tensor)
    return [_work(family, f"{name} {rows}x{columns}", rows, columns, moved, tensor.numel)]


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(("native_layer_norm", "layer_norm", "_fused_rms_norm", "rms_norm"), expand_layer_norm),
    **dict.fromkeys(("native_layer_norm_backward", "_fused_rms_norm_backward"), expand_layer_norm_backward),
    **dict.fromkeys(
        (
            "native_batch_norm",
            "batch_norm",
            "cudnn_batch_norm",
            "miopen_batch_norm",
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_no_training",
            "_batch_norm_with_update",
            "_batch_norm_no_update",
            "_batch_norm_impl_index",
            "batch_norm_stats",
            "batch_norm_update_stats",
            "batch_norm_elemt",
        ),
        expand_batch_norm,
    ),
    **dict.fromkeys(
        (
            "native_batch_norm_backward",
            "cudnn_batch_norm_backward",
            "miopen_batch_norm_backward",
            "batch_norm_backward",
            "batch_norm_backward_reduce",
            "batch_norm_backward_elemt",
        ),
        expand_batch_norm_backward,
    ),
    **dict.fromkeys(
        ("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"), expand_gathered_statistics
    ),
    **dict.fromkeys(("native_group_norm", "group_norm"), expand_group_norm),
    "native_group_norm_backward": expand_group_norm_backward,
    **dict.fromkeys(("_weight_norm_interface", "_weight_norm_interface_backward"), expand_weight_norm),
}
