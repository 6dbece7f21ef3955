"""Matrix products: mm, addmm, bmm, linear, scaled, integer, grouped and 2:4 sparse products.

One GEMM kernel with its epilogue (bias, activation) fused, as cuBLASLt runs it. The kernel's
`shape` is (batch, m, n, k, A is contiguous along k, B is contiguous along k): BLAS calls
A row-major with B contiguous along k "TN" (y = x Wᵀ), both "N" sides row-major "NN" (the input's
gradient), A contiguous along m "NT" (the weight's gradient).
"""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.work import (
    IncompleteMetadata,
    KernelWork,
    ceil_div,
    item_bytes,
    matrix_math,
    on_device,
    tensor_argument,
    tensor_bytes,
    tensor_list,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

TILE = 128
"""Edge of a GEMM's output tile, for the grid estimate only."""


def product(
    name: str,
    math: str,
    shape: tuple[int, int, int, int],
    moved_bytes: int,
    *,
    a_along_k: bool = True,
    b_along_k: bool = True,
    flop_factor: int = 2,
    family: str = "gemm",
) -> KernelWork:
    """One GEMM of `shape` (batch, m, n, k)."""
    batch, m, n, k = shape
    layout = ("T" if b_along_k else "N") + ("N" if a_along_k else "T")
    size = f"{m}x{n}x{k}" if batch == 1 else f"{batch}x{m}x{n}x{k}"
    return KernelWork(
        family=family,
        name=f"{name} {math} {size} {layout}",
        math=math,
        flops=flop_factor * batch * m * n * k,
        moved_bytes=moved_bytes,
        blocks=max(1, batch * ceil_div(m, TILE) * ceil_div(n, TILE)),
        shape=(float(batch), float(m), float(n), float(k), float(a_along_k), float(b_along_k)),
    )


def _along_last(tensor: TensorMetadata) -> bool:
    """Whether the last axis is the contiguous one (a size-1 axis is either)."""
    return tensor.stride[-1] == 1 or tensor.shape[-1] == 1


def _matmul(name: str, metadata: OperatorMetadata, a: TensorMetadata, b: TensorMetadata) -> list[KernelWork]:
    if len(a.shape) < 2 or len(b.shape) < 2:
        return _vector(name, metadata, a, b)
    m, k = a.shape[-2], a.shape[-1]
    n = b.shape[-1]
    batch = 1
    for size in a.shape[:-2]:
        batch *= size
    if len(b.shape) == 2 and batch > 1:  # a folded linear: rows of A are one long dimension
        m, batch = m * batch, 1
    elif len(a.shape) == 2:
        for size in b.shape[:-2]:
            batch *= size
    math = matrix_math(a.dtype, tf32=metadata.math == "tf32")
    result = on_device(metadata.output_tensors())
    written = tensor_bytes(result[0]) if result else batch * m * n * item_bytes(a.dtype)
    added = metadata.args.get("self") if "addmm" in name or "baddbmm" in name else None
    if added is None:
        added = metadata.args.get("bias")
    extra = tensor_bytes(added) if isinstance(added, TensorMetadata) else 0
    work = product(
        name,
        math,
        (batch, m, n, k),
        tensor_bytes(a) + tensor_bytes(b) + written + extra,
        a_along_k=_along_last(a),
        b_along_k=b.stride[-2] == 1,
        flop_factor=8 if a.dtype.startswith("complex") else 2,
    )
    return [work]


def _vector(name: str, metadata: OperatorMetadata, a: TensorMetadata, b: TensorMetadata) -> list[KernelWork]:
    """Matrix times vector: bandwidth only, one GEMM with n = 1 for the flops."""
    k = a.shape[-1] if a.shape else 1
    m = a.numel // max(k, 1)
    moved = tensor_bytes(a) + tensor_bytes(b) + m * item_bytes(a.dtype)
    math = matrix_math(a.dtype, tf32=metadata.math == "tf32")
    return [product(name, math, (1, m, 1, k), moved, a_along_k=_along_last(a) if a.shape else True)]


def expand_product(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """mm, addmm, bmm, baddbmm, matmul, _scaled_mm, mv and relatives."""
    a = tensor_argument(metadata, "mat1", "batch1", "mat_a", "self", "input", "mat")
    b = tensor_argument(metadata, "mat2", "batch2", "mat_b", "other", "vec", "weight")
    if "addmv" in name:
        a = tensor_argument(metadata, "mat")
    return _matmul(name, metadata, a, b)


def expand_linear(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """linear(input, weight[n, k], bias)."""
    a = tensor_argument(metadata, "input", "self")
    weight = tensor_argument(metadata, "weight")
    if len(weight.shape) != 2:
        return _vector(name, metadata, a, weight)
    transposed = TensorMetadata(weight.dtype, weight.shape[::-1], weight.stride[::-1], weight.device)
    folded = (a.numel // max(a.shape[-1], 1), a.shape[-1])
    flat = TensorMetadata(a.dtype, folded, (a.stride[-2] if len(a.stride) > 1 else folded[1], a.stride[-1]))
    return _matmul(name, metadata, flat, transposed)


def expand_grouped(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """_grouped_mm and _scaled_grouped_mm: one kernel; groups of a 2-d side share its rows evenly."""
    a = tensor_argument(metadata, "self", "mat_a")
    b = tensor_argument(metadata, "mat2", "mat_b")
    offsets = metadata.args.get("offs")
    groups = offsets.numel if isinstance(offsets, TensorMetadata) else 1
    if len(a.shape) == 3 or len(b.shape) == 3:
        groups = a.shape[0] if len(a.shape) == 3 else b.shape[0]
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if len(a.shape) == 2 and len(b.shape) == 3:
        m = ceil_div(m, max(groups, 1))
    elif len(a.shape) == 3 and len(b.shape) == 2:
        n = ceil_div(n, max(groups, 1))
    elif len(a.shape) == 2 and len(b.shape) == 2:
        k = ceil_div(k, max(groups, 1))
    written = groups * m * n * (2 if item_bytes(a.dtype) <= 2 else item_bytes(a.dtype))
    moved = tensor_bytes(a) + tensor_bytes(b) + written
    math = matrix_math(a.dtype)
    along = (_along_last(a), b.stride[-2] == 1)
    return [
        product(
            name,
            math,
            (groups, m, n, k),
            moved,
            a_along_k=along[0],
            b_along_k=along[1],
            family="grouped_gemm",
        )
    ]


def expand_foreach_product(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """_foreach_mm: one GEMM a pair."""
    lists = [tensor_list(metadata, "self"), tensor_list(metadata, "mat2", "other")]
    if not lists[0] or len(lists[0]) != len(lists[1]):
        raise IncompleteMetadata(f"{name} needs two lists of matrices")
    return [work for a, b in zip(*lists, strict=True) for work in _matmul(name, metadata, a, b)]


def expand_quantized_weight(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Half-precision activations times packed int4/int8 or 2:4 compressed weights.

    The packed operand's logical size is not in its shape; it follows from the activations' k and
    the output's n.
    """
    found = on_device(metadata.input_tensors())
    result = on_device(metadata.output_tensors())
    dense = [tensor for tensor in found if len(tensor.shape) == 2 and tensor.dtype in ("float16", "bfloat16")]
    if not result or not found:
        raise IncompleteMetadata(f"{name} without tensors")
    a = dense[0] if dense else found[0]
    out = result[0]
    k = a.shape[-1] if a.shape else 1
    n = out.shape[-1] if out.shape else 1
    m = out.numel // max(n, 1)
    moved = sum(tensor_bytes(tensor) for tensor in found) + tensor_bytes(out)
    math = matrix_math(a.dtype)
    return [product(name, math, (1, m, n, k), moved)]


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        (
            "mm",
            "addmm",
            "_addmm_activation",
            "bmm",
            "baddbmm",
            "addbmm",
            "matmul",
            "mv",
            "addmv",
            "_scaled_mm",
            "_scaled_mm_v2",
            "_int_mm",
            "sspaddmm",
        ),
        expand_product,
    ),
    "linear": expand_linear,
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"), expand_grouped),
    "_foreach_mm": expand_foreach_product,
    **dict.fromkeys(
        (
            "_weight_int4pack_mm",
            "_weight_int8pack_mm",
            "_mixed_dtypes_linear",
            "_cslt_sparse_mm",
            "_cslt_sparse_mm_search",
            "_sparse_semi_structured_addmm",
            "_sparse_semi_structured_linear",
            "_sparse_semi_structured_mm",
        ),
        expand_quantized_weight,
    ),
}
