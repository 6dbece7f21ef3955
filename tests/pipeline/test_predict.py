"""A recorded run becomes a prediction whose parts fit together, the same every time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maya.kernel_models import RooflineModel
from maya.pipeline.predict import PredictedRun, predict
from maya.traces import Ended, Manifest, StepSettings, single_rank

PRICE = {"usd_per_gpu_hour": 3.6, "source": "a list", "date": "2026-01-01"}


def manifest(**changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "command": ("train.py",),
        "gpu": "H100-SXM5-80GB",
        "torch": "2.13.0+cpu",
        "world_size": 1,
        "rank_classes": single_rank(),
        "ended": Ended.STOPPED,
        "settings": StepSettings(steps=3, warmup=1),
        "host": _host(),
        "options": {"data_loading": "excluded", "price": PRICE},
    }
    return Manifest(**{**values, **changes})


def _host() -> str:
    from maya.hardware import default_host

    return default_host().name


@pytest.fixture
def predicted(tmp_path: Path, synthetic_run: Callable[..., Any]) -> Callable[..., PredictedRun]:
    def make(**attributes: Any) -> PredictedRun:
        synthetic_run(**attributes).write(tmp_path)
        return predict(tmp_path, manifest())

    return make


def test_parts_add_up_to_the_iteration(predicted: Callable[..., PredictedRun]) -> None:
    prediction = predicted().prediction
    assert prediction.verdict == "ok"
    assert prediction.iterations == 3
    assert prediction.breakdown is not None
    assert prediction.iteration_time_ms is not None
    parts = vars(prediction.breakdown).values()
    assert round(sum(parts) * 1e6) == round(prediction.iteration_time_ms * 1e6) > 0


def test_interval_holds_the_estimate(predicted: Callable[..., PredictedRun]) -> None:
    prediction = predicted().prediction
    assert prediction.low_ms is not None
    assert prediction.high_ms is not None
    assert prediction.iteration_time_ms is not None
    assert 0 < prediction.low_ms < prediction.iteration_time_ms < prediction.high_ms


def test_families_that_err_apart_narrow_the_interval() -> None:
    from maya.pipeline.interval import _correlated_fraction

    half_widths = np.array([3, 4, 3], dtype=np.int64)
    assert _correlated_fraction(half_widths, np.zeros(3, dtype=np.int32)) == pytest.approx(1)
    apart = _correlated_fraction(np.array([3, 4], dtype=np.int64), np.array([0, 1], dtype=np.int32))
    assert apart == pytest.approx(5 / 7)
    assert _correlated_fraction(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)) == 0


def test_throughput_and_mfu_follow_from_markers_and_products(predicted: Callable[..., PredictedRun]) -> None:
    prediction = predicted(layers=3, size=1024, samples=8, tokens=4096).prediction
    assert prediction.iteration_time_ms is not None
    seconds = prediction.iteration_time_ms / 1e3
    assert prediction.tokens_per_s == pytest.approx(4096 / seconds)
    assert prediction.samples_per_s == pytest.approx(8 / seconds)
    flops = prediction.model_flops_per_step
    assert flops == pytest.approx(6 * 2 * 1024**3, rel=0.01)  # 3 products forward, 3 backward
    assert prediction.mfu_peak == "bf16"
    assert prediction.mfu is not None
    from maya.hardware import find_gpu

    peak = find_gpu("H100-SXM5-80GB").peak_tflops["bf16"] * 1e12
    assert prediction.mfu == pytest.approx(flops / seconds / peak, rel=1e-6)


def test_unknown_batches_give_no_throughput(predicted: Callable[..., PredictedRun]) -> None:
    prediction = predicted(samples=0, tokens=0).prediction
    assert prediction.tokens_per_s is None
    assert prediction.samples_per_s is None


def test_cost_is_time_times_price(predicted: Callable[..., PredictedRun]) -> None:
    prediction = predicted().prediction
    assert prediction.cost is not None
    assert prediction.iteration_time_ms is not None
    assert prediction.cost.usd_per_step == pytest.approx(prediction.iteration_time_ms / 1e3 * 3.6 / 3600)
    assert prediction.cost.price_date == "2026-01-01"


def test_coverage_and_top_kernels_are_shares_of_all_device_time(
    predicted: Callable[..., PredictedRun],
) -> None:
    prediction = predicted().prediction
    assert prediction.coverage is not None
    assert sum(vars(prediction.coverage).values()) == pytest.approx(1)
    assert sum(kernel.share for kernel in prediction.top_kernels) == pytest.approx(1)  # fewer than ten names
    times = [kernel.time_ms for kernel in prediction.top_kernels]
    assert times == sorted(times, reverse=True)
    assert prediction.top_kernels[0].calls == 8  # a product for each of 4 layers, forward and backward


def test_a_script_that_only_runs_forward_is_predicted_whole(predicted: Callable[..., PredictedRun]) -> None:
    run = predicted(iterations=0)
    assert run.prediction.scope == "run"
    assert run.prediction.verdict == "ok"
    assert run.priced is not None
    assert run.prediction.iteration_time_ms == run.priced.timeline.makespan_ns / 1e6


def test_fewer_iterations_than_the_warm_up_use_the_last(predicted: Callable[..., PredictedRun]) -> None:
    prediction = predicted(iterations=1).prediction
    assert prediction.iterations == 1
    assert any("warm-up" in str(entry.value) for entry in prediction.assumptions)


def test_a_script_that_never_touched_the_gpu_has_nothing_to_predict(
    predicted: Callable[..., PredictedRun],
) -> None:
    run = predicted(uses_gpu=False)
    assert run.prediction.verdict == "failed"
    assert "no operation on the GPU" in str(run.prediction.cause)
    assert run.priced is None


def test_values_the_script_read_are_listed(predicted: Callable[..., PredictedRun]) -> None:
    read = [entry for entry in predicted().prediction.assumptions if entry.kind == "item"]
    assert [(entry.producer, entry.count, entry.source_line) for entry in read] == [
        ("aten::mean", 4, "train.py:20")
    ]


def test_the_same_files_give_the_same_bytes(predicted: Callable[..., PredictedRun], tmp_path: Path) -> None:
    first = predicted().prediction.to_json()
    assert predict(tmp_path, manifest()).prediction.to_json() == first
    value = json.loads(first)
    for key in ("schema_version", "gpu", "world_size", "ranks_run", "verdict", "cause", "iteration_time_ms"):
        assert key in value
    assert set(value["breakdown"]) == {"compute", "exposed_communication", "host", "idle"}
    assert set(value["coverage"]) == {"measured", "learned", "extrapolated", "roofline"}
    assert {"allocated", "reserved", "capacity"} <= set(value["peak_memory_bytes"])


def test_oom_names_the_allocation_the_module_and_what_is_held(predicted: Callable[..., PredictedRun]) -> None:
    oom = {
        "requested_bytes": 3 * 2**30,
        "module": "GPT.h.3.attn",
        "source_line": "train.py:42",
        "held": [
            {"module": "GPT.h.0.mlp", "phase": "forward", "bytes": 20 * 2**30},
            {"module": "GPT.h.11.mlp", "phase": "forward", "bytes": 20 * 2**30},
            {"module": "GPT.wte", "phase": "other", "bytes": 2**30},
        ],
    }
    prediction = predicted(outcome={"ended": "oom", "exit_code": 1, "oom": oom}).prediction
    assert prediction.verdict == "oom"
    for part in ("3.00 GiB", "GPT.h.3.attn", "train.py:42", "80.0 GiB", "40.0 GiB GPT.h.*.mlp (activations)"):
        assert part in str(prediction.cause)
    assert prediction.iteration_time_ms is None


def test_waiting_for_data_counts_only_when_asked(tmp_path: Path, synthetic_run: Callable[..., Any]) -> None:
    synthetic_run(outcome={"data_wait_ns": 4_000_000}).write(tmp_path)
    excluded = predict(tmp_path, manifest()).prediction
    assert any("left out" in str(entry.value) for entry in excluded.assumptions)


def test_wider_kernel_intervals_widen_the_iterations(
    predicted: Callable[..., PredictedRun], tmp_path: Path
) -> None:
    from dataclasses import replace

    class Doubtful:
        def predict(self, *arguments: Any) -> Any:
            times = RooflineModel().predict(*arguments)
            return replace(times, low_ns=times.work_ns // 4 + 1, high_ns=times.work_ns * 4)

    usual = predicted().prediction
    doubtful = predict(tmp_path, manifest(), Doubtful()).prediction
    assert doubtful.iteration_time_ms == usual.iteration_time_ms
    assert doubtful.high_ms is not None
    assert usual.high_ms is not None
    assert doubtful.high_ms > usual.high_ms


def _told(prediction: Any) -> str:
    return " | ".join(str(entry.value) for entry in prediction.assumptions)


def test_an_iteration_that_does_more_is_named(predicted: Callable[..., PredictedRun]) -> None:
    assert "does more" not in _told(predicted().prediction)
    assert "iteration 3 does more and is in the mean" in _told(predicted(evaluates_in=2).prediction)


def test_training_without_an_optimizer_is_told_of(predicted: Callable[..., PredictedRun]) -> None:
    assert "--step-marker" not in _told(predicted(iterations=0).prediction)
    told = _told(predicted(iterations=0, marks_backward=True).prediction)
    assert "no optimizer stepped in 1 backward passes" in told
