"""Pooling backwards."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from maya.emulator.shapes.layout import empty


def fractional_max_pool3d_backward(grad_output: Tensor, input: Tensor, *_: Any) -> Tensor:
    del grad_output
    return empty(input, input.shape)


def _like_second_out(grad_output: Tensor, input: Tensor, *_: Any, grad_input: Tensor) -> Tensor:
    del grad_output
    return grad_input.resize_(input.shape)


SHAPES: dict[str, Any] = {
    "fractional_max_pool3d_backward": fractional_max_pool3d_backward,
    "fractional_max_pool3d_backward.grad_input": _like_second_out,
    "adaptive_avg_pool3d_backward.grad_input": _like_second_out,
}
