"""Gathers and scatters: indexing, index_put, index_add, embeddings' forward, nonzero, masked_select.

Only the touched rows move, not the whole table. A scatter reads and writes its destination.
"""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.work import (
    KernelWork,
    ceil_div,
    item_bytes,
    main_tensor,
    names,
    on_device,
    tensor_argument,
    tensor_bytes,
    tensor_list,
    total_bytes,
)
from maya.traces.tables import OperatorMetadata, TensorMetadata

ELEMENTS_PER_BLOCK = 512


def gather_work(name: str, dtype: str, elements: int, index_bytes: int) -> KernelWork:
    """Reads `elements` scattered values and their indices, writes them densely."""
    return KernelWork(
        "gather",
        name,
        "fp32",
        0,
        2 * elements * item_bytes(dtype) + index_bytes,
        max(1, ceil_div(elements, ELEMENTS_PER_BLOCK)),
    )


def scatter_work(name: str, dtype: str, elements: int, index_bytes: int) -> KernelWork:
    """Reads `elements` values and indices, reads and writes as many scattered destinations."""
    return KernelWork(
        "scatter",
        name,
        "fp32",
        elements,
        3 * elements * item_bytes(dtype) + index_bytes,
        max(1, ceil_div(elements, ELEMENTS_PER_BLOCK)),
    )


def sort_work(name: str, keys: int, key_bytes: int = 8, value_bytes: int = 8) -> KernelWork:
    """A device-wide radix sort of key-value pairs, all its launches as one."""
    passes = max(1, key_bytes)
    moved = 2 * keys * (key_bytes + value_bytes) * passes
    shape = (1.0, float(keys))
    return KernelWork("sort", name, "fp32", 0, max(1, moved), max(1, ceil_div(keys, 2048)), shape)


def _index_bytes(metadata: OperatorMetadata) -> int:
    index = metadata.args.get("index", metadata.args.get("indices"))
    if isinstance(index, TensorMetadata):
        return tensor_bytes(index)
    return total_bytes(tensor_list(metadata, "indices", "index"))


def expand_gather(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """index, index_select, gather, take, embedding: as many elements as the output has."""
    outputs = on_device(metadata.output_tensors())
    tensor = outputs[0] if outputs else tensor_argument(metadata, "index", "indices", "self")
    return [gather_work(f"{name} {tensor.dtype}", tensor.dtype, tensor.numel, _index_bytes(metadata))]


def _clone(name: str, destination: TensorMetadata) -> list[KernelWork]:
    """The copy of the destination that an operator without trailing underscore makes first."""
    size = tensor_bytes(destination)
    blocks = ceil_div(max(1, destination.numel), 2048)
    return [KernelWork("memcpy", f"{name} clone", "fp32", 0, 2 * size, blocks, engine="hbm")]


def expand_scatter(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """scatter, scatter_add, scatter_reduce, index_add, index_copy, index_fill, put."""
    destination = tensor_argument(metadata, "self")
    source = metadata.args.get("src", metadata.args.get("source"))
    index = metadata.args.get("index")
    elements = destination.numel
    if isinstance(source, TensorMetadata):
        elements = source.numel
    elif isinstance(index, TensorMetadata):
        elements = index.numel
    works = []
    if not name.endswith("_"):
        works += _clone(name, destination)
    works.append(
        scatter_work(
            f"{name} {destination.dtype}",
            destination.dtype,
            elements,
            _index_bytes(metadata),
        )
    )
    return works


def expand_index_put(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """index_put_: one scatter; with accumulate a sort of the indices and a segment sum."""
    destination = tensor_argument(metadata, "self")
    values = metadata.args.get("values")
    indices = tensor_list(metadata, "indices")
    rows = max((index.numel for index in indices), default=1)
    elements = values.numel if isinstance(values, TensorMetadata) and values.numel > 1 else rows
    works = []
    if metadata.args.get("accumulate") is True:
        works.append(sort_work(f"{name} sort", rows))
    works.append(
        scatter_work(f"{name} {destination.dtype}", destination.dtype, elements, total_bytes(indices))
    )
    return works


def expand_compaction(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """nonzero, masked_select, masked_scatter: count, scan, then write what was selected."""
    inputs = on_device(metadata.input_tensors())
    size = total_bytes(inputs)
    elements = max((tensor.numel for tensor in inputs), default=1)
    blocks = max(1, ceil_div(elements, 2048))
    written = total_bytes(metadata.output_tensors())
    return [
        KernelWork("reduction", f"{name} count", "fp32", elements, size, blocks, (1.0, float(elements))),
        KernelWork(
            "scan", f"{name} select", "fp32", elements, size + written, blocks, (1.0, float(elements))
        ),
    ]


def expand_embedding_backward(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """embedding_dense_backward: zero the table's gradient, sort the indices, sum segments.

    Up to 3,072 indices PyTorch takes a single kernel without the sort (aten/src/ATen/native/cuda/
    Embedding.cu).
    """
    gradient = tensor_argument(metadata, "grad_output", "grad", "grad_")
    indices = metadata.args.get("indices")
    rows = indices.numel if isinstance(indices, TensorMetadata) else gradient.numel // gradient.shape[-1]
    width = gradient.shape[-1] if gradient.shape else 1
    table = on_device(metadata.output_tensors())
    vocabulary = metadata.args.get("num_weights")
    elements = table[0].numel if table else (vocabulary if isinstance(vocabulary, int) else rows) * width
    size = elements * item_bytes(gradient.dtype)
    zero_blocks = ceil_div(elements, 2048)
    works = [KernelWork("memset", f"{name} zero", "fp32", 0, size, max(1, zero_blocks), engine="hbm")]
    if rows > 3072:
        works.append(sort_work(f"{name} sort", rows))
    works.append(
        KernelWork(
            "embedding_backward",
            f"{name} {gradient.dtype} {rows}x{width}",
            "fp32",
            rows * width,
            3 * rows * width * item_bytes(gradient.dtype) + 16 * rows,
            max(1, ceil_div(rows * width, ELEMENTS_PER_BLOCK)),
        )
    )
    return works


def expand_embedding_bag(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Gathers a row for each index and sums within bags."""
    weight = tensor_argument(metadata, "weight", "grad")
    indices = tensor_argument(metadata, "indices", "indices_")
    width = weight.shape[-1] if weight.shape else 1
    elements = indices.numel * width
    if "backward" in name:
        works = [sort_work(f"{name} sort", indices.numel)] if indices.numel > 3072 else []
        return [
            *works,
            scatter_work(f"{name} {weight.dtype}", weight.dtype, elements, 3 * tensor_bytes(indices)),
        ]
    return [gather_work(f"{name} {weight.dtype}", weight.dtype, elements, tensor_bytes(indices))]


def expand_renorm(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """embedding_renorm_: unique rows, then norm and rescale."""
    indices = tensor_argument(metadata, "indices")
    weight = tensor_argument(metadata, "self")
    elements = indices.numel * (weight.shape[-1] if weight.shape else 1)
    return [
        sort_work(f"{name} unique", indices.numel),
        scatter_work(name, weight.dtype, elements, tensor_bytes(indices)),
    ]


def expand_padding_layout(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """Jagged/nested and padded layouts into each other: copies with an index per row."""
    tensor = main_tensor(metadata)
    dtype = tensor.dtype if tensor is not None else "float32"
    return [gather_work(name, dtype, tensor.numel if tensor is not None else 1, 0)]


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        names(
            "index index_select gather take embedding unfold_backward _unsafe_index "
            "_embedding_bag_per_sample_weights_backward bucketize searchsorted"
        ),
        expand_gather,
    ),
    **dict.fromkeys(
        names(
            "scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce put "
            "_unsafe_index_put"
        ),
        expand_scatter,
    ),
    **dict.fromkeys(("index_put", "_index_put_impl"), expand_index_put),
    **dict.fromkeys(
        ("nonzero", "nonzero_static", "masked_select", "masked_scatter", "argwhere"), expand_compaction
    ),
    **dict.fromkeys(("embedding_dense_backward", "embedding_backward"), expand_embedding_backward),
    **dict.fromkeys(
        [
            "_embedding_bag",
            "_embedding_bag_forward_only",
            "_embedding_bag_backward",
            "_embedding_bag_dense_backward",
            "embedding_bag",
        ],
        expand_embedding_bag,
    ),
    "embedding_renorm": expand_renorm,
    **dict.fromkeys(
        [
            "_jagged_to_padded_dense_forward",
            "_padded_dense_to_jagged_forward",
            "_nested_from_padded",
            "_nested_tensor_from_mask",
            "_nested_tensor_from_mask_left_aligned",
        ],
        expand_padding_layout,
    ),
}
