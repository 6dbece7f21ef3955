"""What an iteration communicates: bytes by kind, time, and how much of it is hidden."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maya.pipeline.priced_run import PricedRank, PricedRun
from maya.reports.amounts import format_bytes
from maya.reports.prediction import NS_PER_MS, BusiestCollective, Communication
from maya.simulator import Activity, busy_ns, waiting_ns
from maya.traces import CollectiveType, Kind

NAMES = {
    **{(Kind.COLLECTIVE, kind.value): kind.name.lower() for kind in CollectiveType},
    (Kind.SEND, -1): "send",
    (Kind.RECV, -1): "recv",
}
"""(Kind, Chakra's CollectiveCommType) → key of `Communication.bytes_per_step`."""


def communication(run: PricedRun, exposed_ns: int) -> Communication | None:
    """Of the slowest rank's window; None if it communicates with no other rank.

    Args:
        run: the job.
        exposed_ns: communication of an iteration that hides behind no computation.
    """
    rank = run.slowest
    kernels = run.timeline.kernels_of(rank.rank)
    first, last = rank.window.first, rank.window.last
    inside = (kernels["operation"] >= first) & (kernels["operation"] < last)
    transfers = kernels[inside & (kernels["activity"] == Activity.COMMUNICATION)]
    transfers = transfers[_several_members(rank, transfers["operation"])]
    if not len(transfers):
        return None
    iterations = rank.window.iterations
    window = rank.window.start_ns, rank.window.end_ns
    total_ns = busy_ns(transfers["start_ns"], transfers["end_ns"], *window) / iterations
    sizes: dict[str, int] = {}
    calls: dict[str, int] = {}
    groups: dict[tuple[str, int, int], tuple[int, int]] = {}
    for (name, size, members), spent in zip(
        _described(rank, transfers["operation"]),
        (transfers["end_ns"] - transfers["start_ns"]).tolist(),
        strict=True,
    ):
        sizes[name] = sizes.get(name, 0) + size
        calls[name] = calls.get(name, 0) + 1
        count, time_ns = groups.get((name, size, members), (0, 0))
        groups[name, size, members] = count + 1, time_ns + spent
    (name, size, members), (count, time_ns) = min(groups.items(), key=lambda item: (-item[1][1], item[0]))
    return Communication(
        bytes_per_step={key: sizes[key] // iterations for key in sorted(sizes)},
        calls_per_step={key: calls[key] / iterations for key in sorted(calls)},
        total_ms=total_ns / NS_PER_MS,
        exposed_ms=exposed_ns / NS_PER_MS,
        waiting_ms=waiting_ns(run.timeline, *window, rank=rank.rank) / iterations / NS_PER_MS,
        overlapped_share=max(0.0, 1 - exposed_ns / total_ns) if total_ns else 0.0,
        busiest=BusiestCollective(
            name=f"{name.replace('_', '-')} {format_bytes(size)} x{members}",
            calls=count / iterations,
            time_ms=time_ns / iterations / NS_PER_MS,
        ),
    )


def _several_members(rank: PricedRank, operations: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the operations communicate with other ranks (a communicator of one meets nobody)."""
    trace = rank.trace
    alone = np.array([len(group.ranks) < 2 for group in trace.tables.communicators] or [True])
    row = trace.operations.rows["communication"][operations]
    several: NDArray[np.bool_] = ~alone[trace.operations.communications["communicator"][row]]
    return several


def _described(rank: PricedRank, operations: NDArray[np.int64]) -> list[tuple[str, int, int]]:
    """Kind, bytes and members of each: the larger of what one rank puts in and gets out."""
    trace = rank.trace
    rows = trace.operations.rows[operations]
    details = trace.operations.communications[rows["communication"]]
    sizes = np.maximum(details["input_bytes"], details["output_bytes"]).tolist()
    members = [len(trace.tables.communicators[i].ranks) for i in details["communicator"].tolist()]
    kinds = zip(rows["kind"].tolist(), details["collective"].tolist(), strict=True)
    names = [NAMES.get(kind, f"collective_{kind[1]}") for kind in kinds]
    counts = [2 if name in ("send", "recv") else of for name, of in zip(names, members, strict=True)]
    return list(zip(names, sizes, counts, strict=True))
