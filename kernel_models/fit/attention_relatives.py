"""Rows that stand for stock PyTorch's attention kernels where only a relative of them was measured.

Serving libraries run the same kernels (FlashAttention-2), or ones of about the same speed, but with their own
launches around; a relative's time is its row's without what the library adds to the smallest call, times a
ratio. Such rows teach the shape of the time; they never count as a measurement (`RELATIVE`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from maya.kernel_models.fit.learned_rows import RELATIVE
from maya.kernel_models.fit.measurements import resolve_gpu
from maya.kernel_models.learned.hashing import hashed

ROWS_EACH = 1_500
BARE_FLOOR_CYCLES = 9_000.0
"""Of the smallest call of a bare kernel: the FlashAttention-2 of vision encoders takes 5.8 µs on an L40S, the
library with the least around it (attention.parquet, b = 1, s = 1)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Relative:
    """Where a stock kernel's rows come from.

    Attributes:
        target: kernel as `attention_variants` names it.
        source: kernel of the rows.
        gpus: names.
        ratio: rows → [k] times slower than the source.
        why: evidence for the ratio.
    """

    target: str
    source: str
    gpus: tuple[str, ...]
    ratio: Callable[[pd.DataFrame], Floats]
    why: str


def _same(rows: pd.DataFrame) -> Floats:
    return np.ones(len(rows))


def _slower(factor: float) -> Callable[[pd.DataFrame], Floats]:
    return lambda rows: np.full(len(rows), factor)


def _flash_2_on_hopper(rows: pd.DataFrame) -> Floats:
    head = rows["d"].to_numpy()
    result: Floats = np.where(head <= 80, 1.5, np.where(head <= 128, 1.75, 2.2))
    return result


HOPPER = ("H100-SXM5-80GB", "H200-SXM-141GB")
BLACKWELL = ("B200-SXM", "GB200", "GB300")
RELATIVES = (
    Relative("flash-attn-2", "flash_attention", ("A100-SXM4-80GB",), _same, "the same kernel"),
    Relative("flash-attn-2", "vllm_flash_attn_fa2", ("L40S",), _same, "the same kernel, paged keys"),
    Relative("flash-attn-2", "vllm_vit_flash_attn_fa2", ("L40S",), _same, "the same kernel"),
    Relative(
        "flash-attn-2",
        "fa3",
        HOPPER,
        _flash_2_on_hopper,
        "FlashAttention-3 paper, figure 5, long",
    ),
    Relative("flash-attn-2", "flash_attention_v3", HOPPER, _flash_2_on_hopper, "as above, no mask"),
    Relative("cudnn9", "fa3", HOPPER, _slower(1.08), "FlashAttention-3 paper, figure 5"),
    Relative("cudnn9", "flash_attention_v3", HOPPER, _slower(1.08), "as above, no mask"),
    Relative("cudnn9", "trtllm_mha", BLACKWELL, _slower(1.03), "TransformerEngine rows of B200"),
    Relative("cudnn9", "vllm_vit_flash_attn_fa4", BLACKWELL, _slower(1.05), "between equal and 10% slower"),
)


def relative_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Stand-ins made of the 16-bit forward rows of attention.parquet."""
    plain = table[
        table["dtype"].astype(str).isin(("bf16", "fp16")) & (table["kv_dtype"].astype(str) != "fp8")
    ]
    kernel, name = plain["kernel"].astype(str), plain["gpu"].astype(str)
    parts = []
    for each in RELATIVES:
        for gpu_name in each.gpus:
            gpu = resolve_gpu(gpu_name)
            rows = plain[(kernel == each.source) & (name == gpu_name)]
            if gpu is None or not len(rows):
                continue
            order = hashed(np.arange(len(rows)))
            fastest = float(rows["time_us"].min())
            rows = rows.iloc[np.sort(np.argsort(order, kind="stable")[:ROWS_EACH])].copy()
            floor = BARE_FLOOR_CYCLES / gpu.boost_clock_mhz
            time = (rows["time_us"].to_numpy(dtype=np.float64) - fastest) * each.ratio(rows) + floor
            parts.append(
                rows.assign(
                    time_us=time,
                    kernel=each.target,
                    backend="",
                    source=f"{RELATIVE} of {each.source}: {each.why}",
                )
            )
    return pd.concat(parts, ignore_index=True)
