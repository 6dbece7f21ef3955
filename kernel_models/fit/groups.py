"""One fit for each arithmetic and GPU generation of a family, with its held-out errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.kernel_models.columns import Floats
from maya.kernel_models.fit.measurements import HELD_OUT_FOLD, Measurements
from maya.kernel_models.fit.regression import Problem, make_problem, solve, subset
from maya.kernel_models.forms import form_of

MINIMUM_ROWS = 8
"""Fewer rows than this say too little about a family."""
CROSS_VALIDATED_ROWS = 2_000
WANTED_COVERAGE = 0.78
WIDENING_POWERS = tuple(1.0 + 0.1 * step for step in range(7))
SMALL_NS = 10_000.0
RANGE_QUANTILES = (0.002, 0.998)

DIRECT_SHARE = 0.1
"""Share of rows timed without overhead that is enough to fit a kernel's own latency."""
EVENT_TIMED_FLOOR_NS = {"gemm": 4_000.0, "convolution": 6_000.0}
"""Latency assumed where only event-timed rows exist; for products and convolutions from the graph-timed
rows of other arithmetic (3.1-3.6 us)."""

FLASH_3_OVER_2 = 1.75
"""FlashAttention-3 forward over FlashAttention-2 on H100 (arXiv:2407.08608: 1.5 to 2.0 times)."""
FLASH_4_OVER_2 = 2.3
"""Forward on Blackwell, taken from the backward rows of both on B200: no forward of FlashAttention-2 was
found there."""

WEIGHT_GRADIENT_LAYOUT = 1.10
"""Time of an NT product over TN, as fitted on A100: Hopper has no rows of that layout."""

FIXED: dict[tuple[str, str], dict[str, float]] = {
    ("gemm", "hopper"): {"layout_nt": WEIGHT_GRADIENT_LAYOUT},
    ("attention_forward", "hopper"): {"cudnn": FLASH_3_OVER_2},
    ("attention_forward", "blackwell"): {"cudnn": FLASH_4_OVER_2},
}
"""Parameters that a group's rows cannot tell apart, by family and generation."""


def errors(predicted: Floats, measured: Floats) -> dict[str, Any]:
    """p50, p90, max of |error| and the median signed error; small and large kernels apart."""
    relative = predicted / measured - 1.0

    def summary(chosen: NDArray[np.bool_]) -> dict[str, Any]:
        if not chosen.any():
            return {"rows": 0, "p50": 0.0, "p90": 0.0, "max": 0.0, "bias": 0.0}
        magnitude = np.abs(relative[chosen])
        return {
            "rows": int(chosen.sum()),
            "p50": round(float(np.median(magnitude)), 4),
            "p90": round(float(np.quantile(magnitude, 0.9)), 4),
            "max": round(float(magnitude.max()), 4),
            "bias": round(float(np.median(relative[chosen])), 4),
        }

    small = measured < SMALL_NS
    return summary(np.ones(len(measured), dtype=bool)) | {
        "above_10us": summary(~small),
        "below_10us": summary(small),
    }


NOT_FITTED = frozenset(("memcpy_pinned", "memcpy_pageable"))
"""The traces' hosts had PCIe 3 links whatever the GPU could do (11.6 GB/s on A100): their efficiency does
not carry over, so host copies stay a roofline on the catalogue's link."""


def fit_family(measurements: Measurements) -> list[dict[str, Any]]:
    """Card entries of one family."""
    entries: list[dict[str, Any]] = []
    if measurements.family in NOT_FITTED:
        return entries
    for (math, generation), rows in sorted(measurements.grouped().items()):
        if len(rows) < MINIMUM_ROWS:
            continue
        entries.append(_fit_group(measurements, math, generation, rows))
    return entries


def _fit_group(measurements: Measurements, math: str, generation: str, rows: list[int]) -> dict[str, Any]:
    family = measurements.family
    problem = make_problem(measurements, rows)
    folds = np.asarray([measurements.fold[row] for row in rows])
    fixed = FIXED.get((family, generation), {})
    if (problem.extra == len(problem.extra_names)).mean() < DIRECT_SHARE:
        # Event-timed rows cannot tell the kernel's own latency from the method's.
        fixed = fixed | {"floor_ns": EVENT_TIMED_FLOOR_NS.get(family, 2_500.0)}
    predicted, held_out = _held_out(problem, folds, fixed)
    measured = problem.time_ns[held_out]
    error = errors(predicted, measured)
    low, high, coverage = interval_of(measured / predicted, folds[held_out])
    parameters, all_overheads = solve(problem, fixed)
    drivers = form_of(family).drivers(problem.work)
    sources: dict[str, int] = {}
    for row in rows:
        sources[measurements.sources[row]] = sources.get(measurements.sources[row], 0) + 1
    per_gpu = _by_gpu(measurements, rows, held_out, predicted, measured)
    return {
        "family": family,
        "math": math,
        "generation": generation,
        "form": problem.form.name,
        "rows": len(rows),
        "sources": dict(sorted(sources.items())),
        "parameters": {name: _round(value) for name, value in sorted(parameters.items())},
        "timing_overhead_ns": {
            name: round(float(value)) for name, value in zip(problem.extra_names, all_overheads, strict=True)
        },
        "driver_low": [_round(v) for v in np.quantile(drivers, RANGE_QUANTILES[0], axis=0)],
        "driver_high": [_round(v) for v in np.quantile(drivers, RANGE_QUANTILES[1], axis=0)],
        "low": _round(low),
        "high": _round(high),
        "coverage": round(coverage, 3),
        "held_out": error,
        "held_out_by_gpu": per_gpu,
    }


def _held_out(
    problem: Problem, folds: NDArray[np.int64], fixed: dict[str, float]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Predictions of rows by fits that did not see their size family, and which rows those are.

    Small groups go through every fold, as one fold of a few families says more about those families than
    about the form; of large ones a single fold is left out.
    """
    small = len(folds) <= CROSS_VALIDATED_ROWS
    chosen = sorted(set(folds.tolist())) if small else [HELD_OUT_FOLD]
    sizes = [int((folds == fold).sum()) for fold in chosen]
    if len(chosen) < (3 if small else 1) or min(sizes) < 1 or len(folds) - max(sizes) < MINIMUM_ROWS:
        # Too few size families: every fourth row.
        folds, chosen = np.arange(len(folds)) % 4, [0, 1, 2, 3] if small else [0]
    held_out = np.isin(folds, chosen)
    predicted = np.zeros(len(folds), dtype=np.float64)
    for fold in chosen:
        here = folds == fold
        trained, overheads = solve(subset(problem, ~here), fixed)
        predicted[here] = subset(problem, here).predict(problem.form.defaults() | trained, overheads)
    return predicted[held_out], held_out


def interval_of(ratio: Floats, folds: NDArray[np.int64]) -> tuple[float, float, float]:
    """Ends of the 80% interval of measured / predicted, and its coverage.

    Quantiles of the held-out rows, raised to the least power at which intervals so made from all folds but
    one hold 80% of that one's rows (of one fold: from every other row): the few size families of a small
    group are alike and make its quantiles too narrow for the next family.
    """
    parts = folds if len(set(folds.tolist())) > 1 else np.arange(len(ratio)) % 2
    low, high = _quantiles(ratio)
    power, coverage = WIDENING_POWERS[0], 0.0
    for power in WIDENING_POWERS:
        inside = np.zeros(len(ratio), dtype=bool)
        for part in set(parts.tolist()):
            here = parts == part
            below, above = _quantiles(ratio[~here])
            inside[here] = (ratio[here] >= below**power) & (ratio[here] <= above**power)
        coverage = float(inside.mean())
        if coverage >= WANTED_COVERAGE:
            break
    return low**power, high**power, coverage


def _quantiles(ratio: Floats) -> tuple[float, float]:
    """10% and 90%, on either side of 1."""
    low, high = np.quantile(ratio, (0.1, 0.9))
    return min(1.0, float(low)), max(1.0, float(high))


def _by_gpu(
    measurements: Measurements,
    rows: list[int],
    held_out: NDArray[np.bool_],
    predicted: Floats,
    measured: Floats,
) -> dict[str, Any]:
    first: dict[int, str] = {}
    for position, row in enumerate(measurements.segment):
        first.setdefault(row, measurements.gpus[position].name)
    names = np.asarray([first[row] for row in rows])[held_out]
    return {
        str(name): errors(predicted[names == name], measured[names == name])
        for name in sorted(set(names.tolist()))
    }


def _round(value: float) -> float:
    """Six significant digits: enough, and the same text on every machine."""
    return float(f"{value:.6g}")
