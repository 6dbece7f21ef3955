"""A GPT training step records the operators that eager PyTorch dispatches on a GPU, each as often.

Everything above the dispatch key is PyTorch's own code, so what can differ from a GPU is which operators
the emulated device takes whole. The counts below are derived from the model and from the formulas of
autograd; where a real trace shows the same operator, `test_operators_of_real_traces.py` compares.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SUPPORT = Path(__file__).parent / "support"
LAYERS = 3  # as in support/gpt_steps.py
LINEARS = 4 * LAYERS  # qkv, proj, fc, proj; each with a bias; lm_head has none
PARAMETERS = 2 + 12 * LAYERS + 2  # wte (also lm_head's) and wpe; a layer's; ln_f

CASTS_FORWARD = (
    2 * LINEARS  # weight and bias to bfloat16
    + 1  # lm_head's weight
    + 2 * LAYERS  # layer_norm answers float32: qkv's and fc's inputs (attention and gelu answer bfloat16)
    + 1  # lm_head's input
    + 1  # log-probabilities to float32 for nll_loss, after a log_softmax in bfloat16
)
CASTS_BACKWARD = CASTS_FORWARD + 2 * LAYERS  # a residual sum of float32 and bfloat16 sends bfloat16 back

MODEL = {
    # Forward.
    "aten::arange.start_out": 1,  # an allocation and its out= kernel: arange has no kernel of its own
    "aten::index_select": 2,  # what embedding is on every device
    "aten::native_layer_norm": 2 * LAYERS + 1,
    "aten::addmm": LINEARS,  # linear with a bias flattens its input
    "aten::gelu": LAYERS,
    "aten::_log_softmax": 1,
    "aten::nll_loss_forward": 1,
    # Backward.
    "aten::fill_.Scalar": 1,  # ones_like, the gradient of the loss
    "aten::nll_loss_backward": 1,
    "aten::_log_softmax_backward_data": 1,
    "aten::gelu_backward": LAYERS,
    "aten::native_layer_norm_backward": 2 * LAYERS + 1,
    "aten::embedding_dense_backward": 2,
    "aten::mm": 1 + 2 * (LINEARS + 1),  # lm_head forward; two a linear backward
    # Both.
    "aten::add_.Tensor": 2 * LAYERS + 1,  # gradients that meet: at each residual, at the tied weight
}
CLIP_GRAD_NORM = {
    "aten::_foreach_norm.Scalar": 1,
    "aten::linalg_vector_norm": 1,
    "aten::reciprocal": 1,  # max_norm / (norm + 1e-6)
    "aten::mul.Tensor": 1,
    "aten::clamp": 1,
    "aten::_foreach_mul_.Tensor": 1,
}
SHARED = {
    "aten::add.Tensor": 1 + 2 * LAYERS + 1,  # embeddings, residuals; norm + 1e-6 when clipping
    "aten::sum.dim_IntList": LINEARS + 1,  # biases' gradients; the positions' over the batch
    "aten::cat": LAYERS + 1,  # split's backward; the stack of norms
    "aten::copy_": CASTS_FORWARD + CASTS_BACKWARD,
}
COPY_ENGINE = {
    "aten::copy_": 2,  # tokens and targets from pinned memory
    "aten::_local_scalar_dense": 1,  # norm.item()
}
HOST = {
    "aten::empty.memory_format": 1,  # arange
    "aten::empty_strided": 2 + 1 + CASTS_FORWARD + CASTS_BACKWARD,  # batches, ones_like, casts
    "aten::as_strided": (
        11 * LAYERS  # four weight.t(), split into three, transposes of q, k, v and of the result
        + 1  # lm_head's weight.t()
        + 4 * (LINEARS + 1)  # backward of a linear: t of both operands, of the product, and of t itself
        + 4 * LAYERS  # the transposes' backward
        + PARAMETERS  # unsqueeze of each norm before they are stacked
    ),
    "aten::view": (
        2  # around index_select of a batch of tokens
        + 12 * LAYERS  # before and after each linear; heads of q, k, v; heads back into one
        + 3  # lm_head's input, logits and targets for the loss
        + 3  # their backward (targets have none, lm_head's result has)
        + 3 * LINEARS  # backward before and after, and the bias's sum
        + 4 * LAYERS  # heads
        + 1  # the positions' sum
    ),
}
OPTIMIZERS = {
    # Two parameter groups, each with its step counters on the device.
    "fused_adamw": {"aten::_foreach_add_.Scalar": 2, "aten::_fused_adamw_": 2},
    # The step counters stay on the CPU (not capturable).
    "foreach_adamw": {
        "aten::_foreach_mul_.Scalar": 2,  # weight decay; exp_avg_sq *= beta2
        "aten::_foreach_lerp_.Scalar": 1,
        "aten::_foreach_addcmul_.Scalar": 1,
        "aten::_foreach_sqrt": 1,
        "aten::_foreach_div_.ScalarList": 1,
        "aten::_foreach_add_.Scalar": 1,  # + eps
        "aten::_foreach_addcdiv_.ScalarList": 1,
    },
    "foreach_sgd": {"aten::_foreach_mul_.Scalar": 1, "aten::_foreach_add_.List": 2},
}
ATTENTIONS = ("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_cudnn_attention")
"""Which of them: flash, but cuDNN's on a Hopper with cuDNN 9.15.1 or newer (a CUDA build brings its own)."""
KERNEL, MEMCPY, HOST_ONLY = 0, 1, 12


@pytest.fixture(scope="module")
def recordings() -> dict[str, list[dict[str, Any]]]:
    words = [sys.executable, str(SUPPORT / "gpt_steps.py"), *OPTIMIZERS]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def counts(operations: list[dict[str, Any]], kind: int) -> Counter[str]:
    return Counter(operation["operator"] for operation in operations if operation["kind"] == kind)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_kernels(recordings: dict[str, list[dict[str, Any]]], optimizer: str) -> None:
    found = counts(recordings[optimizer], KERNEL)
    attention = next(name for name in ATTENTIONS if name in found)
    expected = Counter(MODEL) + Counter(CLIP_GRAD_NORM) + Counter(SHARED) + Counter(OPTIMIZERS[optimizer])
    expected += Counter({attention: LAYERS, f"{attention}_backward": LAYERS})
    assert found == expected


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_copies_and_operators_without_kernels(
    recordings: dict[str, list[dict[str, Any]]], optimizer: str
) -> None:
    assert counts(recordings[optimizer], MEMCPY) == COPY_ENGINE
    assert counts(recordings[optimizer], HOST_ONLY) == HOST
    assert {operation["kind"] for operation in recordings[optimizer]} == {KERNEL, MEMCPY, HOST_ONLY}


def test_the_order_is_the_programs(recordings: dict[str, list[dict[str, Any]]]) -> None:
    """Forward and optimizer on the script's thread, backward on autograd's, in one issue order."""
    operations = recordings["fused_adamw"]
    threads = [operation["host_thread"] for operation in operations]
    assert threads == sorted(threads[: threads.index(1)]) + [1] * threads.count(1) + [0] * (
        len(threads) - threads.index(1) - threads.count(1)
    )
    names = [operation["operator"] for operation in operations]
    assert names.index("aten::nll_loss_forward") < names.index("aten::nll_loss_backward")
    assert names.index("aten::_foreach_norm.Scalar") < names.index("aten::_fused_adamw_")
    assert names[-1] == "aten::_local_scalar_dense"


def test_matrix_products_run_in_bfloat16(recordings: dict[str, list[dict[str, Any]]]) -> None:
    """Autocast's casts reach the operators: a prediction rests on the dtypes."""
    products = [o for o in recordings["fused_adamw"] if o["operator"] in ("aten::addmm", "aten::mm")]
    assert {out["dtype"] for product in products for out in product["out"]} == {"bfloat16"}
    attention = [o for o in recordings["fused_adamw"] if o["operator"] in ATTENTIONS]
    assert {o["args"]["query"]["dtype"] for o in attention} == {"bfloat16"}
    assert {tuple(o["args"]["query"]["shape"]) for o in attention} == {(4, 2, 64, 64)}
    assert all(o["args"]["is_causal"] for o in attention)
