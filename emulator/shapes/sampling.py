"""Random numbers of distributions, and grids that images are sampled on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maya.emulator.shapes.layout import empty


def _like_first(input: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.empty_like(input)


def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    return empty(input, torch.broadcast_shapes(input.shape, output.shape))


def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    del prob, generator
    return empty(count, count.shape)


def cudnn_grid_sampler(input: Tensor, grid: Tensor) -> Tensor:
    return empty(input, [input.shape[0], input.shape[1], grid.shape[1], grid.shape[2]])


def cudnn_grid_sampler_backward(input: Tensor, grid: Tensor, grad_output: Tensor) -> tuple[Tensor, Tensor]:
    del grad_output
    return empty(input, input.shape), empty(grid, grid.shape)


def cudnn_affine_grid_generator(theta: Tensor, n: int, c: int, h: int, w: int) -> Tensor:
    del c
    return empty(theta, [n, h, w, 2])


def cudnn_affine_grid_generator_backward(grad: Tensor, n: int, c: int, h: int, w: int) -> Tensor:
    del c, h, w
    return empty(grad, [n, 2, 3])


SHAPES: dict[str, Any] = {
    "_sample_dirichlet": _like_first,
    "_dirichlet_grad": _like_first,
    "_standard_gamma_grad": _standard_gamma_grad,
    "binomial": binomial,
    "cudnn_grid_sampler": cudnn_grid_sampler,
    "cudnn_grid_sampler_backward": cudnn_grid_sampler_backward,
    "cudnn_affine_grid_generator": cudnn_affine_grid_generator,
    "cudnn_affine_grid_generator_backward": cudnn_affine_grid_generator_backward,
}
