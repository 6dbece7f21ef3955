"""Losses with kernels of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from maya.emulator.shapes.layout import empty


def _ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    # The longest target is a value; a padded batch is as wide as it, a packed one is taken as even.
    steps, batch = log_probs.shape[0], input_lengths.shape[0]
    longest = targets.shape[1] if targets.dim() == 2 else -(-targets.shape[0] // max(batch, 1))
    return empty(log_probs, [batch]), empty(log_probs, [batch, steps, 2 * longest + 1])


def _ctc_loss_backward(grad: Tensor, log_probs: Tensor, *_: Any) -> Tensor:
    del grad
    return empty(log_probs, log_probs.shape)


def _cudnn_ctc_loss(log_probs: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return empty(log_probs, [log_probs.shape[1]]), empty(log_probs, log_probs.shape)


def _like_second(grad_output: Tensor, input: Tensor, *_: Any) -> Tensor:
    del grad_output
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def _like_second_out(grad_output: Tensor, input: Tensor, *_: Any, grad_input: Tensor) -> Tensor:
    del grad_output
    return grad_input.resize_(input.shape)


SHAPES: dict[str, Any] = {
    "_ctc_loss.Tensor": _ctc_loss,
    "_ctc_loss_backward": _ctc_loss_backward,
    "_ctc_loss_backward.Tensor": _ctc_loss_backward,
    "_cudnn_ctc_loss": _cudnn_ctc_loss,
    "_cudnn_ctc_loss.Tensor": _cudnn_ctc_loss,
    "multi_margin_loss_backward": _like_second,
    "multi_margin_loss_backward.grad_input": _like_second_out,
    "multilabel_margin_loss_backward": _like_second,
    "multilabel_margin_loss_backward.grad_input": _like_second_out,
}
