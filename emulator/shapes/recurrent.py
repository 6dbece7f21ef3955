"""Recurrent networks: cuDNN's backward and the fused cells.

Sources: aten/src/ATen/native/cudnn/RNN.cpp and aten/src/ATen/native/cuda/RNN.cu.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from maya.emulator.shapes.layout import empty

GRU_WORKSPACE_MULTIPLIER = 5
"""What the fused GRU cell keeps for its backward, in hidden sizes (RNN.cu)."""


def _cudnn_rnn_backward(
    input: Tensor,
    weight: Sequence[Tensor],
    weight_stride0: int,
    weight_buf: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor]]:
    del weight_stride0, weight_buf
    output_mask = rest[-1]
    return (
        empty(input, input.shape),
        empty(hx, hx.shape),
        None if cx is None else empty(cx, cx.shape),
        [empty(part, part.shape) for part in weight] if output_mask[3] else [],
    )


def _cudnn_init_dropout_state(
    dropout: float,
    train: bool,
    dropout_seed: int,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = False,
) -> Tensor:
    # Only cuDNN knows how large its generators' states are (a few MB a process); none is counted.
    del dropout, train, dropout_seed, layout, pin_memory
    return torch.empty(0, dtype=dtype or torch.uint8, device=device or "meta")


def _thnn_fused_lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    del hidden_gates, input_bias, hidden_bias
    return empty(cx, cx.shape), empty(cx, cx.shape), empty(input_gates, input_gates.shape)


def _thnn_fused_gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    del input_gates, hidden_gates
    return empty(hx, hx.shape), empty(hx, [hx.shape[0], hx.shape[1] * GRU_WORKSPACE_MULTIPLIER])


def _thnn_fused_gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    batch, hidden = grad_hy.shape
    return (
        empty(workspace, [batch, 3 * hidden]),
        empty(workspace, [batch, 3 * hidden]),
        empty(grad_hy, grad_hy.shape),
        empty(workspace, [3 * hidden]) if has_bias else None,
        empty(workspace, [3 * hidden]) if has_bias else None,
    )


SHAPES: dict[str, Any] = {
    "_cudnn_rnn_backward": _cudnn_rnn_backward,
    "_cudnn_init_dropout_state": _cudnn_init_dropout_state,
    "_thnn_fused_gru_cell": _thnn_fused_gru_cell,
    "_thnn_fused_gru_cell_backward": _thnn_fused_gru_cell_backward,
}
REPLACED: dict[str, Any] = {
    # torch's own (2.13, 2.14) fails on a cell without biases.
    "_thnn_fused_lstm_cell": _thnn_fused_lstm_cell,
}
