"""From a run folder's trace files to its prediction: the same files give the same prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from maya.errors import MayaError
from maya.hardware import find_gpu, find_host
from maya.kernel_models import KernelCostModel, RooflineModel
from maya.pipeline.assumptions import assumptions_of, model_assumptions
from maya.pipeline.cost import cost_of, price_from_options
from maya.pipeline.interval import iteration_interval
from maya.pipeline.outcome import RankOutcome, read_outcome
from maya.pipeline.priced_run import PricedRun, price_run
from maya.pipeline.shares import coverage, top_kernels
from maya.pipeline.throughput import throughput
from maya.pipeline.verdict import judge
from maya.reports.prediction import FAILED, NS_PER_MS, OK, Prediction, RankMemory, TimeParts
from maya.simulator import breakdown
from maya.traces import Kind, Manifest

DATA_LOADING = "data_loading"
"""Key of `Manifest.options`: "excluded" or "measured"."""


@dataclass(frozen=True)
class PredictedRun:
    """A prediction and what it was computed from; `priced` is None if the trace holds no work."""

    prediction: Prediction
    priced: PricedRun | None


def predict(run_dir: Path, manifest: Manifest, model: KernelCostModel | None = None) -> PredictedRun:
    """Price and simulate a recorded run.

    Args:
        run_dir: whole or partial run folder.
        manifest: its manifest, which for a partial folder is not on disk yet.
        model: how long kernels take; Maya's own by default.

    Raises:
        MayaError: a file is missing or damaged.
    """
    rank = manifest.rank_classes[0].rank
    outcome = read_outcome(run_dir, rank)
    if outcome is None:
        raise MayaError(f"{run_dir}: rank {rank} left no outcome", hint="record the run again")
    verdict = judge(outcome)
    base = Prediction(
        gpu=manifest.gpu,
        world_size=manifest.world_size,
        ranks_run=tuple(group.rank for group in manifest.rank_classes),
        verdict=verdict.verdict,
        cause=verdict.cause,
        peak_memory_bytes=_peaks(rank, outcome),
        command=manifest.command,
        torch=manifest.torch,
    )
    priced = price_run(
        run_dir,
        rank=rank,
        gpu=find_gpu(manifest.gpu),
        host=find_host(manifest.host),
        model=RooflineModel() if model is None else model,
        warmup=manifest.settings.warmup,
        data_wait_ns=outcome.data_wait_ns if manifest.options.get(DATA_LOADING) == "measured" else 0,
    )
    base = replace(base, assumptions=assumptions_of(priced.trace))
    if not _uses_device(priced):
        cause = base.cause or "the script ran no operation on the GPU, so there is nothing to predict"
        verdict_word = FAILED if base.verdict == OK else base.verdict
        return PredictedRun(replace(base, verdict=verdict_word, cause=cause), None)
    if base.verdict != OK:
        return PredictedRun(base, priced)
    return PredictedRun(_with_times(base, priced, manifest), priced)


def _with_times(base: Prediction, priced: PricedRun, manifest: Manifest) -> Prediction:
    window = priced.window
    low_ns, high_ns = iteration_interval(priced)
    rates = throughput(priced)
    price = price_from_options(manifest.options)
    per_second = 1e9 / window.iteration_ns * manifest.world_size if window.iteration_ns else 0.0
    return replace(
        base,
        scope="run" if window.is_whole_run else "iteration",
        iterations=window.iterations,
        iteration_time_ms=window.iteration_ns / NS_PER_MS,
        low_ms=low_ns / NS_PER_MS,
        high_ms=high_ns / NS_PER_MS,
        breakdown=_parts(priced),
        tokens_per_s=rates.tokens * per_second or None,
        samples_per_s=rates.samples * per_second or None,
        model_flops_per_step=rates.model_flops,
        mfu=rates.mfu,
        mfu_peak=rates.peak_key,
        cost=None if price is None else cost_of(price, window.iteration_ns, manifest.world_size),
        top_kernels=top_kernels(priced),
        coverage=coverage(priced),
        assumptions=base.assumptions + model_assumptions(priced, manifest),
    )


def _parts(priced: PricedRun) -> TimeParts:
    """The window's breakdown per iteration, in ns that add up to `Window.iteration_ns` exactly."""
    window = priced.window
    whole = breakdown(priced.timeline, np.array([window.start_ns]), np.array([window.end_ns]))[0]
    parts = (whole.compute_ns, whole.exposed_communication_ns, whole.host_ns, whole.idle_ns)
    shared: list[int] = []
    so_far = before = 0
    for part in parts:  # rounding the running sum, as iteration_ns rounds the whole, loses no ns
        so_far += part
        upto = (2 * so_far + window.iterations) // (2 * window.iterations)
        shared.append(upto - before)
        before = upto
    return TimeParts(*(part / NS_PER_MS for part in shared))


def _uses_device(priced: PricedRun) -> bool:
    kinds = priced.trace.operations.rows["kind"]
    return bool((kinds != Kind.HOST).any() and (kinds[kinds != Kind.HOST] != Kind.MARKER).any())


def _peaks(rank: int, outcome: RankOutcome) -> Mapping[int, RankMemory] | None:
    memory = outcome.memory
    return None if memory is None else {rank: RankMemory(memory.allocated, memory.reserved, memory.capacity)}


def failed_prediction(gpu: str, cause: str, command: tuple[str, ...]) -> Prediction:
    """The prediction of a run that left no trace: a crash, a timeout."""
    return Prediction(gpu=gpu, world_size=1, ranks_run=(0,), verdict=FAILED, cause=cause, command=command)
