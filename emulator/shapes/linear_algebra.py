"""Factorizations and products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maya.emulator.shapes.layout import empty


def geqrf(input: Tensor) -> tuple[Tensor, Tensor]:
    *batch, rows, columns = input.shape
    # LAPACK's order: columns are contiguous.
    return empty(input, [*batch, columns, rows]).mT, empty(input, [*batch, min(rows, columns)])


def _compute_linear_combination(input: Tensor, coefficients: Tensor) -> Tensor:
    return empty(input, [coefficients.shape[0], *input.shape[1:]])


def linalg_lstsq_out(
    input: Tensor,
    b: Tensor,
    rcond: float | None = None,
    *,
    driver: str | None = None,
    solution: Tensor,
    residuals: Tensor,
    rank: Tensor,
    singular_values: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """On a GPU the only driver is gels, which tells neither ranks nor singular values.

    The solution is the upper part of the work space, whose columns are contiguous
    (aten/src/ATen/native/BatchLinearAlgebra.cpp, linalg_lstsq_out_info).
    """
    del rcond
    if input.dtype in (torch.float16, torch.bfloat16):
        raise RuntimeError("linalg.lstsq: This function doesn't handle types other than float and double")
    if driver not in (None, "gels"):
        raise RuntimeError(f"torch.linalg.lstsq: parameter `driver` should be one of (gels) but got {driver}")
    *batch, rows, columns = input.shape
    vector = b.dim() == input.dim() - 1 or (b.dim() > 1 and list(b.shape) == [*batch, rows])
    width = 1 if vector else b.shape[-1]
    work = max(rows, columns)  # rows of the work space
    steps = [work * width * step for step in empty(input, batch).stride()]
    if vector:
        _become(solution, [*batch, columns], [*steps, 1])
    else:
        _become(solution, [*batch, columns, width], [*steps, 1, work])
    residuals.resize_([*batch, width] if rows > columns else [0])
    rank.resize_([0])
    singular_values.resize_([0])
    return solution, residuals, rank, singular_values


def _become(out: Tensor, sizes: list[int], strides: list[int]) -> None:
    """Lay out an empty out=; one that has the sizes already is only written."""
    if list(out.shape) != sizes:
        out.set_(torch.empty_strided(sizes, strides, dtype=out.dtype, device=out.device))


def _mixed_dtypes_linear(
    input: Tensor, weight: Tensor, scale: Tensor, *, bias: Tensor | None = None, activation: Any = None
) -> Tensor:
    del bias, activation, weight
    return empty(input, [*input.shape[:-1], scale.numel()])


SHAPES: dict[str, Any] = {
    "geqrf": geqrf,
    "_compute_linear_combination": _compute_linear_combination,
    "linalg_lstsq.out": linalg_lstsq_out,
    "_mixed_dtypes_linear": _mixed_dtypes_linear,
}
