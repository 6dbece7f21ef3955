"""A job of several ranks: merged, priced once a class, simulated together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from maya.hardware import default_host
from maya.pipeline.predict import PredictedRun, predict
from maya.traces import (
    Ended,
    Manifest,
    RankClass,
    StepSettings,
    merge_equal_ranks,
    read_manifest,
    write_manifest,
)

PRICE = {"usd_per_gpu_hour": 3.6, "source": "a list", "date": "2026-01-01"}


class Fixed:
    """Every communication takes as long."""

    def __init__(self, time_ns: int, low_ns: int | None = None, high_ns: int | None = None) -> None:
        self.time_ns = time_ns
        self.ends = {"low": time_ns if low_ns is None else low_ns, "high": high_ns or time_ns}

    def duration_ns(self, transfer: Any) -> int:  # noqa: ARG002
        return self.time_ns

    def at(self, quantile: Literal["low", "high"]) -> Fixed:
        return Fixed(self.ends[quantile])


def manifest(classes: tuple[RankClass, ...], world_size: int) -> Manifest:
    return Manifest(
        command=("train.py",),
        gpu="H100-SXM5-80GB",
        torch="2.13.0+cpu",
        world_size=world_size,
        rank_classes=classes,
        ended=Ended.STOPPED,
        settings=StepSettings(steps=3, warmup=1),
        host=default_host().name,
        options={"data_loading": "excluded", "price": PRICE},
    )


@pytest.fixture
def job(tmp_path: Path, synthetic_run: Callable[..., Any]) -> Callable[..., PredictedRun]:
    """Writes ranks, merges them (unless told not to) and predicts."""

    def make(prices: Any = None, *, merge: bool = True, **attributes: Any) -> PredictedRun:
        attributes.setdefault("world_size", 4)
        run_dir = tmp_path / "run.maya"
        shutil.rmtree(run_dir, ignore_errors=True)
        run_dir.mkdir()
        run = synthetic_run(**attributes)
        run.write(run_dir)
        alone = tuple(RankClass(rank, (rank,)) for rank in range(run.world_size))
        classes = merge_equal_ranks(run_dir, run.world_size) if merge else alone
        written = manifest(classes, run.world_size)
        write_manifest(run_dir, written)
        return predict(run_dir, written, prices=prices)

    return make


def test_free_communication_leaves_one_ranks_time(job: Callable[..., PredictedRun]) -> None:
    free = job(Fixed(0)).prediction
    dear = job(Fixed(1_000_000)).prediction
    assert free.iteration_time_ms is not None
    assert dear.iteration_time_ms is not None
    # Four layers' gradients one after another on one stream, 1 ms each: they hide everything else.
    assert 4.0 < dear.iteration_time_ms < 4.0 + free.iteration_time_ms
    assert dear.communication is not None
    # A little over 4: beside compute that fills the GPU, both are slowed by the SMs that NCCL takes.
    assert 4.0 <= dear.communication.total_ms < 4.1
    assert dear.communication.bytes_per_step == {"all_reduce": 4 * 2 * 2048 * 2048}
    assert dear.communication.calls_per_step == {"all_reduce": 4.0}
    assert dear.communication.busiest.name == "all-reduce 8.00 MiB x4"
    assert dear.breakdown is not None
    assert dear.communication.exposed_ms == dear.breakdown.exposed_communication
    hidden = dear.communication.total_ms - dear.communication.exposed_ms
    assert dear.communication.overlapped_share == pytest.approx(hidden / dear.communication.total_ms)
    assert 0 < hidden < free.iteration_time_ms
    parts = vars(dear.breakdown).values()
    assert round(sum(parts) * 1e6) == round(dear.iteration_time_ms * 1e6)


@pytest.mark.parametrize(
    "attributes", [{}, {"slow_rank": 2}, {"logging_rank": 0}, {"slow_rank": 3, "logging_rank": 0}]
)
def test_merged_ranks_predict_what_all_ranks_do(
    job: Callable[..., PredictedRun], attributes: dict[str, Any]
) -> None:
    merged = job(Fixed(30_000, 20_000, 50_000), **attributes)
    every = job(Fixed(30_000, 20_000, 50_000), merge=False, **attributes)
    assert merged.priced is not None
    assert every.priced is not None
    assert len(merged.priced.ranks) == 1 + len(attributes)
    assert len(every.priced.ranks) == 4
    one, other = merged.prediction.to_dict(), every.prediction.to_dict()
    for key in ("rank_classes", "ranks_run", "peak_memory_bytes"):
        del one[key], other[key]
    assert one == other


def test_members_of_other_groups_are_simulated_from_the_same_files(job: Callable[..., PredictedRun]) -> None:
    """Each rank has its own pair, so all ranks are rebuilt from the one that was kept."""
    attributes: dict[str, Any] = {"groups": 2, "pairs": True}
    merged = job(**attributes)
    every = job(merge=False, **attributes)
    assert merged.priced is not None
    assert every.priced is not None
    (group,) = merged.prediction.rank_classes
    assert group.ranks == (0, 1, 2, 3)
    assert [rank.rank for rank in merged.priced.ranks] == [0, 1, 2, 3]
    pairs = [rank.trace.tables.communicators[1].ranks for rank in merged.priced.ranks]
    assert pairs == [(0, 1), (0, 1), (2, 3), (2, 3)]
    one, other = (run.priced.timeline for run in (merged, every) if run.priced is not None)
    for rows in ("kernels", "hosts"):
        for column in ("rank", "start_ns", "end_ns", "operation"):
            assert (getattr(one, rows)[column] == getattr(other, rows)[column]).all()
    assert merged.prediction.iteration_time_ms == every.prediction.iteration_time_ms


def test_the_rank_that_others_wait_for_is_shown(job: Callable[..., PredictedRun]) -> None:
    even = job().prediction
    run = job(slow_rank=2)
    assert run.priced is not None
    assert run.priced.slowest.rank == 2
    prediction = run.prediction
    assert [(each.rank, each.ranks) for each in prediction.rank_classes] == [(0, (0, 1, 3)), (2, (2,))]
    assert prediction.iteration_time_ms is not None
    assert even.iteration_time_ms is not None
    assert prediction.iteration_time_ms > even.iteration_time_ms
    waiting, busy = (each.breakdown for each in prediction.rank_classes)
    assert waiting is not None
    assert busy == prediction.breakdown
    assert waiting.compute < busy.compute
    assert waiting.idle + waiting.exposed_communication > busy.idle + busy.exposed_communication
    # Synchronous ranks go at one pace.
    assert {each.iteration_time_ms for each in prediction.rank_classes} == {prediction.iteration_time_ms}


def test_rates_and_costs_are_the_whole_jobs(job: Callable[..., PredictedRun]) -> None:
    prediction = job(Fixed(0)).prediction
    assert prediction.iteration_time_ms is not None
    seconds = prediction.iteration_time_ms / 1e3
    assert prediction.samples_per_s == pytest.approx(4 * 8 / seconds)
    assert prediction.tokens_per_s == pytest.approx(4 * 8192 / seconds)
    assert prediction.model_flops_per_step == pytest.approx(4 * 8 * 2 * 2048**3, rel=0.01)
    from maya.hardware import find_gpu

    peak = find_gpu("H100-SXM5-80GB").peak_tflops["bf16"] * 1e12
    assert prediction.mfu == pytest.approx(prediction.model_flops_per_step / seconds / peak / 4, rel=1e-6)
    assert prediction.cost is not None
    assert prediction.cost.usd_per_step == pytest.approx(seconds * 4 * 3.6 / 3600)


def test_doubtful_communication_widens_the_interval(job: Callable[..., PredictedRun]) -> None:
    sure = job(Fixed(200_000)).prediction
    doubtful = job(Fixed(200_000, 100_000, 400_000)).prediction
    assert doubtful.iteration_time_ms == sure.iteration_time_ms
    assert sure.low_ms is not None
    assert sure.high_ms is not None
    assert doubtful.low_ms is not None
    assert doubtful.high_ms is not None
    assert doubtful.low_ms < sure.low_ms
    assert doubtful.high_ms > sure.high_ms


def test_the_worst_ranks_verdict_is_the_jobs(job: Callable[..., PredictedRun]) -> None:
    raised = {
        "ended": "exception",
        "exit_code": 1,
        "cause": {"type": "ValueError", "message": "bad batch", "source_line": "train.py:7"},
    }
    stopped = {"ended": "interrupted", "exit_code": 143}
    prediction = job(outcomes={0: stopped, 1: stopped, 2: raised}).prediction
    assert prediction.verdict == "failed"
    assert str(prediction.cause).startswith("rank 2: ValueError: bad batch (train.py:7)")
    assert prediction.iteration_time_ms is None


def test_a_failed_job_may_lack_the_traces_of_ranks_that_were_ended(
    tmp_path: Path, synthetic_run: Callable[..., Any]
) -> None:
    stopped = {"ended": "interrupted", "exit_code": 143}
    raised = {"ended": "exception", "exit_code": 1, "cause": {"type": "ValueError", "message": "no"}}
    synthetic_run(world_size=3, outcomes={0: stopped, 1: raised, 2: stopped}).write(tmp_path)
    (tmp_path / "rank-2.et").unlink()
    classes = merge_equal_ranks(tmp_path, 3)
    assert [group.ranks for group in classes] == [(0, 1), (2,)]
    run = predict(tmp_path, manifest(classes, 3))
    assert run.priced is None
    assert str(run.prediction.cause).startswith("rank 1: ValueError: no")


def test_groups_called_in_another_order_are_a_deadlock_that_is_explained(
    job: Callable[..., PredictedRun],
) -> None:
    assert job(groups=2).prediction.verdict == "ok"
    run = job(groups=2, swapped_rank=3)
    assert run.priced is None
    assert run.prediction.verdict == "failed"
    cause = str(run.prediction.cause)
    assert "deadlock" in cause
    assert "c10d::allreduce_ (operation " in cause
    assert ", train.py:10), number 0 of communicator '0', waits for ranks [3]" in cause
    assert "number 0 of communicator '1', waits for ranks [0, 1, 2]" in cause
    assert "\n" not in cause


def test_peak_memory_of_each_class(job: Callable[..., PredictedRun]) -> None:
    small = {"memory": {"allocated": 1, "reserved": 2, "capacity": 100}}
    prediction = job(slow_rank=2, outcomes={0: small}).prediction
    assert prediction.peak_memory_bytes is not None
    assert {rank: peak.reserved for rank, peak in prediction.peak_memory_bytes.items()} == {0: 2, 2: 2 << 30}
    value = json.loads(prediction.to_json())
    assert value["peak_memory_bytes"]["reserved"] == 2 << 30
    assert set(value["peak_memory_bytes"]["rank_classes"]) == {"0", "2"}


def test_ranks_on_two_nodes_communicate_over_the_network(
    job: Callable[..., PredictedRun], tmp_path: Path
) -> None:
    one = job().prediction
    run_dir = tmp_path / "run.maya"
    apart = replace(read_manifest(run_dir), options={"nproc_per_node": 2})
    two = predict(run_dir, apart).prediction
    assert one.communication is not None
    assert two.communication is not None
    assert two.communication.total_ms > 2 * one.communication.total_ms
    assert "ranks communicate as on DGX-H100, one node" in _told(one)
    assert "ranks communicate as on DGX-H100, 2 nodes of 2 ranks" in _told(two)
    assert one.top_kernels[0].name == "all-reduce bfloat16 8.0 MiB x4"
    assert one.top_kernels[0].family == "communication"


def test_ranks_that_never_communicate(job: Callable[..., PredictedRun]) -> None:
    prediction = job(communicates=False).prediction
    assert prediction.communication is None
    assert "the ranks never communicate" in _told(prediction)
    assert "ranks communicate as" not in _told(prediction)
    alone = job(world_size=1).prediction
    assert prediction.iteration_time_ms == alone.iteration_time_ms
    assert prediction.samples_per_s == pytest.approx(4 * (alone.samples_per_s or 0))
    assert "never communicate" not in _told(alone)


def _told(prediction: Any) -> str:
    return " | ".join(str(entry.value) for entry in prediction.assumptions)
