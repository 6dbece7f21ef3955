"""ResNet-50 in fp16 autocast with GradScaler and channels-last: what a GPU runs, and in which layout.

cuDNN computes channels-last convolutions in place of transposing, so the layout decides both kernels and
memory; it has to last through convolution, normalization, activation and pooling, forth and back.
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
CONVOLUTIONS, RELUS, RESIDUALS = 53, 49, 16

CASTS = (
    CONVOLUTIONS + 2  # weights to float16: convolutions', fc's weight and bias
    + 1  # the images
    + 1  # log-probabilities to float32 for nll_loss
)  # fmt: skip
CASTS_BACK = CASTS - 1  # the images need no gradient
UNSCALE_CASTS = 2  # scale.double().reciprocal().float()

KERNELS = {
    "aten::copy_": CASTS + CASTS_BACK + UNSCALE_CASTS,
    "aten::add_.Tensor": CONVOLUTIONS
    + RESIDUALS
    + RESIDUALS,  # num_batches_tracked; residuals; their gradients
    "aten::convolution": CONVOLUTIONS,
    "aten::convolution_backward": CONVOLUTIONS,
    "aten::cudnn_batch_norm": CONVOLUTIONS,  # half input with float32 weights is cuDNN's
    "aten::cudnn_batch_norm_backward": CONVOLUTIONS,
    "aten::relu_": RELUS,
    "aten::threshold_backward": RELUS,
    "aten::max_pool2d_with_indices": 1,
    "aten::max_pool2d_with_indices_backward": 1,
    "aten::mean.dim": 1,  # adaptive_avg_pool2d to 1x1
    "aten::div.Tensor": 1,  # its backward
    "aten::zero_": 1,  # backward of the as_strided by which adaptive_avg_pool2d marks 1x1 channels-last
    "aten::addmm": 1,
    "aten::mm": 2,
    "aten::sum.dim_IntList": 1,
    "aten::_log_softmax": 1,
    "aten::_log_softmax_backward_data": 1,
    "aten::nll_loss_forward": 1,
    "aten::nll_loss_backward": 1,
    "aten::fill_.Scalar": 2,  # ones_like of the loss; found_inf = 0
    # GradScaler
    "aten::mul.Tensor": 2,  # scale(loss) and its backward
    "aten::reciprocal": 1,
    "aten::_amp_foreach_non_finite_check_and_unscale_": 1,
    "aten::_amp_update_scale_": 1,
    # SGD with weight decay and momentum
    "aten::_foreach_add.List": 1,
    "aten::_foreach_mul_.Scalar": 1,
    "aten::_foreach_add_.List": 2,
}
COPY_ENGINE = {
    "aten::copy_": 3,  # as_strided's backward; found_inf and the inverse scale to the gradients' device
    "aten::_local_scalar_dense": 1,  # did a gradient overflow?
}
KEPT = {
    "aten::convolution": (0,),
    "aten::cudnn_batch_norm": (0,),
    "aten::max_pool2d_with_indices": (0, 1),
    "aten::max_pool2d_with_indices_backward": (0,),
    "aten::threshold_backward": (0,),
    "aten::cudnn_batch_norm_backward": (0,),
    "aten::convolution_backward": (0, 1),
}
"""Operator → which of its outputs are channels-last."""
KERNEL, MEMCPY = 0, 1


@pytest.fixture(scope="module")
def step() -> dict[str, Any]:
    words = [sys.executable, str(SUPPORT / "resnet50_steps.py"), "channels_last_half"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def channels_last(sizes: list[int]) -> list[int]:
    _, channels, height, width = sizes
    return [height * width * channels, 1, width * channels, channels]


def test_operators(step: dict[str, Any]) -> None:
    for kind, expected in ((KERNEL, KERNELS), (MEMCPY, COPY_ENGINE)):
        assert Counter(o["operator"] for o in step["operations"] if o["kind"] == kind) == expected


def test_channels_last_is_kept(step: dict[str, Any]) -> None:
    checked = 0
    for operation in step["operations"]:
        for output in KEPT.get(operation["operator"], ()):
            tensor = operation["out"][output]
            if tensor is not None:  # the images' gradient
                assert tensor["stride"] == channels_last(tensor["shape"]), operation
                checked += 1
    assert checked == 4 * CONVOLUTIONS + CONVOLUTIONS - 1 + RELUS + 3


def test_activations_are_half_and_gradients_of_weights_are_as_the_weights(step: dict[str, Any]) -> None:
    for operation in step["operations"]:
        if operation["operator"] in ("aten::convolution", "aten::convolution_backward"):
            assert {out["dtype"] for out in operation["out"] if out} == {"float16"}
    strides = {name: stride for name, stride in step["gradient_strides"].items() if len(stride) == 4}
    assert len(strides) == CONVOLUTIONS
    assert strides["conv1.weight"] == channels_last([64, 3, 7, 7])
    assert strides["layer1.0.conv2.weight"] == channels_last([64, 64, 3, 3])


def test_no_layout_is_converted(step: dict[str, Any]) -> None:
    """Casts keep their input's strides: no kernel transposes an activation."""
    for operation in step["operations"]:
        if operation["operator"] == "aten::copy_":
            to, source = (operation["args"][name] for name in ("self", "src"))
            assert to["stride"] == source["stride"], operation
