"""How many samples and tokens one forward of the root module gets, guessed from its inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

_NESTING_LIMIT = 4
"""The arguments, and two levels within each: batches are tensors, lists or dictionaries of them, or
lists of dictionaries."""


def infer_batch(args: Any, kwargs: Any) -> tuple[int, int]:
    """Samples and tokens of one forward.

    The first tensor with at least one dimension decides: integers of two dimensions are token
    ids, [samples, tokens a sample]; anything else has its samples in the first dimension.

    Args:
        args: positional arguments of the root module's forward.
        kwargs: its keyword arguments.

    Returns:
        (samples, tokens), 0 where it cannot be inferred.
    """
    for tensor in _tensors((args, kwargs), _NESTING_LIMIT):
        if tensor.dim() == 0:
            continue
        samples = int(tensor.shape[0])
        is_token_ids = (
            tensor.dim() == 2
            and not tensor.dtype.is_floating_point
            and not tensor.dtype.is_complex
            and tensor.dtype != torch.bool
        )
        return samples, samples * int(tensor.shape[1]) if is_token_ids else 0
    return 0, 0


def batch_metadata(samples: int, tokens: int, module: str) -> str:
    """The metadata of `MARK_BATCH`."""
    return json.dumps({"args": {"samples": samples, "tokens": tokens, "module": module}, "out": []})


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth > 0 and isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item, depth - 1)
    elif depth > 0 and isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item, depth - 1)
