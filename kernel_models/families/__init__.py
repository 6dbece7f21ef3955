"""Which family every operator belongs to, and the kernels it launches.

One file a family. Each has a table `OPERATORS`: operator name without namespace, overload and
in-place underscore → a function that makes kernels of its metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from maya.kernel_models.families import (
    algebra,
    attention,
    convolution,
    copies,
    gemm,
    indexing,
    normalization,
    optimizer,
    ordering,
    pointwise,
    random,
    recurrent,
    reduction,
    softmax,
    spatial,
)
from maya.kernel_models.work import (
    IncompleteMetadata,
    KernelWork,
    ceil_div,
    distinct_bytes,
    main_tensor,
    names,
    vector_math,
)
from maya.traces.tables import OperatorMetadata

Expander = Callable[[str, OperatorMetadata], list[KernelWork]]

NO_KERNEL = frozenset(
    names(
        "as_strided view _reshape_alias reshape empty empty_strided empty_like new_empty "
        "new_empty_strided set resize resize_as is_set_to record_stream _fused_sdp_choice "
        "view_as_complex view_as_real _nested_view_from_buffer _use_cudnn_ctc_loss "
        "_use_miopen_ctc_loss _efficientzerotensor unfold select slice transpose t permute expand "
        "detach alias squeeze unsqueeze split split_with_sizes chunk unbind narrow diagonal "
        "unsafe_chunk unsafe_split real imag lift_fresh _unsafe_view movedim view_as flatten "
        "expand_as swapaxes"
    )
)
"""Views, allocations and questions: they cost the host a dispatch and launch nothing."""


def _merge() -> dict[str, Expander]:
    table: dict[str, Expander] = {}
    for room in (
        algebra,
        attention,
        convolution,
        copies,
        gemm,
        indexing,
        normalization,
        optimizer,
        ordering,
        pointwise,
        random,
        recurrent,
        reduction,
        softmax,
        spatial,
    ):
        for name, expander in room.OPERATORS.items():
            if name in table:
                raise ValueError(f"operator {name} is in two families, one of them {room.__name__}")
            table[name] = expander
    return table


EXPANDERS: dict[str, Expander] = _merge()
"""Base name → expander; every CUDA operator of torch 2.13/2.14 is here or in NO_KERNEL."""


def base_name(operator: str) -> str:
    """`aten::add_.Tensor` → `add_`; other namespaces keep theirs: `fbgemm::permute.out`."""
    name = operator.removeprefix("aten::")
    namespace, separator, rest = name.rpartition("::")
    return namespace + separator + rest.partition(".")[0]


def table_key(name: str) -> str:
    """The name without the underscore of an in-place variant; `__ilshift__` keeps its own."""
    return name if name.endswith("__") else name.removesuffix("_")


OUT_ARGUMENT = re.compile(r"out\d*")
"""Names that out= overloads give what they write (native_functions.yaml)."""


def family_known(operator: str) -> bool:
    """Whether the operator lands in a family (or is known to launch nothing)."""
    key = table_key(base_name(operator))
    return key in EXPANDERS or key in NO_KERNEL


def estimate_by_bytes(name: str, metadata: OperatorMetadata, *, known: bool) -> list[KernelWork]:
    """An operator that no family knows: one kernel that touches its tensors once."""
    tensor = main_tensor(metadata)
    elements = tensor.numel if tensor is not None else 1
    dtype = tensor.dtype if tensor is not None else "float32"
    return [
        KernelWork(
            "unknown",
            name,
            vector_math(dtype),
            elements,
            max(1, distinct_bytes(metadata)),
            max(1, ceil_div(elements, 512)),
            known=known,
        )
    ]


def _with_results_as_outputs(operator: str, metadata: OperatorMetadata) -> OperatorMetadata:
    """`cat.out(tensors, out)` writes what `cat(tensors)` returns: its out arguments become outputs.

    They are recorded among the arguments, since such a call returns nothing new.
    """
    if not operator.rpartition(".")[2].endswith("out") or metadata.output_tensors():
        return metadata
    results = {name: value for name, value in metadata.args.items() if OUT_ARGUMENT.fullmatch(name)}
    rest = {name: value for name, value in metadata.args.items() if name not in results}
    return replace(metadata, args=rest, out=tuple(results.values()))


def expand_operator(operator: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """The kernels that one call launches, in order.

    Args:
        operator: name with namespace and overload.
        metadata: its arguments.

    Returns:
        [] for views and allocations; otherwise at least one kernel, unless every tensor is empty.
    """
    name = base_name(operator)
    key = table_key(name)
    if key in NO_KERNEL:
        return []
    metadata = _with_results_as_outputs(operator, metadata)
    if metadata.memcpy is not None:
        return copies.expand_memcpy_entry(metadata)
    expander = EXPANDERS.get(key)
    if expander is None:
        return estimate_by_bytes(name, metadata, known=False)
    try:
        works = expander(name, metadata)
    except IncompleteMetadata:
        # A trace that another tool wrote may lack argument names: the bytes are still there.
        return estimate_by_bytes(name, metadata, known=True)
    return [work for work in works if work.moved_bytes > 0 or work.flops > 0]
