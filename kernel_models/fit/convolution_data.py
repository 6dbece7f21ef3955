"""Convolution rows: single kernels, and TrioSim's layers whose backward is both gradients."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from maya.kernel_models.families.convolution import DATA, FORWARD, WEIGHT, convolution_work
from maya.kernel_models.fit.measurements import Measurements, resolve_gpu
from maya.kernel_models.fit.sampling import sample
from maya.traces.tables import TensorMetadata

ROWS_PER_GPU = 500
"""Event-timed sweeps; more of them would drown the few hundred kernel times of DeepBench and the traces."""
EVENT_TIMED_MINIMUM_US = 80.0
DIRECTIONS = {"conv2d_fwd": FORWARD, "conv2d_bwd_data": DATA, "conv2d_bwd_weight": WEIGHT}


def dense(shape: list[int], dtype: str = "float32") -> TensorMetadata:
    """A contiguous tensor."""
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size
    return TensorMetadata(dtype, tuple(shape), tuple(stride))


def channels_last(shape: list[int], dtype: str = "float32") -> TensorMetadata:
    """A tensor whose channels (axis 1) are neighbours in memory."""
    moved = dense([shape[0], *shape[2:], shape[1]], dtype).stride
    return TensorMetadata(dtype, tuple(shape), (moved[0], moved[-1], *moved[1:-1]))


def parse_shapes(text: str) -> list[list[int]]:
    """TrioSim's `[a, b]; [c]`."""
    return [json.loads(part) for part in text.split(";") if part.strip()]


def load_convolution(data: Path) -> list[Measurements]:
    """`convolution`."""
    table = pd.read_parquet(data / "kernels" / "conv2d.parquet")
    event_timed = table["source"].astype(str).str.startswith("NeuSight")
    table = table[~event_timed | (table["time_us"] > EVENT_TIMED_MINIMUM_US)]
    result = Measurements("convolution")
    for keys, rows in table.groupby(["gpu", "dtype", "op"], observed=True, sort=True):
        gpu = resolve_gpu(str(keys[0]))
        if gpu is None:
            continue
        # NeuSight's A100 rows are Winograd and SIMT kernels at the float32 peak, as on GPUs without TF32.
        math = str(keys[1])
        dtype = "float32" if keys[1] == "fp32" else "float16"
        for row in sample(rows, ROWS_PER_GPU).itertuples(index=False):
            image = dense([row.b, row.c_in, row.h, row.w], dtype)
            weight = dense([row.c_out, row.c_in, row.r, row.s], dtype)
            out = dense([row.b, row.c_out, row.p, row.q], dtype)
            work = convolution_work(math, DIRECTIONS[str(row.op)], image, weight, out, 1, int(row.stride_h))
            source = str(row.source)
            extra = f"NeuSight {gpu.name}" if source.startswith("NeuSight") else ""
            result.add([work], gpu, row.time_us, (row.c_in, row.c_out), source, extra)
    _add_layers(result, data)
    return [result]


def _add_layers(result: Measurements, data: Path) -> None:
    table = pd.read_parquet(data / "kernels" / "train_ops_triosim.parquet")
    for row in table.itertuples(index=False):
        gpu = resolve_gpu(str(row.gpu))
        operator = str(row.op)
        if gpu is None or ("conv2d" not in operator and "ConvolutionBackward0" not in operator):
            continue
        inputs, outputs = parse_shapes(str(row.in_shapes)), parse_shapes(str(row.out_shapes))
        if "conv2d" in operator:
            tensors = (inputs[0], inputs[1], outputs[0])
            directions = [FORWARD]
        else:
            found = _backward_tensors(inputs, outputs)
            if found is None:
                continue
            *_, has_data = found
            tensors = found[:3]
            directions = [DATA, WEIGHT] if has_data else [WEIGHT]
        image, weight, out = (dense(list(shape)) for shape in tensors)
        if len(image.shape) != 4 or len(weight.shape) != 4 or len(out.shape) != 4:
            continue
        stride = max(1, round(image.shape[2] / max(out.shape[2], 1)))
        works = [convolution_work("tf32", d, image, weight, out, 1, stride) for d in directions]
        result.add(works, gpu, row.time_us, (image.shape[1], weight.shape[0]), str(row.source))


def _backward_tensors(
    inputs: list[list[int]], outputs: list[list[int]]
) -> tuple[list[int], list[int], list[int], bool] | None:
    """(image, weight, gradient of the result, whether the image's gradient was wanted)."""
    weights = [s for s in outputs if len(s) == 4]
    gradients = [s for s in inputs if len(s) == 4]
    if len(weights) < 1 or len(gradients) < 1:
        return None
    if len(weights) == 2:
        return weights[0], weights[1], gradients[0], True
    return None
