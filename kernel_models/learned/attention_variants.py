"""Implementations of attention: how a library's name for a kernel becomes one of those that were measured.

A table names what it ran in two free texts, `kernel` and `backend` (library and version). A text that was
measured is itself; another one counts as the measured one it shares most words with, so that a new version
or a renamed kernel is priced as its nearest relative. Without both texts a row is what stock PyTorch runs:
cuDNN where its selector prefers it, otherwise its own FlashAttention-2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec

MMA, WGMMA, TCGEN05 = 0, 1, 2
"""Which tensor core instructions a GPU's best kernels issue: warp-synchronous (Ampere, Ada, and Blackwell
with GDDR, compute capability 12), Hopper's asynchronous ones, data-centre Blackwell's (CUTLASS 4
documentation, "Blackwell functionality": wgmma exists on 9.0 only, tcgen05 on 10.x only)."""

TRITON, FLASH_2, FUSED_MMA, FLASH_3, FUSED_WGMMA, FLASH_4, FUSED_TCGEN05, CUDNN = range(8)
"""Kinds of kernel, those that issue alike instructions side by side."""

BARE, VLLM, SGLANG, TRTLLM = range(4)
"""Whose code launches it: what else is timed (appending to the paged cache, quantising) differs."""


@dataclass(frozen=True)
class Variant:
    """One implementation as it was measured.

    Attributes:
        name: unique; kernel, and the version of its library where that mattered.
        words: what it is recognised by.
        library: one of BARE, VLLM, SGLANG, TRTLLM.
        kinds: kind of kernel on MMA, WGMMA and TCGEN05 hardware.
    """

    name: str
    words: frozenset[str]
    library: int
    kinds: tuple[int, int, int]


def _variant(name: str, words: str, library: int, *kinds: int) -> Variant:
    each = kinds if len(kinds) == 3 else kinds * 3
    return Variant(name, frozenset(words.split()), library, (each[0], each[1], each[2]))


FUSED = (FUSED_MMA, FUSED_WGMMA, FUSED_TCGEN05)
VARIANTS = (
    _variant("flash-attn-2", "bare fa2", BARE, FLASH_2),
    _variant("cudnn9", "bare cudnn", BARE, CUDNN),
    _variant("flash-attn-3", "bare fa3", BARE, FLASH_3),
    _variant("triton-ptx", "bare triton", BARE, TRITON),
    _variant("flash_attention", "sglang fa2", SGLANG, FLASH_2),
    _variant("vllm_flash_attn", "vllm fa2 old", VLLM, FLASH_2),
    _variant("vllm_flash_attn_fa2", "vllm fa2", VLLM, FLASH_2),
    _variant("vllm_vit_flash_attn_fa2", "vllm vit fa2", VLLM, FLASH_2),
    _variant("flashinfer", "sglang flashinfer", SGLANG, FLASH_2, FLASH_2, FUSED_TCGEN05),
    _variant("vllm_flashinfer_fiprefill", "vllm flashinfer fi prefill", VLLM, FLASH_2),
    _variant("vllm_flashinfer_fidecode", "vllm flashinfer fi decode", VLLM, FLASH_2),
    _variant("triton", "sglang triton", SGLANG, TRITON),
    _variant("vllm_triton_attn", "vllm triton", VLLM, TRITON),
    _variant("torch_flow 1.0", "trtllm torchflow old", TRTLLM, *FUSED),
    _variant("torch_flow", "trtllm torchflow", TRTLLM, *FUSED),
    _variant("torch_flow_flashinfer", "trtllm torchflow flashinfer", TRTLLM, *FUSED),
    _variant("fa3", "sglang fa3", SGLANG, FLASH_3),
    _variant("flash_attention_v3", "sglang vit fa3", SGLANG, FLASH_3),
    _variant("vllm_flash_attn_fa3", "vllm fa3", VLLM, FLASH_3),
    _variant("vllm_vit_flash_attn_fa3", "vllm vit fa3", VLLM, FLASH_3),
    _variant("vllm_flash_attn_fa4", "vllm fa4", VLLM, FLASH_4),
    _variant("flash_attention_v4", "sglang vit fa4", SGLANG, FLASH_4),
    _variant("vllm_vit_flash_attn_fa4", "vllm vit fa4", VLLM, FLASH_4),
    _variant("trtllm_mha", "sglang trtllmgen", SGLANG, *FUSED),
    _variant("vllm_flashinfer", "vllm flashinfer", VLLM, FLASH_2, FLASH_2, FUSED_TCGEN05),
    _variant("vllm_flashinfer_trtllmprefill", "vllm flashinfer trtllmgen prefill", VLLM, *FUSED),
    _variant("vllm_flashinfer_trtllmdecode", "vllm flashinfer trtllmgen decode", VLLM, *FUSED),
)
NAMES = tuple(variant.name for variant in VARIANTS)
STOCK_FLASH, STOCK_CUDNN = 0, 1

SPELLINGS: tuple[tuple[str, str], ...] = (
    ("trtllm[-_]?(?:prefill|context)", " trtllmgen prefill "),
    ("trtllm[-_]?(?:decode|gen)", " trtllmgen decode "),
    ("fi[-_]?prefill", " fi prefill "),
    ("fi[-_]?decode", " fi decode "),
    ("trtllm[-_]?(?:mha|fmha)|trtllm_gen", " trtllmgen "),
    ("torch[-_]?flow", " torchflow "),
    ("flash[-_]?(?:attn|attention)[-_]*(?:fa|v)?[-_]?([234])(?![0-9])", r" fa\1 "),
    ("(?<![a-z0-9])fa[-_]?([234])(?![0-9])", r" fa\1 "),
    ("flash[-_]?infer", " flashinfer "),
    ("qkv_contiguous|transformer_?engine|cudnn[0-9.]*", " cudnn "),
    ("triton", " triton "),
    ("(?<![a-z])vit(?![a-z])|vision|encoder", " vit "),
    ("vllm", " vllm "),
    ("sglang", " sglang "),
    ("tensorrt[-_]?llm|trt[-_]?llm", " trtllm "),
)
"""Spellings of the words, read from left to right; what one took is gone for the next."""

WEIGHTS = {
    "fa2": 4.0, "fa3": 4.0, "fa4": 4.0, "triton": 4.0, "cudnn": 4.0, "trtllmgen": 4.0, "torchflow": 4.0,
    "flashinfer": 3.0, "vit": 1.5, "vllm": 2.0, "sglang": 2.0, "trtllm": 2.0, "bare": 0.5, "prefill": 1.0,
    "decode": 1.0, "fi": 1.0, "old": 0.25,
}  # fmt: skip
"""What a shared word is worth: the algorithm first, then whose code calls it."""


def words_of(kernel: str, backend: str) -> frozenset[str]:
    """Known words in a row's two texts; the library's name in `kernel` counts before that in `backend`."""
    text, found = kernel.lower(), []
    for spelling, words in SPELLINGS:
        pattern = re.compile(spelling)
        found += [word for match in pattern.finditer(text) for word in match.expand(words).split()]
        text = pattern.sub(" ", text)
    if "flash" in text and not any(word.startswith("fa") for word in found) and "flashinfer" not in found:
        found.append("fa2")
    libraries = {"vllm", "sglang", "trtllm"}
    if not libraries & set(found):
        found += [name for name in sorted(libraries) if name in backend.lower().replace("tensorrt-", "trt")]
    if not libraries & set(found):
        found.append("bare")
    return frozenset(found)


def class_of(gpu: GpuSpec) -> int:
    """MMA, WGMMA or TCGEN05."""
    return {9: WGMMA, 10: TCGEN05, 11: TCGEN05}.get(gpu.compute_capability[0], MMA)


EXACT = {variant.name: position for position, variant in enumerate(VARIANTS)}


@cache
def nearest(kernel: str, backend: str, hardware: int) -> int:
    """Position in `VARIANTS` of what a row ran."""
    kernel = "" if kernel.lower() in ("nan", "none", "<na>") else kernel
    backend = "" if backend.lower() in ("nan", "none", "<na>") else backend
    if "transformerengine" in backend.lower() or "qkv_contiguous" in kernel:
        return STOCK_FLASH if hardware == MMA else STOCK_CUDNN
    if kernel == "torch_flow" and backend.startswith("trtllm-1.0"):
        return EXACT["torch_flow 1.0"]
    if kernel in EXACT:
        return EXACT[kernel]
    words = words_of(kernel, backend)
    if not any(WEIGHTS[word] >= 3.0 for word in words):
        words |= _usual(words, hardware)
    best, most = 0, -1.0
    for position, variant in enumerate(VARIANTS):
        shared = sum(WEIGHTS[word] for word in words & variant.words)
        apart = sum(WEIGHTS[word] for word in words ^ variant.words)
        score = shared / (shared + 0.5 * apart + 1e-9)
        if score > most + 1e-12:
            best, most = position, score
    return best


def _usual(words: frozenset[str], hardware: int) -> frozenset[str]:
    """What a library takes by itself where the row does not say."""
    if "trtllm" in words:
        return frozenset(("torchflow",))
    if "vllm" in words:
        return frozenset((("fa2",), ("fa3",), ("flashinfer", "trtllmgen"))[hardware])
    if "sglang" in words:
        return frozenset((("flashinfer",), ("fa3",), ("trtllmgen",))[hardware])
    return frozenset(("fa2",) if hardware == MMA else ("cudnn",))


def variants_of_rows(
    kernel: NDArray[np.str_] | None, backend: NDArray[np.str_] | None, gpus: Sequence[GpuSpec], count: int
) -> NDArray[np.int64]:
    """[count] positions in `VARIANTS`."""
    blank = np.full(count, "")
    names = np.asarray(kernel, dtype=str) if kernel is not None else blank
    versions = np.asarray(backend, dtype=str) if backend is not None else blank
    hardware = hardware_of(gpus)
    a, a_of = np.unique(names, return_inverse=True)
    b, b_of = np.unique(versions, return_inverse=True)
    key = (a_of * len(b) + b_of) * 3 + hardware
    distinct, inverse = np.unique(key, return_inverse=True)
    table = [
        nearest(str(a[each // 3 // len(b)]), str(b[each // 3 % len(b)]), int(each % 3)) for each in distinct
    ]
    return np.asarray(table, dtype=np.int64)[inverse]


def hardware_of(gpus: Sequence[GpuSpec]) -> NDArray[np.int64]:
    """[k] of MMA, WGMMA, TCGEN05."""
    known: dict[int, int] = {}
    return np.asarray(
        [known[id(g)] if id(g) in known else known.setdefault(id(g), class_of(g)) for g in gpus],
        dtype=np.int64,
    )


KINDS = np.asarray([variant.kinds for variant in VARIANTS], dtype=np.int64)
LIBRARIES = np.asarray([variant.library for variant in VARIANTS], dtype=np.int64)
