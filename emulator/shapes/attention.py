"""Attention below the operators that scripts call, and nested tensors' ways into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from maya.emulator.shapes.layout import empty


def _transform_bias_rescale_qkv(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    del qkv_bias
    batch, length, width = qkv.shape
    head = width // 3 // num_heads
    return tuple(empty(qkv, [batch, num_heads, length, head]) for _ in range(3))


def _nested_tensor_from_mask_left_aligned(tensor: Tensor, mask: Tensor) -> bool:
    # "Cannot be turned into a nested tensor": those are not emulated.
    del tensor, mask
    return False


def _padded_dense_to_jagged_forward(
    dense: Tensor, offsets: Sequence[Tensor], total_l: int | None = None
) -> Tensor:
    length = total_l if total_l is not None else dense.shape[0] * dense.shape[1]
    return empty(dense, [length, *dense.shape[len(offsets) + 1 :]])


def _cudnn_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    compute_log_sumexp: bool,
    *_: Any,
    **__: Any,
) -> tuple[Any, ...]:
    """Output laid out as the query is: [batch, heads, length, head]."""
    del key, attn_bias, max_q
    batch, heads, length, _head = query.shape
    output = (
        torch.empty_like(query)
        if value.shape[-1] == query.shape[-1]
        else empty(query, [batch, heads, length, value.shape[-1]])
    )
    lengths = [batch, heads, length, 1] if compute_log_sumexp else [0]
    return (
        output,
        empty(query, lengths, torch.float32),
        cum_seq_q,
        cum_seq_k,
        length,
        max_k,
        empty(query, [], torch.int64),
        empty(query, [], torch.int64),
        None,
    )


def _cudnn_attention_backward(
    grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, Tensor]:
    del grad_out
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


SHAPES: dict[str, Any] = {
    "_transform_bias_rescale_qkv": _transform_bias_rescale_qkv,
    "_nested_tensor_from_mask_left_aligned": _nested_tensor_from_mask_left_aligned,
    "_padded_dense_to_jagged_forward": _padded_dense_to_jagged_forward,
    "_cudnn_attention_forward": _cudnn_attention_forward,
    "_cudnn_attention_backward": _cudnn_attention_backward,
}
