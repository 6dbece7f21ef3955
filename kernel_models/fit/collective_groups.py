"""Every link and family fitted, held-out errors measured, relatives derived: the content of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from maya.kernel_models.collectives.algorithms import FAMILIES
from maya.kernel_models.collectives.card import SIZE_CLASSES
from maya.kernel_models.collectives.curve import Correction
from maya.kernel_models.fit.collective_corrections import corrections_of_rows, fit_corrections
from maya.kernel_models.fit.collective_data import MIB, OTHER, TARGET, CollectiveRows, collective_rows
from maya.kernel_models.fit.collective_errors import ends, octave, size_class, summary
from maya.kernel_models.fit.collective_fit import best_times, fit_parameters, fit_scale, scaled, weights_of
from maya.kernel_models.fit.collective_network import fit_network, network_row_times

Floats = NDArray[np.float64]

FITTED_LINKS = ("nvswitch-ampere", "nvswitch-hopper", "nvswitch-blackwell", "pcie-ada", "mesh-volta")
SCALED_LINKS = {
    "bridge-ampere": "nvswitch-ampere",
    "bridge-hopper": "nvswitch-hopper",
    "pcie-pascal": "pcie-ada",
    "pcie-ampere": "pcie-ada",
    "pcie-hopper": "pcie-ada",
}
"""Links with large all-reduces only → the relative whose parameters are scaled to them."""
NO_SHARING = {"sharing": 0.0}
"""P100 cards reach the same bus bandwidth with 2, 4 and 8 ranks; the box of the L40S rows does not."""
RELATIVE_FAMILY = {
    "all_reduce": ("all_reduce",),
    "all_gather": ("all_gather", "all_reduce"),
    "reduce_scatter": ("reduce_scatter", "all_reduce"),
    "all_to_all": ("all_to_all", "all_reduce"),
    "message": ("message", "all_to_all", "all_reduce"),
}
"""Where a family without rows takes its parameters, on its own link."""
BORROWED_MESSAGE = {"nvswitch-blackwell": "nvswitch-hopper"}
"""Links whose message follows the nearest generation's rather than their own all-to-all."""

REFERENCE_LINK = "nvswitch-ampere"
"""Its intervals stand in for sizes that a link was not measured at; it is fitted first."""

HELD_OUT_FOLDS = 4
"""Octaves of size k, k + 4, k + 8, ... are held out together, each once."""
LATENCY_BOUND_BYTES = 4 * MIB


@dataclass(frozen=True)
class Fitted:
    """Parameters and corrections of one link and family."""

    parameters: Mapping[str, float]
    corrections: Mapping[int, Correction]

    def log_ratio(self, rows: CollectiveRows) -> Floats:
        """[k] log(measured / predicted)."""
        formula = np.log(best_times(rows, self.parameters))
        result: Floats = np.log(rows.time_ns) - formula - corrections_of_rows(self.corrections, rows)
        return result


def fit_rows(rows: CollectiveRows) -> Fitted:
    """Parameters first, then what they miss."""
    parameters = fit_parameters(rows)
    log_ratio = np.log(rows.time_ns / best_times(rows, parameters))
    return Fitted(parameters, fit_corrections(rows, log_ratio, weights_of(rows)))


def held_out_by_size(rows: CollectiveRows) -> Floats:
    """[k] log(measured / predicted), each octave predicted from the others."""
    fold = octave(rows.size) % HELD_OUT_FOLDS
    result = np.zeros(len(rows.size))
    for each in np.unique(fold):
        mask = fold == each
        train = rows.chosen(~mask) if not mask.all() else rows
        result[mask] = fit_rows(train).log_ratio(rows.chosen(mask))
    return result


def held_out_by_ranks(rows: CollectiveRows) -> tuple[NDArray[np.bool_], Floats]:
    """Rank counts between others, each predicted from the others.

    Returns:
        [k] which rows have such a count, and log(measured / predicted) of those.
    """
    counts = np.unique(rows.ranks)
    inner = np.isin(rows.ranks, counts[1:-1])
    result = np.zeros(len(rows.size))
    for ranks in counts[1:-1]:
        mask = rows.ranks == ranks
        result[mask] = fit_rows(rows.chosen(~mask)).log_ratio(rows.chosen(mask))
    return inner, result[inner]


def entry(
    fitted: Fitted, rows: CollectiveRows | None, interval: tuple[Floats, Floats], held_out: dict[str, Any]
) -> dict[str, Any]:
    """One family of the card."""
    low, high = interval
    kept = rows if rows is not None and len(rows.size) else None
    return {
        "parameters": {name: float(f"{value:.6g}") for name, value in fitted.parameters.items()},
        "corrections": {
            str(ranks): {"first_log2": each.first_log2, "log_ratio": list(each.log_ratio)}
            for ranks, each in sorted(fitted.corrections.items())
        },
        "rows": 0 if kept is None else len(kept.size),
        "ranks": [2, 8] if kept is None else [int(kept.ranks.min()), int(kept.ranks.max())],
        "sizes": [1.0, 1.0] if kept is None else [float(kept.size.min()), float(kept.size.max())],
        "link_gbps": [] if kept is None else sorted({_gbps(kept, gpu) for gpu in range(len(kept.gpus))}),
        "gpus": [] if kept is None else [gpu.name for gpu in kept.gpus],
        "sources": [] if kept is None else list(kept.sources),
        "low": {name: round(float(np.exp(end)), 4) for name, end in zip(SIZE_CLASSES, low, strict=True)},
        "high": {name: round(float(np.exp(end)), 4) for name, end in zip(SIZE_CLASSES, high, strict=True)},
        "held_out": held_out,
    }


def _gbps(rows: CollectiveRows, gpu: int) -> float:
    spec = rows.gpus[gpu]
    return spec.pcie_gbps if rows.group.startswith("pcie") else spec.nvlink_gbps


def _environment(table: pd.DataFrame) -> tuple[Floats, Floats]:
    """What other environments add to the interval's ends where both are known: [3] low, [3] high, logs.

    No other environment has trustworthy rows below 1 MiB; latencies decide up to a few MiB, so that rows of
    1 to 4 MiB speak for smaller ones.
    """
    nothing = (np.zeros(3), np.zeros(3))
    lows, highs = [], []
    for group in ("nvswitch-ampere", "nvswitch-hopper"):
        target = collective_rows(table, group, "all_reduce", TARGET)
        other = collective_rows(table, group, "all_reduce", OTHER)
        own, foreign = held_out_by_size(target), fit_rows(target).log_ratio(other)
        for least, most in ((MIB, np.inf), (MIB, LATENCY_BOUND_BYTES)):
            here = (target.size >= least) & (target.size < most)
            there = (other.size >= least) & (other.size < most)
            alone = ends(own[here], size_class(target.size[here]), np.ones(int(here.sum())), nothing)
            both = _with_others(target.chosen(here), own[here], other.chosen(there), foreign[there], nothing)
            lows.append(both[0][2] - alone[0][2])
            highs.append(both[1][2] - alone[1][2])
    large, small = np.min(np.reshape(lows, (-1, 2)), axis=0)
    low = np.minimum(0.0, [small, small, large])
    large, small = np.max(np.reshape(highs, (-1, 2)), axis=0)
    return low, np.maximum(0.0, [small, small, large])


def _with_others(
    target: CollectiveRows,
    own: Floats,
    other: CollectiveRows,
    foreign: Floats,
    default: tuple[Floats, Floats],
) -> tuple[Floats, Floats]:
    """Interval over the rows of several environments, each as heavy in a size class as the target's."""
    classes = np.concatenate([size_class(target.size), size_class(other.size)])
    environment = np.concatenate([np.zeros(len(own), dtype=np.int64), 1 + other.source])
    cells = np.stack([classes, environment], axis=1)
    _, inverse, counts = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    weights = 1.0 / counts[inverse.reshape(-1)]
    return ends(np.concatenate([own, foreign]), classes, weights, default)


def fit_links(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Link → family → entry of the card."""
    environment = _environment(table)
    card: dict[str, dict[str, Any]] = {}
    fits: dict[tuple[str, str], Fitted] = {}
    for group in FITTED_LINKS:
        card[group] = {}
        for family in FAMILIES:
            rows = collective_rows(table, group, family, TARGET)
            if not len(rows.size):
                continue
            fits[group, family] = fitted = fit_rows(rows)
            errors = held_out_by_size(rows)
            classes = size_class(rows.size)
            inner, by_ranks = held_out_by_ranks(rows)
            held_out = {
                "sizes": summary(errors, classes),
                "ranks": summary(by_ranks, classes[inner]),
            }
            other = collective_rows(table, group, family, OTHER)
            interval = _interval(errors, classes, environment, card)
            if len(other.size):
                known = _with_others(rows, errors, other, fitted.log_ratio(other), interval)
                interval[0][2], interval[1][2] = known[0][2], known[1][2]
            card[group][family] = entry(fitted, rows, interval, held_out)
    for group in SCALED_LINKS:
        card[group] = _scaled_link(table, group, fits, environment, card)
    for group, families in card.items():
        for family in FAMILIES:
            if family not in families:
                families[family] = _derived(card, group, family)
    return card


def _interval(
    log_ratio: Floats,
    classes: NDArray[np.int64],
    environment: tuple[Floats, Floats],
    card: Mapping[str, Mapping[str, Any]],
) -> tuple[Floats, Floats]:
    """Ends from held-out rows plus what other environments add; without rows, the reference link's."""
    low, high = ends(log_ratio, classes, np.ones(len(log_ratio)), (np.zeros(3), np.zeros(3)))
    low, high = low + environment[0], high + environment[1]
    for index, name in enumerate(SIZE_CLASSES):
        if not (classes == index).any():
            reference = card[REFERENCE_LINK]["all_reduce"]
            low[index], high[index] = np.log([reference["low"][name], reference["high"][name]])
    return low, high


def _scaled_link(
    table: pd.DataFrame,
    group: str,
    fits: Mapping[tuple[str, str], Fitted],
    environment: tuple[Floats, Floats],
    card: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """A link with large all-reduces only: its families follow from the relative's, scaled alike."""
    relative = SCALED_LINKS[group]
    base = fits[relative, "all_reduce"]
    rows = collective_rows(table, group, "all_reduce", TARGET)
    parameters = {name: value for name, value in base.parameters.items() if not name.startswith("nvls")}
    if group.startswith("pcie"):
        parameters |= NO_SHARING
    factor = fit_scale(rows, parameters)
    formula = Fitted(scaled(parameters, factor), {})
    log_ratio = formula.log_ratio(rows)
    fitted = Fitted(formula.parameters, fit_corrections(rows, log_ratio, weights_of(rows)))
    classes = size_class(rows.size)
    interval = _interval(log_ratio, classes, environment, card)
    families = {"all_reduce": entry(fitted, rows, interval, {"sizes": summary(log_ratio, classes)})}
    for family in FAMILIES:
        if family != "all_reduce" and (relative, family) in fits:
            other = dict(fits[relative, family].parameters)
            if group.startswith("pcie"):
                other |= NO_SHARING
            families[family] = entry(Fitted(scaled(other, factor), {}), None, interval, {})
    return families


def _derived(card: Mapping[str, Mapping[str, Any]], group: str, family: str) -> dict[str, Any]:
    """A family without rows: parameters and interval of the nearest relative, no corrections."""
    if family == "message" and group in BORROWED_MESSAGE:
        source = card[BORROWED_MESSAGE[group]][family]
    else:
        source = next(card[group][each] for each in RELATIVE_FAMILY[family] if each in card[group])
    parameters = {name: v for name, v in source["parameters"].items() if not name.startswith("nvls")}
    logs = tuple(np.log([source[end][name] for name in SIZE_CLASSES]) for end in ("low", "high"))
    return entry(Fitted(parameters, {}), None, (logs[0], logs[1]), {})


def fit_between_nodes(table: pd.DataFrame, links: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The card's network."""
    rows = collective_rows(table, "network", "all_reduce", TARGET)
    inside = links["nvswitch-hopper"]["all_reduce"]["parameters"]
    parameters = fit_network(rows, inside)
    log_ratio = np.log(rows.time_ns / network_row_times(rows, inside, parameters))
    by_nodes = np.zeros(len(log_ratio))
    for nodes in np.unique(rows.nodes):
        mask = rows.nodes == nodes
        without = fit_network(rows.chosen(~mask), inside)
        part = rows.chosen(mask)
        by_nodes[mask] = np.log(part.time_ns / network_row_times(part, inside, without))
    classes = size_class(rows.size)
    interval = ends(by_nodes, classes, np.ones(len(by_nodes)), (np.zeros(3), np.zeros(3)))
    held_out = {"nodes": summary(by_nodes, classes), "fitted": summary(log_ratio, classes)}
    result = entry(Fitted(parameters, {}), rows, interval, held_out)
    return result | {"link_gbps": sorted(set(map(float, rows.network_gbps)))}
