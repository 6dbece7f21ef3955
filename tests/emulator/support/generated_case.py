"""A generated case: inputs, a line of PyTorch, and whether gradients are asked for; and how to draw many.

A case is text, so that a failure can be read and typed again. `D` in its code is the device's name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor, nn

SEED = 20261201
"""Of hypothesis: the same cases on every machine and in every run."""
MARGIN = 10
"""Cases asked of hypothesis for each one wanted: it varies one example many times over before it goes on."""

Layout = Literal["contiguous", "transposed", "channels_last", "sliced", "offset", "expanded"]
Values = Literal["normal", "positive", "unit", "definite", "index", "mask"]
Backward = Literal["none", "sum", "dense", "double"]


@dataclass(frozen=True)
class Input:
    """One tensor.

    Attributes:
        shape: its sizes.
        dtype: name in `torch`.
        layout: how it lies in memory; where a layout does not apply to the shape it is contiguous.
        grad: a leaf that needs a gradient (floating-point and complex ones only).
        values: normal; positive; unit: between 0 and 1; definite: symmetric positive; index: below `below`.
        below: bound of an index.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: Layout = "contiguous"
    grad: bool = True
    values: Values = "normal"
    below: int = 1

    def build(self, device: str, place: Callable[[Tensor], Tensor]) -> Tensor:
        """The tensor on `device`: numbers are drawn on the CPU, memory is laid out after `place` moved it."""
        shape = list(self.shape)
        if self.layout == "transposed" and len(shape) > 1:
            shape[-1], shape[-2] = shape[-2], shape[-1]
        elif self.layout == "sliced" and shape:
            shape[-1] = shape[-1] * 2
        elif self.layout == "offset" and shape:
            shape[0] += 1
        elif self.layout == "expanded" and shape:
            shape[0] = 1
        tensor = place(self._numbers(shape)).to(device)
        if self.layout == "transposed" and len(shape) > 1:
            tensor = tensor.transpose(-1, -2)
        elif self.layout == "sliced" and shape:
            tensor = tensor[..., ::2]
        elif self.layout == "offset" and shape:
            tensor = tensor[1:]
        elif self.layout == "expanded" and shape:
            tensor = tensor.expand(self.shape)
        elif self.layout == "channels_last" and len(shape) in (4, 5):
            formats = {4: torch.channels_last, 5: torch.channels_last_3d}
            tensor = tensor.contiguous(memory_format=formats[len(shape)])
        tensor = tensor.detach()
        differentiable = tensor.is_floating_point() or tensor.is_complex()
        return tensor.requires_grad_(self.grad and differentiable)

    def _numbers(self, shape: list[int]) -> Tensor:
        dtype = getattr(torch, self.dtype)
        if self.values == "index":
            return torch.randint(0, max(self.below, 1), shape).to(dtype)
        if self.values == "mask":
            return torch.rand(shape) > 0.5
        numbers = torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32)
        if self.values == "positive":
            numbers = numbers.abs() + 0.5
        elif self.values == "unit":
            numbers = torch.rand(shape)
        elif self.values == "definite":
            numbers = numbers @ numbers.mH + 3 * torch.eye(shape[-1])
        return numbers.to(dtype)


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        code: an expression over the inputs; its value is compared.
        inputs: named tensors.
        setup: statements before it; a module called `layer` has its gradients and buffers compared too.
        backward: none; sum: from the sum of all outputs; dense: with random output gradients; double: a
            gradient of the gradients.
        autocast: under bfloat16 autocast.
        values: known values have to agree (not so for random numbers).
    """

    code: str
    inputs: tuple[tuple[str, Input], ...] = ()
    setup: str = ""
    backward: Backward = "none"
    autocast: bool = False
    values: bool = True

    def __str__(self) -> str:
        flags = [f"backward={self.backward}"] if self.backward != "none" else []
        flags += ["autocast"] if self.autocast else []
        named = [f"{name}={_shown(given)}" for name, given in self.inputs]
        setup = f"{self.setup.strip()}; " if self.setup else ""
        return f"{setup}{self.code}  [{', '.join(named + flags)}]"

    def namespace(self, device: str, place: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """The names that the code sees."""
        tensors = {name: given.build(device, place) for name, given in self.inputs}
        return {"torch": torch, "F": F, "nn": nn, "D": device, **tensors}


def _shown(given: Input) -> str:
    parts = [str(list(given.shape)), given.dtype]
    parts += [given.layout] if given.layout != "contiguous" else []
    parts += ["grad"] if given.grad else []
    parts += [f"{given.values}<{given.below}" if given.values == "index" else given.values]
    return " ".join(parts)


def draw(strategy: st.SearchStrategy[Case], count: int) -> list[Case]:
    """The first `count` cases of a strategy that differ in more than sizes (fewer if it has no more)."""
    drawn: dict[tuple[Any, ...], Case] = {}

    @seed(SEED)
    @settings(
        max_examples=MARGIN * count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def note(case: Case) -> None:
        kinds = tuple((given.dtype, len(given.shape)) for _, given in case.inputs[:1])
        drawn.setdefault((case.setup, case.code, kinds), case)

    note()
    return list(drawn.values())[:count]


LAYOUTS: tuple[Layout, ...] = ("contiguous", "transposed", "sliced", "offset")


def layouts(dims: int) -> st.SearchStrategy[Layout]:
    """Layouts that a tensor of so many dimensions can have, contiguous more often than each other."""
    others: tuple[Layout, ...] = LAYOUTS if dims > 1 else ("contiguous", "sliced", "offset")
    if dims in (4, 5):
        others = (*others, "channels_last", "channels_last")
    return st.sampled_from(("contiguous", "contiguous", *others))


def sizes(dims: int, *, least: int = 0, most: int = 7) -> st.SearchStrategy[tuple[int, ...]]:
    """Small sizes, odd ones among them; 0 once in a while if `least` allows."""
    positive = st.integers(max(least, 1), most)
    one = st.one_of(positive, positive, positive, st.integers(least, most))
    return st.tuples(*[one] * dims)


@st.composite
def tensors(
    draw_from: st.DrawFn,
    shape: tuple[int, ...],
    dtypes: tuple[str, ...] = ("float32", "float32", "float64", "bfloat16"),
    values: Values = "normal",
    grad: bool | None = None,
) -> Input:
    """A floating-point tensor of a given shape in some layout."""
    return Input(
        shape,
        draw_from(st.sampled_from(dtypes)),
        draw_from(layouts(len(shape))),
        draw_from(st.booleans()) if grad is None else grad,
        values,
    )


def index(shape: tuple[int, ...], below: int) -> Input:
    """Integers from 0 to below - 1."""
    return Input(shape, "int64", grad=False, values="index", below=below)


def backwards() -> st.SearchStrategy[Backward]:
    """Whether a gradient is asked for, and from what."""
    return st.sampled_from(("none", "sum", "dense", "dense"))
