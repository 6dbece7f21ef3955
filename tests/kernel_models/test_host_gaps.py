"""Host time between operations, by class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from maya.hardware import default_host
from maya.kernel_models import host_gaps
from maya.kernel_models.host import AUTOGRAD_NODE_NS, MODULE_CALL_NS, PER_TENSOR_NS, reference_costs
from maya.traces.operations import Kind, Phase

HOST = default_host()


def gaps(recorder: Any, scale: float = 1.0) -> list[int]:
    operations, tables = recorder.finish()
    result = host_gaps(operations, tables, replace(HOST, dispatch_scale=scale))
    assert len(result) == operations.count
    assert str(result.dtype) == "int64"
    return [int(gap) for gap in result]


def test_classes(recorder: Any) -> None:
    recorder.add("aten::add.Tensor")
    recorder.add("aten::add.Tensor", wraps_autograd=1)
    recorder.add("aten::view", kind=Kind.HOST)
    recorder.add("aten::copy_", kind=Kind.MEMCPY)
    recorder.add("aten::mm", phase=Phase.BACKWARD)
    recorder.add("maya::iteration_end", kind=Kind.MARKER)
    plain, node, view, copy, backward, marker = gaps(recorder)
    assert node == plain + AUTOGRAD_NODE_NS
    assert 0 < view < copy < backward < node
    assert marker == 0


def test_reference_is_a_plausible_modern_host() -> None:
    costs = reference_costs()
    assert 3_000 < costs.plain_ns < 9_000
    assert costs.view_ns < costs.plain_ns / 2


def test_a_collective_costs_a_few_operators(recorder: Any) -> None:
    recorder.add("aten::add.Tensor").add("c10d::allreduce_", kind=Kind.COLLECTIVE)
    recorder.add("c10d::send", kind=Kind.SEND).add("event", kind=Kind.EVENT_RECORD)
    plain, collective, send, event = gaps(recorder)
    assert collective == send
    assert 2 * plain < collective + 3 * event < 4 * plain


def test_lists_cost_by_their_length(recorder: Any) -> None:
    recorder.add("aten::_foreach_add_.List", phase=Phase.OPTIMIZER, tensor_count=20)
    recorder.add("aten::_foreach_add_.List", phase=Phase.OPTIMIZER, tensor_count=420)
    short, long = gaps(recorder)
    assert long - short == 400 * PER_TENSOR_NS


def test_entering_a_module_costs_python(recorder: Any) -> None:
    recorder.add("aten::add.Tensor", module=3)
    recorder.add("aten::add.Tensor", module=3)
    recorder.add("aten::add.Tensor", module=4)
    recorder.add("aten::add.Tensor", module=5, phase=Phase.BACKWARD)
    same, entered, backward = gaps(recorder)[1:]
    assert entered == same + MODULE_CALL_NS
    assert backward < entered


def test_a_slower_host_scales_everything(recorder: Any) -> None:
    recorder.add("aten::add.Tensor").add("aten::view", kind=Kind.HOST).add("event", kind=Kind.EVENT_RECORD)
    assert gaps(recorder, 2.0) == pytest.approx([2 * gap for gap in gaps(recorder)], abs=1)


def test_nothing(recorder: Any) -> None:
    assert gaps(recorder) == []
