"""The fit finds parameters back, holds out whole size families, and repeats itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("pandas")

from maya.hardware import find_gpu
from maya.kernel_models.columns import device_columns, peak_flops, work_columns
from maya.kernel_models.families.gemm import product
from maya.kernel_models.fit.__main__ import main
from maya.kernel_models.fit.groups import errors, fit_family, interval_of
from maya.kernel_models.fit.host_data import gaps_by_class, issue_times
from maya.kernel_models.fit.measurements import FOLDS, Measurements, fold_of, resolve_gpu
from maya.kernel_models.forms import default_parameters, form_of
from maya.kernel_models.work import KernelWork

H100 = find_gpu("H100-SXM5-80GB")


def streams(truth: dict[str, float], noise: float, extra_us: float = 0.0) -> Measurements:
    """Pointwise rows that obey the formula, with a little noise from a fixed seed."""
    random = np.random.default_rng(7)
    sizes = np.logspace(4, 10, 300).astype(int)
    works = [
        KernelWork("pointwise", "add", "fp32", int(s) // 12, int(s), max(1, int(s) // 6144)) for s in sizes
    ]
    columns = work_columns(works, [peak_flops(H100, "fp32")] * len(works))
    exact = form_of("pointwise").time_ns(truth, columns, device_columns([H100] * len(works)))
    result = Measurements("pointwise")
    for work, ns, factor in zip(
        works, exact, np.exp(noise * random.standard_normal(len(works))), strict=True
    ):
        name = "events" if extra_us else ""
        result.add([work], H100, ns * factor / 1e3 + extra_us, work.moved_bytes, "made", name)
    return result


def test_parameters_are_found_back() -> None:
    truth = default_parameters("pointwise") | {"floor_ns": 1_700.0, "hbm": 0.91, "l2": 0.45}
    (entry,) = fit_family(streams(truth, 0.02))
    assert entry["parameters"]["floor_ns"] == pytest.approx(1_700, rel=0.05)
    assert entry["parameters"]["hbm"] == pytest.approx(0.91, rel=0.03)
    assert entry["held_out"]["p50"] < 0.03
    assert entry["low"] == pytest.approx(np.exp(-0.0256), abs=0.02)
    assert entry["high"] == pytest.approx(np.exp(0.0256), abs=0.02)


def test_the_timing_methods_overhead_is_not_the_kernels() -> None:
    truth = default_parameters("pointwise") | {"hbm": 0.91}
    (entry,) = fit_family(streams(truth, 0.01, extra_us=9.0))
    assert entry["timing_overhead_ns"]["events"] == pytest.approx(9_000, rel=0.1)
    assert entry["parameters"]["floor_ns"] < 4_000


def test_fitting_twice_gives_the_same() -> None:
    rows = streams(default_parameters("pointwise"), 0.05)
    assert fit_family(rows) == fit_family(rows)


def test_intervals_widen_until_they_hold_the_next_family() -> None:
    random = np.random.default_rng(3)
    families = np.repeat(np.arange(5), 40)
    alike = np.exp(0.1 * random.standard_normal(200))
    low, high, coverage = interval_of(alike, families)
    assert coverage >= 0.78
    assert (low, high) == pytest.approx((np.exp(-0.128), np.exp(0.128)), abs=0.05)
    # Each family is off by its own amount: quantiles of four say too little about the fifth.
    own = np.exp(0.1 * random.standard_normal(200) + np.repeat([-0.3, -0.1, 0.0, 0.15, 0.35], 40))
    wider_low, wider_high, _ = interval_of(own, families)
    plain_low, plain_high = np.quantile(own, (0.1, 0.9))
    assert wider_low < plain_low
    assert wider_high > plain_high


def test_small_groups_hold_out_every_fold_in_turn() -> None:
    (entry,) = fit_family(streams(default_parameters("pointwise"), 0.02))
    assert entry["held_out"]["rows"] == entry["rows"] == 300


def test_whole_size_families_are_held_out() -> None:
    rows = Measurements("gemm")
    for m in range(64, 4096, 64):
        for n, k in ((768, 768), (3072, 768), (768, 3072), (1024, 4096), (4096, 1024), (50304, 768)):
            work = product("mm", "bf16", (1, m, n, k), 2 * (m * k + k * n + m * n))
            rows.add([work], H100, 10.0 + m / 64, (n, k), "made")
    folds = {(work.shape[2], work.shape[3]): set() for work in rows.works}
    for work, fold in zip(rows.works, rows.fold, strict=True):
        folds[work.shape[2], work.shape[3]].add(fold)
    assert all(len(found) == 1 for found in folds.values())


def test_folds_are_even_and_fixed() -> None:
    counts = np.bincount([fold_of((n, 64)) for n in range(5_000)], minlength=FOLDS)
    assert counts.min() > 800
    assert fold_of((768, 3072)) == fold_of((768, 3072))


def test_rows_that_say_nothing_are_left_out() -> None:
    rows = Measurements("pointwise")
    rows.add([], H100, 1.0, 0, "made")
    rows.add([KernelWork("pointwise", "add", "fp32", 1, 4, 1)], H100, float("nan"), 0, "made")
    assert rows.time_ns == []
    assert fit_family(rows) == []


def test_joined_measurements_keep_their_rows_together() -> None:
    truth = default_parameters("pointwise")
    one, two = streams(truth, 0.0), streams(truth, 0.0, extra_us=5.0)
    rows = len(one.time_ns)
    one.extend(two)
    assert len(one.time_ns) == 2 * rows
    assert one.segment[rows] == rows
    assert {one.extra_names[e] for e in one.extra if e >= 0} == {"events"}


def test_unknown_gpus_are_skipped_not_guessed() -> None:
    assert resolve_gpu("unknown(HTA sample)") is None
    found = resolve_gpu("A100-SXM4-40GB(PG509)")
    assert found is not None
    assert found.name == "A100-SXM4-40GB"


def test_errors_summarise_small_and_large_apart() -> None:
    found = errors(np.array([1.1e3, 2.2e4]), np.array([1.0e3, 2.0e4]))
    assert found["rows"] == 2
    assert found["p50"] == pytest.approx(0.1)
    assert found["below_10us"]["rows"] == found["above_10us"]["rows"] == 1


def test_gaps_between_innermost_operators() -> None:
    def event(category: str, name: str, ts: float, dur: float) -> dict[str, object]:
        return {"ph": "X", "cat": category, "name": name, "tid": 1, "ts": ts, "dur": dur}

    events = [
        event("cpu_op", "aten::linear", 0, 20),
        event("cpu_op", "aten::t", 1, 2),
        event("cpu_op", "aten::addmm", 5, 10),
        event("cuda_runtime", "cudaLaunchKernel", 8, 3),
        event("cpu_op", "aten::add", 30, 8),
        event("cuda_runtime", "cudaLaunchKernel", 33, 3),
        event("cuda_runtime", "cudaDeviceSynchronize", 40, 50),
        event("cpu_op", "aten::mul", 95, 8),
    ]
    assert gaps_by_class(events) == {"view": [4.0], "forward": [25.0]}
    inside = [event("cpu_op", "c10d::allreduce_", 200, 17), event("cpu_op", "record_param_comms", 202, 9)]
    assert issue_times([*events, *inside]) == [17.0]


@pytest.mark.slow
def test_the_command_writes_a_card_that_repeats(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "efficiency.json"
    arguments = ["--data", str(shared_data), "--output", str(path), "--only", "batch_norm", "scatter"]
    texts = []
    for _ in range(2):
        assert main(arguments) == 0
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    card = json.loads(texts[0])
    assert {entry["family"] for entry in card["fits"]} == {"batch_norm", "scatter"}
    assert not list(tmp_path.glob("*.partial"))


def test_traces_used_for_host_costs_exist(shared_data: Path) -> None:
    from maya.kernel_models.fit.host_data import TRACES

    for name in TRACES:
        with gzip.open(shared_data / "traces" / name, "rb") as handle:
            assert handle.read(80).lstrip().startswith(b"{")
