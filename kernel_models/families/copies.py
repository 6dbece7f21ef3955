"""Copies: casts and layout changes by kernels, memcpy and memset by copy engines, concatenation."""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.work import (
    IncompleteMetadata,
    KernelWork,
    ceil_div,
    item_bytes,
    main_tensor,
    names,
    on_device,
    tensor_argument,
    tensor_bytes,
    total_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

ELEMENTS_PER_BLOCK = 512
TRANSPOSED, STRAIGHT = 1.0, 0.0


def _dense_order(tensor: TensorMetadata) -> tuple[int, ...]:
    """Axes by falling stride, size-1 axes left out: two tensors with the same order copy straight."""
    axes = [axis for axis in range(len(tensor.shape)) if tensor.shape[axis] > 1]
    return tuple(sorted(axes, key=lambda axis: -tensor.stride[axis]))


def is_dense(tensor: TensorMetadata) -> bool:
    """Whether its elements fill one block of memory without holes or overlaps."""
    expected = 1
    for axis in reversed(_dense_order(tensor)):
        if tensor.stride[axis] != expected:
            return False
        expected *= tensor.shape[axis]
    return True


def link_copy(direction: str, size: int, pinned: bool) -> KernelWork:
    """A copy by a copy engine; pageable host memory goes through a staging buffer."""
    if direction == "d2d":
        blocks = ceil_div(max(1, size), 8192)
        return KernelWork("memcpy", "Memcpy DtoD", "fp32", 0, 2 * size, blocks, engine="hbm")
    if direction == "p2p":
        return KernelWork("memcpy_p2p", "Memcpy PtoP", "fp32", 0, size, 1, engine="link")
    host = "Pinned" if pinned else "Pageable"
    label = f"Memcpy HtoD ({host} -> Device)" if direction == "h2d" else f"Memcpy DtoH (Device -> {host})"
    family = "memcpy_pinned" if pinned else "memcpy_pageable"
    return KernelWork(family, label, "fp32", 0, size, 1, engine="link")


def expand_memcpy_entry(metadata: OperatorMetadata) -> list[KernelWork]:
    """What Kind.MEMCPY's own entry says.

    Raises:
        IncompleteMetadata: a direction that does not exist, or no bytes.
    """
    entry = metadata.memcpy or {}
    direction, size = entry.get("direction"), entry.get("bytes")
    if direction not in ("h2d", "d2h", "d2d", "p2p") or not isinstance(size, int):
        raise IncompleteMetadata(f"memcpy entry {entry!r}: want direction h2d, d2h, d2d or p2p and bytes")
    return [link_copy(direction, size, bool(entry.get("pinned")))]


def expand_copy(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """copy_, clone, _to_copy, contiguous: memcpy if same dtype and both dense, else a kernel."""
    if metadata.memcpy:
        return expand_memcpy_entry(metadata)
    outputs = metadata.output_tensors()
    inputs = metadata.input_tensors()
    if name in ("copy_", "copy", "_copy_from"):
        destination = tensor_argument(metadata, "self")
        source = tensor_argument(metadata, "src", "other", "self")
    elif inputs and outputs:
        destination, source = outputs[0], inputs[0]
    else:
        raise IncompleteMetadata(f"{name} without source or destination")
    if source.device == "cpu" and destination.device != "cpu":
        return [link_copy("h2d", tensor_bytes(source), False)]
    if destination.device == "cpu" and source.device != "cpu":
        return [link_copy("d2h", tensor_bytes(source), False)]
    same_layout = source.shape == destination.shape and _dense_order(source) == _dense_order(destination)
    read = tensor_bytes(source)
    written = destination.numel * item_bytes(destination.dtype)
    dense = source.dtype == destination.dtype and is_dense(source) and is_dense(destination)
    if same_layout and dense:
        return [link_copy("d2d", written, False)]
    label = "cast" if source.dtype != destination.dtype else "copy"
    if not same_layout and source.shape == destination.shape and 0 not in source.stride:
        label += " transposed"
    return [
        KernelWork(
            "copy",
            f"{label} {source.dtype} -> {destination.dtype}",
            "fp32",
            0,
            read + written,
            max(1, ceil_div(destination.numel, ELEMENTS_PER_BLOCK)),
            (TRANSPOSED if "transposed" in label else STRAIGHT,),
        )
    ]


def expand_zero(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """zero_, zeros: a memset."""
    outputs = on_device(metadata.output_tensors()) or on_device(metadata.input_tensors())
    size = tensor_bytes(outputs[0]) if outputs else 1
    if outputs and not is_dense(outputs[0]):
        blocks = ceil_div(max(1, outputs[0].numel), ELEMENTS_PER_BLOCK)
        return [KernelWork("pointwise", f"{name} {outputs[0].dtype}", "fp32", 0, size, blocks)]
    return [KernelWork("memset", "Memset", "fp32", 0, size, ceil_div(max(1, size), 8192), engine="hbm")]


def expand_item(_name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """_local_scalar_dense: a few bytes to the host."""
    if metadata.memcpy:
        return expand_memcpy_entry(metadata)
    inputs = metadata.input_tensors()
    return [link_copy("d2h", item_bytes(inputs[0].dtype) if inputs else 4, True)]


def expand_rearrangement(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """cat, roll, flip, repeat, padding, im2col: outputs written once, as many elements read."""
    outputs = on_device(metadata.output_tensors())
    tensor = main_tensor(metadata)
    written = total_bytes(outputs)
    elements = max((item.numel for item in outputs), default=tensor.numel if tensor else 1)
    read = min(total_bytes(metadata.input_tensors()), written) if outputs else 0
    dtype = tensor.dtype if tensor is not None else ""
    return [
        KernelWork(
            "copy",
            f"{name} {dtype}",
            "fp32",
            0,
            max(1, written + read),
            max(1, ceil_div(elements, ELEMENTS_PER_BLOCK)),
            (STRAIGHT,),
        )
    ]


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(names("copy _to_copy clone contiguous to _copy_from _pin_memory"), expand_copy),
    **dict.fromkeys(["zero", "zeros", "zeros_like", "new_zeros"], expand_zero),
    "_local_scalar_dense": expand_item,
    **dict.fromkeys(
        names(
            "cat _cat stack roll flip repeat repeat_interleave constant_pad_nd channel_shuffle im2col "
            "col2im reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
            "replication_pad2d replication_pad3d reflection_pad1d_backward reflection_pad2d_backward "
            "reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward "
            "replication_pad3d_backward pixel_shuffle pixel_unshuffle _cudnn_rnn_flatten_weight "
            "select_backward slice_backward diagonal_backward _pack_padded_sequence diag_embed"
        ),
        expand_rearrangement,
    ),
}
