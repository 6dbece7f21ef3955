"""Recurrent networks: cuDNN's persistent or step-wise kernels, and the fused cells.

`shape` of the cuDNN kernel is (hidden, batch, steps, gates, layers, direction) with direction
0 forward, 1 backward: its matrix products are sequential in time, each (batch, gates·hidden,
hidden).
"""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.families.pointwise import expand_pointwise
from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    distinct_bytes,
    matrix_math,
    tensor_argument,
    tensor_list,
)
from maya.traces.tables import OperatorMetadata

GATES = {0: 1, 1: 1, 2: 4, 3: 3}
"""cuDNN's mode: relu, tanh, LSTM, GRU."""


def expand_cudnn_rnn(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """_cudnn_rnn, _cudnn_rnn_backward (data and weight gradients)."""
    image = tensor_argument(metadata, "input", "self")
    mode = metadata.args.get("mode")
    gates = GATES.get(mode, 4) if isinstance(mode, int) else 4
    hidden = metadata.args.get("hidden_size")
    hidden_size = (
        hidden if isinstance(hidden, int) and hidden > 0 else (image.shape[-1] if image.shape else 1)
    )
    layers = metadata.args.get("num_layers")
    layer_count = layers if isinstance(layers, int) and layers > 0 else 1
    first = bool(metadata.args.get("batch_first"))
    three = len(image.shape) == 3
    steps = (image.shape[1] if first else image.shape[0]) if three else 1
    batch = (image.shape[0] if first else image.shape[1]) if three else 1
    weights = sum(tensor.numel for tensor in tensor_list(metadata, "weight"))
    if not weights:
        weights = layer_count * gates * hidden_size * (hidden_size + image.shape[-1])
    flops = 2 * weights * batch * steps
    math = matrix_math(image.dtype, tf32=metadata.math != "ieee")
    moved = distinct_bytes(metadata)
    label = f"{math} {steps} steps of {batch}x{hidden_size}, {layer_count} layers"
    blocks = max(1, ceil_div(gates * hidden_size, 64) * ceil_div(batch, 64))
    sizes = (hidden_size, batch, steps, gates, layer_count)
    shape = tuple(map(float, sizes))
    if "backward" not in name:
        return [KernelWork("recurrent", f"rnn forward {label}", math, flops, moved, blocks, (*shape, 0.0))]
    data = KernelWork("recurrent", f"rnn data gradient {label}", math, flops, moved, blocks, (*shape, 1.0))
    big = (1.0, float(gates * hidden_size), float(hidden_size), float(batch * steps), 0.0, 0.0)
    weight = KernelWork("gemm", f"rnn weight gradient {label}", math, flops, moved, blocks, big)
    return [data, weight]


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        ("_cudnn_rnn", "_cudnn_rnn_backward", "miopen_rnn", "miopen_rnn_backward"), expand_cudnn_rnn
    ),
    **dict.fromkeys(
        [
            "_thnn_fused_gru_cell",
            "_thnn_fused_gru_cell_backward",
            "_thnn_fused_lstm_cell",
            "_thnn_fused_lstm_cell_backward_impl",
        ],
        expand_pointwise,
    ),
}
