"""Products of mixture-of-experts layers: one kernel in bfloat16, one product an expert in other dtypes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parent / "support"
SCRIPT = """
import json, sys
import torch
from recorded_operators import native, record

def products(dtype, ends, rows=64):
    rows_in = torch.randn(rows, 32, device="cuda", dtype=dtype, requires_grad=True)
    experts = torch.randn(4, 32, 48, device="cuda", dtype=dtype, requires_grad=True)
    ends = ends()
    def step():
        out = torch.nn.functional.grouped_mm(rows_in, experts, offs=ends)
        out.float().square().sum().backward()
        assert out.shape == (rows, 48)
        assert rows_in.grad.shape == (rows, 32) and experts.grad.shape == (4, 32, 48)
    return [
        [o["operator"], [t["shape"] for t in o["args"].values() if isinstance(t, dict) and "shape" in t]]
        for o in record(step)
        if "mm" in o["operator"] or o.get("memcpy", {}).get("direction") == "d2h"
    ]

def known():
    return torch.tensor([10, 20, 40, 64], dtype=torch.int32, device="cuda")

def unknown():
    routed = torch.randint(4, (1 << 16,), device="cuda")
    return torch.histc(routed.float(), bins=4, min=0, max=3).cumsum(0).to(torch.int32)

asked = []
native.set_value_policy(lambda *question: asked.append(question) or 0)
answers = {"float32": products(torch.float32, known), "bfloat16": products(torch.bfloat16, known)}
answers["routed"] = products(torch.float32, unknown, rows=1 << 16)
answers["asked"] = [[kind, producer, numel] for kind, producer, _, numel, _ in asked]
x, w = torch.randn(8, 8, device="cuda"), torch.randn(2, 8, 8, device="cuda")
ends = torch.tensor([3, 8], dtype=torch.int32, device="cuda")
expected = torch.cat([x.cpu()[:3] @ w.cpu()[0], x.cpu()[3:] @ w.cpu()[1]])
answers["exact"] = torch.equal(torch.nn.functional.grouped_mm(x, w, offs=ends).cpu(), expected)
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n{SCRIPT}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_bfloat16_takes_one_kernel_each_way(answers: dict[str, Any]) -> None:
    assert [name for name, _ in answers["bfloat16"]] == ["aten::_grouped_mm"] * 3


def test_other_dtypes_read_the_ends_and_launch_a_product_a_group(answers: dict[str, Any]) -> None:
    forward, weights, rows = (answers["float32"][i : i + 5] for i in (0, 5, 10))
    for part in (forward, weights, rows):
        assert [name for name, _ in part] == ["aten::copy_"] + ["aten::mm.out"] * 4
    assert [shapes[0] for _, shapes in forward[1:]] == [[10, 32], [10, 32], [20, 32], [24, 32]]
    assert [shapes[0] for _, shapes in weights[1:]] == [[32, 10], [32, 10], [32, 20], [32, 24]]
    assert [shapes[0] for _, shapes in rows[1:]] == [[10, 48], [10, 48], [20, 48], [24, 48]]


def test_unknown_routing_is_balanced_and_noted(answers: dict[str, Any]) -> None:
    shapes = [shapes[0] for name, shapes in answers["routed"] if name == "aten::mm.out"]
    assert shapes[:4] == [[1 << 14, 32]] * 4
    assert ["equal groups", "aten::cumsum", 1 << 14] in answers["asked"]


def test_small_products_have_their_values(answers: dict[str, Any]) -> None:
    assert answers["exact"]
