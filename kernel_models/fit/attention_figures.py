"""Single published figures of attention forward on an H100 SXM5, fp16.

Shah, Bikshandi, Zhang, Thakkar, Ramani and Dao, "FlashAttention-3: Fast and Accurate Attention with
Asynchrony and Low-precision", 2024, figure 5: TFLOP/s printed above the bars, 16k tokens, hidden size 2048,
causal counted as half. Taken from machine transcriptions of the bars; the bars on which two transcriptions
disagree are left out (cuDNN and FlashAttention-3 at head size 128, not causal, length 512).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

SOURCE = "FlashAttention-3 paper, figure 5 (forward), machine-transcribed"
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
TOKENS, HIDDEN = 16_384, 2_048
NAN = float("nan")
TFLOPS: dict[tuple[int, int, str], tuple[float, ...]] = {
    (64, 0, "flash-attn-2"): (282, 306, 318, 321, 322, 324),
    (64, 0, "cudnn9"): (335, 373, 395, 408, 412, 413),
    (64, 0, "flash-attn-3"): (333, 392, 460, 476, 496, 497),
    (64, 1, "flash-attn-2"): (180, 229, 262, 284, 295, 299),
    (64, 1, "cudnn9"): (225, 288, 334, 363, 379, 388),
    (64, 1, "flash-attn-3"): (197, 265, 371, 420, 460, 473),
    (128, 0, "flash-attn-2"): (309, 350, 362, 368, 370, 370),
    (128, 0, "cudnn9"): (NAN, 574, 617, 609, 600, 595),
    (128, 0, "flash-attn-3"): (NAN, 565, 625, 638, 646, 648),
    (128, 1, "flash-attn-2"): (191, 260, 298, 319, 333, 335),
    (128, 1, "cudnn9"): (315, 410, 484, 518, 529, 539),
    (128, 1, "flash-attn-3"): (292, 423, 521, 579, 602, 616),
    (256, 0, "flash-attn-2"): (275, 313, 321, 323, 324, 326),
    (256, 0, "cudnn9"): (470, 546, 580, 581, 580, 581),
    (256, 0, "flash-attn-3"): (482, 639, 707, 736, 746, 756),
    (256, 1, "flash-attn-2"): (208, 251, 278, 293, 297, 298),
    (256, 1, "cudnn9"): (308, 391, 450, 483, 497, 509),
    (256, 1, "flash-attn-3"): (286, 427, 537, 612, 628, 642),
}
"""(head size, causal, kernel) → TFLOP/s at `LENGTHS`."""


def published_forward() -> pd.DataFrame:
    """The figures as rows of attention.parquet."""
    rows = []
    for (head, causal, kernel), speeds in TFLOPS.items():
        for length, speed in zip(LENGTHS, speeds, strict=True):
            if np.isnan(speed):
                continue
            batch, heads = TOKENS // length, HIDDEN // head
            flops = 4.0 * batch * heads * length * length * head / (2.0 if causal else 1.0)
            sizes = {"b": batch, "h": heads, "h_kv": heads, "s_q": length, "s_kv": length, "d": head}
            texts = {"gpu": "H100-SXM5-80GB", "dtype": "fp16", "kv_dtype": "fp16", "op": "attention_fwd"}
            texts |= {"backend": "FlashAttention-3 paper figure", "kernel": kernel, "source": SOURCE}
            figures = {"d_v": head, "causal": causal, "window": 0, "time_us": flops / speed / 1e6}
            rows.append(texts | sizes | figures)
    return pd.DataFrame(rows)
