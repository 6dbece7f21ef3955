"""Every CUDA operator lands in a family and expands into the kernels a GPU would run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maya.kernel_models.families import (
    EXPANDERS,
    NO_KERNEL,
    base_name,
    expand_operator,
    family_known,
    table_key,
)
from maya.kernel_models.families.optimizer import (
    CHUNK_ELEMENTS,
    CHUNKS_PER_LAUNCH,
    TENSORS_PER_LAUNCH,
    launches,
)
from maya.kernel_models.work import KernelWork
from maya.traces.tables import parse_metadata


def kernels(
    operator: str, args: dict[str, Any], out: list[Any] | None = None, **extra: Any
) -> list[KernelWork]:
    text = json.dumps({"args": args, "out": out or []} | extra)
    return expand_operator(operator, parse_metadata(text))


def test_every_cuda_operator_has_a_family(shared_data: Path) -> None:
    names = (shared_data / "torch-2.14.1-cuda-operators.txt").read_text().split()
    assert len(names) > 1200
    assert [name for name in names if not family_known(f"aten::{name}")] == []


def test_every_cuda_operator_costs_something_even_with_strange_metadata(
    shared_data: Path, tensor: Any
) -> None:
    names = (shared_data / "torch-2.14.1-cuda-operators.txt").read_text().split()
    args = {"self": tensor([64, 32]), "other": tensor([64, 32]), "list": [tensor([64, 32])] * 3}
    free = []
    for name in names:
        works = kernels(f"aten::{name}", args, [tensor([64, 32])])
        if table_key(base_name(f"aten::{name}")) in NO_KERNEL:
            assert works == []
        elif not works:
            free.append(name)
        for work in works:
            assert work.moved_bytes > 0
            assert work.blocks > 0
    assert free == []


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("aten::add_.Tensor", "add_"),
        ("aten::add.out", "add"),
        ("aten::__ilshift__.Scalar", "__ilshift__"),
        ("aten::_fused_adamw_", "_fused_adamw_"),
        ("fbgemm::permute.default", "fbgemm::permute"),
    ],
)
def test_base_name(operator: str, name: str) -> None:
    assert base_name(operator) == name


def test_in_place_dunder_keeps_its_underscores() -> None:
    assert table_key("__ilshift__") == "__ilshift__"
    assert table_key("add_") == "add"


def test_no_name_is_both_free_and_priced() -> None:
    assert not NO_KERNEL & set(EXPANDERS)


def test_addmm_is_one_gemm_with_bias(tensor: Any) -> None:
    m, n, k = 4096, 3072, 768
    args = {"self": tensor([n]), "mat1": tensor([m, k]), "mat2": tensor([k, n], stride=[1, k])}
    (work,) = kernels("aten::addmm", args, [tensor([m, n])])
    assert work.family == "gemm"
    assert work.math == "bf16"
    assert work.flops == 2 * m * n * k
    assert work.moved_bytes == 2 * (m * k + k * n + m * n + n)
    assert work.shape == (1, m, n, k, 1, 1)
    assert work.name.endswith("TN")


def test_gemm_layouts_follow_the_strides(tensor: Any) -> None:
    gradient, activation = tensor([4096, 3072]), tensor([4096, 768])
    weight = tensor([3072, 768])
    (data,) = kernels("aten::mm", {"self": gradient, "mat2": weight}, [activation])
    transposed = tensor([3072, 4096], stride=[1, 3072])
    (grad,) = kernels("aten::mm", {"self": transposed, "mat2": activation}, [weight])
    assert data.name.endswith("NN")
    assert grad.name.endswith("NT")


def test_float32_products_use_tf32_only_if_allowed(tensor: Any) -> None:
    args = {"self": tensor([64, 64], "float32"), "mat2": tensor([64, 64], "float32")}
    out = [tensor([64, 64], "float32")]
    assert kernels("aten::mm", args, out)[0].math == "fp32"
    assert kernels("aten::mm", args, out, math="tf32")[0].math == "tf32"


def test_float32_convolutions_use_tf32_unless_forbidden(tensor: Any) -> None:
    args = {
        "input": tensor([8, 16, 32, 32], "float32"),
        "weight": tensor([32, 16, 3, 3], "float32"),
        "groups": 1,
    }
    out = [tensor([8, 32, 32, 32], "float32")]
    assert kernels("aten::convolution", args, out)[0].math == "tf32"
    assert kernels("aten::convolution", args, out, math="ieee")[0].math == "fp32"
    args["allow_tf32"] = False
    assert kernels("aten::cudnn_convolution", args, out)[0].math == "fp32"


def test_batched_product_counts_every_batch(tensor: Any) -> None:
    args = {"self": tensor([12, 64, 32]), "mat2": tensor([12, 32, 16])}
    (work,) = kernels("aten::bmm", args, [tensor([12, 64, 16])])
    assert work.flops == 2 * 12 * 64 * 32 * 16


def test_linear_folds_leading_dimensions(tensor: Any) -> None:
    args = {"input": tensor([8, 128, 768]), "weight": tensor([3072, 768]), "bias": tensor([3072])}
    (work,) = kernels("aten::linear", args, [tensor([8, 128, 3072])])
    assert work.shape[:4] == (1, 8 * 128, 3072, 768)
    assert work.name.endswith("TN")


def test_grouped_product_shares_rows(tensor: Any) -> None:
    args = {"self": tensor([4096, 512]), "mat2": tensor([8, 512, 256]), "offs": tensor([8], "int32")}
    (work,) = kernels("aten::_grouped_mm", args, [tensor([4096, 256])])
    assert work.flops == 2 * 4096 * 512 * 256


def test_causal_attention_counts_the_lower_triangle(tensor: Any) -> None:
    q = tensor([8, 12, 1024, 64])
    args = {"query": q, "key": q, "value": q, "dropout_p": 0.0, "is_causal": True}
    (causal,) = kernels("aten::_scaled_dot_product_flash_attention", args, [q])
    (full,) = kernels("aten::_scaled_dot_product_flash_attention", args | {"is_causal": False}, [q])
    assert full.flops == 4 * 8 * 12 * 1024 * 1024 * 64
    assert causal.flops == 4 * 8 * 12 * (1024 * 1025 // 2) * 64


def test_flash_layout_with_rows_first_is_the_same_work(tensor: Any) -> None:
    q = tensor([8, 12, 1024, 64])
    rows_first = tensor([8, 1024, 12, 64])
    args = {"query": q, "key": q, "value": q, "is_causal": False}
    other = {"query": rows_first, "key": rows_first, "value": rows_first, "is_causal": False}
    one = kernels("aten::_scaled_dot_product_flash_attention", args, [q])[0]
    two = kernels("aten::_flash_attention_forward", other, [rows_first])[0]
    assert (one.flops, one.shape) == (two.flops, two.shape)


def test_flash_backward_is_three_kernels_with_five_products(tensor: Any) -> None:
    q = tensor([8, 12, 1024, 64])
    args = {"grad_out": q, "query": q, "key": q, "value": q, "is_causal": False}
    works = kernels("aten::_scaled_dot_product_flash_attention_backward", args, [q, q, q])
    assert [work.family for work in works] == ["reduction", "attention_backward", "copy"]
    assert works[1].flops == 10 * 8 * 12 * 1024 * 1024 * 64


def test_convolution_backward_follows_its_mask(tensor: Any) -> None:
    image, weight = tensor([32, 64, 56, 56], "float32"), tensor([128, 64, 3, 3], "float32")
    gradient = tensor([32, 128, 56, 56], "float32")
    args = {"grad_output": gradient, "input": image, "weight": weight, "groups": 1, "transposed": False}
    both = kernels("aten::convolution_backward", args | {"output_mask": [True, True, True]}, [image, weight])
    assert [work.family for work in both] == ["convolution", "convolution", "reduction"]
    assert both[0].flops == both[1].flops == 2 * 32 * 56 * 56 * 128 * 64 * 9
    first = kernels(
        "aten::convolution_backward", args | {"output_mask": [False, True, False]}, [image, weight]
    )
    assert len(first) == 1
    assert "weight" in first[0].name


def test_transposed_convolution_is_a_data_gradient(tensor: Any) -> None:
    args = {
        "input": tensor([4, 32, 8, 8]),
        "weight": tensor([32, 16, 4, 4]),
        "transposed": True,
        "groups": 1,
        "stride": [2, 2],
    }
    (work,) = kernels("aten::convolution", args, [tensor([4, 16, 16, 16])])
    assert "data" in work.name
    assert work.flops == 2 * 4 * 8 * 8 * 32 * 16 * 16


def test_layer_norm_backward_is_two_kernels(tensor: Any) -> None:
    x = tensor([8192, 768])
    args = {"grad_out": x, "input": x, "normalized_shape": [768], "output_mask": [True, True, True]}
    works = kernels("aten::native_layer_norm_backward", args, [x, tensor([768]), tensor([768])])
    assert len(works) == 2


def test_gather_moves_rows_not_the_table(tensor: Any) -> None:
    table = tensor([50_000_000, 128], "float32")
    args = {"weight": table, "indices": tensor([1024], "int64")}
    (work,) = kernels("aten::embedding", args, [tensor([1024, 128], "float32")])
    assert work.moved_bytes == 2 * 1024 * 128 * 4 + 1024 * 8


def test_large_embedding_backward_sorts(tensor: Any) -> None:
    def backward(rows: int) -> list[KernelWork]:
        args = {
            "grad_output": tensor([rows, 768]),
            "indices": tensor([rows], "int64"),
            "num_weights": 50257,
        }
        return kernels("aten::embedding_dense_backward", args, [tensor([50257, 768])])

    assert [work.family for work in backward(8192)] == ["memset", "sort", "embedding_backward"]
    assert [work.family for work in backward(2048)] == ["memset", "embedding_backward"]


def test_copy_kinds(tensor: Any) -> None:
    plain, half = tensor([1024, 1024], "float32"), tensor([1024, 1024])
    host = tensor([1024, 1024], "float32", device="cpu")
    transposed = tensor([1024, 1024], "float32", stride=[1, 1024])

    def copy(destination: Any, source: Any) -> KernelWork:
        (work,) = kernels("aten::copy_", {"self": destination, "src": source}, [destination])
        return work

    assert copy(plain, plain).family == "memcpy"
    assert copy(half, plain).moved_bytes == 6 * 1024 * 1024
    assert "transposed" in copy(plain, transposed).name
    assert copy(plain, host).engine == "link"
    assert "DtoH" in copy(host, plain).name


def test_memcpy_entry_wins_over_the_operator(tensor: Any) -> None:
    entry = {"direction": "d2h", "bytes": 4, "pinned": False}
    (work,) = kernels("aten::_local_scalar_dense", {"self": tensor([], "float32")}, [], memcpy=entry)
    assert (work.engine, work.moved_bytes) == ("link", 4)


def test_expanded_operands_count_once(tensor: Any) -> None:
    bias = tensor([4096, 768], stride=[0, 1])
    (work,) = kernels("aten::add.Tensor", {"self": tensor([4096, 768]), "other": bias}, [tensor([4096, 768])])
    assert work.moved_bytes == 2 * (2 * 4096 * 768 + 768)


def test_scalars_and_host_tensors_move_nothing(tensor: Any) -> None:
    args = {"self": tensor([1024], "float32"), "other": tensor([], "float64", device="cpu", scalar=True)}
    (work,) = kernels("aten::mul.Tensor", args, [tensor([1024], "float32")])
    assert work.moved_bytes == 2 * 4096


def test_arange_is_priced_though_its_output_was_not_resized_yet(tensor: Any) -> None:
    args = {"start": 0, "end": 1024, "step": 1, "out": tensor([0], "int64")}
    (work,) = kernels("aten::arange.start_out", args)
    assert (work.family, work.moved_bytes) == ("pointwise", 8192)


def test_empty_tensors_launch_nothing(tensor: Any) -> None:
    assert (
        kernels("aten::add.Tensor", {"self": tensor([0, 4]), "other": tensor([0, 4])}, [tensor([0, 4])]) == []
    )


def test_unknown_operator_is_priced_by_bytes_and_says_so(tensor: Any) -> None:
    (work,) = kernels("mylib::fused_thing", {"x": tensor([1024])}, [tensor([1024])])
    assert (work.family, work.known, work.moved_bytes) == ("unknown", False, 4096)


def test_fused_adamw_reads_four_lists_and_writes_three(tensor: Any) -> None:
    sizes = [[768, 768], [768], [50257, 768]]
    lists = {
        key: [tensor(size, "float32") for size in sizes]
        for key in ("self", "grads", "exp_avgs", "exp_avg_sqs")
    }
    steps = {"state_steps": [tensor([], "float32")] * 3}
    works = kernels("aten::_fused_adamw_", {**lists, **steps})
    elements = 768 * 768 + 768 + 50257 * 768
    assert sum(work.moved_bytes for work in works) == pytest.approx(7 * 4 * elements, rel=1e-6)
    assert len(works) == len(launches([768 * 768, 768, 50257 * 768], 4))


def test_foreach_norm_folds_its_partial_results(tensor: Any) -> None:
    args = {"self": [tensor([1024, 1024], "float32")] * 4, "ord": 2}
    works = kernels("aten::_foreach_norm.Scalar", args, [[tensor([], "float32")] * 4])
    assert [work.family for work in works] == ["multi_tensor", "reduction"]


def test_in_place_foreach_writes_its_first_list(tensor: Any) -> None:
    tensors = [tensor([1024], "float32")] * 8
    (work,) = kernels("aten::_foreach_add_.List", {"self": tensors, "other": tensors})
    assert work.moved_bytes == 3 * 8 * 4096


def launches_by_hand(numels: list[int], lists: int) -> list[int]:
    """The loop of multi_tensor_apply as documented, chunk by chunk."""
    result, chunks, slots, elements = [], 0, 0, 0
    for numel in numels:
        count = -(-numel // CHUNK_ELEMENTS)
        if count == 0:
            continue
        slots += 1
        for chunk in range(count):
            chunks += 1
            elements += min(CHUNK_ELEMENTS, numel - chunk * CHUNK_ELEMENTS)
            last = chunk == count - 1
            if chunks == CHUNKS_PER_LAUNCH or (last and slots == TENSORS_PER_LAUNCH[lists - 1]):
                result.append(elements)
                chunks = elements = 0
                slots = 0 if last else 1
    return result + ([elements] if elements else [])


@given(st.lists(st.integers(0, 60_000_000), max_size=150), st.integers(1, 5))
def test_launches_agree_with_the_loop(numels: list[int], lists: int) -> None:
    assert launches(numels, lists) == launches_by_hand(numels, lists)
    assert sum(launches(numels, lists)) == sum(numels)
