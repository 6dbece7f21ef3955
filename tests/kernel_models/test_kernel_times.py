"""`predict` over whole operation columns: offsets, kinds, speed, oracle, model flops."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from maya.hardware import find_gpu
from maya.kernel_models import ModelOracle, RooflineModel, Source, model_flops
from maya.traces.operations import OPERATION_DTYPE, TENSOR_DTYPE, Kind, Operations, Phase, no_communications
from maya.traces.tables import Tables

H100 = find_gpu("H100-SXM5-80GB")
MODEL = RooflineModel()


def block(recorder: Any, tensor: Any, phase: Phase = Phase.FORWARD) -> Any:
    x, w = tensor([8192, 768]), tensor([768, 768], stride=[1, 768])
    recorder.add("aten::view", {"self": x}, [x], kind=Kind.HOST)
    recorder.add("aten::mm", {"self": x, "mat2": w}, [x], phase=phase)
    norm = {"grad_out": x, "input": x, "normalized_shape": [768], "output_mask": [True, True, True]}
    recorder.add("aten::native_layer_norm_backward", norm, [x], phase=phase)
    recorder.add("maya::backward_begin", kind=Kind.MARKER)
    recorder.add("event", kind=Kind.EVENT_RECORD)
    entry = {"memcpy": {"direction": "h2d", "bytes": 1 << 20, "pinned": True}}
    recorder.add("aten::copy_", {"self": x, "src": x}, [x], kind=Kind.MEMCPY, extra=entry)
    recorder.add("aten::zero_", {"self": x}, [x], kind=Kind.MEMSET)
    return recorder


def test_offsets_give_each_operation_its_kernels(recorder: Any, tensor: Any) -> None:
    block(block(recorder, tensor), tensor)
    operations, tables = recorder.finish()
    times = MODEL.predict(operations, tables, H100)
    assert np.diff(times.operation_offsets).tolist() == [0, 1, 2, 0, 0, 1, 1] * 2
    assert times.count == times.operation_offsets[-1]
    assert times.operation_work_ns().tolist()[:7] == times.operation_work_ns().tolist()[7:]
    names = [times.names[i] for i in times.name[:5]]
    assert names[0].startswith("mm bf16 8192x768x768 TN")
    assert "weight and bias" in names[2]
    assert names[3] == "Memcpy HtoD (Pinned -> Device)"
    assert names[4] == "Memset"
    assert times.link_share[3] == 1.0
    for column in (times.work_ns, times.low_ns, times.high_ns, times.flops, times.moved_bytes):
        assert column.dtype == np.int64


def test_each_operation_is_priced_as_if_alone(recorder: Any, tensor: Any) -> None:
    operations, tables = block(recorder, tensor).finish()
    times = MODEL.predict(operations, tables, H100)
    for position, row in enumerate(operations.rows):
        if row["kind"] != Kind.KERNEL:
            continue
        alone = MODEL.price_operator(
            tables.operators[row["operator"]], tables.metadata[row["metadata"]], H100
        )
        begin, end = times.operation_offsets[position : position + 2]
        assert times.work_ns[begin:end].tolist() == alone.work_ns.tolist()


def test_no_operations(recorder: Any) -> None:
    operations, tables = recorder.finish()
    times = MODEL.predict(operations, tables, H100)
    assert times.count == 0
    assert times.operation_offsets.tolist() == [0]
    assert model_flops(operations, tables, times).tolist() == []


def test_only_host_operations(recorder: Any, tensor: Any) -> None:
    recorder.add("aten::view", {"self": tensor([4])}, [tensor([4])], kind=Kind.HOST)
    operations, tables = recorder.finish()
    times = MODEL.predict(operations, tables, H100)
    assert times.operation_offsets.tolist() == [0, 0]
    assert times.operation_work_ns().tolist() == [0]


def test_unknown_operators_are_reported(recorder: Any, tensor: Any) -> None:
    recorder.add("mylib::fused", {"x": tensor([1024])}, [tensor([1024])])
    operations, tables = recorder.finish()
    times = MODEL.predict(operations, tables, H100)
    assert times.unknown_operators == ("mylib::fused",)
    assert times.source.tolist() == [Source.ROOFLINE]
    assert times.high_ns[0] >= 4 * times.work_ns[0]


def test_an_index_outside_the_tables_is_refused(recorder: Any, tensor: Any) -> None:
    recorder.add("aten::add.Tensor", {"self": tensor([4])}, [tensor([4])], metadata=7)
    operations, tables = recorder.finish()
    with pytest.raises(ValueError, match="metadata index"):
        MODEL.predict(operations, tables, H100)


def test_malformed_metadata_is_refused(recorder: Any) -> None:
    recorder.add("aten::add.Tensor")
    operations, tables = recorder.finish()
    broken = Tables(operators=tables.operators, metadata=('{"shapes": []}',))
    with pytest.raises(ValueError, match="metadata"):
        MODEL.predict(operations, broken, H100)


def test_the_same_input_gives_the_same_columns(recorder: Any, tensor: Any) -> None:
    operations, tables = block(recorder, tensor).finish()
    one, two = (RooflineModel().predict(operations, tables, H100) for _ in range(2))
    for name in ("work_ns", "low_ns", "high_ns", "source", "name", "family", "sm_share", "hbm_share"):
        assert (getattr(one, name) == getattr(two, name)).all()


def test_the_oracle_answers_the_sum_of_an_operator(recorder: Any, tensor: Any) -> None:
    operations, tables = block(recorder, tensor).finish()
    times = MODEL.predict(operations, tables, H100)
    oracle = ModelOracle(MODEL, H100)
    row = operations.rows[2]
    answer = oracle.duration_ns(tables.operators[row["operator"]], tables.metadata[row["metadata"]])
    assert answer == times.operation_work_ns()[2] > 0
    assert oracle.duration_ns("aten::view", json.dumps({"args": {"self": tensor([4])}, "out": []})) == 0


def test_model_flops_leave_out_recomputation_and_flash_backward_extra(recorder: Any, tensor: Any) -> None:
    x, w = tensor([128, 64]), tensor([64, 32])
    out = [tensor([128, 32])]
    recorder.add("aten::mm", {"self": x, "mat2": w}, out)
    recorder.add("aten::mm", {"self": x, "mat2": w}, out, phase=Phase.RECOMPUTE)
    recorder.add("aten::add.Tensor", {"self": x, "other": x}, [x])
    q = tensor([2, 4, 256, 64])
    attention = {"grad_out": q, "query": q, "key": q, "value": q, "is_causal": False}
    name = "aten::_scaled_dot_product_flash_attention_backward"
    recorder.add(name, attention, [q, q, q], phase=Phase.BACKWARD)
    operations, tables = recorder.finish()
    flops = model_flops(operations, tables, MODEL.predict(operations, tables, H100))
    assert flops.tolist() == [2 * 128 * 64 * 32, 0, 0, 8 * 2 * 4 * 256 * 256 * 64]


def test_model_flops_refuse_foreign_times(recorder: Any, tensor: Any) -> None:
    operations, tables = block(recorder, tensor).finish()
    times = MODEL.predict(operations, tables, H100)
    shorter = Operations(operations.rows[:3], operations.tensors, operations.communications)
    with pytest.raises(ValueError, match="operations"):
        model_flops(shorter, tables, times)


def many(count: int, distinct: int, tensor: Any) -> tuple[Operations, Tables]:
    """`count` operations over `distinct` metadata of products and pointwise operators."""
    metadata = tuple(
        json.dumps(
            {
                "args": {"self": tensor([i + 1, 512]), "mat2": tensor([512, 256])},
                "out": [tensor([i + 1, 256])],
            }
        )
        for i in range(distinct)
    )
    rows = np.zeros(count, dtype=OPERATION_DTYPE)
    rows["metadata"] = np.arange(count) % distinct
    rows["operator"] = np.arange(count) % 2
    tables = Tables(operators=("aten::mm", "aten::add.Tensor"), metadata=metadata)
    return Operations(rows, np.zeros(0, dtype=TENSOR_DTYPE), no_communications()), tables


@pytest.mark.parametrize(("count", "distinct", "limit_s"), [(25_000, 2_000, 0.5), (1_000_000, 400, 2.0)])
def test_speed(count: int, distinct: int, limit_s: float, tensor: Any) -> None:
    operations, tables = many(count, distinct, tensor)
    best = min(_processor_seconds(operations, tables) for _ in range(3))
    assert best < limit_s


def _processor_seconds(operations: Operations, tables: Tables) -> float:
    begin = time.process_time()
    times = MODEL.predict(operations, tables, H100)
    assert times.count == operations.count
    return time.process_time() - begin
