"""Rows of bandwidth-bound families from operator sweeps: pointwise, norms, softmax, pooling, optimizers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd

from maya.kernel_models.families import expand_operator
from maya.kernel_models.fit.convolution_data import dense, parse_shapes
from maya.kernel_models.fit.measurements import Measurements, resolve_gpu
from maya.kernel_models.fit.sampling import sample
from maya.kernel_models.work import KernelWork
from maya.traces.tables import OperatorMetadata, TensorMetadata

ROWS_PER_GPU = 1_500
EVENT_TIMED_MINIMUM_US = 60.0

NEUSIGHT_BINARY = {
    "elementwise_add": "add",
    "elementwise_mul": "mul",
    "elementwise_div": "div",
    "elementwise_pow": "pow",
}
NEUSIGHT_UNARY = {
    "elementwise_relu": "relu",
    "elementwise_gelu": "gelu",
    "elementwise_tanh": "tanh",
    "elementwise_addu": "add",
    "elementwise_mulu": "mul",
    "elementwise_divu": "div",
    "elementwise_powu": "pow",
}


def call(operator: str, out: list[TensorMetadata], **args: object) -> list[KernelWork]:
    """Kernels of one aten call, through the same expansion as at prediction."""
    return expand_operator(f"aten::{operator}", OperatorMetadata(args=args, out=tuple(out)))


def softmax_backward(tensor: TensorMetadata) -> list[KernelWork]:
    """Both kernels of a softmax's backward as one family: only their sum was measured."""
    works = call("_softmax_backward_data", [tensor], grad_output=tensor, output=tensor, dim=-1)
    return [replace(work, family="softmax_backward") for work in works]


def load_sweeps(data: Path) -> list[Measurements]:
    """`pointwise`, `norm_forward`, `softmax_forward` from NeuSight and Vidur."""
    families = {name: Measurements(name) for name in ("pointwise", "norm_forward", "softmax_forward")}
    table = pd.read_parquet(data / "kernels" / "pointwise_norm_softmax.parquet")
    neusight = table["source"].astype(str).str.startswith("NeuSight")
    # Of Vidur's operators only the residual add is PyTorch's own kernel; the rest are vLLM's.
    table = table[
        (neusight & (table["time_us"] > EVENT_TIMED_MINIMUM_US)) | (table["op"] == "elementwise_add")
    ]
    neusight = table["source"].astype(str).str.startswith("NeuSight")
    table = table[
        ~((table["op"] == "elementwise_add") & neusight & (table["time_us"] <= EVENT_TIMED_MINIMUM_US))
    ]
    for keys, rows in table.groupby(["gpu", "op", "dtype"], observed=True, sort=True):
        gpu, operator = resolve_gpu(str(keys[0])), str(keys[1])
        if gpu is None:
            continue
        dtype = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}[str(keys[2])]
        for row in sample(rows, ROWS_PER_GPU // 4).itertuples(index=False):
            source = str(row.source)
            tensor = dense([int(row.rows), int(row.cols)], dtype)
            works = _sweep_works(operator, tensor)
            if works:
                extra = f"NeuSight {gpu.name}" if source.startswith("NeuSight") else ""
                key = (operator, int(row.cols)) if extra else (operator, int(row.cols), int(row.rows) // 512)
                families[works[0].family].add(works, gpu, row.time_us, key, source.split(":")[0], extra)
    return list(families.values())


def _sweep_works(operator: str, tensor: TensorMetadata) -> list[KernelWork]:
    if operator in NEUSIGHT_BINARY:
        return call(NEUSIGHT_BINARY[operator], [tensor], self=tensor, other=tensor)
    if operator in NEUSIGHT_UNARY:
        return call(NEUSIGHT_UNARY[operator], [tensor], self=tensor)
    if operator == "softmax_fwd":
        return call("_softmax", [tensor], self=tensor, dim=-1, half_to_float=False)
    if operator == "layernorm_fwd":
        shape = [tensor.shape[-1]]
        return call("native_layer_norm", [tensor], input=tensor, normalized_shape=shape)
    return []


def load_layers(data: Path) -> list[Measurements]:
    """TrioSim's ResNet-50 and VGG-13 on H100: batch norm, pooling, ReLU, foreach optimizer pieces."""
    found: dict[str, Measurements] = {}
    table = pd.read_parquet(data / "kernels" / "train_ops_triosim.parquet")
    for row in table.itertuples(index=False):
        gpu = resolve_gpu(str(row.gpu))
        works = _layer_works(str(row.op), parse_shapes(str(row.in_shapes)), parse_shapes(str(row.out_shapes)))
        if gpu is None or not works:
            continue
        key = (str(row.op), str(row.in_shapes)[:40])
        family = works[0].family
        found.setdefault(family, Measurements(family)).add(works, gpu, row.time_us, key, str(row.source))
    return list(found.values())


def _layer_works(operator: str, inputs: list[list[int]], outputs: list[list[int]]) -> list[KernelWork]:
    if not inputs or (not inputs[-1] and "foreach" not in operator):
        return []
    tensors = [dense(shape) for shape in inputs]
    results = [dense(shape) for shape in outputs]
    name = operator.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")
    if name.startswith("_foreach"):
        lists = 3 if "addcmul" in name or "addcdiv" in name else 2 if "lerp" in name else 1
        length = len(tensors) // lists
        args = {f"list_{i}": tensors[i * length : (i + 1) * length] for i in range(lists)}
        return call(name, results if len(results) == length else [], **args)
    if name == "batch_norm":
        return call("cudnn_batch_norm", results, input=tensors[0], training=True)
    if name == "CudnnBatchNormBackward0":
        return call("cudnn_batch_norm_backward", results[:1], input=tensors[0])
    if name == "relu_":
        return call("relu_", results, self=tensors[0])
    if name == "ReluBackward0":
        return call("threshold_backward", results, grad_output=tensors[0], self=tensors[1])
    if name == "max_pool2d":
        window = 3 if inputs[0][1] == 64 and inputs[0][2] == 112 else 2
        indices = dense(outputs[0], "int64")
        return call(
            "max_pool2d_with_indices", [results[0], indices], self=tensors[0], kernel_size=[window] * 2
        )
    if name == "MaxPool2DWithIndicesBackward0":
        window = 3 if inputs[1][1] == 64 and inputs[1][2] == 112 else 2
        indices = dense(inputs[2], "int64")
        return call(
            "max_pool2d_with_indices_backward",
            results,
            grad_output=tensors[0],
            self=tensors[1],
            kernel_size=[window] * 2,
            indices=indices,
        )
    return []


def load_liger(data: Path) -> list[Measurements]:
    """Liger-Kernel's PyTorch baselines: layer norm and softmax gradients, embedding."""
    found: dict[str, Measurements] = {}
    table = pd.read_parquet(data / "kernels" / "train_ops_liger.parquet")
    table = table[table["backend"].isin(["torch", "huggingface"])]
    for row in table.itertuples(index=False):
        gpu = resolve_gpu(str(row.gpu))
        works = _liger_works(str(row.op), json.loads(str(row.config_json)), str(row.dtype))
        if gpu is None or not works:
            continue
        family = works[0].family
        key = (str(row.op), str(row.config_json))
        found.setdefault(family, Measurements(family)).add(works, gpu, row.time_us, key, "Liger-Kernel")
    return list(found.values())


def _liger_works(operator: str, config: dict[str, object], dtype_name: str) -> list[KernelWork]:
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[dtype_name]
    rows, columns = config.get("M", config.get("BT")), config.get("N", config.get("hidden_size"))
    if operator.startswith("embedding_fwd"):
        if operator != "embedding_fwd":
            return []
        batch, steps, width = config.get("B"), config.get("T"), config.get("D")
        if not (isinstance(batch, int) and isinstance(steps, int) and isinstance(width, int)):
            return []
        out = dense([batch, steps, width], dtype)
        return call("embedding", [out], indices=dense([batch, steps], "int64"))
    if not (isinstance(rows, int) and isinstance(columns, int)):
        return []
    tensor = dense([rows, columns], dtype)
    if operator == "layer_norm_fwd":
        return call("native_layer_norm", [tensor], input=tensor, normalized_shape=[columns])
    if operator == "layer_norm_bwd":
        return call(
            "native_layer_norm_backward",
            [tensor],
            grad_out=tensor,
            input=tensor,
            normalized_shape=[columns],
            output_mask=[True, True, True],
        )
    if operator == "softmax_fwd":
        return call("_softmax", [tensor], self=tensor, dim=-1)
    if operator == "softmax_bwd":
        return softmax_backward(tensor)
    return []
