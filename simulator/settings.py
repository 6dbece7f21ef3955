"""What the engine assumes about launching work, apart from the trace and the kernel times."""

from __future__ import annotations

from dataclasses import dataclass, fields

# The three times below are medians of real Kineto traces, measured by
# benchmarks/simulator_launch_constants.py (A100: hta_a100_2gpu_nccl_data, hta_a100_alexnet_like).

DEFAULT_LAUNCH_LATENCY_NS = 1_500
"""From the launch call's return to the kernel's start on an idle stream (A100 1.54 us, n=1667)."""

DEFAULT_KERNEL_GAP_NS = 1_000
"""Between two kernels queued in one stream (A100 1.15 us, n=741; V100 0.75 us, n=4346)."""

DEFAULT_SYNC_RETURN_NS = 7_000
"""From the device's completion to the return of the call that waited (A100 7.0 us, n=8; RTX 2080 Ti
8.5 us, n=30). Few samples: a run that synchronises every few kernels is the one it matters to."""

DEFAULT_LAUNCH_QUEUE_DEPTH = 1024
"""Entries a stream's queue takes before the launching call blocks. NVIDIA documents no number; 1024
is what is commonly observed. It only matters to the host's time, and to how far it runs ahead."""


@dataclass(frozen=True)
class Settings:
    """Constants of the host-device path. All times in integer ns.

    Attributes:
        launch_latency_ns: end of the launch call (and so of the host gap) to the earliest start on
            the device.
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
    kernel_gap_ns: int = DEFAULT_KERNEL_GAP_NS
    sync_return_ns: int = DEFAULT_SYNC_RETURN_NS
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
