"""Multi-tensor kernels: `_fused_*` optimizers, `_foreach_*`, and the gradient scaler's.

One launch takes at most 320 chunks of 65,536 elements and as many tensors as its argument
buffer holds, which falls with the number of tensor lists (ATen/native/cuda/MultiTensorApply.cuh).
"""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.work import (
    IncompleteMetadata,
    KernelWork,
    ceil_div,
    item_bytes,
    names,
    total_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

CHUNK_ELEMENTS = 65_536
CHUNKS_PER_LAUNCH = 320
TENSORS_PER_LAUNCH = (110, 64, 48, 36, 30)
"""By number of tensor lists, 1 to 5."""

FUSED_FLOPS = {"adam": 16, "adamw": 18, "sgd": 4, "adagrad": 8}
FUSED_WRITTEN = {
    "adam": ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    "adamw": ("self", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    "sgd": ("self", "momentum_buffer_list"),
    "adagrad": ("self", "state_sums"),
}
"""Lists that a fused optimizer updates in place; it reads the gradients besides."""
STEP_LISTS = ("state_steps",)


def launches(numels: list[int], lists: int) -> list[int]:
    """Elements handled by each launch of `multi_tensor_apply` over tensors of these sizes.

    A launch goes out when the tensor slots are full and the last tensor is complete, or when the
    chunk slots are full.
    """
    capacity = TENSORS_PER_LAUNCH[min(max(lists, 1), len(TENSORS_PER_LAUNCH)) - 1]
    result: list[int] = []
    elements = chunks = tensors = 0
    for numel in numels:
        left = numel
        if left == 0:
            continue
        tensors += 1
        while left > 0:
            room = CHUNKS_PER_LAUNCH - chunks
            taken = min(left, room * CHUNK_ELEMENTS)
            elements += taken
            chunks += ceil_div(taken, CHUNK_ELEMENTS)
            left -= taken
            if chunks == CHUNKS_PER_LAUNCH or (left == 0 and tensors == capacity):
                result.append(elements)
                elements = chunks = 0
                tensors = 1 if left > 0 else 0
    if elements:
        result.append(elements)
    return result


def _works(name: str, numels: list[int], lists: int, bytes_total: int, flops_each: int) -> list[KernelWork]:
    total = sum(numels)
    if total == 0:
        return []
    works = []
    for elements in launches(numels, lists):
        moved = bytes_total * elements // total
        blocks = max(1, ceil_div(elements, CHUNK_ELEMENTS))
        shape = (float(blocks), float(lists))
        works.append(KernelWork("multi_tensor", name, "fp32", flops_each * elements, moved, blocks, shape))
    return works


def _lists(metadata: OperatorMetadata) -> dict[str, list[TensorMetadata]]:
    found = {}
    for key, value in metadata.args.items():
        if isinstance(value, list):
            tensors = [item for item in value if isinstance(item, TensorMetadata) and item.device != "cpu"]
            if tensors:
                found[key] = tensors
    return found


def expand_fused_optimizer(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """_fused_adam_, _fused_adamw_, _fused_sgd_, _fused_adagrad_."""
    lists = _lists(metadata)
    parameters = lists.get("self") or lists.get("params")
    if not parameters:
        raise IncompleteMetadata(f"{name} without a list of parameters")
    kind = name.removeprefix("_fused_").rstrip("_")
    data = {key: value for key, value in lists.items() if key not in STEP_LISTS}
    moved = sum(total_bytes(tensors) for tensors in data.values())
    written = FUSED_WRITTEN.get(kind, ("self",))
    moved += sum(total_bytes(data[key]) for key in written if key in data)
    return _works(
        f"{name} {parameters[0].dtype}",
        [tensor.numel for tensor in parameters],
        len(data),
        moved,
        FUSED_FLOPS.get(kind, 10),
    )


def expand_foreach(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """_foreach_*: in-place ones write their first list; others write their outputs."""
    lists = _lists(metadata)
    if not lists:
        raise IncompleteMetadata(f"{name} without a list of tensors")
    first = next(iter(lists.values()))
    outputs = [tensor for tensor in metadata.output_tensors() if tensor.device != "cpu"]
    moved = sum(total_bytes(tensors) for tensors in lists.values())
    if "_copy" in name or "_zero" in name:
        moved = total_bytes(first) + sum(total_bytes(list_) for key, list_ in lists.items() if key == "src")
    elif outputs:
        moved += total_bytes(outputs)
    else:
        moved += total_bytes(first)
    count = len(lists) + (1 if len(outputs) == len(first) else 0)
    numels = [tensor.numel for tensor in first]
    works = _works(f"{name} {first[0].dtype}", numels, count, moved, 2)
    if ("_norm" in name or "_powsum" in name or "_max" in name) and outputs and works:
        # Partial results of every chunk are folded by a second kernel, one block a tensor.
        chunks = sum(ceil_div(numel, CHUNK_ELEMENTS) for numel in numels)
        size = item_bytes(first[0].dtype)
        shape = (float(len(numels)), float(ceil_div(chunks, max(1, len(numels)))))
        fold = KernelWork("reduction", f"{name} fold", "fp32", chunks, chunks * size, len(numels), shape)
        works.append(fold)
    return works


def expand_list_copy(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """_chunk_cat and split_with_sizes_copy: batched copies between one buffer and many."""
    moved = total_bytes(metadata.input_tensors()) + total_bytes(metadata.output_tensors())
    tensors = metadata.input_tensors() or metadata.output_tensors()
    # From the bytes, half of them read: FSDP calls the out= forms, whose results are among the arguments.
    read_elements = moved // (2 * item_bytes(tensors[0].dtype)) if tensors else 0
    blocks = max(1, ceil_div(read_elements, 4096))
    return [KernelWork("copy", name, "fp32", 0, moved, blocks)]


FOREACH_UNARY = (
    "abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg "
    "reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zero"
)
FOREACH_OTHER = (
    "add addcdiv addcmul clamp_max clamp_min copy div lerp max maximum minimum mul norm pow powsum sub"
)

OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        ("_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad"),
        expand_fused_optimizer,
    ),
    **{f"_foreach_{name}": expand_foreach for name in names(FOREACH_UNARY + " " + FOREACH_OTHER)},
    "_amp_foreach_non_finite_check_and_unscale": expand_foreach,
    "_chunk_cat": expand_list_copy,
    "split_with_sizes_copy": expand_list_copy,
}
