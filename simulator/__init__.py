"""Replays operations with kernel times on modelled hosts, devices and networks."""

from __future__ import annotations

from maya.simulator.breakdown import Breakdown, breakdown, waiting_ns
from maya.simulator.critical_path import CriticalPath, critical_path
from maya.simulator.errors import CommunicationError
from maya.simulator.inputs import KernelColumns, KernelWork, RankInput, with_work
from maya.simulator.intervals import busy_ns, union
from maya.simulator.iterations import IterationTimes, iteration_times
from maya.simulator.memory_curve import MemoryCurve, memory_curve
from maya.simulator.network import (
    MESSAGE,
    FixedTimeNetwork,
    NetworkModel,
    Transfer,
    TransferCost,
)
from maya.simulator.settings import Settings
from maya.simulator.simulation import simulate
from maya.simulator.timeline import (
    HOST_ROW_DTYPE,
    KERNEL_ROW_DTYPE,
    Activity,
    Timeline,
    completion_ns,
)
from maya.simulator.top_kernels import NamedKernels, TopKernel, top_kernels

__all__ = [
    "HOST_ROW_DTYPE",
    "KERNEL_ROW_DTYPE",
    "MESSAGE",
    "Activity",
    "Breakdown",
    "CommunicationError",
    "CriticalPath",
    "FixedTimeNetwork",
    "IterationTimes",
    "KernelColumns",
    "KernelWork",
    "MemoryCurve",
    "NamedKernels",
    "NetworkModel",
    "RankInput",
    "Settings",
    "Timeline",
    "TopKernel",
    "Transfer",
    "TransferCost",
    "breakdown",
    "busy_ns",
    "completion_ns",
    "critical_path",
    "iteration_times",
    "memory_curve",
    "simulate",
    "top_kernels",
    "union",
    "waiting_ns",
    "with_work",
]
