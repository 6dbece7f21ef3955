"""What the tests of values share: tensors without values, models, and a policy that listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

DEVICE = "cuda"
BIG = 70_000
"""Elements of a float32 tensor whose values are not followed."""


def backend() -> Any:
    from emulated_gpu import native

    return native


def unknown(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A small tensor as an operator without values would have left it."""
    tensor = torch.zeros(*shape, dtype=dtype, device=DEVICE)
    backend().forget_values(tensor, "aten::mean")
    return tensor


def state(tensor: Tensor) -> str:
    answer: str = backend().value_state(tensor)
    return answer


@contextmanager
def policy(answer: Callable[[str, str, str, int], float]) -> Iterator[list[tuple[str, str, str, int]]]:
    """Every question asked of the value policy while open."""
    asked: list[tuple[str, str, str, int]] = []

    def ask(kind: str, producer: str, dtype: str, numel: int, reads: int) -> float:
        del reads
        asked.append((kind, producer, dtype, numel))
        return answer(kind, producer, dtype, numel)

    backend().set_value_policy(ask)
    try:
        yield asked
    finally:
        backend().set_value_policy(None)


def small_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(DEVICE)


def big_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(DEVICE)
