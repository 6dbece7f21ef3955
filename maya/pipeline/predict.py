"""From a run folder's trace files to its prediction: the same files give the same prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from maya.errors import EXIT_FAILURE, MayaError
from maya.hardware import find_gpu, find_host
from maya.kernel_models import KernelCostModel
from maya.pipeline.assumptions import assumptions_of, model_assumptions
from maya.pipeline.communication import communication
from maya.pipeline.cost import cost_of, price_from_options
from maya.pipeline.interval import iteration_interval
from maya.pipeline.models import default_models
from maya.pipeline.outcome import RankOutcome, read_outcome
from maya.pipeline.priced_run import PricedRank, PricedRun, TransferPrices, price_run, slowest_of
from maya.pipeline.shares import coverage, top_kernels
from maya.pipeline.throughput import throughput
from maya.pipeline.verdict import Verdict, judge
from maya.reports.prediction import (
    FAILED,
    NS_PER_MS,
    OK,
    OOM,
    Prediction,
    RankClassTimes,
    RankMemory,
    TimeParts,
)
from maya.simulator import CommunicationError, breakdown
from maya.traces import Ended, Kind, Manifest, RankTrace, read_rank, trace_path

DATA_LOADING = "data_loading"
"""Key of `Manifest.options`: "excluded" or "measured"."""
FAILED_RANK = "failed_rank"
"""Key of `Manifest.options`: the rank that failed first, where one did."""
HANG_CAUSE = "hang"
"""Key of `Manifest.options`: what the ranks waited for, where they waited for each other."""

_WORST_LAST = (OK, OOM, FAILED)


@dataclass(frozen=True)
class PredictedRun:
    """A prediction and what it was computed from.

    Attributes:
        prediction: the answer.
        priced: None if the trace holds no work, or cannot be simulated.
        cannot_meet: the simulation found ranks that wait for each other for ever.
    """

    prediction: Prediction
    priced: PricedRun | None
    cannot_meet: bool = False


def predict(
    run_dir: Path,
    manifest: Manifest,
    model: KernelCostModel | None = None,
    prices: TransferPrices | None = None,
) -> PredictedRun:
    """Price and simulate a recorded run.

    Args:
        run_dir: whole or partial run folder.
        manifest: its manifest, which for a partial folder is not on disk yet.
        model: how long kernels take; Maya's own by default.
        prices: how long communication takes; Maya's own by default.

    Raises:
        MayaError: a file is missing or damaged.
    """
    outcomes = _outcomes(run_dir, manifest)
    verdict = _verdict(manifest, outcomes)
    base = Prediction(
        gpu=manifest.gpu,
        world_size=manifest.world_size,
        ranks_run=tuple(group.rank for group in manifest.rank_classes),
        verdict=verdict.verdict,
        cause=verdict.cause,
        peak_memory_bytes=_peaks(manifest, outcomes),
        command=manifest.command,
        torch=manifest.torch,
        rank_classes=tuple(RankClassTimes(group.rank, group.ranks) for group in manifest.rank_classes),
    )
    if base.verdict != OK and not all(trace_path(run_dir, rank).exists() for rank in base.ranks_run):
        return PredictedRun(base, None)  # a rank that was ended for another's failure may have left none
    try:
        priced = _price(run_dir, manifest, outcomes, model, prices)
    except CommunicationError as error:
        base = replace(base, assumptions=assumptions_of(_traces(run_dir, manifest)))
        if base.verdict != OK:  # ranks that were stopped in the middle of something cannot meet
            return PredictedRun(base, None)
        return PredictedRun(replace(base, verdict=FAILED, cause=_one_line(error)), None, cannot_meet=True)
    base = replace(base, assumptions=assumptions_of([rank.trace for rank in priced.ranks]))
    if not any(map(_uses_device, priced.ranks)):
        cause = base.cause or "the script ran no operation on the GPU, so there is nothing to predict"
        verdict_word = FAILED if base.verdict == OK else base.verdict
        return PredictedRun(replace(base, verdict=verdict_word, cause=cause), None)
    if base.verdict != OK:
        return PredictedRun(base, priced)
    return PredictedRun(_with_times(base, priced, manifest), priced)


def _verdict(manifest: Manifest, outcomes: Mapping[int, RankOutcome]) -> Verdict:
    """Of a job: a hang, the rank that failed first, or the one that came off worst."""
    if manifest.ended == Ended.HANG:
        return Verdict(FAILED, str(manifest.options.get(HANG_CAUSE) or manifest.cause), EXIT_FAILURE)
    first = manifest.options.get(FAILED_RANK)
    if manifest.world_size > 1 and isinstance(first, int) and first in outcomes:
        verdict = judge(outcomes[first])
        if verdict.verdict != OK:
            return replace(verdict, cause=f"rank {first}: {verdict.cause}")
    return worst_verdict(outcomes)


def worst_verdict(outcomes: Mapping[int, RankOutcome]) -> Verdict:
    """The verdict of the rank that came off worst, which several ranks' sentences name.

    Of equally bad ones a rank that failed by itself wins over one that was then stopped, and the
    lower rank.
    """
    verdicts = {rank: judge(outcome) for rank, outcome in outcomes.items()}

    def badness(rank: int) -> tuple[int, bool, int]:
        return _WORST_LAST.index(verdicts[rank].verdict), outcomes[rank].ended != Ended.INTERRUPTED, -rank

    worst = max(verdicts, key=badness)
    found = verdicts[worst]
    if len(outcomes) > 1 and found.cause:
        return replace(found, cause=f"rank {worst}: {found.cause}")
    return found


def _price(
    run_dir: Path,
    manifest: Manifest,
    outcomes: Mapping[int, RankOutcome],
    model: KernelCostModel | None,
    prices: TransferPrices | None,
) -> PricedRun:
    gpu = find_gpu(manifest.gpu)
    models = default_models(manifest, gpu)
    waits = {group.rank: outcomes[group.rank].data_wait_ns for group in manifest.rank_classes}
    return price_run(
        run_dir,
        manifest.rank_classes,
        gpu=gpu,
        host=find_host(manifest.host),
        model=models.kernels if model is None else model,
        warmup=manifest.settings.warmup,
        data_wait_ns=waits if manifest.options.get(DATA_LOADING) == "measured" else None,
        prices=models.transfers if prices is None else prices,
    )


def _with_times(base: Prediction, priced: PricedRun, manifest: Manifest) -> Prediction:
    window = priced.window
    low_ns, high_ns = iteration_interval(priced)
    rates = throughput(priced)
    price = price_from_options(manifest.options)
    per_second = 1e9 / window.iteration_ns if window.iteration_ns else 0.0
    parts_ns = _parts(priced, priced.slowest)
    return replace(
        base,
        scope="run" if window.is_whole_run else "iteration",
        iterations=window.iterations,
        iteration_time_ms=window.iteration_ns / NS_PER_MS,
        low_ms=low_ns / NS_PER_MS,
        high_ms=high_ns / NS_PER_MS,
        breakdown=_in_ms(parts_ns),
        tokens_per_s=rates.tokens * per_second or None,
        samples_per_s=rates.samples * per_second or None,
        model_flops_per_step=rates.model_flops,
        mfu=rates.mfu,
        mfu_peak=rates.peak_key,
        cost=None if price is None else cost_of(price, window.iteration_ns, manifest.world_size),
        top_kernels=top_kernels(priced.slowest),
        coverage=coverage(priced.slowest),
        assumptions=base.assumptions + model_assumptions(priced, manifest),
        communication=communication(priced, exposed_ns=parts_ns[1]),
        rank_classes=tuple(_times_of(each, priced) for each in base.rank_classes),
        slowest_rank=priced.slowest.rank,
    )


def _times_of(group: RankClassTimes, priced: PricedRun) -> RankClassTimes:
    slowest = slowest_of([each for each in priced.ranks if each.rank in group.ranks])
    return replace(
        group,
        iteration_time_ms=slowest.window.iteration_ns / NS_PER_MS,
        breakdown=_in_ms(_parts(priced, slowest)),
    )


def _in_ms(parts_ns: Sequence[int]) -> TimeParts:
    return TimeParts(*(part / NS_PER_MS for part in parts_ns))


def _parts(priced: PricedRun, rank: PricedRank) -> list[int]:
    """The window's breakdown per iteration, in ns that add up to `Window.iteration_ns` exactly."""
    window = rank.window
    start, end = np.array([window.start_ns]), np.array([window.end_ns])
    whole = breakdown(priced.timeline, start, end, rank=rank.rank)[0]
    parts = (whole.compute_ns, whole.exposed_communication_ns, whole.host_ns, whole.idle_ns)
    shared: list[int] = []
    so_far = before = 0
    for part in parts:  # rounding the running sum, as iteration_ns rounds the whole, loses no ns
        so_far += part
        upto = (2 * so_far + window.iterations) // (2 * window.iterations)
        shared.append(upto - before)
        before = upto
    return shared


def _uses_device(rank: PricedRank) -> bool:
    kinds = rank.trace.operations.rows["kind"]
    return bool((kinds != Kind.HOST).any() and (kinds[kinds != Kind.HOST] != Kind.MARKER).any())


def _outcomes(run_dir: Path, manifest: Manifest) -> dict[int, RankOutcome]:
    """Rank → outcome, of every rank that left one; each class's representative must have."""
    outcomes: dict[int, RankOutcome] = {}
    for group in manifest.rank_classes:
        for rank in group.ranks:
            outcome = read_outcome(run_dir, rank)
            if outcome is not None:
                outcomes[rank] = outcome
            elif rank == group.rank:
                raise MayaError(f"{run_dir}: rank {rank} left no outcome", hint="record the run again")
    return outcomes


def _peaks(manifest: Manifest, outcomes: Mapping[int, RankOutcome]) -> Mapping[int, RankMemory] | None:
    peaks = {
        group.rank: RankMemory(memory.allocated, memory.reserved, memory.capacity)
        for group in manifest.rank_classes
        if (memory := outcomes[group.rank].memory) is not None
    }
    return peaks or None


def _traces(run_dir: Path, manifest: Manifest) -> Sequence[RankTrace]:
    return [read_rank(run_dir, group.rank) for group in manifest.rank_classes]


def _one_line(error: MayaError) -> str:
    lines = [" ".join(line.split()) for line in error.message.splitlines()]
    return "; ".join(lines).replace(":; ", ": ")


def failed_prediction(gpu: str, cause: str, command: tuple[str, ...], *, world_size: int = 1) -> Prediction:
    """The prediction of a run that left no trace: a crash, a timeout."""
    return Prediction(
        gpu=gpu,
        world_size=world_size,
        ranks_run=tuple(range(world_size)),
        verdict=FAILED,
        cause=cause,
        command=command,
    )
