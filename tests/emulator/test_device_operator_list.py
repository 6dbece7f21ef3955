"""Which operators the device takes over: the list found in the wheel is that of a real CUDA build."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maya.emulator.backend.operators import (
    COMPOSITES_ON_STUBS,
    COMPOSITES_WITH_KERNELS,
    REGISTERED_BY_HAND,
    cuda_operators,
    kernels_to_refuse,
)

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "torch-2.14.1-cuda-operators.txt"


def names_of_2_14() -> set[str]:
    if not SHARED.exists():
        pytest.skip(f"no {SHARED}")
    lines = (line.split("#")[0].strip() for line in SHARED.read_text().splitlines())
    return {line.removeprefix("aten::") for line in lines if line and "::" not in line.removeprefix("aten::")}


def test_the_list_has_what_every_gpu_step_needs() -> None:
    names = set(cuda_operators())
    assert names >= {
        "add.Tensor",
        "mm",
        "native_layer_norm",
        "_fused_adamw_",
        "_foreach_add_.List",
        "_scaled_dot_product_flash_attention",
        "empty.memory_format",
        *REGISTERED_BY_HAND,
    }
    # What a GPU decomposes must not be taken over whole.
    assert not names & {
        "linear",
        "layer_norm",
        "matmul",
        "expand",
        "reshape",
        "to.dtype",
        "dropout",
        "conv2d",
    }


def test_the_list_agrees_with_a_real_cuda_build() -> None:
    if not torch.__version__.startswith("2.14"):
        pytest.skip(f"the list is that of torch 2.14.1, this is {torch.__version__}")
    expected = names_of_2_14()
    assert (
        set(cuda_operators()) - expected <= REGISTERED_BY_HAND | COMPOSITES_WITH_KERNELS | COMPOSITES_ON_STUBS
    )
    assert expected - set(cuda_operators()) == set()


def test_the_yaml_alone_gives_nearly_the_same_list() -> None:
    from maya.emulator.backend import operators

    from_yaml = operators._from_yaml() | REGISTERED_BY_HAND
    expected = names_of_2_14()
    if torch.__version__.startswith("2.14"):
        assert from_yaml - expected <= REGISTERED_BY_HAND
        assert expected - from_yaml == set()
    else:  # another minor: a handful of operators come and go
        assert len(from_yaml ^ expected) < 40


def test_only_a_cuda_build_has_kernels_to_refuse() -> None:
    refused = kernels_to_refuse()
    if torch.version.cuda is None:
        assert refused == {}
        return
    assert len(refused["SparseCUDA"]) > 100
    assert not any(name.startswith(("aten::", "c10d::")) for name in refused["CUDA"])
