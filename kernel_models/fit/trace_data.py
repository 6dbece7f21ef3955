"""Kernels of real Kineto traces: the only measurements of many small families.

The traces round to 1 µs (one V100 trace has nanoseconds) and run in a step's own context, caches
as the previous kernel left them: what a prediction is about.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pandas as pd

from maya.kernel_models.families import expand_operator
from maya.kernel_models.families.copies import link_copy
from maya.kernel_models.fit.convolution_data import dense
from maya.kernel_models.fit.measurements import Measurements, resolve_gpu
from maya.kernel_models.work import KernelWork
from maya.traces.tables import OperatorMetadata, TensorMetadata

DTYPES = {
    "float": "float32",
    "double": "float64",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "bool": "bool",
    "unsigned char": "uint8",
}
INPLACE_WITH_ARGS = (
    "add_",
    "mul_",
    "sub_",
    "div_",
    "addcmul_",
    "addcdiv_",
    "clamp_",
    "clamp_min_",
    "sqrt_",
    "exp_",
    "log_",
)
ELEMENTWISE = (
    "add sub mul div sqrt neg sigmoid tanh exp log pow abs clamp clamp_min threshold_backward where "
    "sigmoid_backward tanh_backward eq gt ge le lt nan_to_num logit"
)


def load_traces(data: Path) -> list[Measurements]:
    """Every family with rows in `trace_kernels`."""
    table = pd.read_parquet(data / "kernels" / "trace_kernels.parquet")
    found: dict[str, Measurements] = {}

    def add(works: list[KernelWork], row: Any, key: object) -> None:
        gpu = resolve_gpu(str(row.gpu))
        if gpu is not None and works:
            family = works[0].family
            time_us, trace = float(row.time_us), str(row.trace)
            found.setdefault(family, Measurements(family)).add(works, gpu, time_us, key, trace)

    for row in table.itertuples(index=False):
        kind = str(row.cat)
        if "mem" in kind:
            works = _engine_work(str(row.kernel), int(row.bytes))
            add(works, row, (str(row.kernel), int(row.bytes).bit_length()))
        elif kind == "kernel":
            tensors = _tensors(str(row.op_dims), str(row.op_types))
            if tensors:
                works = _kernel_work(str(row.op).removeprefix("aten::"), tensors, str(row.kernel))
                add(works, row, (str(row.op), str(row.op_dims)))
    return list(found.values())


def _engine_work(kernel: str, size: int) -> list[KernelWork]:
    if size <= 0:
        return []
    if kernel.startswith("Memset"):
        return [KernelWork("memset", "Memset", "fp32", 0, size, max(1, size // 8192), engine="hbm")]
    if "DtoD" in kernel:
        return [link_copy("d2d", size, False)]
    if "HtoD" in kernel:
        return [link_copy("h2d", size, "Pinned" in kernel)]
    if "DtoH" in kernel:
        return [link_copy("d2h", size, "Pinned" in kernel)]
    return []


def _tensors(dims: str, types: str) -> list[TensorMetadata]:
    if not (dims.endswith("]") and types.endswith("]")):  # absent, or cut off in the table
        return []
    shapes, names = ast.literal_eval(dims), ast.literal_eval(types)
    result = []
    for shape, name in zip(shapes, names, strict=False):
        if name in DTYPES and isinstance(shape, list) and all(isinstance(size, int) for size in shape):
            result.append(dense(shape, DTYPES[name]))
    return result


def _kernel_work(name: str, tensors: list[TensorMetadata], kernel: str) -> list[KernelWork]:
    largest = max(tensors, key=lambda tensor: tensor.numel)
    if largest.numel == 0:
        return []
    plain = name.removesuffix("_")
    if name in INPLACE_WITH_ARGS or plain in ELEMENTWISE.split():
        if "elementwise" not in kernel:
            return []
        out = tensors[0] if name.endswith("_") else largest
        return _expand(name, tensors, [out])
    if name == "fill_" and "elementwise" in kernel:
        return _expand("fill_", [], [tensors[0]])
    if name == "sum" and "reduce_kernel" in kernel:
        # The traces give no axis; the sums of training are over rows (bias gradients) or everything.
        rows = largest.shape[-1] if len(largest.shape) > 1 else 1
        return _expand("sum", [largest], [dense([rows], largest.dtype)])
    if (
        name == "copy_"
        and len(tensors) >= 2
        and tensors[0].shape == tensors[1].shape
        and "elementwise" in kernel
    ):
        return _copy(tensors[0], tensors[1])
    if name == "native_layer_norm_backward" and len(tensors) >= 2:
        works = expand_operator(
            f"aten::{name}",
            OperatorMetadata(
                {
                    "grad_out": tensors[0],
                    "input": tensors[1],
                    "normalized_shape": [tensors[1].shape[-1]],
                    "output_mask": [True, True, True],
                },
                (tensors[0],),
            ),
        )
        return works[1:] if "GammaBeta" in kernel else works[:1]
    if name in ("native_layer_norm",) and "vectorized" in kernel:
        return expand_operator(
            "aten::native_layer_norm",
            OperatorMetadata({"input": largest, "normalized_shape": [largest.shape[-1]]}, (largest,)),
        )
    if name == "gather" and len(tensors) >= 2 and "gather" in kernel:
        out = dense(list(tensors[1].shape), tensors[0].dtype)
        return _expand("gather", [], [out], self=tensors[0], index=tensors[1])
    if name == "scatter_add_" and len(tensors) >= 3 and "scatter" in kernel:
        return _expand("scatter_add_", [], [tensors[0]], self=tensors[0], index=tensors[1], src=tensors[2])
    return []


def _expand(
    name: str, inputs: list[TensorMetadata], out: list[TensorMetadata], **named: TensorMetadata
) -> list[KernelWork]:
    args = {f"tensor_{i}": tensor for i, tensor in enumerate(inputs)} | named
    return expand_operator(f"aten::{name}", OperatorMetadata(dict(args), tuple(out)))


def _copy(destination: TensorMetadata, source: TensorMetadata) -> list[KernelWork]:
    """Strides are not in the traces: same dtype by a kernel means that the layouts differ."""
    if destination.dtype == source.dtype:
        stride = destination.stride[::-1] if len(destination.shape) > 1 else destination.stride
        source = TensorMetadata(source.dtype, source.shape, tuple(stride))
    args = {"self": destination, "src": source}
    works = expand_operator("aten::copy_", OperatorMetadata(args, (destination,)))
    return [work for work in works if work.family == "copy"]
