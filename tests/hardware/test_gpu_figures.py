"""The shipped GPU figures agree with arithmetic, with each other and with measured kernels."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from maya.hardware import FIGURE_GROUPS, GENERATIONS, PEAK_KEYS, GpuSpec, all_gpus, find_gpu

GIB = 1 << 30
GPUS = all_gpus()
DATA = Path(__file__).parents[3] / "shared" / "data" / "kernels"

_KEYS = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")


def _rates(*operations: int) -> dict[str, int]:
    return {key: rate for key, rate in zip(_KEYS, operations, strict=False) if rate}


OPERATIONS_PER_SM_CLOCK = {
    # Written down from the architecture papers apart from the catalogue: a multiply-add counts two.
    # fp64 fp64_tensor fp32 tf32 fp16 bf16 fp8 int8 fp4
    (6, 0): _rates(64, 0, 128, 0, 256),
    (6, 1): _rates(8, 0, 256, 0, 256, 0, 0, 1024),
    (7, 0): _rates(64, 0, 128, 0, 1024),
    (7, 5): _rates(4, 0, 128, 0, 1024, 0, 0, 2048),
    (8, 0): _rates(64, 128, 128, 1024, 2048, 2048, 0, 4096),
    (8, 6): _rates(4, 0, 256, 512, 1024, 1024, 0, 2048),
    (8, 9): _rates(4, 0, 256, 512, 1024, 1024, 2048, 2048),
    (9, 0): _rates(128, 256, 256, 2048, 4096, 4096, 8192, 8192),
    (10, 0): _rates(128, 128, 256, 4096, 8192, 8192, 16384, 16384, 32768),
    (10, 3): _rates(4, 4, 256, 4096, 8192, 8192, 16384, 0, 49152),
}
PRODUCT_RATES = {
    # Products whose tensor cores are sold at half rate with fp32 accumulation.
    "RTX2080Ti": _rates(4, 0, 128, 0, 512, 0, 0, 2048),
    "RTX3090": _rates(4, 0, 256, 256, 512, 512, 0, 2048),
    "A10G": _rates(4, 0, 256, 256, 512, 512, 0, 1024),
    "RTX4090": _rates(4, 0, 256, 256, 512, 512, 1024, 2048),
}
CUT_BELOW_THE_CHIP = {
    "H800": ("fp64", "fp64_tensor"),
    "H20": ("fp64", "fp64_tensor", "tf32", "fp16", "bf16", "fp8", "int8"),
}
TENSOR_KEYS = ("tf32", "fp16", "bf16", "fp8", "int8", "fp4")


def by_name(gpu: GpuSpec) -> str:
    return gpu.name


def test_the_catalogue_holds_what_the_design_page_asks_for() -> None:
    wanted = (
        "V100-SXM2-16GB V100-SXM2-32GB V100-PCIE-16GB V100-PCIE-32GB T4 P4 P100-PCIE-16GB "
        "P100-SXM2-16GB A10 A10G A30 A40 A6000 A100-SXM4-40GB A100-SXM4-80GB A100-PCIE-40GB "
        "A100-PCIE-80GB L4 L40S RTX2080Ti RTX3090 RTX4090 H100-SXM5-80GB H100-PCIE-80GB "
        "H100-NVL-94GB H200-SXM-141GB H800 H20 GH200 B200-SXM B300-SXM GB200 GB300"
    )
    assert {gpu.name for gpu in GPUS} == set(wanted.split())


def test_figures_everyone_quotes() -> None:
    h100 = find_gpu("H100-SXM5-80GB")
    assert h100.peak_tflops["bf16"] == 989.4
    assert (h100.sm_count, h100.compute_capability, h100.total_memory_bytes) == (132, (9, 0), 85_017_755_648)
    a100 = find_gpu("a100-40gb")
    assert (a100.peak_tflops["tf32"], a100.hbm_bandwidth_gbps, a100.nvlink_gbps) == (156.0, 1555.0, 300.0)
    assert "bf16" not in find_gpu("v100").peak_tflops
    assert "fp8" not in find_gpu("a100").peak_tflops


@pytest.mark.parametrize("gpu", GPUS, ids=by_name)
def test_peaks_are_sms_times_clock_times_operations(gpu: GpuSpec) -> None:
    rates = PRODUCT_RATES.get(gpu.name, OPERATIONS_PER_SM_CLOCK[gpu.compute_capability])
    assert set(gpu.peak_tflops) == set(rates)
    for key, stated in gpu.peak_tflops.items():
        clock_mhz = gpu.tensor_clock_mhz or gpu.boost_clock_mhz
        if key not in TENSOR_KEYS:
            clock_mhz = gpu.boost_clock_mhz
        computed = gpu.sm_count * clock_mhz * 1e6 * rates[key] / 1e12
        if key in CUT_BELOW_THE_CHIP.get(gpu.name, ()):
            assert stated < 0.5 * computed, key
        else:
            assert stated == pytest.approx(computed, rel=0.04), key


@pytest.mark.parametrize("gpu", GPUS, ids=by_name)
def test_bandwidth_is_bus_times_clock(gpu: GpuSpec) -> None:
    computed_gbps = 2 * gpu.memory_clock_mhz * gpu.memory_bus_bits / 8 / 1000
    assert gpu.hbm_bandwidth_gbps == pytest.approx(computed_gbps, rel=0.02)
    if gpu.l2_bandwidth_gbps is not None:
        assert 1.3 < gpu.l2_bandwidth_gbps / gpu.hbm_bandwidth_gbps < 8


@pytest.mark.parametrize("gpu", GPUS, ids=by_name)
def test_memory_sizes_fit_together(gpu: GpuSpec) -> None:
    assert gpu.memory_bytes % GIB == 0
    in_the_name = re.search(r"-(\d+)GB$", gpu.name)
    if in_the_name:
        assert gpu.memory_bytes == int(in_the_name[1]) * GIB
    # ECC in GDDR memory costs a sixteenth, HBM has it for free; the driver keeps a little more.
    assert 0.915 < gpu.total_memory_bytes / gpu.memory_bytes < 0.997
    assert 0.1 * GIB < gpu.context_bytes < 0.8 * GIB


@pytest.mark.parametrize("gpu", GPUS, ids=by_name)
def test_units_and_vocabulary(gpu: GpuSpec) -> None:
    assert gpu.generation in GENERATIONS
    assert set(gpu.peak_tflops) <= set(PEAK_KEYS)
    assert gpu.pcie_gbps in (15.75, 31.5, 63.0, 225.0, 450.0)
    assert (gpu.pcie_gbps > 100) == gpu.name.startswith("G")
    assert gpu.shared_memory_per_block_optin_bytes <= gpu.shared_memory_per_sm_bytes
    if "SXM" in gpu.name or gpu.name.startswith("G"):
        assert gpu.nvlink_gbps >= 80
    # A direction, not the two together that vendors print.
    assert gpu.nvlink_gbps <= {"blackwell": 900, "hopper": 450, "ampere": 300}.get(gpu.generation, 150)
    with pytest.raises(AttributeError):
        gpu.sm_count = 1  # type: ignore[misc]
    assert hash(gpu) == hash(find_gpu(gpu.name))


@pytest.mark.parametrize("gpu", GPUS, ids=by_name)
def test_every_figure_has_a_source(gpu: GpuSpec) -> None:
    assert set(gpu.sources) == set(FIGURE_GROUPS)
    for group, text in gpu.sources.items():
        assert len(text) > 15, group
        # A key of [documents] that was not found stays as written, without a space.
        assert all(" " in part for part in text.split("; ")), text
        assert "gpus.toml" not in text, f"{group}: overrides a figure of its model without naming a source"


def test_every_field_is_in_a_source_group() -> None:
    vouched = {field for fields in FIGURE_GROUPS.values() for field in fields}
    assert vouched | {"name", "aliases", "sources"} == set(vars(GPUS[0]))


needs_data = pytest.mark.skipif(
    not (DATA / "gemm.parquet").exists() or importlib.util.find_spec("pyarrow") is None,
    reason="needs ../shared/data/kernels and pyarrow",
)


@needs_data
def test_no_measured_gemm_is_faster_than_the_peak() -> None:
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    table = parquet.read_table(
        DATA / "gemm.parquet", columns=["gpu", "dtype", "batch", "m", "n", "k", "time_us"]
    )
    work = compute.fill_null(table["batch"].cast("float64"), 1.0)
    for size in ("m", "n", "k"):
        work = compute.multiply(work, table[size].cast("float64"))
    tflops = compute.multiply(compute.divide(work, table["time_us"].cast("float64")), 2e-6)
    fastest = table.append_column("tflops", tflops).group_by(["gpu", "dtype"])
    checked = 0
    for row in fastest.aggregate([("tflops", "max"), ("tflops", "count")]).to_pylist():
        peak = find_gpu(row["gpu"]).peak_tflops[row["dtype"].removesuffix("_block")]
        assert row["tflops_max"] <= peak, row
        checked += row["tflops_count"]
    assert checked > 1_000_000


@needs_data
def test_no_large_tensor_is_read_faster_than_memory() -> None:
    import numpy
    import pyarrow.parquet as parquet

    table = parquet.read_table(DATA / "pointwise_norm_softmax.parquet", columns=["gpu", "bytes", "time_us"])
    names, moved_bytes = table["gpu"].to_numpy(), table["bytes"].to_numpy().astype(float)
    gbps = moved_bytes / table["time_us"].to_numpy() / 1e3
    for name in numpy.unique(names):
        gpu = find_gpu(str(name))
        large = gbps[(names == name) & (moved_bytes > 4 * gpu.l2_bytes)]
        if len(large) > 100:
            # Not above the peak, and the best rows come near enough that the peak is the right one.
            assert 0.7 < numpy.quantile(large, 0.99) / gpu.hbm_bandwidth_gbps < 1.0, name
