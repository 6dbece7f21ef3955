"""What NCCL's kernels take of a GPU while they run: SMs, memory bandwidth, links.

A kernel has one block for each channel. The simulator adds the shares of kernels that run at the same time
and stretches all of them where a sum passes 1: beside a kernel that fills every SM, 24 channels on 108 SMs
slow both by 1.13, 16 on 132 by 1.07. In traces of A100 jobs compute beside NCCL is slower by 1.04 to 1.08 in
the median kernel and by 1.15 to 1.17 over all time (`benchmarks/collective_overlap.md`); where memory
bandwidth runs out as well, the simulator's sum of those shares adds to that.

Channels: the grids of NCCL kernels in Kineto traces (A100 x8: 24; V100 x8: 12, V100 x2: 2); on
Hopper and Blackwell NCCL's own limits (16 with NVLS, nccl 2.19 release notes' default; 24 to 32 for rings on
NVLink4 and NVLink5), of which the lower is taken; PCIe rings have two to four.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from maya.hardware import GpuSpec

CHANNELS = {
    ("nvswitch", "ampere"): 24,
    ("nvswitch", "hopper"): 16,
    ("nvswitch", "blackwell"): 16,
    ("mesh", "volta"): 12,
    ("mesh", "pascal"): 8,
}
"""Most channels by link and generation."""
FEW_CHANNELS = {"nvswitch": 16, "mesh": 12, "bridge": 8, "pcie": 4}
"""Where the generation has no entry of its own."""
MESH_PAIR_CHANNELS = 2
"""Two GPUs of a mesh share one or two links."""
SM_OF_A_BLOCK = 0.6
"""Share of its SM that a block takes: 512 to 640 of 2,048 threads that wait most of the time, beside which
blocks of other kernels still run. Chosen for the slowdowns of `benchmarks/collective_overlap.md`."""
BYTES_PER_CHANNEL = 64 << 10
"""A call smaller than this times the channels runs fewer: NCCL gives a block several rounds of 64 bytes for
each of its 512 threads."""
LEAST_LINK_SHARE, MOST_HBM_SHARE = 0.05, 1.0


@dataclass(frozen=True)
class Occupancy:
    """Shares in 0..1 while the kernel runs alone."""

    sm: float
    hbm: float
    link: float


def channels(link: str, generation: str, ranks: int, size: int) -> int:
    """Blocks of the kernel of a call."""
    most = CHANNELS.get((link, generation), FEW_CHANNELS[link])
    if link == "mesh" and ranks == 2:
        most = MESH_PAIR_CHANNELS
    return max(1, min(most, ceil(size / BYTES_PER_CHANNEL)))


def occupancy(
    gpu: GpuSpec, link: str, ranks: int, size: int, sent_bytes: float, link_gbps: float, time_ns: float
) -> Occupancy:
    """Shares of a call.

    Args:
        gpu: the device.
        link: of `placement.LINK_KINDS`.
        ranks: how many take part.
        size: whole bytes.
        sent_bytes: what each rank sends in all.
        link_gbps: of its link.
        time_ns: how long the call takes.
    """
    if ranks < 2 or size <= 0:
        return Occupancy(0.0, min(1.0, 2.0 * size / (time_ns * gpu.hbm_bandwidth_gbps)), 0.0)
    # Each byte sent was read, and each byte received is written (a reduction reads its own part besides).
    hbm = min(MOST_HBM_SHARE, 3.0 * sent_bytes / (time_ns * gpu.hbm_bandwidth_gbps))
    used = min(1.0, max(LEAST_LINK_SHARE, sent_bytes / (time_ns * link_gbps)))
    blocks = channels(link, gpu.generation, ranks, size)
    return Occupancy(SM_OF_A_BLOCK * blocks / gpu.sm_count, hbm, used)
