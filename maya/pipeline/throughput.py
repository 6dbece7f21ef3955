"""Samples, tokens and model FLOPs of an iteration, and what they make of the GPU's peak."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models import model_flops
from maya.pipeline.priced_run import PricedRun
from maya.traces import MARK_BATCH, Kind, OperatorMetadata, RankTrace, TensorMetadata, parse_metadata

PEAK_OF_DTYPE = {
    "float64": "fp64_tensor",
    "float16": "fp16",
    "bfloat16": "bf16",
}
"""dtype of a matrix product's operands → key of `GpuSpec.peak_tflops`; float8* is fp8, float32 depends."""


@dataclass(frozen=True)
class Throughput:
    """Of one rank.

    Attributes:
        samples, tokens: an iteration's, mean over the window; 0 if unknown.
        model_flops: an iteration's, recomputation left out.
        peak_key: the peak most of them run against, None without such FLOPs or peak.
        mfu: model FLOPs over iteration time and that peak.
    """

    samples: float
    tokens: float
    model_flops: int
    peak_key: str | None
    mfu: float | None


def throughput(run: PricedRun) -> Throughput:
    """What the window's markers and matrix products say."""
    samples, tokens = _batch(run.trace, run.window.first, run.window.last)
    iterations = run.window.iterations
    flops = model_flops(run.trace.operations, run.trace.tables, run.times)
    total_flops = int(flops[run.window.first : run.window.last].sum())
    peak_key = _main_peak(run, flops) if total_flops else None
    seconds = (run.window.end_ns - run.window.start_ns) / 1e9
    mfu = None
    if peak_key is not None and seconds > 0:
        mfu = total_flops / seconds / (run.gpu.peak_tflops[peak_key] * 1e12)
    return Throughput(samples / iterations, tokens / iterations, total_flops // iterations, peak_key, mfu)


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


def _main_peak(run: PricedRun, flops: NDArray[np.int64]) -> str | None:
    """The key of `peak_tflops` against which most of the window's model FLOPs run."""
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
        if key == "tf32" and key not in run.gpu.peak_tflops:
            key = "fp32"  # before Ampere the permission to use TF32 means nothing
        if key in run.gpu.peak_tflops:
            of_peak[key] = of_peak.get(key, 0) + total
    return max(of_peak, key=lambda key: (of_peak[key], key), default=None)


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
