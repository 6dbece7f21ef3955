"""ResNets inside Kineto traces without shapes: convolutions, batch norms and pools, shaped by the network.

Two traces train ResNet-50 on 32 images, one ResNet-18 on 128; all are float32 and channels-first. A
trace gives kernels in order, not shapes, so the shapes come from the network's definition, and every step is
checked against the grids of its batch norms (one block a channel). A step that does not fit is an error.

From each step: the whole of every convolution call as its kernels' sum (layout conversions included), and
apart from that the single channels-last kernels inside, which are what a channels-last network runs.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maya.errors import MayaError
from maya.kernel_models.families.convolution import DATA, FORWARD, WEIGHT, convolution_work
from maya.kernel_models.fit.convolution_data import channels_last, dense
from maya.kernel_models.fit.measurements import Measurements, resolve_gpu
from maya.kernel_models.fit.memory_data import call
from maya.kernel_models.work import KernelWork

IMAGE = 224
CONVOLUTION, CONVOLUTION_BACKWARD = "aten::cudnn_convolution", "aten::convolution_backward"
NORM, NORM_BACKWARD = "aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward"
POOL, POOL_BACKWARD = "aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward"
OPERATORS = (CONVOLUTION, CONVOLUTION_BACKWARD, NORM, NORM_BACKWARD, POOL, POOL_BACKWARD)
PREPARATIONS = ("computeOffsets", "computeBOffsets", "nchwToNhwc", "nhwcToNchw", "Memset")
"""Kernels of a convolution call that are not the convolution."""


@dataclass(frozen=True)
class Trace:
    """A trace file and the network in it: its GPU, batch, blocks' kind, and arithmetic.

    RTX 2080 Ti convolutions are left out of the fit: one Turing fit cannot hold both that card and the T4 of
    the other Turing rows, whose 70 W keep it far below its nominal clock (the card is 1.6 times faster for
    its peak).
    """

    name: str
    gpu: str
    batch: int
    bottleneck: bool
    math: str
    convolutions: bool = True


TRACES = (
    Trace("hta_a100_2gpu_nccl_data_rank0.json.gz", "A100-SXM4-40GB", 32, True, "tf32"),
    Trace("hta_v100_32g_1gpu_ns_resolution.json.gz", "V100-SXM2-32GB", 32, True, "fp32"),
    Trace("param_2080ti_resnet.json.gz", "RTX2080Ti", 128, False, "fp32", convolutions=False),
)


@dataclass(frozen=True)
class Layer:
    """A convolution: channels, taps along an edge, stride, edge of the input image."""

    c_in: int
    c_out: int
    taps: int
    stride: int
    edge: int

    @property
    def out_edge(self) -> int:
        """Edge of the result ("same" padding)."""
        return self.edge // self.stride


def layers_of(bottleneck: bool) -> list[Layer]:
    """ResNet-50's or ResNet-18's convolutions in forward order (He et al. 2015; stride in the 3x3)."""
    layers = [Layer(3, 64, 7, 2, IMAGE)]
    channels, edge = 64, IMAGE // 4
    depths = (3, 4, 6, 3) if bottleneck else (2, 2, 2, 2)
    for stage, blocks in enumerate(depths):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            small = edge // stride
            result = 4 * width if bottleneck else width
            if bottleneck:
                layers.append(Layer(channels, width, 1, 1, edge))
                layers.append(Layer(width, width, 3, stride, edge))
                layers.append(Layer(width, result, 1, 1, small))
            else:
                layers.append(Layer(channels, width, 3, stride, edge))
                layers.append(Layer(width, width, 3, 1, small))
            if channels != result or stride != 1:
                layers.append(Layer(channels, result, 1, stride, edge))
            channels, edge = result, small
    return layers


@dataclass(frozen=True)
class Kernel:
    """One launch: name, blocks along x, microseconds."""

    name: str
    blocks: int
    time_us: float


def calls(events: Iterable[dict[str, Any]]) -> dict[str, list[list[Kernel]]]:
    """Operator → its calls in order of time, each the kernels that it launched."""
    kernels: dict[Any, list[Kernel]] = defaultdict(list)
    launches: dict[Any, list[tuple[float, Any]]] = defaultdict(list)
    operators: list[tuple[float, float, Any, str]] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        category, arguments = event.get("cat"), event.get("args", {})
        start = float(event["ts"])
        if category in ("kernel", "gpu_memset", "gpu_memcpy"):
            grid = arguments.get("grid") or [1]
            found = Kernel(str(event["name"]), int(grid[0]), float(event["dur"]))
            kernels[arguments.get("correlation")].append(found)
        elif category == "cuda_runtime":
            launches[event["tid"]].append((start, arguments.get("correlation")))
        elif category == "cpu_op" and event["name"] in OPERATORS:
            operators.append((start, start + float(event["dur"]), event["tid"], str(event["name"])))
    for issued in launches.values():
        issued.sort(key=lambda launch: launch[0])
    result: dict[str, list[list[Kernel]]] = defaultdict(list)
    for start, end, thread, name in sorted(operators):
        issued = launches[thread]
        first = bisect_left(issued, start, key=lambda launch: launch[0])
        last = bisect_left(issued, end, key=lambda launch: launch[0])
        result[name].append([kernel for _, key in issued[first:last] for kernel in kernels.get(key, [])])
    return result


def load_networks(data: Path) -> list[Measurements]:
    """`convolution`, `batch_norm`, `batch_norm_backward`, `pool_forward`, `pool_backward`."""
    found: dict[str, Measurements] = {}
    for trace in TRACES:
        gpu = resolve_gpu(trace.gpu)
        if gpu is None:
            continue
        with gzip.open(data / "traces" / trace.name, "rt") as handle:
            of_operator = calls(json.load(handle)["traceEvents"])
        for works, times, key in _rows(trace, of_operator):
            family = works[0].family
            rows = found.setdefault(family, Measurements(family))
            rows.add(works, gpu, float(np.median(times)), key, trace.name)
    return list(found.values())


Row = tuple[list[KernelWork], list[float], object]


def _rows(trace: Trace, of_operator: dict[str, list[list[Kernel]]]) -> list[Row]:
    layers = layers_of(trace.bottleneck)
    steps = {name: _steps(trace, of_operator, name, len(layers)) for name in OPERATORS[:4]}
    rows: list[Row] = []
    for position, layer in enumerate(layers):
        back = len(layers) - 1 - position
        norms = [step[position] for step in steps[NORM]], [step[back] for step in steps[NORM_BACKWARD]]
        for calls_of_layer in norms:
            if any(call_[-1].blocks != layer.c_out for call_ in calls_of_layer):
                raise MayaError(f"{trace.name}: the batch norms are not those of the expected network")
        rows += _norm_rows(trace, layer, *norms)
        forward = [step[position] for step in steps[CONVOLUTION]]
        backward = [step[back] for step in steps[CONVOLUTION_BACKWARD]]
        if trace.convolutions:
            rows += _convolution_rows(trace, layer, forward, backward, has_data=position > 0)
    return rows + _pool_rows(trace, of_operator)


def _steps(
    trace: Trace, of_operator: dict[str, list[list[Kernel]]], name: str, count: int
) -> list[list[list[Kernel]]]:
    found = of_operator[name]
    if not found or len(found) % count:
        raise MayaError(f"{trace.name}: {len(found)} calls of {name}, want a multiple of {count}")
    return [found[first : first + count] for first in range(0, len(found), count)]


def _total(kernels: list[Kernel]) -> float:
    return sum(kernel.time_us for kernel in kernels)


def _norm_rows(
    trace: Trace, layer: Layer, forward: list[list[Kernel]], backward: list[list[Kernel]]
) -> list[Row]:
    tensor = dense([trace.batch, layer.c_out, layer.out_edge, layer.out_edge])
    key = (layer.c_out, layer.out_edge)
    there = call("cudnn_batch_norm", [tensor], input=tensor, training=True)
    back = call("cudnn_batch_norm_backward", [tensor], input=tensor)
    return [(there, [_total(k) for k in forward], key), (back, [_total(k) for k in backward], key)]


def _convolution_rows(
    trace: Trace, layer: Layer, forward: list[list[Kernel]], backward: list[list[Kernel]], *, has_data: bool
) -> list[Row]:
    image = [trace.batch, layer.c_in, layer.edge, layer.edge]
    weight = [layer.c_out, layer.c_in, layer.taps, layer.taps]
    out = [trace.batch, layer.c_out, layer.out_edge, layer.out_edge]
    key = (layer.c_in, layer.c_out)

    def work(direction: int, *, last: bool) -> KernelWork:
        make = channels_last if last else dense
        return convolution_work(trace.math, direction, make(image), make(weight), make(out), 1, layer.stride)

    gradients = [DATA, WEIGHT] if has_data else [WEIGHT]
    rows: list[Row] = [
        ([work(FORWARD, last=False)], [_total(k) for k in forward], key),
        ([work(d, last=False) for d in gradients], [_total(k) for k in backward], key),
    ]
    for direction, calls_, mark in (
        (FORWARD, forward, ""),
        (DATA, backward, "dgrad"),
        (WEIGHT, backward, "wgrad"),
    ):
        times = [_channels_last_time(kernels, mark) for kernels in calls_]
        if times and all(times) and (direction != DATA or has_data):
            rows.append(([work(direction, last=True)], times, key))
    return rows


def _channels_last_time(kernels: list[Kernel], mark: str) -> float:
    """Microseconds of the channels-last kernels whose name has `mark`; 0 if there is none."""
    chosen = [
        kernel.time_us
        for kernel in kernels
        if "nhwc" in kernel.name.lower()
        and mark in kernel.name
        and not any(word in kernel.name for word in PREPARATIONS)
    ]
    return sum(chosen) if len(chosen) == 1 else 0.0


def _pool_rows(trace: Trace, of_operator: dict[str, list[list[Kernel]]]) -> list[Row]:
    large = dense([trace.batch, 64, IMAGE // 2, IMAGE // 2])
    small = dense([trace.batch, 64, IMAGE // 4, IMAGE // 4])
    indices = dense(list(small.shape), "int64")
    there = call(POOL.removeprefix("aten::"), [small, indices], self=large, kernel_size=[3, 3])
    back = call(
        POOL_BACKWARD.removeprefix("aten::"),
        [large],
        grad_output=small,
        self=large,
        kernel_size=[3, 3],
        indices=indices,
    )
    forward, backward = ([_total(k) for k in of_operator[name]] for name in (POOL, POOL_BACKWARD))
    return [(there, forward, ("pool", 64)), (back, backward, ("pool", 64))]
