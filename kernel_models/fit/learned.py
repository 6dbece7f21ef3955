"""Training a learned family: base parameters, trees, held-out errors, intervals, card.

Deterministic: the same rows give the same files. Three things are held out, each with a training of its own:
size families (a fifth of them), single shapes (a fifth), and each GPU generation as a whole. The shipped
model learns from all rows; errors and intervals come from the held-out ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from maya.kernel_models.columns import Floats
from maya.kernel_models.fit.learned_rows import (
    HELD_OUT,
    MeasuredCalls,
    sampled,
    shape_folds,
    size_folds,
)
from maya.kernel_models.fit.tree_text import compact
from maya.kernel_models.learned.artifact import SCHEMA_VERSION, Range, Trained, read_trained
from maya.kernel_models.learned.family import LearnedFamily
from maya.kernel_models.learned.hashing import hashed
from maya.kernel_models.learned.intervals import (
    INSIDE,
    OTHER_GENERATION,
    SMALL_NS,
    Intervals,
    keys,
    quantiles_of,
)
from maya.kernel_models.learned.prediction import groups_of, predict_calls

SEED = 20261201
BASE_ROWS = 20_000
RANGE_QUANTILES = (0.002, 0.998)
LEAST_RESIDUALS = 60
"""Fewer held-out rows than this do not make an interval of their own."""
OUTSIDE_POWER = 1.6
"""Intervals beyond the training sizes: those inside, to this power (no training leaves out the largest)."""
SOFT_L1_SCALE = 0.15
PRIOR_WEIGHT = 0.3
EVALUATION_SHARE = 0.5
"""Trainings that only serve to measure errors learn from at most this share of `most_rows`."""
LEAST_GENERATION_ROWS = 100

Progress = Callable[[str], None]


@dataclass(frozen=True)
class HeldOut:
    """Predictions of rows that the model had not seen.

    Attributes:
        what: "size families", "single shapes", or "generation:NAME".
        rows: [h] of the measured rows.
        time_ns: [h] predicted.
    """

    what: str
    rows: NDArray[np.int64]
    time_ns: Floats


def fit_base(family: LearnedFamily, measured: MeasuredCalls) -> dict[str, float]:
    """Parameters of the base by robust least squares of log time, all GPUs together."""
    if not family.parameters:
        return {}
    rows = sampled(measured, BASE_ROWS)
    start = np.log([parameter.default for parameter in family.parameters])
    low = np.log([parameter.low for parameter in family.parameters])
    high = np.log([parameter.high for parameter in family.parameters])
    start = np.clip(start, low + 1e-6, high - 1e-6)
    log_time, root = np.log(rows.time_ns), np.sqrt(rows.weight / rows.weight.mean())

    def residuals(theta: Floats) -> Floats:
        values = dict(zip((p.name for p in family.parameters), np.exp(theta).tolist(), strict=True))
        error = np.log(family.base_ns(values, rows.calls)) - log_time
        robust = np.sign(error) * SOFT_L1_SCALE * np.sqrt(2 * (np.sqrt(1 + (error / SOFT_L1_SCALE) ** 2) - 1))
        return np.concatenate([root * robust, PRIOR_WEIGHT * SOFT_L1_SCALE * (theta - start)])

    found = least_squares(residuals, start, bounds=(low, high), max_nfev=40)
    return {
        parameter.name: float(f"{value:.6g}")
        for parameter, value in zip(family.parameters, np.exp(found.x), strict=True)
    }


def train_trees(
    family: LearnedFamily, parameters: Mapping[str, float], measured: MeasuredCalls, share: float = 1.0
) -> str:
    """LightGBM's text of the trees."""
    import lightgbm

    settings = family.training
    rows = sampled(measured, int(settings.most_rows * share))
    if settings.rounds <= 0 or len(rows) < 2 * settings.least_rows:
        return ""
    target = np.log(rows.time_ns) - np.log(family.base_ns(parameters, rows.calls))
    names = list(family.feature_names)
    data = lightgbm.Dataset(
        family.features(rows.calls),
        target,
        weight=rows.weight,
        feature_name=names,
        categorical_feature=list(family.categorical),
        free_raw_data=True,
        params={"verbosity": -1, "max_bin": 255},
    )
    options: dict[str, Any] = {
        "objective": settings.objective,
        "num_leaves": settings.leaves,
        "learning_rate": settings.learning_rate,
        "min_data_in_leaf": settings.least_rows,
        "monotone_constraints": [family.monotone.get(name, 0) for name in names],
        "seed": SEED,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": THREADS,
        "verbosity": -1,
        **dict(settings.extra),
    }
    booster = lightgbm.train(options, data, num_boost_round=settings.rounds)
    return compact(booster.model_to_string())


THREADS = 2
"""Both cores of the reference machine; LightGBM's `deterministic` makes the result independent of it."""


def train_model(family: LearnedFamily, measured: MeasuredCalls, share: float = 1.0) -> Trained:
    """A model in memory, without intervals."""
    parameters = fit_base(family, measured)
    text = train_trees(family, parameters, measured, share)
    card = _card_head(family, parameters) | {"ranges": {}, "intervals": {}}
    return read_trained(family, card, text)


def evaluate(
    family: LearnedFamily, measured: MeasuredCalls, progress: Progress | None = None
) -> list[HeldOut]:
    """Train without each part in turn and predict it."""
    say = progress or _quiet
    parts: list[tuple[str, NDArray[np.bool_]]] = [
        ("size families", size_folds(family, measured.calls) == HELD_OUT),
        ("single shapes", shape_folds(measured.calls) == HELD_OUT),
    ]
    generation = measured.calls.devices.generation
    names = [gpu.generation for gpu in measured.calls.devices.gpus]
    for name in sorted(set(names)):
        of_it = np.asarray([each == name for each in names])[measured.calls.devices.index]
        if LEAST_GENERATION_ROWS <= int(of_it.sum()) < len(generation):
            parts.append((f"generation:{name}", of_it))
    results = []
    for what, held in parts:
        if not (held & measured.own).any() or held.all():
            continue
        model = train_model(family, measured.take(~held), EVALUATION_SHARE)
        rows = np.flatnonzero(held & measured.own)
        if len(rows) > EVALUATED_ROWS:
            rows = np.sort(rows[np.argsort(hashed(rows), kind="stable")[:EVALUATED_ROWS]])
        predicted = predict_calls(model, measured.calls.take(rows)).time_ns
        error = np.abs(predicted / measured.time_ns[rows] - 1.0)
        say(
            f"{family.name:18s} {what:22s} {len(rows):7d} rows  "
            f"p50 {np.median(error):.3f}  p90 {np.quantile(error, 0.9):.3f}"
        )
        results.append(HeldOut(what, rows, predicted))
    return results


EVALUATED_ROWS = 60_000


def ship(
    family: LearnedFamily, measured: MeasuredCalls, held_out: list[HeldOut]
) -> tuple[dict[str, Any], str]:
    """The card and the trees of the model that learns from all rows."""
    parameters = fit_base(family, measured)
    text = train_trees(family, parameters, measured)
    sources: dict[str, int] = {}
    for position, count in zip(*np.unique(measured.source, return_counts=True), strict=True):
        sources[measured.sources[int(position)]] = int(count)
    card = _card_head(family, parameters) | {
        "rows": len(measured),
        "sources": dict(sorted(sources.items())),
        "ranges": {key: _range_entry(found) for key, found in sorted(ranges_of(family, measured).items())},
        "intervals": {
            key: [round(low, 4), round(high, 4)]
            for key, (low, high) in sorted(intervals_of(family, measured, held_out).quantiles.items())
        },
        "held_out": errors_of(measured, held_out),
    }
    return card, text


def ranges_of(family: LearnedFamily, measured: MeasuredCalls) -> dict[str, Range]:
    """By "math/generation": the range of sizes, the GPUs and variants that were measured."""
    measured = measured.take(measured.own)
    groups = groups_of(measured.calls)
    drivers = family.drivers(measured.calls)
    names = np.asarray([gpu.name for gpu in measured.calls.devices.gpus])[measured.calls.devices.index]
    result = {}
    for group in np.unique(groups):
        here = groups == group
        variants = np.unique(measured.calls.variant[here])
        result[str(group)] = Range(
            np.quantile(drivers[here], RANGE_QUANTILES[0], axis=0),
            np.quantile(drivers[here], RANGE_QUANTILES[1], axis=0),
            frozenset(str(name) for name in np.unique(names[here])),
            frozenset(family.variants[int(variant)] for variant in variants),
            int(here.sum()),
        )
    return result


def intervals_of(family: LearnedFamily, measured: MeasuredCalls, held_out: list[HeldOut]) -> Intervals:
    """Quantiles of held-out residuals by standing, size, group and variant."""
    residuals: dict[str, list[Floats]] = {}
    for each in held_out:
        if each.what == "single shapes":
            continue
        standing = INSIDE if each.what == "size families" else OTHER_GENERATION
        residual = np.log(measured.time_ns[each.rows] / each.time_ns)
        groups = groups_of(measured.calls.take(each.rows)).tolist()
        variants = np.asarray(family.variants)[measured.calls.variant[each.rows]].tolist()
        small = (each.time_ns < SMALL_NS).tolist()
        by_key: dict[tuple[str, str, bool], list[int]] = {}
        for row, key in enumerate(zip(variants, groups, small, strict=True)):
            by_key.setdefault(key, []).append(row)
        for (variant, group, is_small), rows in by_key.items():
            for text in keys(variant, group, standing, is_small):
                residuals.setdefault(text, []).append(residual[rows])
    found = {
        key: quantiles_of(np.concatenate(parts))
        for key, parts in residuals.items()
        if sum(map(len, parts)) >= LEAST_RESIDUALS
    }
    inside = found.get("inside", (-0.3, 0.3))
    generation = found.setdefault("other_generation", (min(2 * inside[0], -0.3), max(2 * inside[1], 0.3)))
    found["other_gpu"] = (_between(inside[0], generation[0]), _between(inside[1], generation[1]))
    for text, (low, high) in list(found.items()):
        if text.startswith("inside"):
            found["outside" + text.removeprefix("inside")] = (OUTSIDE_POWER * low, OUTSIDE_POWER * high)
    return Intervals(found)


def _between(inside: float, generation: float) -> float:
    """Another GPU of a known generation: between what sizes and what generations cost."""
    return 0.5 * (inside + generation)


def errors_of(measured: MeasuredCalls, held_out: list[HeldOut]) -> dict[str, Any]:
    """What was held out → rows, p50, p90, bias."""
    result = {}
    for each in held_out:
        relative = each.time_ns / measured.time_ns[each.rows] - 1.0
        result[each.what] = {
            "rows": len(relative),
            "p50": round(float(np.median(np.abs(relative))), 4),
            "p90": round(float(np.quantile(np.abs(relative), 0.9)), 4),
            "bias": round(float(np.median(relative)), 4),
        }
    return result


def _range_entry(found: Range) -> dict[str, Any]:
    return {
        "low": [float(f"{value:.5g}") for value in found.low],
        "high": [float(f"{value:.5g}") for value in found.high],
        "gpus": sorted(found.gpus),
        "variants": sorted(found.variants),
        "rows": found.rows,
    }


def _card_head(family: LearnedFamily, parameters: Mapping[str, float]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "name": family.name,
        "features": list(family.feature_names),
        "drivers": list(family.driver_names),
        "variants": list(family.variants),
        "parameters": dict(sorted(parameters.items())),
    }


def _quiet(_: str) -> None:
    return


def print_progress(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)
