"""Fused attention, forward and backward, of the flash, memory-efficient and cuDNN backends.

The kernel's `shape` is (b, h, h_kv, s_q, s_kv, d, d_v, causal, backend) with backend 0 flash,
1 cuDNN, 2 efficient. A causal kernel skips the masked blocks: its flops count the lower triangle
(aligned to the bottom right) only. Backward does five products where forward does two
(Dao 2023, FlashAttention-2, section 3.1), plus a row-sum pass before and, in flash, a conversion
of the float32 dQ accumulator after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    item_bytes,
    matrix_math,
    tensor_argument,
    tensor_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

QUERY_BLOCK = 128
"""Rows of queries a thread block takes (flash: 64..128)."""
BACKENDS = ("flash", "cudnn", "efficient")


@dataclass(frozen=True)
class Attention:
    """Sizes of one call; sequences of a packed batch are taken as equally long."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_size: int
    value_size: int
    causal: bool
    dtype: str

    @property
    def pairs(self) -> int:
        """Query-key pairs computed per head and batch entry."""
        if not self.causal:
            return self.queries * self.keys
        square = min(self.queries, self.keys)
        return self.queries * self.keys - square * (square - 1) // 2

    @property
    def query_bytes(self) -> int:
        """Bytes of Q."""
        return self.batch * self.heads * self.queries * self.head_size * item_bytes(self.dtype)

    @property
    def output_bytes(self) -> int:
        """Bytes of O."""
        return self.batch * self.heads * self.queries * self.value_size * item_bytes(self.dtype)

    @property
    def key_value_bytes(self) -> int:
        """Bytes of K and V."""
        per_head = self.keys * (self.head_size + self.value_size)
        return self.batch * self.kv_heads * per_head * item_bytes(self.dtype)

    def shape(self, backend: int) -> tuple[float, ...]:
        """As the module's docstring says."""
        sizes = (self.batch, self.heads, self.kv_heads, self.queries, self.keys)
        return tuple(map(float, (*sizes, self.head_size, self.value_size, self.causal, backend)))


def _backend(name: str) -> int:
    return next((i for i, backend in enumerate(BACKENDS) if backend in name), 0)


def _causal(metadata: OperatorMetadata) -> bool:
    mask_type = metadata.args.get("custom_mask_type")
    return bool(metadata.args.get("is_causal")) or (isinstance(mask_type, int) and mask_type > 0)


def measure(name: str, metadata: OperatorMetadata) -> Attention:
    """Sizes of a call: `[b, h, s, d]`, `[b, s, h, d]` (underscored variants), `[total, h, d]`."""
    query = tensor_argument(metadata, "query", "self")
    key = tensor_argument(metadata, "key", "query", "self")
    value = tensor_argument(metadata, "value", "key", "query", "self")
    causal = _causal(metadata)
    if len(query.shape) == 4:
        heads_first = "scaled_dot_product" in name or "cudnn" in name
        head_axis, row_axis = (1, 2) if heads_first else (2, 1)
        packed = metadata.args.get("cum_seq_q") or metadata.args.get("cu_seqlens_q")
        batch, queries, keys = query.shape[0], query.shape[row_axis], key.shape[row_axis]
        if isinstance(packed, TensorMetadata) and batch == 1:
            batch = max(1, packed.numel - 1)
            queries, keys = ceil_div(queries, batch), ceil_div(keys, batch)
        return Attention(
            batch,
            query.shape[head_axis],
            key.shape[head_axis],
            queries,
            keys,
            query.shape[3],
            value.shape[3],
            causal,
            query.dtype,
        )
    if len(query.shape) == 3:
        packed = metadata.args.get("cum_seq_q")
        batch = max(1, packed.numel - 1) if isinstance(packed, TensorMetadata) else 1
        rows = ceil_div(query.shape[0], batch), ceil_div(key.shape[0], batch)
        sizes = (query.shape[1], key.shape[1], *rows, query.shape[2], value.shape[2])
        return Attention(batch, *sizes, causal, query.dtype)
    rows_total = query.numel // max(query.shape[-1], 1)
    return Attention(1, 1, 1, rows_total, rows_total, query.shape[-1], query.shape[-1], causal, query.dtype)


def forward_work(call: Attention, backend: int, math: str, extra_bytes: int = 0) -> KernelWork:
    """The one kernel of a forward call."""
    flops = 2 * call.batch * call.heads * call.pairs * (call.head_size + call.value_size)
    logsumexp = 4 * call.batch * call.heads * call.queries
    return KernelWork(
        family="attention_forward",
        name=f"{BACKENDS[backend]} attention forward {math} {_size(call)}",
        math=math,
        flops=flops,
        moved_bytes=call.query_bytes + call.key_value_bytes + call.output_bytes + logsumexp + extra_bytes,
        blocks=call.batch * call.heads * ceil_div(call.queries, QUERY_BLOCK),
        shape=call.shape(backend),
    )


def backward_work(call: Attention, backend: int, math: str, extra_bytes: int = 0) -> list[KernelWork]:
    """Row sums of dO·O, the main kernel, and in flash the conversion of dQ."""
    flops = 2 * call.batch * call.heads * call.pairs * (3 * call.head_size + 2 * call.value_size)
    rows = call.batch * call.heads * call.queries
    accumulator = 4 * rows * call.head_size
    moved = 2 * (call.query_bytes + call.key_value_bytes) + call.output_bytes + 8 * rows + accumulator
    prepare = KernelWork(
        "reduction",
        f"{BACKENDS[backend]} attention backward row sums",
        "fp32",
        2 * rows * call.value_size,
        2 * call.output_bytes + 4 * rows,
        ceil_div(rows, QUERY_BLOCK),
        (float(rows), float(call.value_size)),
    )
    main = KernelWork(
        "attention_backward",
        f"{BACKENDS[backend]} attention backward {math} {_size(call)}",
        math,
        flops,
        moved + extra_bytes,
        call.batch * call.heads * ceil_div(call.keys, QUERY_BLOCK),
        call.shape(backend),
    )
    if backend != 0:
        return [prepare, main]
    convert = KernelWork(
        "copy",
        "flash attention backward convert dq",
        "fp32",
        rows * call.head_size,
        accumulator + call.query_bytes,
        ceil_div(rows, QUERY_BLOCK),
    )
    return [prepare, main, convert]


def _size(call: Attention) -> str:
    causal = " causal" if call.causal else ""
    return f"{call.batch}x{call.heads}x{call.queries}x{call.keys}x{call.head_size}{causal}"


def _bias_bytes(metadata: OperatorMetadata) -> int:
    for name in ("attn_bias", "bias", "attn_mask"):
        value = metadata.args.get(name)
        if isinstance(value, TensorMetadata):
            return tensor_bytes(value)
    return 0


def expand_forward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Any fused forward."""
    call = measure(name, metadata)
    math = matrix_math(call.dtype, tf32=metadata.math == "tf32")
    return [forward_work(call, _backend(name), math, _bias_bytes(metadata))]


def expand_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Any fused backward."""
    call = measure(name, metadata)
    math = matrix_math(call.dtype, tf32=metadata.math == "tf32")
    return backward_work(call, _backend(name), math, _bias_bytes(metadata))


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_fused_attention_overrideable",
            "_flash_attention_forward",
            "_flash_attention_forward_no_dropout_inplace",
            "_efficient_attention_forward",
            "_cudnn_attention_forward",
            "_triton_scaled_dot_attention",
            "_triton_multi_head_attention",
            "_native_multi_head_attention",
            "_transformer_encoder_layer_fwd",
            "scaled_dot_product_attention",
        ),
        expand_forward,
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_fused_attention_overrideable_backward",
            "_flash_attention_backward",
            "_efficient_attention_backward",
            "_cudnn_attention_backward",
        ),
        expand_backward,
    ),
}
