"""Random numbers and dropout: Philox, four 32-bit numbers for about 60 integer instructions."""

from __future__ import annotations

from collections.abc import Callable

from maya.kernel_models.families.indexing import sort_work
from maya.kernel_models.work import KernelWork, ceil_div, distinct_bytes, main_tensor, names
from maya.traces.tables import OperatorMetadata

PHILOX_FLOPS = 20
ELEMENTS_PER_BLOCK = 1024


def expand_random(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """bernoulli_, uniform_, normal_, dropout: one grid-stride kernel."""
    tensor = main_tensor(metadata)
    elements = tensor.numel if tensor is not None else 1
    dtype = tensor.dtype if tensor is not None else ""
    return [
        KernelWork(
            "random",
            f"{name} {dtype}",
            "fp32",
            PHILOX_FLOPS * elements,
            max(1, distinct_bytes(metadata)),
            max(1, ceil_div(elements, ELEMENTS_PER_BLOCK)),
        )
    ]


def expand_permutation(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """randperm: random keys, a sort, and the repair of equal keys."""
    outputs = metadata.output_tensors()
    elements = outputs[0].numel if outputs else 1
    blocks = max(1, ceil_div(elements, ELEMENTS_PER_BLOCK))
    return [
        KernelWork("random", f"{name} keys", "fp32", PHILOX_FLOPS * elements, max(1, 8 * elements), blocks),
        sort_work(f"{name} sort", elements),
        KernelWork("random", f"{name} islands", "fp32", elements, max(1, 16 * elements), blocks),
    ]


def expand_multinomial(name: str, metadata: OperatorMetadata) -> list[KernelWork]:
    """multinomial: normalise, scan, binary search."""
    tensor = main_tensor(metadata)
    elements = tensor.numel if tensor is not None else 1
    columns = tensor.shape[-1] if tensor is not None and tensor.shape else 1
    shape = (float(elements // max(columns, 1)), float(columns))
    blocks = max(1, ceil_div(elements, 2048))
    return [
        KernelWork("pointwise", f"{name} normalise", "fp32", elements, max(1, 8 * elements), blocks),
        KernelWork("scan", f"{name} scan", "fp32", elements, max(1, 8 * elements), blocks, shape),
        KernelWork("random", f"{name} draw", "fp32", PHILOX_FLOPS * elements, max(1, 8 * elements), blocks),
    ]


OPERATORS: dict[str, Callable[[str, OperatorMetadata], list[KernelWork]]] = {
    **dict.fromkeys(
        names(
            "native_dropout _fused_dropout dropout bernoulli uniform normal random rand randn randint "
            "rand_like randn_like randint_like exponential geometric cauchy log_normal poisson "
            "binomial _standard_gamma _sample_dirichlet _philox_key_fold_in _philox_key_split "
            "_philox_normal _philox_uniform _fill_mem_eff_dropout_mask _cudnn_init_dropout_state "
            "rrelu"
        ),
        expand_random,
    ),
    "randperm": expand_permutation,
    "multinomial": expand_multinomial,
}
