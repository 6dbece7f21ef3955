"""What a prediction takes for granted: values the script read, and Maya's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maya.kernel_models import CollectiveModel
from maya.pipeline.interval import HOST_GAP_HIGH, HOST_GAP_LOW
from maya.pipeline.priced_run import PricedRank, PricedRun
from maya.pipeline.throughput import may_share_batches
from maya.reports.prediction import NS_PER_MS, Assumption
from maya.simulator import Timeline, iteration_times
from maya.traces import MARK_BACKWARD_END, Manifest, RankTrace, used_communicators

UNEVEN = 1.2
"""An iteration that takes this many times the median is named. Equal work differs by a few percent."""


def assumptions_of(traces: Sequence[RankTrace]) -> tuple[Assumption, ...]:
    """Unknown device values that the script read, as the emulator logged them.

    Ranks that run one script assume the same things: each is listed once, with the largest count of
    any rank.
    """
    found: dict[tuple[str, ...], Assumption] = {}
    for trace in traces:
        for entry in map(_from_log, trace.assumptions):
            key = (entry.kind, entry.producer, entry.source_line, repr(entry.value))
            known = found.get(key)
            if known is None or known.count < entry.count:
                found[key] = entry
    return tuple(found.values())


def model_assumptions(priced: PricedRun, manifest: Manifest) -> tuple[Assumption, ...]:
    """Maya's own: the host, data loading, iterations, operators without a model."""
    # What is particular to this run comes first: a summary has room for three.
    own = [
        ("maya.pipeline", sentence)
        for sentence in (_uneven(priced.slowest, priced.timeline), _never_stepped(priced.slowest))
        if sentence
    ]
    if priced.world_size > 1 and may_share_batches(priced):
        own.append(("maya.pipeline", "ranks may share batches, so samples a second are not stated"))
    own += [
        (
            "maya.hardware",
            f"launches cost what they do on {priced.host.name} ({HOST_GAP_LOW} to {HOST_GAP_HIGH} times)",
        ),
        ("maya.hardware", "the script's own work on the host between operators is left out"),
    ]
    if priced.world_size > 1 and not any(used_communicators(rank.trace) for rank in priced.ranks):
        own.append(("maya.pipeline", "the ranks never communicate on GPUs: each runs by itself"))
    elif priced.world_size > 1 and isinstance(priced.prices, CollectiveModel):
        cluster, to_a_node = priced.prices.cluster, priced.prices.ranks_per_node
        nodes = -(-priced.world_size // to_a_node)
        where = f"{nodes} nodes of {to_a_node} ranks" if nodes > 1 else "one node"
        own.append(("maya.kernel_models", f"ranks communicate as on {cluster.name}, {where}"))
    if manifest.options.get("data_loading") != "measured":
        own.append(("maya.simulator", "the data loader keeps up; waiting for it is left out"))
    elif priced.slowest.data_wait_ns:
        own.append(
            (
                "maya.simulator",
                f"each wait for data takes {priced.slowest.data_wait_ns} ns, as on this machine",
            )
        )
    ends = priced.slowest.trace.tables.iteration_ends
    if ends and len(ends) <= manifest.settings.warmup:
        own.append(("maya.pipeline", f"the run had {len(ends)} iterations, so the warm-up is not left out"))
    own.extend(
        ("maya.kernel_models", f"{name} has no cost model of its own and is priced by its bytes")
        for name in sorted({name for rank in priced.ranks for name in rank.times.unknown_operators})
    )
    return tuple(Assumption("model", producer, 1, "", value) for producer, value in own)


def _uneven(priced: PricedRank, timeline: Timeline) -> str:
    """Says so when the mean hides an iteration that does more than the others."""
    window = priced.window
    if window.is_whole_run or window.iterations < 2:
        return ""
    ends = priced.trace.tables.iteration_ends
    spans = iteration_times(timeline, ends, rank=priced.rank).duration_ns[-window.iterations :]
    usual_ns = float(np.median(spans))
    if spans.max() <= UNEVEN * usual_ns:
        return ""
    number = len(ends) - window.iterations + int(spans.argmax()) + 1
    odd_ms, usual_ms = spans.max() / NS_PER_MS, usual_ns / NS_PER_MS
    return f"iteration {number} does more and is in the mean: {odd_ms:.4g} ms, the others {usual_ms:.4g} ms"


def _never_stepped(priced: PricedRank) -> str:
    """Says so when a script trains without an optimizer that Maya recognises."""
    tables = priced.trace.tables
    if not priced.window.is_whole_run or MARK_BACKWARD_END not in tables.operators:
        return ""
    marker = tables.operators.index(MARK_BACKWARD_END)
    count = int(np.count_nonzero(priced.trace.operations.rows["operator"] == marker))
    return f"no optimizer stepped in {count} backward passes; --step-marker module:function names a step"


def _from_log(entry: dict[str, Any]) -> Assumption:
    return Assumption(
        kind=str(entry.get("kind", "")),
        producer=str(entry.get("producer") or ""),
        count=int(entry.get("count", 1)),
        source_line=str(entry.get("source_line") or ""),
        value=entry.get("value"),
    )
