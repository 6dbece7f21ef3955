"""Factorisations, solvers, Fourier transforms, distances, sparse formats.

Solvers run long chains of small kernels in cuSOLVER or MAGMA; they are priced as one entry with
the algorithm's flops and `shape` (matrices, order), at the low efficiency such chains reach.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2

from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    distinct_bytes,
    main_tensor,
    names,
    on_device,
    tensor_argument,
    tensor_bytes,
    vector_math,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

SOLVER_FLOPS = {
    "cholesky": 1 / 3,
    "lu": 2 / 3,
    "ldl": 1 / 3,
    "inv": 2.0,
    "solve": 2 / 3,
    "det": 2 / 3,
    "qr": 4 / 3,
    "geqrf": 4 / 3,
    "householder": 4 / 3,
    "ormqr": 4.0,
    "eigh": 9.0,
    "eigvals": 10.0,
    "eig": 25.0,
    "svd": 22.0,
    "polar": 22.0,
    "lstsq": 2.0,
    "matrix_exp": 20.0,
    "sqrth": 12.0,
    "triangular": 1.0,
}
"""Multiples of n³ (Golub and Van Loan, Matrix Computations, 4th ed.)."""


def expand_solver(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """linalg_*: n³ flops by kind."""
    tensor = main_tensor(metadata)
    if tensor is None or len(tensor.shape) < 2:
        return [KernelWork("solver", name, "fp32", 1, 8, 1, (1.0, 1.0))]
    rows, columns = tensor.shape[-2], tensor.shape[-1]
    order = min(rows, columns)
    matrices = tensor.numel // max(rows * columns, 1)
    factor = next((value for key, value in SOLVER_FLOPS.items() if key in name), 1.0)
    flops = int(factor * matrices * rows * columns * order)
    blocks = max(1, matrices * ceil_div(rows, 128))
    shape = (float(matrices), float(order))
    label = f"{name} {matrices}x{rows}x{columns}"
    moved = max(1, distinct_bytes(metadata))
    return [KernelWork("solver", label, vector_math(tensor.dtype), flops, moved, blocks, shape)]


def expand_fourier(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """cuFFT: 5 n log2 n flops; one pass over memory for each factor of up to 4,096."""
    tensor = tensor_argument(metadata, "self", "input")
    axes = metadata.args.get("dim")
    dims = [axis for axis in axes if isinstance(axis, int)] if isinstance(axes, list) else [-1]
    moved = flops = 0
    size = tensor_bytes(tensor)
    for axis in dims:
        length = tensor.shape[axis] if -len(tensor.shape) <= axis < len(tensor.shape) else 1
        passes = max(1, ceil_div(max(1, length).bit_length(), 12))
        moved += 2 * size * passes
        flops += int(5 * tensor.numel * log2(max(2, length)))
    blocks = max(1, ceil_div(tensor.numel, 1024))
    label = f"{name} {'x'.join(map(str, tensor.shape))}"
    return [KernelWork("fourier", label, vector_math(tensor.dtype), flops, max(1, moved), blocks)]


def expand_distance(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """cdist, pdist: every pair of rows."""
    inputs = on_device(metadata.input_tensors())
    outputs = on_device(metadata.output_tensors())
    width = inputs[0].shape[-1] if inputs and inputs[0].shape else 1
    pairs = max((tensor.numel for tensor in outputs), default=1)
    if "backward" in name:
        pairs = max((tensor.numel for tensor in inputs), default=1)
    flops = 3 * pairs * width
    return [KernelWork("distance", name, "fp32", flops, max(1, distinct_bytes(metadata)), max(1, pairs))]


def expand_sparse(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Conversions between formats and their checks: a few passes of bandwidth."""
    found: list[TensorMetadata] = on_device(metadata.input_tensors() + metadata.output_tensors())
    size = sum(tensor_bytes(tensor) for tensor in found)
    elements = max((tensor.numel for tensor in found), default=1)
    return [KernelWork("sparse", name, "fp32", elements, max(1, 3 * size), max(1, ceil_div(elements, 1024)))]


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        names(
            "_cholesky_solve_helper _linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet "
            "_linalg_solve_ex _linalg_svd cholesky_inverse geqrf linalg_cholesky_ex linalg_eig "
            "linalg_eigvals linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex "
            "linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve "
            "linalg_matrix_exp linalg_matrix_sqrth linalg_polar linalg_qr linalg_solve_triangular "
            "lu_unpack ormqr triangular_solve"
        ),
        expand_solver,
    ),
    **dict.fromkeys(["_fft_c2c", "_fft_c2r", "_fft_r2c"], expand_fourier),
    **dict.fromkeys(
        ["_cdist_backward", "_cdist_forward", "_pdist_backward", "_pdist_forward"], expand_distance
    ),
    **dict.fromkeys(
        names(
            "_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo "
            "_convert_weight_to_int4pack _cslt_compress _sparse_semi_structured_apply "
            "_sparse_semi_structured_apply_dense _sparse_semi_structured_tile _to_sparse "
            "_to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr _to_sparse_semi_structured "
            "_validate_compressed_sparse_indices _nested_compute_contiguous_strides_offsets"
        ),
        expand_sparse,
    ),
}
