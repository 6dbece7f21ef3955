"""Memory of a training step on the emulated GPU against the same step really run on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

SUPPORT = Path(__file__).resolve().parent / "support"
sys.path.insert(0, str(SUPPORT))
from memory_comparison import (  # noqa: E402
    ADD,
    ATTENTION,
    COPY_OR_FILL,
    Kept,
    Point,
    Reason,
    explain,
    extrapolate,
    points,
)
from storage_lifetimes import STILL_ALIVE, StorageLifetimes  # noqa: E402

MIB = 2**20
WORKSPACE_BYTES = 32 * MIB
"""cuBLAS on Hopper: one for each thread that multiplies, here the script's and the engine's."""

ACTIVATIONS_DOMINATE = {"layers": 3, "batch": 6}
STATES_DOMINATE = {"width": 512, "layers": 3, "batch": 1, "length": 128}
SMALL: dict[str, dict[str, Any]] = {
    "bf16, fused AdamW": {"bf16": True, "optimizer": "fused", **ACTIVATIONS_DOMINATE},
    "float32, foreach AdamW, accumulation": {
        **{"bf16": False, "optimizer": "foreach", "accumulation": 2, **ACTIVATIONS_DOMINATE}
    },
    "bf16, foreach AdamW, accumulation, states dominate": {
        **{"bf16": True, "optimizer": "foreach", "accumulation": 2, **STATES_DOMINATE}
    },
    "float32, fused AdamW, states dominate": {"bf16": False, "optimizer": "fused", **STATES_DOMINATE},
    "bf16, checkpointed blocks": {"bf16": True, "checkpoint": True, "layers": 3, "batch": 3},
    "ResNet-50": {"image_size": 32},
}
GPT_2_124M = {"layers": 12, "heads": 12, "width": 768, "vocabulary": 50304, "block_size": 1024}


def run(where: str, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    command = [sys.executable, str(SUPPORT / "memory_step.py"), where, json.dumps(steps)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=900, check=True)
    told: list[dict[str, Any]] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def small_steps() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """What the CPU and the emulated GPU tell of every small step."""
    steps = list(SMALL.values())
    return dict(zip(SMALL, zip(run("cpu", steps), run("cuda", steps), strict=True), strict=True))


def genuine_differences(step: dict[str, Any]) -> list[Reason]:
    """Why a GPU holds other storages than the CPU in this step. Nothing else may differ."""
    workspaces = Reason(
        "cuBLAS workspaces come from the caching allocator",
        on_gpu=lambda kept: kept == Kept(COPY_OR_FILL, WORKSPACE_BYTES),
    )
    if "image_size" in step:
        gradients = (ADD, "threshold_backward", "convolution_backward")
        in_place = Reason(
            "gradients of shortcuts are summed in place",
            on_gpu=lambda kept: kept.operator in gradients,
            on_cpu=lambda kept: kept.operator in gradients,
        )
        return [workspaces, in_place]
    tokens = step.get("batch", 8) * step.get("length", 256)
    logits = tokens * step.get("vocabulary", 8192)
    half, full = 2 * logits, 4 * logits
    reasons = [
        workspaces,
        Reason(
            "GPU attention saves the seed and the offset of its random numbers (two blocks a layer)",
            on_gpu=lambda kept: kept == Kept(ATTENTION, 512),
        ),
    ]
    summed = (tokens * step.get("width", 256) * 4, step.get("vocabulary", 8192) * step.get("width", 256) * 4)
    reasons.append(
        Reason(
            # The engine adds into a gradient that nobody else holds; under a dispatch mode Python holds it.
            "gradients of the residual stream and of the shared embedding are summed in place",
            on_gpu=lambda kept: (
                kept.rounded_bytes in summed and kept.operator in ("native_layer_norm_backward", COPY_OR_FILL)
            ),
            on_cpu=lambda kept: (
                kept.rounded_bytes in summed
                and kept.operator in ("native_layer_norm_backward", COPY_OR_FILL, ADD)
            ),
        )
    )
    if step["bf16"]:
        reasons.append(
            Reason(
                # cross_entropy_loss is on the CPU's float32 list. On CUDA's only nll_loss is, and
                # log_softmax stays bf16, as cross_entropy_loss asks for the dtype of its input.
                "autocast: log_softmax in bf16 and a float32 copy on CUDA, all float32 on the CPU",
                on_gpu=lambda kept: (
                    kept
                    in (
                        *(Kept("_log_softmax", half), Kept(COPY_OR_FILL, full), Kept(COPY_OR_FILL, half)),
                        Kept("_log_softmax_backward_data", half),
                    )
                ),
                on_cpu=lambda kept: (
                    kept
                    in (
                        *(Kept("_log_softmax", full), Kept("nll_loss_backward", full)),
                        *(Kept("_log_softmax_backward_data", full), Kept(COPY_OR_FILL, full)),
                        Kept(COPY_OR_FILL, half),
                    )
                ),
            )
        )
    if step.get("optimizer") == "foreach":
        reasons.append(
            Reason(
                "foreach AdamW keeps its step counters on the host",
                on_cpu=lambda kept: kept == Kept(COPY_OR_FILL, 512),
            )
        )
    return reasons


def compare(step: dict[str, Any], cpu: dict[str, Any], gpu: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """Check every common point; the GPU's peak expected from the CPU, and the differences at it."""
    on_cpu, on_gpu = list(points(cpu)), list(points(gpu))
    assert [point.operator for point in on_cpu] == [point.operator for point in on_gpu]
    assert len(on_cpu) > 70
    reasons = genuine_differences(step)
    expected: list[tuple[int, dict[str, int]]] = []
    for number, (at_cpu, at_gpu) in enumerate(zip(on_cpu, on_gpu, strict=True)):
        difference = explain(at_gpu, at_cpu, reasons)
        where = f"point {number}, {at_cpu.operator}"
        assert not difference.unexplained_on_gpu, f"{where}: the GPU alone keeps {difference}"
        assert not difference.unexplained_on_cpu, f"{where}: the CPU alone keeps {difference}"
        here = at_cpu.live_bytes + sum(difference.bytes_by_reason.values())
        assert here == at_gpu.live_bytes, where
        expected.append((here, difference.bytes_by_reason))
    return max(expected, key=lambda item: item[0])


def peak(told: dict[str, Any]) -> Point:
    return max(points(told, every=True), key=lambda point: point.live_bytes)


@pytest.mark.parametrize("name", SMALL)
def test_a_step_holds_what_it_holds_on_the_cpu(
    name: str, small_steps: dict[str, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    cpu, gpu = small_steps[name]
    expected_bytes, by_reason = compare(SMALL[name], cpu, gpu)
    print(name, f"CPU {peak(cpu).live_bytes:,}, expected {expected_bytes:,}", by_reason)
    assert gpu["max_memory_allocated"] == pytest.approx(expected_bytes, rel=0.01)
    assert peak(gpu).live_bytes == gpu["max_memory_allocated"]
    # What makes up the difference at the peak is small but for the two that are named.
    large = {why for why, size in by_reason.items() if abs(size) > 0.01 * expected_bytes}
    assert all("cuBLAS" in why or "autocast" in why or "too small to split" in why for why in large)
    assert by_reason["cuBLAS workspaces come from the caching allocator"] == 2 * WORKSPACE_BYTES


def test_float32_peaks_are_the_cpus_but_for_workspaces(
    small_steps: dict[str, tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    cpu, gpu = small_steps["float32, foreach AdamW, accumulation"]
    without = gpu["max_memory_allocated"] - 2 * WORKSPACE_BYTES
    assert without == pytest.approx(peak(cpu).live_bytes, rel=0.01)


def test_a_storage_kept_too_long_is_not_explained(
    small_steps: dict[str, tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    """The comparison can fail: one activation that dies a dozen operators late is found."""
    cpu, gpu = small_steps["bf16, fused AdamW"]
    late = json.loads(json.dumps(gpu))
    activation = next(s for s in late["storages"] if s["operator"] == "gelu" and s["born"] > late["begin"])
    activation["died"] += 12
    with pytest.raises(AssertionError, match="the GPU alone keeps"):
        compare(SMALL["bf16, fused AdamW"], cpu, late)


def test_the_tracer_follows_storages() -> None:
    with StorageLifetimes() as lifetimes:
        a = torch.zeros(1000)
        b = a.view(10, 100)
        del a
        c = b + 1
        del b
        c.mul_(2)
        c.untyped_storage().resize_(8000)
        c.add_(1)
        del c
        torch.zeros(1)
    lived = [(one.operator, one.rounded_bytes, one.born, one.died) for one in lifetimes.storages]
    assert lifetimes.operators == ["zeros", "view", "add", "mul_", "add_", "zeros"]
    assert lived == [
        ("zeros", 4096, 0, 3),
        ("add", 4096, 2, 4),
        ("add_", 8192, 4, 5),
        ("zeros", 512, 5, STILL_ALIVE),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("bf16", "optimizer"), [(True, "fused"), (False, "foreach")])
def test_gpt_2_at_full_size(bf16: bool, optimizer: str) -> None:
    """GPT-2-124M, 8 x 1024 tokens: sizes are linear in batch and length, three small CPU runs tell them."""
    step = {**GPT_2_124M, "bf16": bf16, "optimizer": optimizer}
    sizes = [(1, 128), (2, 128), (1, 256)]
    runs = run("cpu", [{**step, "batch": batch, "length": length} for batch, length in sizes])
    full = {**step, "batch": 8, "length": 1024}
    (gpu,) = run("cuda", [full])
    cpu = extrapolate(dict(zip(sizes, runs, strict=True)), 8, 1024)
    expected_bytes, by_reason = compare(full, cpu, gpu)
    print(f"expected {expected_bytes:,}, emulated {gpu['max_memory_allocated']:,}", by_reason)
    assert gpu["max_memory_allocated"] == pytest.approx(expected_bytes, rel=0.01)
    assert expected_bytes > 5e9
