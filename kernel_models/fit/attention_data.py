"""Attention rows, forward and backward, by the library whose kernel PyTorch's backends run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from maya.kernel_models.families.attention import Attention, backward_work, forward_work
from maya.kernel_models.fit.measurements import Measurements, resolve_gpu
from maya.kernel_models.fit.sampling import sample
from maya.kernel_models.work import KernelWork

ROWS_PER_GPU = 2_000
SHORTEST_SEQUENCE = 64
FLASH, CUDNN = 0, 1

KERNEL_BACKENDS = {
    "vllm_flash_attn": FLASH,
    "vllm_flash_attn_fa2": FLASH,
    "vllm_vit_flash_attn_fa2": FLASH,
    "flash-attn-2": FLASH,
    "qkv_contiguous=True": CUDNN,
    "qkv_contiguous=False": CUDNN,
    "cudnn9": CUDNN,
    "vllm_flash_attn_fa3": CUDNN,
    "vllm_vit_flash_attn_fa3": CUDNN,
    "vllm_vit_flash_attn_fa4": CUDNN,
}
"""FlashAttention-2 is PyTorch's flash backend. cuDNN 9 runs on Hopper and Blackwell at the speed of
FlashAttention-3 and -4 within about 8% (FlashAttention-3 paper, fig. 5-6), so those rows stand for it.
TransformerEngine takes cuDNN on B200 and FlashAttention-2 on A100."""


def _attention(row: object) -> Attention:
    def size(name: str) -> int:
        return int(getattr(row, name))

    value = size("d_v") or size("d")
    return Attention(
        size("b"),
        size("h"),
        size("h_kv"),
        size("s_q"),
        size("s_kv"),
        size("d"),
        value,
        bool(size("causal")),
        "bfloat16",
    )


def load_attention(data: Path) -> list[Measurements]:
    """`attention_forward` and `attention_backward`."""
    table = pd.read_parquet(data / "kernels" / "attention.parquet")
    table = table[table["dtype"].isin(["bf16", "fp16"]) & (table["window"] == 0)]
    table = table[table["kernel"].astype(str).isin(list(KERNEL_BACKENDS))]
    # Shorter prompts run packed-head and split-key variants of serving libraries, not training's kernels.
    table = table[table["s_q"] >= SHORTEST_SEQUENCE]
    forward, backward = Measurements("attention_forward"), Measurements("attention_backward")
    for keys, rows in table.groupby(["gpu", "op", "kernel"], observed=True, sort=True):
        gpu = resolve_gpu(str(keys[0]))
        if gpu is None:
            continue
        backend = KERNEL_BACKENDS[str(keys[2])]
        if gpu.generation == "ampere":
            backend = FLASH
        for row in sample(rows, ROWS_PER_GPU).itertuples(index=False):
            call = _attention(row)
            family = (call.heads, call.kv_heads, call.head_size, call.queries)
            if str(keys[1]) == "attention_fwd":
                works: list[KernelWork] = [forward_work(call, backend, "bf16")]
                forward.add(works, gpu, row.time_us, family, str(row.source)[:40])
            else:
                # Row sums and dQ conversion are a few percent; they are left in the main kernel's time.
                works = [work for work in backward_work(call, backend, "bf16") if "attention" in work.family]
                backward.add(works, gpu, row.time_us, family, str(row.source)[:40])
    return [forward, backward]
