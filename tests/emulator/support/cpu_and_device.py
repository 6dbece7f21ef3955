"""Runs the same code on the real CPU and on the emulated GPU and compares what comes out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Move = Callable[[Tensor], Tensor]


def plain(device: str) -> Move:
    """Moves a tensor to a device."""
    return lambda tensor: tensor.to(device)


def without_values(tensor: Tensor) -> Tensor:
    """On the GPU, and floating-point numbers unknown there: shapes come from meta kernels alone."""
    from emulated_gpu import native

    moved = tensor.to("cuda")
    if moved.is_floating_point():
        native.forget_values(moved)
    return moved


def tensors_in(result: Any) -> list[Tensor]:
    """Every tensor of a nested result, in order."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [tensor for item in result for tensor in tensors_in(item)]
    return []


def differentiate(result: Any) -> None:
    """A backward pass from everything that needs a gradient."""
    outputs = [t for t in tensors_in(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    if outputs:
        sum((t.abs() if t.is_complex() else t).float().sum() for t in outputs).backward()


def train_step(layer: nn.Module, inputs: tuple[Any, ...], move: Move) -> list[Any]:
    """Output, gradients of parameters and inputs, and buffers after one step of `layer`."""
    layer = layer.to("cpu" if move(torch.zeros(1)).device.type == "cpu" else "cuda")
    moved = [move(x) if isinstance(x, Tensor) else x for x in inputs]
    leaves = [x for x in moved if isinstance(x, Tensor) and x.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_()
    output = layer(*moved)
    differentiate(tensors_in(output)[0])
    return [output, [p.grad for p in layer.parameters()], [x.grad for x in leaves], list(layer.buffers())]


def described(tensor: Tensor, *, strides: bool) -> tuple[Any, ...]:
    layout = tensor.stride() if strides and tensor.layout == torch.strided else None
    return tuple(tensor.shape), layout, tensor.dtype, tensor.requires_grad


def compare(run: Callable[[Move], Any], *, strides: bool = True, values: bool = True) -> None:
    """Run on CPU, on the GPU with values and without: equal shapes, dtypes, and values where known."""
    from emulated_gpu import native

    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for move in (plain("cpu"), plain("cuda"), without_values):
            torch.manual_seed(0)
            results.append(tensors_in(run(move)))
    cpu, gpu, unknown = results
    assert len(cpu) == len(gpu) == len(unknown)
    for index, (one, other, third) in enumerate(zip(cpu, gpu, unknown, strict=True)):
        assert described(one, strides=strides) == described(other, strides=strides), index
        assert described(other, strides=True) == described(third, strides=True), index
        if values and other.is_cuda and native.is_known(other):
            left, right = (t.detach().cpu() for t in (other, one))
            if left.is_floating_point():
                left, right = left.double(), right.double()
            torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6, equal_nan=True)
