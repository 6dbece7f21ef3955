"""What the engine assumes about launching work, apart from the trace and the kernel times."""

from __future__ import annotations

from dataclasses import dataclass, fields

DEFAULT_LAUNCH_LATENCY_NS = 4_000
"""From the end of a launch call to the kernel's start on an idle device."""

DEFAULT_LAUNCH_QUEUE_DEPTH = 1024
"""Entries a stream's queue takes before the launching call blocks (observed on NVIDIA drivers)."""


@dataclass(frozen=True)
class Settings:
    """Constants of the host-device path. All times in integer ns.

    Attributes:
        launch_latency_ns: host launch to earliest start on the device.
        launch_queue_depth: entries (kernels, copies, event records, waits) that may be queued in
            one stream and not yet started; a launch beyond it blocks the host.
        kernel_gap_ns: device time between two consecutive kernels of one stream.
        sync_return_ns: from the device's completion to the host's return out of a blocking call.
        data_wait_ns: time the host waits for the data loader in each data-wait section; 0 means
            that loading keeps up.
        absent_members_arrive: if true, members of a communicator that are not among the simulated
            ranks are taken to arrive no later than the simulated ones (ranks of one class, simulated
            once); if false, a collective with an absent member is an error.
    """

    launch_latency_ns: int = DEFAULT_LAUNCH_LATENCY_NS
    launch_queue_depth: int = DEFAULT_LAUNCH_QUEUE_DEPTH
    kernel_gap_ns: int = 0
    sync_return_ns: int = 0
    data_wait_ns: int = 0
    absent_members_arrive: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a negative or non-integer constant, or a queue without a slot."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "absent_members_arrive":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"Settings.{field.name} must be an integer, not {value!r}")
            lowest = 1 if field.name == "launch_queue_depth" else 0
            if value < lowest:
                raise ValueError(f"Settings.{field.name} must be at least {lowest}, not {value}")
