"""Attention forward: FlashAttention-2, -3 and -4, cuDNN, and the fused kernels of serving libraries.

Columns are those of `attention_geometry`. Base: tiles of 128 x 128 pairs, each bound by tensor cores or by
the exponentials of the special function units, spread over the SMs; bytes of Q, K, V and O; and the passes a
library makes besides (appending K and V to its cache).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GpuSpec
from maya.kernel_models.columns import Floats
from maya.kernel_models.fitted_math import fitted_math
from maya.kernel_models.forms.form import Parameter, smooth_maximum
from maya.kernel_models.learned.attention_geometry import KEY_TILE, QUERY_TILE, Geometry, geometry
from maya.kernel_models.learned.attention_variants import (
    FLASH_2,
    FLASH_3,
    FLASH_4,
    FUSED_MMA,
    KINDS,
    LIBRARIES,
    MMA,
    NAMES,
    STOCK_CUDNN,
    STOCK_FLASH,
    TRITON,
    TRTLLM,
    WGMMA,
    class_of,
    variants_of_rows,
)
from maya.kernel_models.learned.calls import Calls, Devices
from maya.kernel_models.learned.family import LearnedFamily, Table, Training
from maya.kernel_models.learned.hashing import hashed
from maya.kernel_models.work import KernelWork

ITEM_BYTES = {
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "nvfp4": 0.5,
    "fp32": 4.0,
}
"""Others have 2."""
EXPONENTIALS_PER_CLOCK = 16.0
"""Of one SM (CUDA programming guide, arithmetic throughput: special functions, 8.0 to 10.0)."""
REFERENCE_CLOCK_HZ = 1.9e9
"""Latencies are a number of clocks; parameters give them at this clock."""
EFFICIENT_SLOWDOWN = 1.8
"""The memory-efficient backend (CUTLASS, of xFormers) beside FlashAttention-2, which is about twice as fast
(Dao 2023, FlashAttention-2, section 4.1, A100)."""
ULTRA_EXPONENTIALS = 2.0
"""Compute capability 10.3 has twice as many (NVIDIA, "Inside NVIDIA Blackwell Ultra", 2025)."""

PARAMETERS = (
    Parameter("floor_ns", 4_000.0, 1_000.0, 20_000.0),
    Parameter("floor_fused_ns", 7_000.0, 1_000.0, 20_000.0),
    Parameter("floor_triton_ns", 5_000.0, 1_000.0, 20_000.0),
    Parameter("library_ns", 2_000.0, 100.0, 20_000.0),
    Parameter("trtllm_ns", 5_000.0, 100.0, 20_000.0),
    Parameter("tile_floor_ns", 300.0, 10.0, 5_000.0),
    Parameter("mma", 0.6, 0.2, 1.0),
    Parameter("mma_on_ada", 0.5, 0.2, 1.0),
    Parameter("mma_on_hopper", 0.38, 0.1, 1.0),
    Parameter("mma_on_blackwell", 0.2, 0.05, 1.0),
    Parameter("wgmma", 0.65, 0.2, 1.0),
    Parameter("tcgen05", 0.65, 0.2, 1.0),
    Parameter("triton", 0.45, 0.1, 1.0),
    Parameter("triton_wgmma", 0.4, 0.1, 1.0),
    Parameter("triton_tcgen05", 0.25, 0.05, 1.0),
    Parameter("fp8", 0.7, 0.2, 1.5),
    Parameter("exp_mma", 0.4, 0.3, 3.0),
    Parameter("exp_wgmma", 0.8, 0.1, 3.0),
    Parameter("exp_tcgen05", 1.0, 0.1, 4.0),
    Parameter("exp_flash_2", 0.4, 0.1, 3.0),
    Parameter("quantisation", 0.5, 0.01, 1.0),
    Parameter("hbm", 0.7, 0.1, 1.0),
    Parameter("l2", 0.6, 0.1, 1.0),
    Parameter("resident", 0.6, 0.1, 2.0),
    Parameter("append", 1.0, 0.05, 5.0),
)


def hardware(calls: Calls) -> NDArray[np.int64]:
    """[k] of MMA, WGMMA, TCGEN05."""
    each = np.asarray([class_of(gpu) for gpu in calls.devices.gpus], dtype=np.int64)
    return each[calls.devices.index] if len(each) else np.zeros(0, dtype=np.int64)


def tensor_class(calls: Calls) -> Floats:
    """[k] 0 Ampere's A100 and before, 1 mma.sync on gaming and workstation dies (8.6, 8.9, 12.0), 2 Hopper,
    3 data-centre Blackwell."""
    small_dies = calls.devices.figure(lambda gpu: float(gpu.compute_capability > (8, 0)))
    where = hardware(calls)
    result: Floats = np.where(where == 0, small_dies, where + 1.0)
    return result


def kinds(calls: Calls) -> NDArray[np.int64]:
    """[k] kind of kernel."""
    return KINDS[calls.variant, hardware(calls)]


def exponentials(calls: Calls) -> Floats:
    """[k] a second of the whole GPU."""
    per_clock = calls.devices.figure(
        lambda gpu: (
            EXPONENTIALS_PER_CLOCK * (ULTRA_EXPONENTIALS if gpu.compute_capability == (10, 3) else 1.0)
        )
    )
    result: Floats = per_clock * calls.devices.clock_hz * calls.devices.columns.sm_count
    return result


def _rates(parameters: Mapping[str, float], calls: Calls) -> tuple[Floats, Floats]:
    """[k] share of the peak that a tile's products reach, share of the special functions' rate."""
    kind, where = kinds(calls), hardware(calls)
    rate = np.where(where == WGMMA, parameters["wgmma"], parameters["tcgen05"])
    own = np.where(tensor_class(calls) == 1, parameters["mma_on_ada"], parameters["mma"])
    mma = np.choose(where, [own, parameters["mma_on_hopper"], parameters["mma_on_blackwell"]])
    rate = np.where((kind == FLASH_2) | (kind == FUSED_MMA) | (where == MMA), mma, rate)
    triton = np.choose(where, [parameters[name] for name in ("triton", "triton_wgmma", "triton_tcgen05")])
    rate = np.where(kind == TRITON, triton, rate)
    rate = rate * np.where(calls["item_bytes"] < 2.0, parameters["fp8"], 1.0)
    exp = np.choose(where, [parameters["exp_mma"], parameters["exp_wgmma"], parameters["exp_tcgen05"]])
    exp = np.where((kind == FLASH_2) & (where > 0), parameters["exp_flash_2"], exp)
    return rate, exp


def parts_ns(parameters: Mapping[str, float], calls: Calls, shape: Geometry) -> tuple[Floats, Floats, Floats]:
    """[k] nanoseconds of tiles, of memory, and of a library's own passes."""
    device = calls.devices.columns
    clock = REFERENCE_CLOCK_HZ / calls.devices.clock_hz
    rate, exp = _rates(parameters, calls)
    products = shape.tile_flops / (calls.peak * rate)
    exps = QUERY_TILE * KEY_TILE / (exponentials(calls) * exp)
    tile = smooth_maximum(products, exps) * device.sm_count * calls["slowdown"]
    blocks = shape.heads * shape.query_tiles
    waves = blocks / device.sm_count
    even = shape.heads * shape.tiles / device.sm_count
    # Causal rows of tiles differ in length and fill each other's gaps; equal ones end in a ragged wave.
    ragged = np.where(calls["causal"] > 0, 0.5, 1.0) * (np.ceil(waves) - waves) * shape.longest
    tiles = np.maximum(even + parameters["quantisation"] * ragged, shape.longest)
    arithmetic = 1e9 * tiles * tile + parameters["tile_floor_ns"] * clock * np.sqrt(tiles)
    moved = shape.query_bytes + shape.key_value_bytes + shape.output_bytes
    memory = streamed_ns(parameters, calls, moved)
    extra = np.where(LIBRARIES[calls.variant] == TRTLLM, parameters["append"], 0.0)
    appended = shape.query_bytes + shape.key_value_bytes * 2.0 / calls["kv_bytes"]
    library = np.choose(
        LIBRARIES[calls.variant],
        [0.0, parameters["library_ns"], parameters["library_ns"], parameters["trtllm_ns"]],
    )
    passes = library * clock
    return arithmetic, memory, passes + extra * streamed_ns(parameters, calls, appended)


def streamed_ns(parameters: Mapping[str, float], calls: Calls, moved: Floats) -> Floats:
    """[k] nanoseconds to move so many bytes: from the L2 what stays there between repetitions."""
    device = calls.devices.columns
    missed = moved**2 / (moved**2 + (parameters["resident"] * device.l2_bytes) ** 2)
    rate = missed / (device.bandwidth * parameters["hbm"]) + 1.0 / (device.l2_bandwidth * parameters["l2"])
    result: Floats = 1e9 * moved * rate
    return result


def base_ns(parameters: Mapping[str, float], calls: Calls) -> Floats:
    """The tile model."""
    kind = kinds(calls)
    arithmetic, memory, passes = parts_ns(parameters, calls, geometry(calls, packs(kind)))
    fused = np.where(kind == TRITON, parameters["floor_triton_ns"], parameters["floor_fused_ns"])
    plain = (kind == FLASH_2) | (kind == FLASH_3) | (kind == FLASH_4)
    floor = np.where(plain, parameters["floor_ns"], fused) * REFERENCE_CLOCK_HZ / calls.devices.clock_hz
    result: Floats = floor + smooth_maximum(arithmetic, memory) + passes
    return result


def packs(kind: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[k] whether a kernel packs the queries of heads that share keys (TensorRT-LLM's fused ones do not)."""
    return np.isin(kind, (TRITON, FLASH_2, FLASH_3, FLASH_4))


def bound_ns(calls: Calls) -> Floats:
    """Exact pairs at the peak."""
    result: Floats = 1e9 * geometry(calls).flops / calls.peak
    return result


NEUTRAL = {parameter.name: parameter.default for parameter in PARAMETERS}
"""Features see the parts at the default parameters, so that a refit of the base leaves them as they are."""

FEATURES = (
    "log_arithmetic", "memory_share", "passes_share", "waves", "tail", "log_heads", "log_kv_heads", "group",
    "log_s_q", "log_s_kv", "log_b", "d", "d_v", "d_waste", "causal", "window", "item_bytes", "kv_bytes",
    "row_tail", "log_longest", "bytes_over_l2", "exp_share", "log_clock", "hardware", "kind",
    "library", "variant",
)  # fmt: skip


def features(calls: Calls) -> Floats:
    """[k, f]."""
    shape, device = geometry(calls, packs(kinds(calls))), calls.devices.columns
    arithmetic, memory, passes = parts_ns(NEUTRAL, calls, shape)
    waves = shape.heads * shape.query_tiles / device.sm_count
    exps = shape.heads * shape.pairs / exponentials(calls)
    moved = shape.query_bytes + shape.key_value_bytes + shape.output_bytes
    columns = [
        np.log(arithmetic), np.log(memory / arithmetic), np.log(passes + 1.0) - np.log(arithmetic),
        np.log(waves), np.ceil(waves) / waves, np.log(shape.heads), np.log(calls["b"] * calls["h_kv"]),
        calls["h"] / calls["h_kv"], np.log(calls["s_q"]), np.log(calls["s_kv"]), np.log(calls["b"]),
        calls["d"], calls["d_v"], calls["d"] % 64.0, calls["causal"], np.log1p(calls["window"]),
        calls["item_bytes"], calls["kv_bytes"], calls["s_q"] / (128.0 * shape.query_tiles),
        np.log(shape.longest), np.log(moved / device.l2_bytes), np.log(exps / (shape.flops / calls.peak)),
        np.log(calls.devices.clock_hz), tensor_class(calls), kinds(calls),
        LIBRARIES[calls.variant], calls.variant,
    ]  # fmt: skip
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


def drivers(calls: Calls) -> Floats:
    """[k, 4]: logs of heads, queries, keys, head size."""
    return np.log(np.stack([calls["b"] * calls["h"], calls["s_q"], calls["s_kv"], calls["d"]], axis=1))


def size_family(calls: Calls) -> NDArray[np.int64]:
    """All rows of a combination of heads and head size are held out together."""
    return hashed(calls["h"], calls["h_kv"], calls["d"])


def of_works(works: Sequence[KernelWork], gpu: GpuSpec) -> Calls:
    """Kernels of `families.attention`."""
    shape = np.asarray([work.shape[:9] for work in works], dtype=np.float64).reshape(len(works), 9)
    math = np.asarray([fitted_math(work.math, gpu.generation) for work in works], dtype=str)
    item = np.where(np.isin(math, ("fp32", "tf32")), 4.0, np.where(math == "fp8", 1.0, 2.0))
    names = ("b", "h", "h_kv", "s_q", "s_kv", "d", "d_v")
    columns = {name: np.maximum(shape[:, position], 1.0) for position, name in enumerate(names)}
    columns |= {"causal": (shape[:, 7] > 0).astype(np.float64), "window": np.zeros(len(works))}
    columns |= {"item_bytes": item, "kv_bytes": item, "out_bytes": np.maximum(item, 2.0)}
    columns["slowdown"] = np.where(shape[:, 8] == 2, EFFICIENT_SLOWDOWN, 1.0)
    variant = np.where(shape[:, 8] == 1, STOCK_CUDNN, STOCK_FLASH)
    return Calls(columns, math, variant.astype(np.int64), Devices.all_the_same(gpu, len(works)))


def sizes_of_table(table: Table, gpus: Sequence[GpuSpec]) -> Calls:
    """Rows of attention.parquet and attention_decode.parquet."""
    count = len(gpus)
    devices = Devices.of_rows(gpus)
    columns = {name: _sizes(table, name, 1.0, count) for name in ("b", "h", "s_q", "s_kv", "d")}
    columns["h_kv"] = _positive(_sizes(table, "h_kv", np.nan, count), columns["h"])
    columns["d_v"] = _positive(_sizes(table, "d_v", np.nan, count), columns["d"])
    columns["causal"] = (_sizes(table, "causal", 1.0, count) > 0).astype(np.float64)
    columns["window"] = np.maximum(np.nan_to_num(_sizes(table, "window", 0.0, count)), 0.0)
    dtype = np.asarray(table["dtype"], dtype=str)
    kv_dtype = np.asarray(table.get("kv_dtype", dtype), dtype=str)
    kv_dtype = np.where(np.isin(kv_dtype, ("nan", "None", "auto", "")), dtype, kv_dtype)
    columns["item_bytes"], columns["kv_bytes"] = _bytes(dtype), _bytes(kv_dtype)
    columns["out_bytes"] = np.maximum(columns["item_bytes"], 2.0)
    columns["slowdown"] = np.ones(count)
    generations = np.asarray([gpu.generation for gpu in devices.gpus])[devices.index] if count else dtype
    math = _math(dtype, generations)
    kernel, backend = (
        np.asarray(table[name], dtype=str) if name in table else None for name in ("kernel", "backend")
    )
    variant = variants_of_rows(kernel, backend, gpus, count)
    return Calls(columns, math, variant, devices)


def _sizes(table: Table, name: str, default: float, count: int) -> Floats:
    if name not in table:
        return np.full(count, default)
    return np.asarray(table[name], dtype=np.float64)


def _positive(values: Floats, otherwise: Floats) -> Floats:
    result: Floats = np.where(np.isfinite(values) & (values > 0), values, otherwise)
    return result


def _bytes(dtype: NDArray[np.str_]) -> Floats:
    names, index = np.unique(dtype, return_inverse=True)
    each = np.asarray([ITEM_BYTES.get(str(name), 2.0) for name in names], dtype=np.float64)
    result: Floats = each[index] if len(names) else np.zeros(0)
    return result


def _math(dtype: NDArray[np.str_], generations: NDArray[np.str_]) -> NDArray[np.str_]:
    pairs = np.char.add(np.char.add(dtype.astype(str), "/"), generations.astype(str))
    names, index = np.unique(pairs, return_inverse=True)
    each = [fitted_math(_known(str(name).split("/")[0]), str(name).split("/")[1]) for name in names]
    return np.asarray(each, dtype=str)[index] if each else np.zeros(0, dtype=str)


def _known(dtype: str) -> str:
    return "fp8" if dtype.startswith("fp8") else {"float16": "fp16", "bfloat16": "bf16"}.get(dtype, dtype)


ATTENTION = LearnedFamily(
    name="attention",
    families=("attention_forward",),
    variants=NAMES,
    parameters=PARAMETERS,
    base_ns=base_ns,
    bound_ns=bound_ns,
    most_efficiency=1.0,
    feature_names=FEATURES,
    features=features,
    driver_names=("heads", "queries", "keys", "head_size"),
    drivers=drivers,
    size_family=size_family,
    of_works=of_works,
    of_table=sizes_of_table,
    training=Training(rounds=400, leaves=255, learning_rate=0.08, least_rows=20),
)
