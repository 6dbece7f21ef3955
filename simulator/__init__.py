"""Replays operations with kernel times on modelled hosts, devices and networks."""

from __future__ import annotations

from maya.simulator.breakdown import Breakdown, breakdown
from maya.simulator.inputs import KernelColumns, KernelWork, RankInput, with_work
from maya.simulator.iterations import IterationTimes, iteration_times
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

__all__ = [
    "HOST_ROW_DTYPE",
    "KERNEL_ROW_DTYPE",
    "MESSAGE",
    "Activity",
    "Breakdown",
    "FixedTimeNetwork",
    "IterationTimes",
    "KernelColumns",
    "KernelWork",
    "NetworkModel",
    "RankInput",
    "Settings",
    "Timeline",
    "Transfer",
    "TransferCost",
    "breakdown",
    "completion_ns",
    "iteration_times",
    "simulate",
    "with_work",
]
