"""A script's mistakes are refused on the emulated GPU as CUDA refuses them, with values or without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent / "support"))
from cpu_and_device import Move, plain, without_values
from on_device import on_device

Mistake = Callable[[Move], Any]


def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(*sizes, dtype=dtype)


DOUBLE, LONG = torch.float64, torch.int64
MISTAKES: dict[str, tuple[type[Exception], str, Mistake]] = {
    "add sizes": (RuntimeError, "must match the size|broadcast", lambda m: m(zeros(2)) + m(zeros(3))),
    "mm sizes": (RuntimeError, "multiplied|reduction dim", lambda m: m(zeros(2, 3)) @ m(zeros(2, 3))),
    "mm dtypes": (RuntimeError, "same dtype", lambda m: m(zeros(2, 3)) @ m(zeros(3, 2, dtype=DOUBLE))),
    "bmm dtypes": (RuntimeError, "dtype", lambda m: m(zeros(2, 2, 3)).bmm(m(zeros(2, 3, 2, dtype=DOUBLE)))),
    "linear dtypes": (
        RuntimeError,
        "same dtype",
        lambda m: F.linear(m(zeros(2, 3)), m(zeros(4, 3, dtype=DOUBLE))),
    ),
    "conv channels": (
        RuntimeError,
        "channel",
        lambda m: F.conv2d(m(zeros(1, 4, 8, 8)), m(zeros(2, 3, 3, 3))),
    ),
    "conv dtypes": (
        RuntimeError,
        r"Input type .* and weight type .* should be the same",
        lambda m: F.conv2d(m(zeros(1, 3, 8, 8)), m(zeros(2, 3, 3, 3, dtype=DOUBLE))),
    ),
    "index_select": (RuntimeError, "int32 or int64", lambda m: m(zeros(2)).index_select(0, m(zeros(1)))),
    "gather": (RuntimeError, "int64", lambda m: m(zeros(2)).gather(0, m(zeros(1)))),
    "index_put": (
        RuntimeError,
        "source and destination dtypes match",
        lambda m: m(zeros(3, 3)).index_put_((m(zeros(2, dtype=LONG)),), m(zeros(2, 3, dtype=DOUBLE))),
    ),
    "float mask": (RuntimeError, "boolean", lambda m: m(zeros(3)).masked_fill(m(zeros(3)), 0.0)),
    "targets": (RuntimeError, "Long", lambda m: F.nll_loss(m(zeros(3, 3)), m(zeros(3, dtype=torch.int32)))),
    "batch sizes": (
        ValueError,
        "batch_size",
        lambda m: F.cross_entropy(m(zeros(3, 3)), m(zeros(2, dtype=LONG))),
    ),
    "layer norm": (RuntimeError, "normalized_shape", lambda m: F.layer_norm(m(zeros(3, 3)), (4,))),
    "in-place fraction": (RuntimeError, "can't be cast", lambda m: m(zeros(3, dtype=LONG)).mul_(m(zeros(3)))),
    "in-place division": (RuntimeError, "can't be cast", lambda m: m(zeros(3, dtype=LONG)).div_(2)),
    "in-place growth": (RuntimeError, "broadcast", lambda m: m(zeros(1)).add_(m(zeros(3)))),
    "out dtype": (
        RuntimeError,
        "can't be cast",
        lambda m: torch.add(m(zeros(2)), 1, out=m(zeros(2, dtype=LONG))),
    ),
    "view": (RuntimeError, "view size is not compatible", lambda m: m(zeros(2, 3)).t().view(6)),
    "item": (RuntimeError, "cannot be converted to Scalar", lambda m: m(zeros(2)).item()),
    "truth": (RuntimeError, "ambiguous", lambda m: bool(m(zeros(2)))),
    "leaf": (RuntimeError, "leaf Variable", lambda m: m(zeros(2)).requires_grad_().add_(1)),
    "devices": (RuntimeError, "same device", lambda m: m(zeros(2, 2)) + zeros(2, 2)),
    "devices of mm": (RuntimeError, "same device", lambda m: m(zeros(2, 2)) @ zeros(2, 2)),
    "numpy": (TypeError, "can't convert cuda", lambda m: m(zeros(2)).numpy()),
    "topk": (RuntimeError, "out of range|not in range", lambda m: m(zeros(3)).topk(4)),
    "pool": (RuntimeError, "too small", lambda m: F.max_pool2d(m(zeros(1, 1, 2, 2)), 3)),
    "bool minus": (
        RuntimeError,
        "bool",
        lambda m: m(zeros(3, dtype=torch.bool)) - m(zeros(3, dtype=torch.bool)),
    ),
    "no such GPU": (RuntimeError, "invalid device ordinal", lambda m: m(zeros(1)).to("cuda:7")),
    "sparse": (
        NotImplementedError,
        "sparse",
        lambda m: torch.sparse.mm(m(zeros(2, 2)).to_sparse(), m(zeros(2, 2))),
    ),
}


@on_device
@pytest.mark.parametrize("values", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistake(name: str, values: bool) -> None:
    error, message, mistake = MISTAKES[name]
    with pytest.raises(error, match=message):
        mistake(plain("cuda") if values else without_values)
