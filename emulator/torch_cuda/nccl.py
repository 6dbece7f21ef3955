"""`torch.cuda.nccl`: the version, and collectives of one process over its own GPUs.

The collectives are made of copies between GPUs and element-wise operators, so a trace shows those
instead of NCCL's kernels. `torch.nn.DataParallel` reduces its gradients with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from maya.emulator.torch_cuda.device import EmulatedDevices

UNIQUE_ID_BYTES = 128
"""NCCL_UNIQUE_ID_BYTES of nccl.h."""
REDUCTIONS: tuple[Callable[[Any, Any], Any], ...] = (
    torch.Tensor.add_,
    torch.Tensor.mul_,
    lambda into, other: into.copy_(torch.maximum(into, other)),
    lambda into, other: into.copy_(torch.minimum(into, other)),
)
"""By ncclRedOp_t: sum, product, maximum, minimum."""


def reduce(inputs: Sequence[Any], output: Any, root: int, op: int, *_: Any) -> None:
    """Combines `inputs`, one per GPU, into `output` on the GPU of `inputs[root]`."""
    if output is not inputs[root]:
        output.copy_(inputs[root])
    for index, tensor in enumerate(inputs):
        if index != root:
            REDUCTIONS[op](output, tensor.to(output.device, non_blocking=True))


def all_reduce(inputs: Sequence[Any], outputs: Sequence[Any], op: int, *_: Any) -> None:
    first = torch.empty_like(inputs[0])
    reduce(inputs, first, 0, op)
    for output in outputs:
        output.copy_(first, non_blocking=True)


def broadcast(inputs: Sequence[Any], root: int, *_: Any) -> None:
    for index, tensor in enumerate(inputs):
        if index != root:
            tensor.copy_(inputs[root], non_blocking=True)


def all_gather(inputs: Sequence[Any], outputs: Sequence[Any], *_: Any) -> None:
    """Each output holds all inputs one after the other."""
    for output in outputs:
        chunks = output.view(-1).split([tensor.numel() for tensor in inputs])
        for chunk, tensor in zip(chunks, inputs, strict=True):
            chunk.copy_(tensor.reshape(-1), non_blocking=True)


def reduce_scatter(inputs: Sequence[Any], outputs: Sequence[Any], op: int, *_: Any) -> None:
    """Output number i gets part i of the combined inputs."""
    combined = torch.empty_like(inputs[0])
    reduce(inputs, combined, 0, op)
    chunks = combined.view(-1).split([output.numel() for output in outputs])
    for output, chunk in zip(outputs, chunks, strict=True):
        output.view(-1).copy_(chunk, non_blocking=True)


def init_rank(num_ranks: int, _unique_id: bytes, rank: int) -> Any:
    raise RuntimeError(
        f"Maya's emulated CUDA device has no raw NCCL communicators (torch.cuda.nccl.init_rank, rank {rank} "
        f"of {num_ranks}); use torch.distributed"
    )


def names(devices: EmulatedDevices, *, cuda_build: bool) -> dict[str, Any]:
    """The `torch._C` attributes about NCCL; a CUDA build knows its own version."""
    major, minor, patch = devices.driver.nccl
    found: dict[str, Any] = {
        "_nccl_unique_id": lambda: os.urandom(UNIQUE_ID_BYTES),
        "_nccl_init_rank": init_rank,
        "_nccl_reduce": reduce,
        "_nccl_all_reduce": all_reduce,
        "_nccl_broadcast": broadcast,
        "_nccl_all_gather": all_gather,
        "_nccl_reduce_scatter": reduce_scatter,
    }
    if not cuda_build:
        found["_nccl_version"] = lambda: major << 32 | minor << 16 | patch
        found["_nccl_version_suffix"] = lambda: b""
    return found
