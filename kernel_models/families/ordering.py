"""Sorts, selections and scans. `shape` is (rows, columns): a row is sorted or scanned on its own."""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.families.indexing import sort_work
from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    distinct_bytes,
    item_bytes,
    main_tensor,
    names,
    tensor_argument,
    tensor_bytes,
    total_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

SHARED_MEMORY_SORT = 4096
"""Rows up to this long are sorted in one pass in shared memory."""


def _rows(metadata: OperatorMetadata, tensor: TensorMetadata) -> tuple[int, int]:
    axis = metadata.args.get("dim", -1)
    if not tensor.shape:
        return 1, 1
    inside = isinstance(axis, int) and -len(tensor.shape) <= axis < len(tensor.shape)
    columns = tensor.shape[axis] if inside else tensor.numel
    return tensor.numel // max(columns, 1), max(columns, 1)


def expand_sort(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """sort, argsort, median, mode, unique's first half."""
    tensor = tensor_argument(metadata, "self", "input")
    rows, columns = _rows(metadata, tensor)
    size = item_bytes(tensor.dtype)
    if columns <= SHARED_MEMORY_SORT:
        moved = tensor_bytes(tensor) + max(total_bytes(metadata.output_tensors()), tensor_bytes(tensor))
        shape = (float(rows), float(columns))
        label = f"{name} {rows}x{columns}"
        return [KernelWork("sort", label, "fp32", 0, moved, max(1, rows), shape)]
    work = sort_work(f"{name} {rows}x{columns}", tensor.numel, size)
    return [work]


def expand_unique(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Sort, mark boundaries, scan, compact."""
    tensor = tensor_argument(metadata, "self", "input")
    elements = tensor.numel
    works = [] if "consecutive" in name else [sort_work(f"{name} sort", elements, item_bytes(tensor.dtype))]
    blocks = max(1, ceil_div(elements, 2048))
    works.append(
        KernelWork("scan", f"{name} scan", "fp32", elements, 16 * elements, blocks, (1.0, float(elements)))
    )
    works.append(KernelWork("gather", f"{name} write", "fp32", 0, max(1, 16 * elements), blocks))
    return works


def expand_select(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """topk, kthvalue: a radix select reads the row several times, then gathers and sorts k."""
    tensor = tensor_argument(metadata, "self", "input")
    rows, columns = _rows(metadata, tensor)
    passes = 2 + item_bytes(tensor.dtype)
    moved = passes * tensor_bytes(tensor) + total_bytes(metadata.output_tensors())
    shape = (float(rows), float(columns))
    return [KernelWork("sort", f"{name} {rows}x{columns}", "fp32", 0, moved, max(1, rows), shape)]


def expand_scan(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """cumsum, cumprod, cummax, logcumsumexp: one kernel."""
    tensor = main_tensor(metadata)
    if tensor is None:
        return [KernelWork("scan", name, "fp32", 1, 8, 1, (1.0, 1.0))]
    rows, columns = _rows(metadata, tensor)
    return [
        KernelWork(
            "scan",
            f"{name} {tensor.dtype} {rows}x{columns}",
            "fp32",
            tensor.numel,
            distinct_bytes(metadata),
            max(1, ceil_div(tensor.numel, 2048)),
            (float(rows), float(columns)),
        )
    ]


def expand_histogram(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """bincount, histc: atomics into a small table."""
    tensor = main_tensor(metadata)
    elements = tensor.numel if tensor is not None else 1
    return [
        KernelWork(
            "reduction",
            f"{name} range",
            "fp32",
            elements,
            distinct_bytes(metadata),
            max(1, elements // 2048),
            (1.0, float(elements)),
        ),
        KernelWork(
            "scatter",
            name,
            "fp32",
            elements,
            distinct_bytes(metadata) + 8 * elements,
            max(1, elements // 512),
        ),
    ]


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(["sort", "argsort", "median", "nanmedian", "mode", "msort"], expand_sort),
    **dict.fromkeys(
        ["_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"], expand_unique
    ),
    **dict.fromkeys(["topk", "kthvalue"], expand_select),
    **dict.fromkeys(
        names("cumsum cumprod _cummax_helper _cummin_helper cummax cummin logcumsumexp _logcumsumexp"),
        expand_scan,
    ),
    **dict.fromkeys(["bincount", "histc"], expand_histogram),
}
