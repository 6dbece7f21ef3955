"""What a prediction takes for granted: values the script read, and Maya's own."""

from __future__ import annotations

from typing import Any

from maya.pipeline.interval import HOST_GAP_HIGH, HOST_GAP_LOW
from maya.pipeline.priced_run import PricedRun
from maya.reports.prediction import Assumption
from maya.traces import Manifest, RankTrace


def assumptions_of(trace: RankTrace) -> tuple[Assumption, ...]:
    """Unknown device values that the script read, as the emulator logged them."""
    return tuple(_from_log(entry) for entry in trace.assumptions)


def model_assumptions(priced: PricedRun, manifest: Manifest) -> tuple[Assumption, ...]:
    """Maya's own: the host, data loading, iterations, operators without a model."""
    own = [
        (
            "maya.hardware",
            f"launches cost what they do on {priced.host.name} "
            f"(80% interval: {HOST_GAP_LOW} to {HOST_GAP_HIGH} times)",
        ),
    ]
    if manifest.options.get("data_loading") != "measured":
        own.append(("maya.simulator", "the data loader keeps up; waiting for it is left out"))
    elif priced.settings.data_wait_ns:
        own.append(
            (
                "maya.simulator",
                f"each wait for data takes {priced.settings.data_wait_ns} ns, as on this machine",
            )
        )
    ends = priced.trace.tables.iteration_ends
    if ends and len(ends) <= manifest.settings.warmup:
        own.append(("maya.pipeline", f"the run had {len(ends)} iterations, so the warm-up is not left out"))
    own.extend(
        ("maya.kernel_models", f"{name} has no cost model of its own and is priced by its bytes")
        for name in priced.times.unknown_operators
    )
    return tuple(Assumption("model", producer, 1, "", value) for producer, value in own)


def _from_log(entry: dict[str, Any]) -> Assumption:
    return Assumption(
        kind=str(entry.get("kind", "")),
        producer=str(entry.get("producer") or ""),
        count=int(entry.get("count", 1)),
        source_line=str(entry.get("source_line") or ""),
        value=entry.get("value"),
    )
