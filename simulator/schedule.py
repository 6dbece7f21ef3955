"""What an engine hands back for one rank, and the Timeline made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from maya.simulator.program import Program
from maya.simulator.timeline import HOST_ROW_DTYPE, KERNEL_ROW_DTYPE, Timeline


@dataclass
class Schedule:
    """When one rank's operations and items ran, ns.

    Attributes:
        issue_ns, pass_ns: one for each operation (see HOST_ROW_DTYPE).
        start_ns, end_ns: one for each item.
        ready_ns: item → when its stream had reached it, of transfers.
    """

    issue_ns: list[int]
    pass_ns: list[int]
    start_ns: list[int]
    end_ns: list[int]
    ready_ns: dict[int, int] = field(default_factory=dict)


def make_timeline(programs: Sequence[Program], schedules: Sequence[Schedule]) -> Timeline:
    """Columns of all ranks; programs in ascending order of rank."""
    kernels = []
    hosts = []
    makespan = 0
    for program, schedule in zip(programs, schedules, strict=True):
        rows = program.source.operations.rows
        host = np.zeros(len(rows), dtype=HOST_ROW_DTYPE)
        host["issue_ns"] = schedule.issue_ns
        host["end_ns"] = schedule.pass_ns
        host["start_ns"][1:] = host["end_ns"][:-1]
        host["operation"] = np.arange(len(rows))
        host["rank"] = program.source.rank
        host["thread"] = rows["host_thread"]
        hosts.append(host)

        device = np.zeros(len(program.item_operation), dtype=KERNEL_ROW_DTYPE)
        device["start_ns"] = schedule.start_ns
        device["end_ns"] = schedule.end_ns
        device["ready_ns"] = device["start_ns"]
        if schedule.ready_ns:
            device["ready_ns"][list(schedule.ready_ns)] = list(schedule.ready_ns.values())
        device["operation"] = program.item_operation
        device["kernel"] = program.item_kernel
        device["stream"] = rows["stream"][program.item_operation]
        device["device"] = rows["device"][program.item_operation]
        device["rank"] = program.source.rank
        device["activity"] = program.item_activity
        kernels.append(device)
        for column in (host["end_ns"], device["end_ns"]):
            makespan = max(makespan, int(column.max(initial=0)))
    return Timeline(
        ranks=tuple(program.source.rank for program in programs),
        kernels=np.concatenate(kernels) if kernels else np.zeros(0, dtype=KERNEL_ROW_DTYPE),
        hosts=np.concatenate(hosts) if hosts else np.zeros(0, dtype=HOST_ROW_DTYPE),
        makespan_ns=makespan,
    )
