"""The same call on the real CPU and on the emulated GPU: do shapes, strides, aliases and errors agree?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

TOLERANCES: dict[torch.dtype, dict[str, float]] = {
    torch.float32: {"rtol": 1e-5, "atol": 2e-5},
    torch.complex64: {"rtol": 1e-5, "atol": 2e-5},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2},
}
"""Where the device takes another way through the same CPU kernels; else assert_close's own."""


@dataclass(frozen=True)
class Difference:
    """One way in which two outcomes differ.

    Attributes:
        kind: exception, structure, layout, shape, dtype, device, stride, alias, autograd or value.
        where: which tensor or result.
        cpu: what the CPU gave.
        device: what the emulated GPU gave.
    """

    kind: str
    where: str
    cpu: str
    device: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.where}: cpu {self.cpu}, device {self.device}"


@dataclass(frozen=True)
class Outcome:
    """What a call gave: a result, or an exception.

    Attributes:
        inputs: the tensors that went in, flat; results may alias them.
    """

    result: Any
    error: Exception | None
    inputs: tuple[Tensor, ...]


def run(call: Callable[[], Any], inputs: Any) -> Outcome:
    """Call and keep what came of it; an exception is an outcome like another."""
    flat = tuple(tensors_in(inputs))
    try:
        return Outcome(call(), None, flat)
    except Exception as error:
        return Outcome(None, error, flat)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors of a nested result, in order."""
    for leaf in tree_flatten(value)[0]:
        if isinstance(leaf, Tensor):
            yield leaf


def compare(cpu: Outcome, device: Outcome, values: bool = True) -> list[Difference]:
    """All differences; with `values`, small known results have to be equal as well."""
    if cpu.error is not None or device.error is not None:
        return _compare_errors(cpu.error, device.error)
    cpu_leaves, cpu_form = tree_flatten(cpu.result)
    device_leaves, device_form = tree_flatten(device.result)
    if cpu_form != device_form:
        return [Difference("structure", "result", str(cpu_form), str(device_form))]
    differences = []
    for position, (one, other) in enumerate(zip(cpu_leaves, device_leaves, strict=True)):
        where = "result" if len(cpu_leaves) == 1 else f"result {position}"
        differences += compare_leaves(where, one, other, values)
    return differences or _compare_aliases(cpu, device)


def _compare_errors(cpu: Exception | None, device: Exception | None) -> list[Difference]:
    if type(cpu) is type(device):
        return []
    return [Difference("exception", "call", _told(cpu), _told(device))]


def _told(error: Exception | None) -> str:
    if error is None:
        return "none"
    return f"{type(error).__name__}({str(error).splitlines()[0][:200] if str(error) else ''})"


def compare_leaves(where: str, cpu: Any, device: Any, values: bool = True) -> list[Difference]:
    """Two results that stand in the same place."""
    if not isinstance(cpu, Tensor) or not isinstance(device, Tensor):
        return _compare_plain(where, cpu, device, values)
    facts: list[tuple[str, Any, Any]] = [
        ("shape", tuple(cpu.shape), tuple(device.shape)),
        ("dtype", cpu.dtype, device.dtype),
        ("layout", cpu.layout, device.layout),
        ("autograd", cpu.requires_grad, device.requires_grad),
        ("autograd", (cpu.is_conj(), cpu.is_neg()), (device.is_conj(), device.is_neg())),
    ]
    differences = [
        Difference(kind, where, str(one), str(other)) for kind, one, other in facts if one != other
    ]
    if differences:
        return differences
    if cpu.device.type == "cpu" and device.device.type not in ("cuda", "cpu"):
        return [Difference("device", where, str(cpu.device), str(device.device))]
    if (
        cpu.layout == torch.strided
        and not cpu.is_nested
        and significant_strides(cpu) != significant_strides(device)
    ):
        return [Difference("stride", where, f"{tuple(cpu.shape)} {cpu.stride()}", str(device.stride()))]
    return _compare_values(where, cpu, device) if values else []


def significant_strides(tensor: Tensor) -> tuple[int, ...] | None:
    """The strides that say where an element lies; None for an empty tensor."""
    if tensor.numel() == 0:
        return None
    return tuple(step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def _compare_plain(where: str, cpu: Any, device: Any, values: bool) -> list[Difference]:
    if isinstance(cpu, Tensor) or isinstance(device, Tensor) or type(cpu) is not type(device):
        return [Difference("structure", where, type(cpu).__name__, type(device).__name__)]
    if isinstance(cpu, torch.device):
        return []
    same = cpu == device or (cpu != cpu and device != device)
    if isinstance(cpu, float) and not same:
        same = abs(cpu - device) <= 1e-5 * max(abs(cpu), abs(device))
    return [] if same or not values else [Difference("value", where, repr(cpu)[:80], repr(device)[:80])]


def _compare_values(where: str, cpu: Tensor, device: Tensor) -> list[Difference]:
    from emulated_gpu import native

    if device.layout != torch.strided or device.is_nested or not native.is_known(device.detach()):
        return []
    try:
        torch.testing.assert_close(
            device.detach().cpu(), cpu.detach().cpu(), equal_nan=True, **TOLERANCES.get(cpu.dtype, {})
        )
    except AssertionError as error:
        return [Difference("value", where, "its own", str(error).replace("\n", " ")[:200])]
    return []


def _compare_aliases(cpu: Outcome, device: Outcome) -> list[Difference]:
    one, other = _aliases(cpu), _aliases(device)
    return [] if one == other else [Difference("alias", "results", str(one), str(other))]


def _aliases(outcome: Outcome) -> list[tuple[Any, ...]]:
    """For each result: the inputs it is, those whose memory it shares (where), earlier results likewise."""
    results = list(tensors_in(outcome.result))
    found = []
    for position, result in enumerate(results):
        same = tuple(i for i, tensor in enumerate(outcome.inputs) if tensor is result)
        shared = tuple(i for i, tensor in enumerate(outcome.inputs) if shares_memory(tensor, result))
        siblings = tuple(i for i, tensor in enumerate(results[:position]) if shares_memory(tensor, result))
        found.append(
            (
                ("is", same),
                ("shares", shared),
                ("offset", result.storage_offset() if shared or siblings else 0),
                ("shares results", siblings),
                ("view", result._is_view()),
            )
        )
    return found


def shares_memory(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one storage of more than no bytes."""
    if one.layout != torch.strided or other.layout != torch.strided or one.is_nested or other.is_nested:
        return one is other
    left, right = one.untyped_storage(), other.untyped_storage()
    return left._cdata == right._cdata and left.nbytes() > 0
