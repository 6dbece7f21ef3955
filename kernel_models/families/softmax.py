"""Softmax, log-softmax and the losses built on them.

`shape` is (rows, columns): a row is what one sum is taken over.
"""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    distinct_bytes,
    item_bytes,
    main_tensor,
    tensor_argument,
    tensor_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

FLOPS_FORWARD = 12
"""An exponential counts as 8 operations, plus maximum, difference, sum and quotient."""
FLOPS_BACKWARD = 5


def _rows(metadata: OperatorMetadata, tensor: TensorMetadata) -> tuple[int, int]:
    axis = metadata.args.get("dim", -1)
    if not tensor.shape:
        return 1, 1
    columns = (
        tensor.shape[axis] if isinstance(axis, int) and -len(tensor.shape) <= axis < len(tensor.shape) else 1
    )
    return tensor.numel // max(columns, 1), max(columns, 1)


def expand_softmax(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Reads the row once if it fits on chip, writes it once."""
    tensor = tensor_argument(metadata, "self", "input")
    rows, columns = _rows(metadata, tensor)
    outputs = metadata.output_tensors()
    written = tensor_bytes(outputs[0]) if outputs else tensor_bytes(tensor)
    mask = metadata.args.get("mask")
    extra = tensor_bytes(mask) if isinstance(mask, TensorMetadata) else 0
    return [
        KernelWork(
            "softmax_forward",
            f"{name} {tensor.dtype} {rows}x{columns}",
            "fp32",
            FLOPS_FORWARD * tensor.numel,
            tensor_bytes(tensor) + written + extra,
            max(1, rows),
            (float(rows), float(columns)),
        )
    ]


def expand_softmax_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Reads gradient and output, writes the input's gradient.

    Softmax's (not log-softmax's) first multiplies gradient and output into a temporary, by another kernel
    (aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda_out).
    """
    tensor = tensor_argument(metadata, "grad_output", "grad")
    rows, columns = _rows(metadata, tensor)
    outputs = metadata.output_tensors()
    size = tensor_bytes(tensor)
    written = tensor_bytes(outputs[0]) if outputs else size
    label = f"{name} {tensor.dtype} {rows}x{columns}"
    shape = (float(rows), float(columns))
    works = [
        KernelWork(
            "softmax_backward",
            label,
            "fp32",
            FLOPS_BACKWARD * tensor.numel,
            2 * size + written,
            max(1, rows),
            shape,
        )
    ]
    if "log_softmax" not in name:
        blocks = max(1, ceil_div(tensor.numel, 512))
        product = KernelWork("pointwise", f"{label} product", "fp32", tensor.numel, 3 * size, blocks)
        works.insert(0, product)
    return works


def expand_cross_entropy(_name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """The composite: log-softmax, then one gathered value a row."""
    return expand_softmax("_log_softmax", metadata) + expand_gathered_loss("nll_loss_forward", metadata)


def expand_gathered_loss(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """nll_loss_forward: touches one logit a row (a 32-byte sector each) and the targets."""
    tensor = tensor_argument(metadata, "self", "input")
    rows = tensor.numel // max(tensor.shape[1] if len(tensor.shape) > 1 else tensor.numel, 1)
    moved = rows * (32 + 8 + item_bytes(tensor.dtype))
    blocks = 1 if len(tensor.shape) <= 2 else max(1, ceil_div(rows, 1024))
    return [KernelWork("reduction", f"{name} {rows}", "fp32", 2 * rows, moved, blocks, (1.0, float(rows)))]


def expand_gathered_loss_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """nll_loss_backward: zeros the whole gradient, then scatters one value a row."""
    tensor = tensor_argument(metadata, "self", "input")
    rows = tensor.numel // max(tensor.shape[1] if len(tensor.shape) > 1 else tensor.numel, 1)
    size = tensor_bytes(tensor)
    return [
        KernelWork("memset", f"{name} zero", "fp32", 0, size, ceil_div(tensor.numel, 2048), engine="hbm"),
        KernelWork("scatter", f"{name} {rows}", "fp32", rows, rows * 72, max(1, ceil_div(rows, 1024))),
    ]


def expand_ctc(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """CTC: alpha and beta recursions over time, one launch each."""
    tensor = main_tensor(metadata)
    steps = tensor.shape[0] if tensor is not None and tensor.shape else 1
    moved = 3 * distinct_bytes(metadata)
    works = [KernelWork("scan", f"{name} alpha", "fp32", 0, moved, max(1, steps // 32), (float(steps), 1.0))]
    if "backward" in name:
        works.append(
            KernelWork("scan", f"{name} beta", "fp32", 0, moved, max(1, steps // 32), (float(steps), 1.0))
        )
    return works


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        ("_softmax", "_log_softmax", "_masked_softmax", "softmax", "log_softmax"), expand_softmax
    ),
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward"),
        expand_softmax_backward,
    ),
    "cross_entropy_loss": expand_cross_entropy,
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), expand_gathered_loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), expand_gathered_loss_backward),
    **dict.fromkeys(
        ("_ctc_loss", "_ctc_loss_backward", "_cudnn_ctc_loss", "miopen_ctc_loss"),
        expand_ctc,
    ),
}
