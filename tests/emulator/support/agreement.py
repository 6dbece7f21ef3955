"""Runs a case on the real CPU and on the emulated GPU, with and without values, and says what differs."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from generated_case import Case
from torch import Tensor

TOLERANCES = {torch.bfloat16: 4e-2, torch.float16: 4e-3}
TOLERANCE = 2e-4
"""For values known on both sides: the CPU computed both, but perhaps along another path."""


@dataclass
class Observation:
    """What one run showed.

    Attributes:
        error: stage and type of the exception, if there was one, and its message.
        facts: name → what can be compared word for word.
        tensors: name → tensor whose values may be compared.
    """

    error: tuple[str, str] | None = None
    message: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Disagreement:
    """One difference between CPU and device: which run, what, and both sides."""

    values: str
    aspect: str
    cpu: str
    device: str

    def __str__(self) -> str:
        return f"[{self.values}] {self.aspect}: cpu {self.cpu} | device {self.device}"


def flatten(value: Any, path: str = "out") -> Iterator[tuple[str, Any]]:
    """Leaves of a nested result with their paths."""
    if isinstance(value, dict):
        for key in value:
            yield from flatten(value[key], f"{path}[{key!r}]")
    elif isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        yield f"{path}.kind", type(value).__name__
        for position, item in enumerate(value):
            yield from flatten(item, f"{path}[{position}]")
    else:
        yield path, value


class _Aliases:
    """Which tensor was the first of each storage."""

    def __init__(self) -> None:
        self._first: dict[int, str] = {}

    def of(self, name: str, tensor: Tensor) -> str:
        if tensor.layout != torch.strided or tensor.is_nested:
            return "none"
        return self._first.setdefault(tensor.untyped_storage()._cdata, name)


def describe(name: str, tensor: Tensor, device: str, aliases: _Aliases, into: Observation) -> None:
    """Adds the facts of one tensor."""
    facts = into.facts
    facts[f"{name}.type"] = type(tensor).__name__
    facts[f"{name}.dtype"] = str(tensor.dtype)
    facts[f"{name}.layout"] = str(tensor.layout)
    facts[f"{name}.requires_grad"] = tensor.requires_grad
    facts[f"{name}.leaf"] = tensor.is_leaf
    facts[f"{name}.device"] = "host" if tensor.device.type == "cpu" and device != "cpu" else "device"
    if tensor.is_nested:
        facts[f"{name}.shape"] = str(tuple(tensor.shape)[:1])
        return
    facts[f"{name}.shape"] = tuple(tensor.shape)
    if tensor.layout == torch.strided:
        facts[f"{name}.stride"] = tensor.stride()
        facts[f"{name}.offset"] = tensor.storage_offset()
        facts[f"{name}.bits"] = (tensor.is_conj(), tensor.is_neg())
        facts[f"{name}.alias"] = aliases.of(name, tensor)
    elif tensor.layout == torch.sparse_coo:
        facts[f"{name}.sparse"] = (tensor.sparse_dim(), tensor.dense_dim(), tensor.is_coalesced())
    into.tensors[name] = tensor.detach()


def observe(case: Case, device: str, place: Callable[[Tensor], Tensor]) -> Observation:
    """Run the case once."""
    seen = Observation()
    torch.manual_seed(0)
    stage = "inputs"
    try:
        names = case.namespace(device, place)
        stage = "forward"
        with _autocast(device) if case.autocast else contextlib.nullcontext():
            exec(case.setup, names)
            result = eval(case.code, names)
        if case.backward != "none":
            stage = "backward"
            _differentiate(case, result, names)
        stage = "description"
        _describe_all(case, result, names, device, seen)
    except Exception as error:
        seen = Observation((stage, _error_name(error)), str(error))
    return seen


def _error_name(error: Exception) -> str:
    # torch raises its own subclasses where Python's would do; users catch either by the base's name.
    return type(error).__name__


def _autocast(device: str) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast(device, dtype=torch.bfloat16)


def _differentiate(case: Case, result: Any, names: dict[str, Any]) -> None:
    outputs = [
        leaf
        for _, leaf in flatten(result)
        if isinstance(leaf, Tensor) and leaf.requires_grad and leaf.numel()
    ]
    if not outputs:
        return
    if case.backward == "sum":
        sum((out.abs() if out.is_complex() else out).float().sum() for out in outputs).backward()
    elif case.backward == "dense":
        device = names["D"]
        grads = [torch.ones(out.shape, dtype=out.dtype).mul(0.5).to(device) for out in outputs]
        torch.autograd.backward(outputs, grads)
    else:
        leaves = [names[name] for name, _ in case.inputs if names[name].requires_grad]
        first = torch.autograd.grad(
            sum((out.abs() if out.is_complex() else out).float().square().sum() for out in outputs),
            leaves,
            create_graph=True,
            allow_unused=True,
        )
        again = [grad for grad in first if grad is not None and grad.requires_grad]
        if again:
            sum(grad.abs().float().sum() for grad in again).backward()


def _describe_all(case: Case, result: Any, names: dict[str, Any], device: str, seen: Observation) -> None:
    aliases = _Aliases()
    for name, _ in case.inputs:
        describe(name, names[name], device, aliases, seen)
        seen.facts[f"{name}.version"] = names[name]._version
        if names[name].is_leaf:
            _describe_grad(name, names[name], device, aliases, seen)
    for path, leaf in flatten(result):
        if isinstance(leaf, Tensor):
            describe(path, leaf, device, aliases, seen)
        elif isinstance(leaf, torch.device):
            seen.facts[path] = leaf.type == torch.device(device).type
        elif isinstance(leaf, float):
            seen.tensors[path] = torch.tensor(leaf, dtype=torch.float64)
        else:
            seen.facts[path] = re.sub(r"\bcuda(:0)?\b", "cpu", re.sub(r"\b0x[0-9a-f]+\b", "", str(leaf)))
    layer = names.get("layer")
    if isinstance(layer, torch.nn.Module):
        for name, parameter in layer.named_parameters():
            _describe_grad(f"layer.{name}", parameter, device, aliases, seen)
        for name, buffer in layer.named_buffers():
            describe(f"layer.{name}", buffer, device, aliases, seen)


def _describe_grad(name: str, leaf: Tensor, device: str, aliases: _Aliases, seen: Observation) -> None:
    if leaf.grad is None:
        seen.facts[f"{name}.grad"] = None
    else:
        describe(f"{name}.grad", leaf.grad, device, aliases, seen)


def forgotten(tensor: Tensor) -> Tensor:
    """On the GPU, floating-point numbers unknown there."""
    from emulated_gpu import native

    moved = tensor.to("cuda")
    if moved.is_floating_point() or moved.is_complex():
        native.forget_values(moved)
    return moved


def disagreements(case: Case) -> list[Disagreement]:
    """Everything in which the device differs from the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cpu = observe(case, "cpu", lambda tensor: tensor)
        known = observe(case, "cuda", lambda tensor: tensor.to("cuda"))
        unknown = observe(case, "cuda", forgotten)
        return [
            *_compare(case, "known", cpu, known),
            *_compare(case, "unknown", cpu, unknown),
        ]


def _compare(case: Case, run: str, cpu: Observation, device: Observation) -> list[Disagreement]:
    if cpu.error != device.error:

        def told(seen: Observation) -> str:
            return f"{seen.error}: {seen.message[:300]}" if seen.error else "no error"

        return [Disagreement(run, "error", told(cpu), told(device))]
    found = []
    for name in {**cpu.facts, **device.facts}:
        one, other = cpu.facts.get(name, "absent"), device.facts.get(name, "absent")
        if name.endswith(".stride") and _same_walk(cpu.facts.get(name[:-7] + ".shape"), one, other):
            continue
        if one != other:
            found.append(Disagreement(run, name, str(one), str(other)))
    if run == "known" and case.values and not found:
        found += _compare_values(cpu, device)
    return found


def _same_walk(shape: Any, one: Any, other: Any) -> bool:
    """Strides of dimensions of size 1, and of tensors without elements, lead nowhere."""
    if (
        not all(isinstance(part, tuple) for part in (shape, one, other))
        or len({len(shape), len(one), len(other)}) > 1
    ):
        return False
    if 0 in shape:
        return True
    return all(size == 1 or a == b for size, a, b in zip(shape, one, other, strict=True))


def _compare_values(cpu: Observation, device: Observation) -> list[Disagreement]:
    from emulated_gpu import native

    found = []
    for name, one in cpu.tensors.items():
        other = device.tensors.get(name)
        if other is None or (other.is_cuda and other.layout == torch.strided and not native.is_known(other)):
            continue
        left, right = one.cpu(), other.cpu()
        if left.layout != torch.strided:
            left, right = left.to_dense(), right.to_dense()
        left, right = left.resolve_conj().resolve_neg(), right.resolve_conj().resolve_neg()
        tolerance = TOLERANCES.get(left.dtype, TOLERANCE)
        wide = torch.complex128 if left.is_complex() else torch.float64
        if not torch.allclose(left.to(wide), right.to(wide), rtol=tolerance, atol=tolerance, equal_nan=True):
            found.append(
                Disagreement("known", f"{name}.values", str(left.flatten()[:6]), str(right.flatten()[:6]))
            )
    return found
