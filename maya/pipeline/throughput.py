"""Samples, tokens and model FLOPs of an iteration, and what they make of the GPU's peak."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.kernel_models import model_flops
from maya.pipeline.priced_run import PricedRank, PricedRun
from maya.traces import (
    MARK_BATCH,
    CollectiveType,
    Kind,
    OperatorMetadata,
    Phase,
    RankTrace,
    TensorMetadata,
    parse_metadata,
)

PEAK_OF_DTYPE = {
    "float64": "fp64_tensor",
    "float16": "fp16",
    "bfloat16": "bf16",
}
"""dtype of a matrix product's operands → key of `GpuSpec.peak_tflops`; float8* is fp8, float32 depends."""


REDUCING = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_TO_ALL)
ACTIVATION_BYTES = 1 << 16
"""Smaller tensors than this are statistics and flags."""


@dataclass(frozen=True)
class Throughput:
    """Of the whole job.

    Attributes:
        samples, tokens: an iteration's, mean over the window; 0 if unknown, as where ranks may
            work on the same batch (`may_share_batches`).
        model_flops: an iteration's, recomputation left out.
        peak_key: the peak most of them run against, None without such FLOPs or peak.
        mfu: model FLOPs over iteration time and that peak of all GPUs.
    """

    samples: float
    tokens: float
    model_flops: int
    peak_key: str | None
    mfu: float | None


def throughput(run: PricedRun) -> Throughput:
    """What the windows' markers and matrix products say, summed over the ranks."""
    samples = tokens = 0.0
    flops_a_step = 0
    flops_in_window = 0.0  # of the slowest rank's, whose time is the job's
    of_peak: dict[str, int] = {}
    for rank in run.ranks:
        window, copies = rank.window, len(rank.ranks)
        of_rank = _batch(rank.trace, window.first, window.last)
        samples += copies * of_rank[0] / window.iterations
        tokens += copies * of_rank[1] / window.iterations
        flops = model_flops(rank.trace.operations, rank.trace.tables, rank.times)
        total_flops = int(flops[window.first : window.last].sum())
        flops_a_step += copies * (total_flops // window.iterations)
        flops_in_window += copies * (total_flops * run.window.iterations / window.iterations)
        for key, count in _of_peaks(rank, flops, run.gpu).items():
            of_peak[key] = of_peak.get(key, 0) + copies * count
    if run.world_size > 1 and may_share_batches(run):
        samples = tokens = 0.0
    peak_key = max(of_peak, key=lambda key: (of_peak[key], key), default=None) if flops_a_step else None
    seconds = (run.window.end_ns - run.window.start_ns) / 1e9
    mfu = None
    if peak_key is not None and seconds > 0:
        mfu = flops_in_window / seconds / (run.gpu.peak_tflops[peak_key] * 1e12 * run.world_size)
    return Throughput(samples, tokens, flops_a_step, peak_key, mfu)


def may_share_batches(run: PricedRun) -> bool:
    """Whether ranks may share a batch, so that their samples must not be added up.

    Data parallelism, replicated or sharded, reduces gradients over all ranks in the backward pass and
    at most gathers in the forward pass. Reductions or exchanges of activations on the way forward are
    tensor, sequence or expert parallelism; messages and smaller groups may be pipelines.
    """
    return any(_shares_a_batch(rank, run.world_size) for rank in run.ranks)


def _shares_a_batch(rank: PricedRank, world_size: int) -> bool:
    operations, tables = rank.trace.operations, rank.trace.tables
    rows = operations.rows[rank.window.first : rank.window.last]
    if np.isin(rows["kind"], (Kind.SEND, Kind.RECV)).any():
        return True
    collective = rows[(rows["kind"] == Kind.COLLECTIVE) & (rows["communication"] >= 0)]
    details = operations.communications[collective["communication"]]
    sizes = np.asarray([len(group.ranks) for group in tables.communicators] or [0])
    members = sizes[details["communicator"]] if len(details) else np.zeros(0, dtype=np.int64)
    if ((members > 1) & (members < world_size)).any():
        return True
    forward = np.isin(collective["phase"], (Phase.FORWARD, Phase.RECOMPUTE))
    large = np.maximum(details["input_bytes"], details["output_bytes"]) >= ACTIVATION_BYTES
    return bool((forward & large & np.isin(details["collective"], REDUCING) & (members > 1)).any())


def _batch(trace: RankTrace, first: int, last: int) -> tuple[int, int]:
    """Samples and tokens that the batch markers of `first <= id < last` announce together."""
    if MARK_BATCH not in trace.tables.operators:
        return 0, 0
    rows = trace.operations.rows[first:last]
    marks = (rows["operator"] == trace.tables.operators.index(MARK_BATCH)) & (rows["kind"] == Kind.MARKER)
    kinds, counts = np.unique(rows["metadata"][marks], return_counts=True)
    samples = tokens = 0
    for index, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        announced = parse_metadata(trace.tables.metadata[index]).args
        samples += count * int(announced.get("samples") or 0)
        tokens += count * int(announced.get("tokens") or 0)
    return samples, tokens


def _of_peaks(run: PricedRank, flops: NDArray[np.int64], gpu: GpuSpec) -> dict[str, int]:
    """Key of `peak_tflops` → the window's model FLOPs that run against it."""
    tables = run.trace.tables
    rows = run.trace.operations.rows[run.window.first : run.window.last]
    counted = flops[run.window.first : run.window.last]
    chosen = (counted > 0) & (rows["metadata"] >= 0)
    pairs, index = np.unique(rows[["operator", "metadata"]][chosen], return_inverse=True)
    of_pair = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(of_pair, index.reshape(-1), counted[chosen])
    of_peak: dict[str, int] = {}
    for (operator, metadata), total in zip(pairs.tolist(), of_pair.tolist(), strict=True):
        key = _peak_of(tables.operators[operator], parse_metadata(tables.metadata[metadata]))
        if key == "tf32" and key not in gpu.peak_tflops:
            key = "fp32"  # before Ampere the permission to use TF32 means nothing
        if key in gpu.peak_tflops:
            of_peak[key] = of_peak.get(key, 0) + total
    return of_peak


def _peak_of(operator: str, metadata: OperatorMetadata) -> str:
    tensors = [tensor for tensor in metadata.input_tensors() if _is_matrix(tensor)]
    dtype = tensors[0].dtype if tensors else "float32"
    if dtype.startswith("float8"):
        return "fp8"
    if dtype == "float32":
        # PyTorch's defaults where the trace does not say: TF32 for convolutions, not for products.
        math = metadata.math or ("tf32" if "conv" in operator else "ieee")
        return "tf32" if math == "tf32" else "fp32"
    return PEAK_OF_DTYPE.get(dtype, "fp32")


def _is_matrix(tensor: TensorMetadata) -> bool:
    return len(tensor.shape) >= 2 and not tensor.scalar
