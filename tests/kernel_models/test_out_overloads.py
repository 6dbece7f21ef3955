"""Calls with out= cost what the plain calls cost; FSDP's batched copies run at memory's speed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maya.hardware import find_gpu
from maya.kernel_models import RooflineModel

GPU = find_gpu("H100-SXM5-80GB")


def tensor(*shape: int, dtype: str = "bfloat16") -> dict[str, Any]:
    stride, strides = 1, []
    for size in reversed(shape):
        strides.insert(0, stride)
        stride *= size
    return {"dtype": dtype, "shape": list(shape), "stride": strides, "device": "cuda"}


BIG = tensor(8192, 8192)
CASES = {
    "aten::cat": ({"tensors": [BIG, BIG], "dim": 0}, tensor(16384, 8192)),
    "aten::index_select": ({"self": BIG, "dim": 0, "index": tensor(8192, dtype="int64")}, BIG),
    "aten::gather": ({"self": BIG, "dim": 0, "index": tensor(8192, 8192, dtype="int64")}, BIG),
    "aten::add": ({"self": BIG, "other": BIG}, BIG),
    "aten::mm": ({"self": BIG, "mat2": BIG}, BIG),
    "aten::sum": ({"self": BIG}, tensor()),
}


def time_ns(operator: str, args: dict[str, Any], out: list[Any]) -> int:
    text = json.dumps({"args": args, "out": out})
    return int(RooflineModel().price_operator(operator, text, GPU).work_ns.sum())


@pytest.mark.parametrize("operator", CASES)
def test_out_costs_what_the_plain_call_costs(operator: str) -> None:
    args, result = CASES[operator]
    plain = time_ns(operator, args, [result])
    assert time_ns(f"{operator}.out", {**args, "out": result}, []) == plain


@pytest.mark.parametrize(
    ("operator", "args", "moved_bytes"),
    [
        (
            "aten::split_with_sizes_copy.out",
            {"self": BIG, "split_sizes": [1024] * 8, "dim": 1, "out": [tensor(8192, 1024)] * 8},
            4 * 8192 * 8192,
        ),
        (
            "aten::_chunk_cat.out",
            {"tensors": [BIG], "dim": 0, "num_chunks": 4, "out": tensor(4, 2048 * 8192, dtype="float32")},
            6 * 8192 * 8192,
        ),
    ],
)
def test_batched_copies_run_at_the_speed_of_memory(
    operator: str, args: dict[str, Any], moved_bytes: int
) -> None:
    at_full_speed_ns = moved_bytes / GPU.hbm_bandwidth_gbps
    assert at_full_speed_ns < time_ns(operator, args, []) < 2 * at_full_speed_ns


def test_an_interval_carried_over_still_says_something() -> None:
    copy = json.dumps({"args": {}, "out": [], "memcpy": {"direction": "d2d", "bytes": 1 << 26}})
    times = RooflineModel().price_operator("aten::copy_", copy, GPU)
    assert times.high_ns[0] < 6 * times.work_ns[0]
