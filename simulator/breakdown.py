"""What an iteration's time went to; the parts add up to it exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.simulator.intervals import Spans, measure_until, union
from maya.simulator.timeline import Activity, Timeline


@dataclass(frozen=True)
class Breakdown:
    """Parts of a span of time, ns.

    Attributes:
        compute_ns: a device of the rank runs kernels or copies (union, not sum).
        exposed_communication_ns: communication runs and nothing of the above does.
        host_ns: the devices are idle and the host is busy issuing.
        idle_ns: the rest: launch latency, a host that waits for data or for another rank.
    """

    compute_ns: int
    exposed_communication_ns: int
    host_ns: int
    idle_ns: int

    @property
    def total_ns(self) -> int:
        """Sum of the parts: the span's length."""
        return self.compute_ns + self.exposed_communication_ns + self.host_ns + self.idle_ns


def breakdown(
    timeline: Timeline,
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    *,
    rank: int | None = None,
) -> list[Breakdown]:
    """One Breakdown for each span, e.g. `breakdown(timeline, times.start_ns, times.end_ns)`.

    Args:
        timeline: result of `simulate`.
        start_ns, end_ns: int64[n], the spans.
        rank: default: the lowest simulated rank.

    Raises:
        ValueError: a span ends before it starts, lengths disagree, unknown rank.
    """
    starts = np.asarray(start_ns, dtype=np.int64).reshape(-1)
    ends = np.asarray(end_ns, dtype=np.int64).reshape(-1)
    if len(starts) != len(ends) or (ends < starts).any():
        raise ValueError("spans need as many starts as ends, and no end before its start")
    chosen = timeline.ranks[0] if rank is None else rank
    kernels = timeline.kernels_of(chosen)
    hosts = timeline.hosts_of(chosen)
    communicates = kernels["activity"] == Activity.COMMUNICATION
    compute = union(_spans(kernels[~communicates]))
    device = union(compute, _spans(kernels[communicates]))
    busy = union(device, (hosts["start_ns"], hosts["issue_ns"]))
    in_compute, in_device, in_busy = (
        measure_until(spans, ends) - measure_until(spans, starts) for spans in (compute, device, busy)
    )
    return [
        Breakdown(
            compute_ns=int(in_compute[i]),
            exposed_communication_ns=int(in_device[i] - in_compute[i]),
            host_ns=int(in_busy[i] - in_device[i]),
            idle_ns=int(ends[i] - starts[i] - in_busy[i]),
        )
        for i in range(len(starts))
    ]


def waiting_ns(timeline: Timeline, start_ns: int, end_ns: int, *, rank: int | None = None) -> int:
    """Part of a span's idle and host time in which a communication of the rank waits for its peers.

    Args:
        timeline: result of `simulate`.
        start_ns, end_ns: the span.
        rank: default: the lowest simulated rank.

    Raises:
        ValueError: unknown rank.
    """
    kernels = timeline.kernels_of(timeline.ranks[0] if rank is None else rank)
    busy = union(_spans(kernels))
    either = union(busy, (kernels["ready_ns"], kernels["start_ns"]))
    ends = np.array([start_ns, end_ns], dtype=np.int64)
    both, without = measure_until(either, ends), measure_until(busy, ends)
    return int((both[1] - both[0]) - (without[1] - without[0]))


def _spans(kernels: NDArray[np.void]) -> Spans:
    return kernels["start_ns"], kernels["end_ns"]
