"""What a span of time was bound by: one chain of causes, walked back from its end.

At each step the walk asks why the current thing could not start earlier: the kernel before it on the
stream, work elsewhere that ended at that moment (an event, a copy engine), or its launch by the host;
and for the host: the operation before, or the device work that let a blocked call return. Every ns
of the span gets exactly one cause, so the parts add up. Where several causes coincide, the device
wins over the host and the same stream over others: shortening one of two equal causes would not help.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maya.simulator.settings import Settings
from maya.simulator.timeline import Activity, Timeline


@dataclass(frozen=True)
class CriticalPath:
    """Causes of a span, ns; they add up to its length.

    Attributes:
        compute_ns, copy_ns, communication_ns: device work on the path.
        host_ns: the host issuing what the path needs next.
        wait_ns: launch latency, gaps between kernels, returns from blocking calls, data waits and
            waits for other ranks.
        operation_ns: int64[n_ops], the path's device and host time by operation.
    """

    compute_ns: int
    copy_ns: int
    communication_ns: int
    host_ns: int
    wait_ns: int
    operation_ns: NDArray[np.int64]

    @property
    def total_ns(self) -> int:
        """Sum of the parts."""
        return self.compute_ns + self.copy_ns + self.communication_ns + self.host_ns + self.wait_ns


def critical_path(
    timeline: Timeline, start_ns: int, end_ns: int, settings: Settings, *, rank: int | None = None
) -> CriticalPath:
    """Walk back from `end_ns` to `start_ns`, usually an iteration's.

    Args:
        timeline: result of `simulate`.
        start_ns, end_ns: the span.
        settings: those the timeline was made with.
        rank: default: the lowest simulated rank. The walk stays on this rank.

    Raises:
        ValueError: the span is reversed, unknown rank.
    """
    if end_ns < start_ns:
        raise ValueError(f"the span ends ({end_ns} ns) before it starts ({start_ns} ns)")
    chosen = timeline.ranks[0] if rank is None else rank
    return _Walk(timeline.kernels_of(chosen), timeline.hosts_of(chosen), start_ns, settings).back_from(end_ns)


class _Walk:
    def __init__(
        self, kernels: NDArray[np.void], hosts: NDArray[np.void], start_ns: int, settings: Settings
    ) -> None:
        self.start_ns = start_ns
        self.settings = settings
        self.kernel_start, self.kernel_end = kernels["start_ns"].tolist(), kernels["end_ns"].tolist()
        self.kernel_operation = kernels["operation"].tolist()
        self.activity = kernels["activity"].tolist()
        self.host_start, self.host_issue = hosts["start_ns"].tolist(), hosts["issue_ns"].tolist()
        self.host_end = hosts["end_ns"].tolist()
        self.by_end = np.argsort(kernels["end_ns"], kind="stable")
        self.ends = kernels["end_ns"][self.by_end]
        self.before = self._previous_on_stream(kernels)
        self.parts: dict[int | str, int] = dict.fromkeys(
            [*(int(kind) for kind in Activity), "host", "wait"], 0
        )
        self.operation_ns = np.zeros(len(hosts), dtype=np.int64)

    @staticmethod
    def _previous_on_stream(kernels: NDArray[np.void]) -> list[int]:
        last: dict[tuple[int, int], int] = {}
        before = []
        for index, key in enumerate(zip(kernels["device"].tolist(), kernels["stream"].tolist(), strict=True)):
            before.append(last.get(key, -1))
            last[key] = index
        return before

    def back_from(self, end_ns: int) -> CriticalPath:
        """Follow causes until the start of the span."""
        now = end_ns
        kernel, operation = self._latest_kernel(now), self._latest_operation(now)
        host_end = self.host_end[operation] if operation >= 0 else -1
        on_device = kernel >= 0 and self.kernel_end[kernel] >= host_end
        returned = True  # the host has passed the operation, rather than just launched it
        # Ends: each step goes back in time or, at the same time, back in issue order.
        while now > self.start_ns and (kernel if on_device else operation) >= 0:
            if on_device:
                now = self._spend("wait", now, self.kernel_end[kernel], -1)
                cause, owner = self.activity[kernel], self.kernel_operation[kernel]
                now = self._spend(cause, now, self.kernel_start[kernel], owner)
                kernel, on_device = self._cause_of_kernel(kernel)
                operation, returned = owner, False
                if not on_device:
                    now = self._spend("wait", now, now - self.settings.launch_latency_ns, -1)
                continue
            if returned:
                now = self._spend("wait", now, self.host_end[operation], -1)
                blocker = self._blocker_of(operation)
                if blocker >= 0:
                    kernel, on_device = blocker, True
                    continue
            now = self._spend("wait", now, self.host_issue[operation], -1)
            now = self._spend("host", now, self.host_start[operation], operation)
            operation, returned = operation - 1, True
        self._spend("wait", now, self.start_ns, -1)
        return CriticalPath(
            compute_ns=self.parts[int(Activity.COMPUTE)],
            copy_ns=self.parts[int(Activity.COPY)],
            communication_ns=self.parts[int(Activity.COMMUNICATION)],
            host_ns=self.parts["host"],
            wait_ns=self.parts["wait"],
            operation_ns=self.operation_ns,
        )

    def _spend(self, cause: int | str, now: int, until: int, operation: int) -> int:
        """Attribute [until, now) within the span; returns the new now."""
        until = max(min(until, now), self.start_ns)
        self.parts[cause] += now - until
        if operation >= 0:
            self.operation_ns[operation] += now - until
        return until

    def _cause_of_kernel(self, kernel: int) -> tuple[int, bool]:
        """(kernel that held this one up, True), or (this kernel, False): its launch did."""
        start, operation = self.kernel_start[kernel], self.kernel_operation[kernel]
        before = self.before[kernel]
        if before >= 0 and self.kernel_end[before] + self.settings.kernel_gap_ns >= start:
            return before, True
        launched = start - self.settings.launch_latency_ns
        if self.host_issue[operation] <= launched <= self.host_end[operation]:
            return kernel, False
        elsewhere = self._latest_kernel(start, below=kernel)
        if elsewhere >= 0 and self.kernel_end[elsewhere] > self.host_issue[operation]:
            return elsewhere, True
        return kernel, False

    def _blocker_of(self, operation: int) -> int:
        """The device work whose end let a blocked call return, -1 if the call did not block on any."""
        end, issue = self.host_end[operation], self.host_issue[operation]
        if end == issue:
            return -1
        blocker = self._latest_kernel(end - self.settings.sync_return_ns)
        if blocker >= 0 and self.kernel_end[blocker] > issue and self.kernel_operation[blocker] <= operation:
            return blocker
        return -1

    def _latest_kernel(self, time_ns: int, below: int = -1) -> int:
        """The last kernel in issue order among those that end last, at or before a time; -1: none.

        With `below`, one that ends at that very time counts only if it was issued before kernel `below`.
        """
        place = int(np.searchsorted(self.ends, time_ns, side="right")) - 1
        while place >= 0:
            found = int(self.by_end[place])
            if below < 0 or found < below or self.kernel_end[found] < time_ns:
                return found
            place -= 1
        return -1

    def _latest_operation(self, time_ns: int) -> int:
        return int(np.searchsorted(self.host_end, time_ns, side="right")) - 1
