"""Convolutions, batch norms and pools: what layout, padding and few channels cost."""

from __future__ import annotations

import pytest

from maya.hardware import GpuSpec, find_gpu
from maya.kernel_models.artifact import load_efficiencies
from maya.kernel_models.columns import peak_flops
from maya.kernel_models.families import expand_operator
from maya.kernel_models.families.convolution import DATA, FORWARD, WEIGHT, convolution_work
from maya.kernel_models.pricing import price
from maya.kernel_models.work import KernelWork
from maya.traces.tables import OperatorMetadata, TensorMetadata

A100, V100 = find_gpu("A100-SXM4-80GB"), find_gpu("V100-SXM2-16GB")
H100, T4 = find_gpu("H100-SXM5-80GB"), find_gpu("T4")


def tensor(*shape: int, last: bool = True, dtype: str = "float16") -> TensorMetadata:
    """A batch of images, channels last or first."""
    order = [0, *range(2, len(shape)), 1] if last else list(range(len(shape)))
    stride, step = [0] * len(shape), 1
    for axis in reversed(order):
        stride[axis], step = step, step * shape[axis]
    return TensorMetadata(dtype, shape, tuple(stride))


def convolution(
    direction: int,
    batch: int,
    c_in: int,
    c_out: int,
    edge: int,
    taps: int,
    *,
    stride: int = 1,
    last: bool = True,
    math: str = "fp16",
) -> KernelWork:
    """A "same" convolution of square images."""
    dtype = "float16" if math == "fp16" else "float32"
    image = tensor(batch, c_in, edge, edge, last=last, dtype=dtype)
    weight = tensor(c_out, c_in, taps, taps, last=last, dtype=dtype)
    result = tensor(batch, c_out, edge // stride, edge // stride, last=last, dtype=dtype)
    return convolution_work(math, direction, image, weight, result, 1, stride)


def time_us(work: KernelWork, gpu: GpuSpec = A100) -> float:
    """Priced alone, with the card that ships."""
    return float(price([work], gpu, load_efficiencies()).work_ns[0]) / 1e3


@pytest.mark.parametrize("gpu", [A100, V100, H100, T4], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("channels", [1, 3, 8])
def test_few_channels_cost_no_more_than_padding_to_a_small_tile(gpu: GpuSpec, channels: int) -> None:
    back = convolution(DATA, 32, channels, 64, 128, 3)
    padded = convolution(DATA, 32, 64, 64, 128, 3)
    assert time_us(back, gpu) <= 1.05 * time_us(padded, gpu)


@pytest.mark.parametrize("gpu", [A100, V100, H100], ids=lambda gpu: gpu.name)
@pytest.mark.parametrize("direction", [FORWARD, DATA, WEIGHT])
def test_large_half_precision_convolutions_reach_a_plausible_share_of_the_peak(
    gpu: GpuSpec, direction: int
) -> None:
    work = convolution(direction, 256, 256, 256, 28, 3)
    share = work.flops / (time_us(work, gpu) * 1e-6) / peak_flops(gpu, "fp16")
    assert 0.3 < share < 0.9


def test_tensor_cores_convert_channels_first_images_and_cuda_cores_do_not() -> None:
    first, last = (convolution(FORWARD, 32, 128, 128, 28, 3, last=x, math="tf32") for x in (False, True))
    assert time_us(first) > 1.1 * time_us(last)
    first, last = (convolution(FORWARD, 32, 128, 128, 28, 3, last=x, math="fp32") for x in (False, True))
    assert time_us(first) == pytest.approx(time_us(last))


def kernels(operator: str, out: list[TensorMetadata], **args: object) -> list[KernelWork]:
    """Expanded as in a trace."""
    return expand_operator(f"aten::{operator}", OperatorMetadata(dict(args), tuple(out)))


def test_batch_norm_over_few_channels_fills_the_gpu_only_with_channels_last() -> None:
    times = []
    for last in (True, False):
        image = tensor(256, 64, 56, 56, last=last)
        (work,) = kernels("cudnn_batch_norm_backward", [image], input=image)
        times.append(time_us(work, H100))
        achieved = work.moved_bytes / times[-1] / 1e3 / H100.hbm_bandwidth_gbps
        assert (achieved > 0.6) == last
    assert times[0] < times[1]


def test_a_pools_backward_with_channels_last_shares_its_index_arithmetic() -> None:
    times = []
    for last in (True, False):
        large, small = tensor(128, 64, 112, 112, last=last), tensor(128, 64, 56, 56, last=last)
        indices = tensor(128, 64, 56, 56, last=last, dtype="int64")
        (work,) = kernels(
            "max_pool2d_with_indices_backward",
            [large],
            grad_output=small,
            self=large,
            kernel_size=[3, 3],
            indices=indices,
        )
        assert work.moved_bytes == 2 * (2 * large.numel + small.numel) + 8 * indices.numel
        times.append(time_us(work))
    assert 1.5 < times[1] / times[0] < 8.0


def test_softmax_multiplies_before_its_backward_and_log_softmax_does_not() -> None:
    rows = tensor(4096, 384, last=False)
    names = [
        [work.family for work in kernels(name, [rows], grad_output=rows, output=rows, dim=-1)]
        for name in ("_softmax_backward_data", "_log_softmax_backward_data")
    ]
    assert names == [["pointwise", "softmax_backward"], ["softmax_backward"]]
