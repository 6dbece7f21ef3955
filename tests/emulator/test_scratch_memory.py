"""Memory that kernels take for the time of a call: in the peak, and gone afterwards.

The sizes are written out here from the shapes, by the rules of PyTorch's sources (see
emulator/csrc/kernels/scratch_memory.h).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).parent / "support"))
from on_device import on_device

BATCH, HEADS, LENGTH = 2, 12, 1000


def scratch_bytes(run: Callable[[], object]) -> int:
    """Peak above what is held once `run` has returned, its result too; as requested, before rounding."""
    torch.cuda.reset_peak_memory_stats()
    result = run()
    statistics = torch.cuda.memory_stats()
    del result
    return int(statistics["requested_bytes.all.peak"] - statistics["requested_bytes.all.current"])


@pytest.mark.parametrize(
    ("backend", "width", "padded_rows", "padded_width", "head"),
    [
        ("FLASH_ATTENTION", 64, 1024, 64, 0),
        ("FLASH_ATTENTION", 80, 1024, 96, 0),
        ("EFFICIENT_ATTENTION", 64, 1024, 64, 16),
    ],
)
@on_device
def test_attention_backward_accumulates_in_float32(
    backend: str, width: int, padded_rows: int, padded_width: int, head: int
) -> None:
    shape = (BATCH, HEADS, LENGTH, width)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with sdpa_kernel(getattr(SDPBackend, backend)):
        out = F.scaled_dot_product_attention(q, k, v)
    gradient = torch.empty_like(out)
    found = scratch_bytes(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
    rows = BATCH * HEADS * (padded_rows if backend == "FLASH_ATTENTION" else LENGTH)
    blocks = BATCH * HEADS * padded_rows // 64
    accumulated = 4 * BATCH * HEADS * padded_rows * padded_width + head * blocks
    assert found == 4 * rows + accumulated


@on_device
def test_float32_attention_backward_multiplies_outputs_first() -> None:
    q, k, v = (torch.randn(BATCH, HEADS, 256, 64, device="cuda", requires_grad=True) for _ in range(3))
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        out = F.scaled_dot_product_attention(q, k, v)
    gradient = torch.empty_like(out)
    found = scratch_bytes(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
    rows = BATCH * HEADS * 256
    assert found == 4 * rows * (64 + 1 + 1)


@pytest.mark.parametrize(
    ("count", "padding", "sorts"), [(3072, None, False), (3072, 0, True), (4096, None, True)]
)
@on_device
def test_embedding_backward_sorts_many_indices(count: int, padding: int | None, sorts: bool) -> None:
    table = torch.nn.Embedding(1000, 256, padding_idx=padding, device="cuda")
    rows = table(torch.randint(1000, (count,), device="cuda"))
    gradient = torch.empty_like(rows)
    found = scratch_bytes(lambda: torch.autograd.grad(rows, table.weight, gradient, retain_graph=True))
    pieces = count // 10 + 1000
    assert found == (2 * 8 * count + 3 * 8 * 1000 + (8 + 4 * 256) * pieces if sorts else 0)


@on_device
def test_indexing_backward_sorts() -> None:
    table = torch.randn(1000, 8, device="cuda", requires_grad=True)
    rows = table[torch.randint(1000, (4096,), device="cuda")]
    gradient = torch.empty_like(rows)
    found = scratch_bytes(lambda: torch.autograd.grad(rows, table, gradient, retain_graph=True))
    assert found == (3 * 8 + 16) * 4096


@on_device
def test_scratch_memory_can_run_out() -> None:
    """What would not fit on the GPU does not fit here, although the results would."""
    table = torch.nn.Embedding(4096, 1024, device="cuda")
    rows = table(torch.randint(4096, (4096,), device="cuda"))
    gradient = torch.empty_like(rows)
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 24 * 2**20) / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.autograd.grad(rows, table.weight, gradient)  # 16 MiB, and 17.6 MiB of pieces
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
