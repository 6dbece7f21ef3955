"""NeuSight's per-operator labels of whole models: float32, event-timed, the only wide H100 rows of norms,
softmax, dropout and layout copies."""

from __future__ import annotations

import ast
from pathlib import Path

import pandas as pd

from maya.kernel_models.fit.convolution_data import dense
from maya.kernel_models.fit.measurements import Measurements, resolve_gpu
from maya.kernel_models.fit.memory_data import call, softmax_backward
from maya.kernel_models.work import KernelWork
from maya.traces.tables import TensorMetadata

MINIMUM_US = {"H100-SXM5-80GB": 25.0}
DEFAULT_MINIMUM_US = 60.0
POINTWISE = {"tanh": "tanh", "gelu": "gelu", "pow": "pow", "mul": "mul", "add": "add", "sub": "sub"}


def load_labels(data: Path) -> list[Measurements]:
    """Rows above the floor of their host, by family."""
    found: dict[str, Measurements] = {}
    table = pd.read_parquet(data / "kernels" / "train_ops_neusight.parquet")
    for row in table.itertuples(index=False):
        gpu = resolve_gpu(str(row.gpu))
        if gpu is None or row.time_us < MINIMUM_US.get(gpu.name, DEFAULT_MINIMUM_US):
            continue
        shapes = ast.literal_eval(str(row.in_shapes))
        works = _works(str(row.op), [dense(list(shape)) for shape in shapes])
        if works:
            key = (str(row.op), int(row.cols))
            source = "NeuSight-label"
            found.setdefault(works[0].family, Measurements(works[0].family)).add(
                works, gpu, row.time_us, key, source, f"NeuSight-label {gpu.name}"
            )
    return list(found.values())


def _works(operator: str, tensors: list[TensorMetadata]) -> list[KernelWork]:
    first = tensors[0]
    if any(tensor.shape != first.shape for tensor in tensors):
        return []
    name, _, phase = operator.rpartition("_")
    if phase == "fwd" and name in POINTWISE:
        args = dict(zip(("self", "other"), tensors, strict=False))
        return call(POINTWISE[name], [first], **args)
    if operator == "layernorm_fwd":
        return call("native_layer_norm", [first], input=first, normalized_shape=[first.shape[-1]])
    if operator == "layernorm_bwd":
        mask = [True, True, True]
        shape = [first.shape[-1]]
        return call(
            "native_layer_norm_backward",
            [first],
            grad_out=first,
            input=first,
            normalized_shape=shape,
            output_mask=mask,
        )
    if operator == "softmax_fwd":
        return call("_softmax", [first], self=first, dim=-1)
    if operator == "softmax_bwd":
        return softmax_backward(first)
    if operator == "dropout_fwd":
        mask_tensor = dense(list(first.shape), "bool")
        return call("native_dropout", [first, mask_tensor], input=first, p=0.1)
    if operator == "contiguous_fwd" and len(first.shape) == 4:
        # The transpose of heads and positions before a view: [b, s, h, d] seen as [b, h, s, d].
        rows, heads, width = first.shape[1:]
        stride = (rows * heads * width, width, rows * width, 1)
        source = TensorMetadata(first.dtype, first.shape, stride)
        return call("clone", [first], self=source)
    return []
