"""Operators on small device tensors give what eager CPU gives, bit for bit, whatever their layout."""

# ruff: noqa: ARG005 - operators of a list take the same arguments
from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent / "support"))
from on_device import on_device

FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ANY = (*FLOATING, torch.int64, torch.int32, torch.uint8, torch.bool)
UNARY: tuple[Callable[[Tensor], Any], ...] = (
    torch.abs,
    torch.neg,
    torch.exp,
    torch.sigmoid,
    torch.tanh,
    torch.sqrt,
    torch.relu,
    torch.floor,
    torch.isnan,
    torch.isfinite,
    torch.logical_not,
    torch.sum,
    torch.mean,
    torch.prod,
    torch.amax,
    torch.argmax,
    torch.any,
    torch.nonzero,
    torch.clone,
    lambda x: x.sum(-1),
    lambda x: x.cumsum(0),
    lambda x: x.softmax(-1),
    lambda x: x.sort(-1),
    lambda x: x.max(0),
    lambda x: x.var(),
    lambda x: x.flip(0),
    lambda x: x.tril(),
    lambda x: x.to(torch.float32),
    lambda x: x.contiguous(),
    lambda x: x.t() @ x,
    lambda x: x.unsqueeze(0).expand(2, *x.shape),
    lambda x: x[x > 0],
    lambda x: x.reshape(-1)[::2],
    lambda x: torch.cat([x, x]),
)
BINARY: tuple[Callable[[Tensor, Tensor], Any], ...] = (
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
    torch.eq,
    torch.lt,
    torch.maximum,
    torch.logical_and,
    torch.where,  # replaced below: the condition comes first
    lambda x, y: torch.lerp(x, y, 0.25),
    lambda x, y: torch.addcmul(x, x, y, value=2),
    lambda x, y: x @ y.t(),
    lambda x, y: torch.stack([x, y]),
)
IN_PLACE: tuple[Callable[[Tensor, Tensor], Any], ...] = (
    lambda x, y: x.add_(y, alpha=2),
    lambda x, y: x.mul_(y),
    lambda x, y: x.copy_(y),
    lambda x, y: x.fill_(3),
    lambda x, y: x.zero_(),
    lambda x, y: x.masked_fill_(y > 0, 1),
    lambda x, y: x.index_fill_(0, torch.tensor([0], device=x.device), 1),
    lambda x, y: x.clamp_(0, 1),
    lambda x, y: x.t().add_(y.t()),
    lambda x, y: x[:, :1].mul_(y[:, :1]),
    lambda x, y: x.__setitem__(y > 0, 0),
    lambda x, y: x.add_(x),
)
EXAMPLES = 60


@dataclass(frozen=True)
class Made:
    """A tensor and the storage it is a view of."""

    base: Tensor
    view: Tensor

    def on_device(self) -> Made:
        base = self.base.to("cuda")
        return Made(base, base.as_strided(self.view.shape, self.view.stride(), self.view.storage_offset()))


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...], shape: tuple[int, int] | None = None) -> Made:
    """A matrix of small numbers, possibly transposed, with steps, or beginning inside its storage."""
    dtype = draw(st.sampled_from(dtypes))
    rows, columns = shape or (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    layout = draw(st.sampled_from(["plain", "transposed", "stepped", "inner"]))
    numbers = draw(st.lists(st.integers(-3, 4), min_size=64, max_size=64))
    base = (
        torch.tensor(numbers).abs().to(dtype) if dtype in (torch.uint8, torch.bool) else torch.tensor(numbers)
    )
    base = (base / 2).to(dtype) if dtype in FLOATING else base.to(dtype)
    strides, offset = {
        "plain": ((columns, 1), 0),
        "transposed": ((1, rows), 0),
        "stepped": ((2 * columns, 2), 1),
        "inner": ((columns + 1, 1), 5),
    }[layout]
    return Made(base, base.as_strided((rows, columns), strides, offset))


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RuntimeError, IndexError, NotImplementedError, TypeError, AttributeError) as error:
        return type(error)


def check_same(on_cpu: Any, on_gpu: Any) -> None:
    if isinstance(on_cpu, tuple):
        for one, other in zip(on_cpu, on_gpu, strict=True):
            check_same(one, other)
    elif isinstance(on_cpu, Tensor):
        assert isinstance(on_gpu, Tensor), on_gpu
        assert (on_gpu.shape, on_gpu.dtype) == (on_cpu.shape, on_cpu.dtype)
        assert on_gpu.device.type == "cuda"
        assert torch.equal(bits(on_gpu.cpu()), bits(on_cpu)), (on_cpu, on_gpu)
    elif isinstance(on_cpu, type):
        # A kernel the CPU lacks may exist on the GPU; what CUDA refuses as well is tested by name.
        assert on_gpu is on_cpu or isinstance(on_gpu, Tensor | tuple)


def bits(tensor: Tensor) -> Tensor:
    return torch.cat([tensor.reshape(-1)]).view(torch.uint8)


quick = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@on_device
def test_unary_operators() -> None:
    @quick
    @given(st.sampled_from(UNARY), tensors(ANY))
    def check(operator: Callable[[Tensor], Any], made: Made) -> None:
        device = made.on_device()
        check_same(outcome(lambda: operator(made.view)), outcome(lambda: operator(device.view)))

    check()


@on_device
def test_binary_operators_promote_as_on_the_host() -> None:
    @quick
    @given(st.data(), st.sampled_from(BINARY))
    def check(data: st.DataObject, operator: Callable[[Tensor, Tensor], Any]) -> None:
        shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
        one, other = data.draw(tensors(ANY, shape)), data.draw(tensors(ANY, shape))
        if operator is torch.where:
            operator = lambda x, y: torch.where(x > 0, x, y)  # noqa: E731
        device_one, device_other = one.on_device(), other.on_device()
        number = data.draw(st.sampled_from([None, 2, 0.5, True]))
        right_cpu: Any = other.view if number is None else number
        right_gpu: Any = device_other.view if number is None else number
        check_same(
            outcome(lambda: operator(one.view, right_cpu)),
            outcome(lambda: operator(device_one.view, right_gpu)),
        )

    check()


@on_device
def test_in_place_operators_write_through_views() -> None:
    @quick
    @given(st.data(), st.sampled_from(IN_PLACE))
    def check(data: st.DataObject, operator: Callable[[Tensor, Tensor], Any]) -> None:
        shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
        one, other = data.draw(tensors(ANY, shape)), data.draw(tensors(ANY, shape))
        device_one, device_other = one.on_device(), other.on_device()
        cpu = outcome(lambda: operator(one.view, other.view))
        gpu = outcome(lambda: operator(device_one.view, device_other.view))
        if isinstance(cpu, type):
            assert gpu is cpu
        else:
            check_same(one.base, device_one.base)

    check()


@on_device
def test_out_arguments_are_resized_and_filled() -> None:
    @quick
    @given(st.data())
    def check(data: st.DataObject) -> None:
        shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))
        one, other = (data.draw(tensors((torch.float32,), shape)) for _ in range(2))
        device_one, device_other = one.on_device(), other.on_device()
        operator = data.draw(st.sampled_from([torch.add, torch.mul, torch.maximum, torch.true_divide]))
        size = data.draw(st.sampled_from([0, 1, 40]))
        results = []
        for left, right, device in ((one, other, "cpu"), (device_one, device_other, "cuda")):
            out = torch.zeros(size, device=device)
            view = out[: left.view.numel()].view(left.view.shape) if size == 40 else out
            if size == 1 and left.view.numel() != 1:
                view = out[:0]
            operator(left.view, right.view, out=view)
            results += [view, out] if size == 40 else [view]
        half = len(results) // 2
        for cpu, gpu in zip(results[:half], results[half:], strict=True):
            check_same(cpu, gpu)

    check()


@on_device
def test_indexing_with_tensors() -> None:
    @quick
    @given(st.data())
    def check(data: st.DataObject) -> None:
        made = data.draw(tensors(ANY, (4, 4)))
        device = made.on_device()
        rows = torch.tensor(data.draw(st.lists(st.integers(-4, 3), min_size=1, max_size=4)))
        columns = rows.flip(0)
        for read in (
            lambda x, i, j: x[i],
            lambda x, i, j: x[:, i],
            lambda x, i, j: x[i, j],
            lambda x, i, j: x.index_select(1, i % 4),
            lambda x, i, j: x.gather(1, (i % 4)[None].expand(4, -1)),
            lambda x, i, j: x.take(i % 16),
            lambda x, i, j: x.clone().index_put_((i, j), x[0, 0]),
            lambda x, i, j: x.clone().scatter_(0, (i % 4)[None], x[:1, : len(i)]),
            lambda x, i, j: x[x != x[0, 0]],
        ):
            cpu = outcome(lambda read=read: read(made.view, rows, columns))
            gpu = outcome(lambda read=read: read(device.view, rows.cuda(), columns.cuda()))
            check_same(cpu, gpu)

    check()
