"""Who issued an operation: its module, phase and forward node, its source line, its graph."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from maya.traces import Phase

sys.path.insert(0, str(Path(__file__).parent / "support"))
from on_device import on_device
from records import Records, recorded


def backend() -> Any:
    from emulated_gpu import native

    return native


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(512, 512)
        self.norm = nn.LayerNorm(512)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.inner(x)).relu()


def follow(model: nn.Module) -> None:
    """Tell the recorder about modules as the script follower does."""
    native = backend()
    for name, module in model.named_modules():
        index = native.module_id(f"Model.{name}".rstrip("."))
        module.register_forward_pre_hook(lambda *_, index=index: native.enter_module(index))
        # Checkpointing ends a recomputation early, by an exception out of the module.
        module.register_forward_hook(lambda *_: native.leave_module(), always_call=True)
        for parameter in module.parameters(recurse=False):
            native.bind_parameter(parameter, index)


@on_device
def test_modules_phases_and_sequence_numbers() -> None:
    model = nn.Sequential(Block(), Block()).to("cuda")
    follow(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(256, 512, device="cuda")

    def step() -> None:
        for _ in range(2):  # the second adds to gradients that are there
            model(x).mean().backward()
        before = backend().set_phase(Phase.OPTIMIZER)
        optimizer.step()
        backend().set_phase(before)

    records = recorded(step)
    forward = records.named("aten::addmm")
    assert [records.module(row) for row in forward] == ["Model.0.inner", "Model.1.inner"] * 2
    assert {row["phase"] for row in forward} == {Phase.FORWARD}
    assert all(row["wraps_autograd"] for row in forward)
    backward = [row for row in records.kernels() if row["phase"] == Phase.BACKWARD]
    assert {row["host_thread"] for row in backward} == {backward[0]["host_thread"]}
    assert backward[0]["host_thread"] != forward[0]["host_thread"]
    products = [row for row in backward if records.name(row) == "aten::mm"]
    # Weight and input gradients of each layer, last layer first; the first needs none for its input.
    assert [records.module(row) for row in products] == (["Model.1.inner"] * 2 + ["Model.0.inner"]) * 2
    assert {products[0]["sequence"], products[1]["sequence"]} == {forward[1]["sequence"]}
    assert products[2]["sequence"] == forward[0]["sequence"]
    norms = records.named("aten::native_layer_norm_backward")
    assert [records.module(row) for row in norms] == ["Model.1.norm", "Model.0.norm"] * 2
    accumulated = [row for row in backward if records.name(row) == "aten::add_.Tensor"]
    assert {records.module(row) for row in accumulated} == {
        f"Model.{block}.{layer}" for block in (0, 1) for layer in ("inner", "norm")
    }
    attributed = sum(row["module"] >= 0 for row in backward)
    assert attributed >= len(backward) - 4  # the mean of the loss is no module's, twice forth and back
    optimizing = [row for row in records.kernels() if row["phase"] == Phase.OPTIMIZER]
    assert {records.name(row) for row in optimizing} == {"aten::_foreach_add_.List"}


@on_device
@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_is_told_from_forward(reentrant: bool) -> None:
    model = nn.Sequential(Block(), Block()).to("cuda")
    follow(model)
    x = torch.randn(256, 512, device="cuda", requires_grad=True)

    def step() -> None:
        y = x
        for block in model:
            y = checkpoint(block, y, use_reentrant=reentrant)
        y.mean().backward()

    records = recorded(step)
    products = records.named("aten::addmm")
    assert [Phase(row["phase"]) for row in products] == [Phase.FORWARD] * 2 + [Phase.RECOMPUTE] * 2
    assert [records.module(row) for row in products] == [
        *("Model.0.inner", "Model.1.inner"),
        *("Model.1.inner", "Model.0.inner"),
    ]
    gradients = records.named("aten::native_layer_norm_backward")
    assert [records.module(row) for row in gradients] == ["Model.1.norm", "Model.0.norm"]
    assert {row["phase"] for row in gradients} == {Phase.BACKWARD}


@on_device
def test_source_lines_are_the_users() -> None:
    model = nn.Linear(512, 512).to("cuda")
    x = torch.randn(256, 512, device="cuda")
    here = sys._getframe().f_lineno

    def step() -> None:
        y = model(x)
        z = torch.nn.functional.gelu(y)
        z.sum().backward()

    records = recorded(step)
    lines = {
        records.name(row): records.line(row) for row in records.kernels() if row["phase"] != Phase.BACKWARD
    }
    assert lines["aten::addmm"] == f"{__file__}:{here + 3}"
    assert lines["aten::gelu"] == f"{__file__}:{here + 4}"
    assert lines["aten::sum.dim_IntList"] == f"{__file__}:{here + 5}"


@on_device
def test_a_replayed_graph_records_what_was_captured() -> None:
    x = torch.zeros(300, 300, device="cuda")
    graph = torch.cuda.CUDAGraph()
    captured: list[Records] = [recorded(lambda: capture(graph, x))]
    again = recorded(lambda: [graph.replay() for _ in range(3)])
    inside = [captured[0].name(row) for row in captured[0].rows if row["graph"] >= 0]
    assert "aten::mm" in inside
    assert [again.name(row) for row in again.rows] == inside * 3
    assert len(set(again.rows["graph"])) == 1
    assert len(set(again.rows["id"])) == len(again.rows)


def capture(graph: torch.cuda.CUDAGraph, x: Tensor) -> None:
    with torch.cuda.graph(graph):
        (x @ x).relu_()


@on_device
def test_nothing_is_recorded_unless_asked() -> None:
    native = backend()
    native.drain()
    torch.ones(3, device="cuda").add_(1)
    assert native.pending() == 0
    assert native.mark("maya::batch", '{"args":{},"out":[]}') == -1
