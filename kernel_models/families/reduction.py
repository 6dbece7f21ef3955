"""Reductions over some or all axes. `shape` is (rows, columns): columns are reduced away."""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    distinct_bytes,
    main_tensor,
    names,
    on_device,
    vector_math,
)
from maya.traces.tables import OperatorMetadata

ELEMENTS_PER_BLOCK = 2048


def expand_reduction(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """One kernel: input read once, results written."""
    inputs = on_device(metadata.input_tensors())
    outputs = on_device(metadata.output_tensors())
    largest = max((tensor.numel for tensor in inputs), default=1)
    rows = max(1, max((tensor.numel for tensor in outputs), default=1))
    columns = max(1, largest // rows)
    tensor = main_tensor(metadata)
    dtype = tensor.dtype if tensor is not None else "float32"
    return [
        KernelWork(
            "reduction",
            f"{name} {dtype} {rows}x{columns}",
            vector_math(dtype),
            2 * largest,
            distinct_bytes(metadata),
            max(1, ceil_div(largest, ELEMENTS_PER_BLOCK)),
            (float(rows), float(columns)),
        )
    ]


NAMES = (
    "sum nansum mean prod amax amin max min aminmax _aminmax argmax argmin all any norm "
    "linalg_vector_norm linalg__powsum std std_mean var var_mean count_nonzero logsumexp dot vdot trace "
    "equal mse_loss smooth_l1_loss huber_loss binary_cross_entropy multi_margin_loss "
    "multilabel_margin_loss_forward segment_reduce _segment_reduce_backward hash_tensor "
    "l1_loss binary_cross_entropy_with_logits renorm is_nonzero"
)

OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = dict.fromkeys(
    names(NAMES), expand_reduction
)
