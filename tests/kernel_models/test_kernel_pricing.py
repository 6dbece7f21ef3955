"""Prices are physical, ordered, honest about their source, and the same every time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maya.errors import MayaError
from maya.hardware import all_gpus, find_gpu
from maya.kernel_models import RooflineModel, Source
from maya.kernel_models.artifact import Efficiencies, Fit, load_efficiencies, no_fits
from maya.kernel_models.columns import peak_flops
from maya.kernel_models.families.convolution import convolution_work
from maya.kernel_models.families.gemm import product
from maya.kernel_models.forms import default_parameters, form_of
from maya.kernel_models.pricing import find_fit, price
from maya.kernel_models.work import KernelWork
from maya.traces.tables import TensorMetadata

H100 = find_gpu("H100-SXM5-80GB")


def gemm(m: int, n: int, k: int, math: str = "bf16") -> KernelWork:
    item = 4 if math == "fp32" else 2
    return product("mm", math, (1, m, n, k), item * (m * k + k * n + m * n))


def stream(size: int) -> KernelWork:
    return KernelWork("pointwise", "add", "fp32", size // 12, size, max(1, size // 6144))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 40_000),
    st.integers(1, 40_000),
    st.integers(1, 40_000),
    st.sampled_from(["bf16", "fp32", "fp8"]),
)
def test_no_product_beats_the_peak(m: int, n: int, k: int, math: str) -> None:
    efficiencies = load_efficiencies()
    for gpu in (H100, find_gpu("A100-SXM4-80GB"), find_gpu("V100-SXM2-16GB")):
        prices = price([gemm(m, n, k, math)], gpu, efficiencies)
        assert prices.work_ns[0] >= 2 * m * n * k / peak_flops(gpu, math) * 1e9 * 0.999


EIGHTS = st.integers(32, 2_500).map(lambda eighths: 8 * eighths)
"""Aligned sizes: doubling 300 gives tensor cores an aligned 600, which may well be faster."""


@settings(deadline=None, max_examples=60)
@given(EIGHTS, EIGHTS, EIGHTS)
def test_doubling_a_product_never_makes_it_faster(m: int, n: int, k: int) -> None:
    works = [gemm(m, n, k), gemm(2 * m, n, k), gemm(m, 2 * n, k), gemm(m, n, 2 * k)]
    times = price(works, H100, load_efficiencies()).work_ns
    assert (times[1:] >= 0.98 * times[0]).all()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 10**11))
def test_a_stream_grows_with_its_bytes_and_stays_below_l2_bandwidth(size: int) -> None:
    one, two = price([stream(size), stream(2 * size)], H100, load_efficiencies()).work_ns
    assert two >= 0.98 * one
    assert one >= size / (2 * (H100.l2_bandwidth_gbps or 1e9))


def test_large_streams_reach_most_of_the_bandwidth_and_no_more() -> None:
    size = 4 * 2**30
    time = int(price([stream(size)], H100, load_efficiencies()).work_ns[0])
    assert 0.7 < size / time / H100.hbm_bandwidth_gbps <= 1.0


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_every_gpu_prices_every_form(gpu: Any) -> None:
    families = [
        "gemm",
        "pointwise",
        "norm_forward",
        "softmax_backward",
        "sort",
        "memcpy_pinned",
        "memcpy_p2p",
    ]
    works = [
        gemm(4096, 4096, 4096),
        gemm(4096, 4096, 4096, "fp8"),
        KernelWork(
            "attention_forward", "a", "bf16", 10**10, 10**7, 96, (1, 12, 12, 1024, 1024, 64, 64, 1, 0)
        ),
        KernelWork("recurrent", "r", "fp32", 10**9, 10**7, 96, (512, 64, 50, 4, 1, 0)),
        *(KernelWork(family, family, "fp32", 10**6, 10**7, 100, (100.0, 100.0)) for family in families[1:]),
        convolution_work("tf32", 0, *images(), 1, 1),
    ]
    prices = price(works, gpu, load_efficiencies())
    assert (prices.low_ns <= prices.work_ns).all()
    assert (prices.work_ns <= prices.high_ns).all()
    assert (prices.low_ns >= 1).all()
    for share in (prices.sm_share, prices.hbm_share, prices.link_share):
        assert ((share >= 0) & (share <= 1)).all()


def images() -> tuple[TensorMetadata, TensorMetadata, TensorMetadata]:
    def dense(*shape: int) -> TensorMetadata:
        strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        return TensorMetadata("float32", shape, strides)

    return dense(32, 64, 56, 56), dense(64, 64, 3, 3), dense(32, 64, 56, 56)


def test_without_fits_everything_is_a_roofline() -> None:
    prices = price([gemm(4096, 4096, 4096), stream(10**8)], H100, no_fits())
    assert (prices.source == Source.ROOFLINE).all()


def fit(generation: str, math: str = "bf16", held_out_rows: int = 200, **parameters: float) -> Fit:
    low = np.append(np.log([64.0, 64.0, 64.0, 1e6]), 0.0)
    high = np.append(np.log([8192.0, 8192.0, 8192.0, 1e13]), 3.0)
    chosen = default_parameters("gemm") | parameters
    return Fit("gemm", math, generation, chosen, low, high, 0.9, 1.2, 1000, held_out_rows)


def efficiencies(*fits: Fit) -> Efficiencies:
    return Efficiencies({(f.family, f.math, f.generation): f for f in fits})


def test_source_says_what_a_price_rests_on() -> None:
    works = [gemm(4096, 4096, 4096), gemm(4096, 4096, 10**6), stream(10**8)]
    learned = price(works, H100, efficiencies(fit("hopper")))
    assert learned.source.tolist() == [Source.LEARNED, Source.EXTRAPOLATED, Source.ROOFLINE]
    carried = price(works, H100, efficiencies(fit("ampere")))
    assert carried.source.tolist() == [Source.EXTRAPOLATED, Source.EXTRAPOLATED, Source.ROOFLINE]


def test_intervals_widen_outside_what_was_fitted() -> None:
    def width(prices: Any, kernel: int) -> float:
        return float(prices.high_ns[kernel] / prices.low_ns[kernel])

    works = [gemm(4096, 4096, 4096), gemm(4096, 4096, 10**6)]
    here = price(works, H100, efficiencies(fit("hopper")))
    elsewhere = price(works, H100, efficiencies(fit("ampere")))
    assert width(here, 0) < width(here, 1)
    assert width(here, 0) < width(elsewhere, 0) < width(elsewhere, 1)
    assert width(elsewhere, 0) < width(price(works, H100, no_fits()), 0)


def test_few_held_out_rows_widen_the_interval() -> None:
    works = [gemm(4096, 4096, 4096)]
    many, few = (price(works, H100, efficiencies(fit("hopper", held_out_rows=n))) for n in (400, 3))
    assert few.work_ns[0] == many.work_ns[0]
    assert few.low_ns[0] < many.low_ns[0]
    assert few.high_ns[0] > many.high_ns[0]


def test_nearest_generation_then_related_arithmetic() -> None:
    found = efficiencies(fit("volta", "fp16"), fit("ada"), fit("blackwell"))
    assert find_fit(found, "gemm", "bf16", "hopper")[0] is found.fits["gemm", "bf16", "blackwell"]
    assert find_fit(found, "gemm", "bf16", "ampere")[0] is found.fits["gemm", "bf16", "ada"]
    assert find_fit(found, "gemm", "fp16", "volta") == (found.fits["gemm", "fp16", "volta"], True)
    assert find_fit(found, "gemm", "fp16", "ada") == (found.fits["gemm", "bf16", "ada"], True)
    assert find_fit(found, "gemm", "tf32", "ada") == (found.fits["gemm", "bf16", "ada"], False)
    assert find_fit(found, "gemm", "fp32", "ada") == (None, False)


def test_gpus_without_tf32_take_their_float32_fit() -> None:
    found = efficiencies(fit("volta", "fp32"), fit("ampere", "fp32"), fit("hopper", "bf16"))
    assert find_fit(found, "gemm", "tf32", "volta") == (found.fits["gemm", "fp32", "volta"], True)
    assert find_fit(found, "gemm", "tf32", "ampere") == (found.fits["gemm", "bf16", "hopper"], False)


def test_a_faster_memory_makes_a_stream_faster() -> None:
    faster = replace(H100, hbm_bandwidth_gbps=2 * H100.hbm_bandwidth_gbps)
    found = load_efficiencies()
    assert price([stream(10**9)], faster, found).work_ns[0] < price([stream(10**9)], H100, found).work_ns[0]


def test_missing_arithmetic_falls_back() -> None:
    volta = find_gpu("V100-SXM2-16GB")
    assert peak_flops(volta, "bf16") == peak_flops(volta, "fp32")
    assert peak_flops(volta, "tf32") == peak_flops(volta, "fp32")
    assert peak_flops(find_gpu("A100-SXM4-80GB"), "fp8") == peak_flops(find_gpu("A100-SXM4-80GB"), "bf16")


def test_host_copies_use_the_link_only() -> None:
    work = KernelWork("memcpy_pinned", "copy", "fp32", 0, 10**9, 1, engine="link")
    prices = price([work], H100, load_efficiencies())
    assert (prices.link_share[0], prices.sm_share[0]) == (1.0, 0.0)
    assert prices.work_ns[0] > 1e9 / H100.pcie_gbps


def test_defaults_lie_within_their_bounds() -> None:
    for family in ("gemm", "attention_forward", "convolution", "pointwise", "sort", "solver", "recurrent"):
        parameters = default_parameters(family)
        for parameter in form_of(family).parameters:
            assert parameter.low <= parameters[parameter.name] <= parameter.high


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no file"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"schema_version": 99, "fits": []}', "schema version 99"),
        ('{"schema_version": 1}', "damaged"),
        (json.dumps({"schema_version": 1, "fits": [{"family": "gemm"}]}), "damaged"),
        (
            json.dumps(
                {
                    "schema_version": 1,
                    "fits": [{"family": "gemm", "parameters": {}, "driver_low": [], "driver_high": []}],
                }
            ),
            "another formula",
        ),
    ],
)
def test_broken_cards_are_explained(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "efficiency.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(MayaError, match=message) as caught:
        RooflineModel(path)
    assert caught.value.hint
