"""The arithmetic under which measurements are filed: what pipelines a GPU really runs it on."""

from __future__ import annotations

BEFORE_AMPERE = frozenset(("pascal", "volta", "turing"))


def fitted_math(math: str, generation: str) -> str:
    """The arithmetic under which a fit is filed.

    From Ampere on fp16 and bf16 run the same pipelines; before, TF32 and bf16 are computed in float32.
    """
    if generation in BEFORE_AMPERE:
        return "fp32" if math in ("tf32", "bf16") else math
    return "bf16" if math == "fp16" else math
