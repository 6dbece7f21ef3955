"""Time, interval and source of kernels on one GPU: pick the fit, evaluate the formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.hardware import GENERATIONS, GpuSpec
from maya.kernel_models.artifact import Efficiencies, Fit
from maya.kernel_models.columns import Floats, device_columns, peak_flops, work_columns
from maya.kernel_models.contract import Source
from maya.kernel_models.fitted_math import fitted_math
from maya.kernel_models.forms import (
    DEFAULT_ROOFLINE_INTERVAL,
    ROOFLINE_INTERVAL,
    default_parameters,
    form_of,
)
from maya.kernel_models.learned import LEARNED, load_trained, predict_calls
from maya.kernel_models.work import KernelWork

RANGE_SLACK = np.log(1.25)
"""A size up to a quarter beyond the fitted range still counts as inside."""
OUTSIDE_WIDENING = 1.6
"""Exponent on the interval's ends outside the fitted sizes."""
GENERATION_WIDENING = 2.2
"""Exponent for a fit carried over from another GPU generation."""
ARITHMETIC_WIDENING = 1.5
"""Exponent for a fit of related arithmetic on the same generation: tensor cores of one GPU run alike, and
only the efficiency, not the peak, is carried over."""

MOST_WIDENED = float(np.log(4.0))
"""Widening stops at a factor of 4: a few scattered rows (copies within a GPU: 5.4 times) raised to a power of
3.5 would say nothing any more."""
CARRIED_WIDTH = 0.25
"""Least half-width in log time of a carried-over fit: bandwidth-bound families, the best behaved, are 13-20%
off in the median when their generation is left out (benchmarks/roofline_accuracy.md)."""
LEAST_WIDTH, FEW_ROWS_WIDTH = 0.03, 0.4
"""Least half-width of any fit: timer noise, and the doubt about quantiles of n held-out rows (over √n)."""

MATH_RELATIVES = {
    "tf32": ("bf16", "fp16"),
    "bf16": ("fp16", "tf32"),
    "fp16": ("bf16", "tf32"),
    "fp8": ("bf16", "fp16"),
    "int8": ("fp8", "bf16", "fp16"),
    "fp4": ("fp8", "bf16"),
    "fp64_tensor": ("fp32",),
    "fp64": ("fp32",),
    "fp32": (),
    "integer": (),
}
"""Arithmetic whose efficiency stands in where a family has no fit of its own: tensor cores first."""


@dataclass(frozen=True)
class Prices:
    """[k] columns, aligned with the kernels asked about."""

    work_ns: NDArray[np.int64]
    low_ns: NDArray[np.int64]
    high_ns: NDArray[np.int64]
    source: NDArray[np.uint8]
    sm_share: NDArray[np.float32]
    hbm_share: NDArray[np.float32]
    link_share: NDArray[np.float32]


def find_fit(efficiencies: Efficiencies, family: str, math: str, generation: str) -> tuple[Fit | None, bool]:
    """The closest fit and whether it is of this very arithmetic and generation.

    Order: same arithmetic and generation; related arithmetic of the same generation, as tensor cores of one
    generation are alike; then the nearest generation (the newer of two as near), same arithmetic first.
    """
    math = fitted_math(math, generation)
    exact = efficiencies.fits.get((family, math, generation))
    if exact is not None:
        return exact, True
    here = GENERATIONS.index(generation) if generation in GENERATIONS else len(GENERATIONS)
    relatives = MATH_RELATIVES.get(math, ())
    by_distance = sorted(range(len(GENERATIONS)), key=lambda position: (abs(position - here), -position))
    candidates = [(relative, generation) for relative in relatives]
    candidates += [(each, GENERATIONS[position]) for each in (math, *relatives) for position in by_distance]
    for each, where in candidates:
        fit = efficiencies.fits.get((family, each, where))
        if fit is not None:
            return fit, False
    return None, False


def price(
    works: Sequence[KernelWork], gpu: GpuSpec, efficiencies: Efficiencies, *, learned: bool = False
) -> Prices:
    """Times of kernels that run alone on `gpu`.

    Args:
        works: k kernels.
        gpu: where they run.
        efficiencies: parameters of the forms.
        learned: price families that have a learned model by it.
    """
    count = len(works)
    time = np.zeros(count, dtype=np.float64)
    low, high = np.ones(count, dtype=np.float64), np.ones(count, dtype=np.float64)
    source = np.full(count, Source.ROOFLINE, dtype=np.uint8)
    priced = _price_learned(works, gpu, time, low, high, source) if learned else np.zeros(count, dtype=bool)
    groups: dict[tuple[str, str], list[int]] = {}
    for position, work in enumerate(works):
        if priced[position]:
            continue
        groups.setdefault((work.family, work.math), []).append(position)
    device = device_columns([gpu])
    for (family, math), positions in groups.items():
        members = [works[position] for position in positions]
        columns = work_columns(members, [peak_flops(gpu, math)] * len(members))
        form = form_of(family)
        fit, exact = find_fit(efficiencies, family, math, gpu.generation)
        where = np.asarray(positions)
        if fit is None:
            factors = ROOFLINE_INTERVAL.get(family, DEFAULT_ROOFLINE_INTERVAL)
            time[where] = form.time_ns(default_parameters(family), columns, device)
            low[where], high[where] = factors
            continue
        time[where] = form.time_ns(default_parameters(family) | dict(fit.parameters), columns, device)
        inside = _inside(form.drivers(columns), fit)
        source[where] = np.where(inside & exact, Source.LEARNED, Source.EXTRAPOLATED)
        carried = ARITHMETIC_WIDENING if fit.generation == gpu.generation else GENERATION_WIDENING
        widening = np.where(inside, 1.0, OUTSIDE_WIDENING) * (1.0 if exact else carried)
        least = _least_width(fit) if exact else max(CARRIED_WIDTH, _least_width(fit))
        low[where] = np.exp(-_widened(-np.log(min(fit.low, 1.0)), widening, least))
        high[where] = np.exp(_widened(np.log(max(fit.high, 1.0)), widening, least))
    bytes_moved = np.asarray([work.moved_bytes for work in works], dtype=np.float64)
    blocks = np.asarray([work.blocks for work in works], dtype=np.float64)
    engine = np.asarray([work.engine for work in works], dtype=object)
    on_link, on_hbm = engine == "link", engine == "hbm"
    hbm = np.minimum(1.0, bytes_moved / (time * gpu.hbm_bandwidth_gbps))
    sm = np.where(on_link | on_hbm, 0.0, np.minimum(1.0, blocks / gpu.sm_count))
    whole = np.maximum(1, np.rint(time)).astype(np.int64)
    return Prices(
        work_ns=whole,
        low_ns=np.minimum(whole, np.maximum(1, np.rint(time * low))).astype(np.int64),
        high_ns=np.maximum(whole, np.rint(time * high)).astype(np.int64),
        source=source,
        sm_share=sm.astype(np.float32),
        hbm_share=hbm.astype(np.float32),
        link_share=on_link.astype(np.float32),
    )


def _price_learned(
    works: Sequence[KernelWork],
    gpu: GpuSpec,
    time: Floats,
    low: Floats,
    high: Floats,
    source: NDArray[np.uint8],
) -> NDArray[np.bool_]:
    """Fill in the kernels whose family has a learned model; returns [k] which those are."""
    done = np.zeros(len(works), dtype=bool)
    groups: dict[str, list[int]] = {}
    for position, work in enumerate(works):
        if work.family in LEARNED:
            groups.setdefault(LEARNED[work.family].name, []).append(position)
    for positions in groups.values():
        family = LEARNED[works[positions[0]].family]
        trained = load_trained(family)
        if trained is None or family.of_works is None:
            continue
        found = predict_calls(trained, family.of_works([works[position] for position in positions], gpu))
        where = np.asarray(positions)
        time[where], source[where] = found.time_ns, found.source
        low[where], high[where] = found.low_ns / found.time_ns, found.high_ns / found.time_ns
        done[where] = True
    return done


def _widened(half_width: float, widening: Floats, least: float) -> Floats:
    """Half-width in log time: what the fit showed, widened, but not beyond MOST_WIDENED."""
    wide: Floats = np.minimum(half_width * widening, max(half_width, MOST_WIDENED))
    return np.maximum(wide, least)


def _least_width(fit: Fit) -> float:
    return float(LEAST_WIDTH + FEW_ROWS_WIDTH / np.sqrt(max(1, fit.held_out_rows)))


def _inside(drivers: Floats, fit: Fit) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = (
        (drivers >= fit.driver_low - RANGE_SLACK) & (drivers <= fit.driver_high + RANGE_SLACK)
    ).all(axis=1)
    return result
