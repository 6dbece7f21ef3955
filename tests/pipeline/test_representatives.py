"""One rank simulated for its class gives what all ranks simulated give, to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maya.pipeline.representatives import stand_for_their_classes
from maya.simulator import FixedTimeNetwork, KernelColumns, RankInput, Settings, simulate
from maya.traces import (
    COMMUNICATION_DTYPE,
    MEMORY_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Communicator,
    Kind,
    Operations,
    RankClass,
    RankTrace,
    Tables,
    ranks_of_class,
)

CONSTANTS: dict[str, int] = {"launch_latency_ns": 3, "kernel_gap_ns": 1, "sync_return_ns": 2}


class BytesAndMembers:
    """A transfer takes as long as its bytes and its communicator say, not who was simulated."""

    def duration_ns(self, transfer: Any) -> int:
        return int(transfer.input_bytes) + 7 * len(transfer.communicator.ranks)


@dataclass
class Program:
    """Operations of one class: (columns, host gap, kernels (ns, SM share), communication columns)."""

    rows: list[tuple[dict[str, int], int, list[tuple[int, float]], dict[str, int] | None]]

    def operations(self) -> Operations:
        table = np.zeros(len(self.rows), OPERATION_DTYPE)
        table["id"] = np.arange(len(self.rows))
        table["event"] = table["communication"] = -1
        transfers = []
        for row, (columns, _, _, details) in zip(table, self.rows, strict=True):
            for name, value in columns.items():
                row[name] = value
            if details is not None:
                row["communication"] = len(transfers)
                transfers.append(details)
        communications = np.zeros(len(transfers), COMMUNICATION_DTYPE)
        for name in ("peer", "coalescing_group", "async_handle"):
            communications[name] = -1
        for row, details in zip(communications, transfers, strict=True):
            for name, value in details.items():
                row[name] = value
        return Operations(table, np.zeros(0, TENSOR_DTYPE), communications)

    def costs(self) -> tuple[KernelColumns, np.ndarray[Any, np.dtype[np.int64]]]:
        kernels = [kernel for _, _, launched, _ in self.rows for kernel in launched]
        counts = [len(launched) for _, _, launched, _ in self.rows]
        shares = np.array([share for _, share in kernels], dtype=np.float32)
        nothing = np.zeros(len(kernels), np.float32)
        work = np.array([time_ns for time_ns, _ in kernels], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        gaps = np.array([gap for _, gap, _, _ in self.rows], dtype=np.int64)
        return KernelColumns(offsets, work, shares, nothing, nothing), gaps


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[tuple[RankClass, Program]], tuple[Communicator, ...]]:
    """Classes of ranks, shuffled, and groups that are unions of classes; everyone in the first."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    ranks = iter(draw(st.permutations(range(sum(sizes)))))
    classes = [tuple(sorted(next(ranks) for _ in range(size))) for size in sizes]
    unions = [list(range(len(sizes)))]
    unions += draw(st.lists(st.lists(st.sampled_from(unions[0]), min_size=1, unique=True), max_size=2))
    groups = tuple(
        Communicator(f"g{index}", tuple(sorted(rank for which in union for rank in classes[which])))
        for index, union in enumerate(unions)
    )
    calls = draw(
        st.lists(st.tuples(st.integers(0, len(groups) - 1), st.integers(0, 60)), min_size=1, max_size=6)
    )
    share = st.sampled_from([0.0, 0.4, 0.7, 1.0])
    work = st.lists(st.tuples(st.integers(0, 50), share), max_size=2)
    made = []
    for which, members in enumerate(classes):
        program = Program([])
        numbers = [0] * len(groups)
        for index, (group, size) in enumerate(calls):
            kernels, gap = draw(work), draw(st.integers(0, 30))
            program.rows.append(({"kind": Kind.KERNEL, "stream": 0}, gap, kernels, None))
            if which not in unions[group]:
                continue
            asynchronous = draw(st.booleans())
            if asynchronous:
                program.rows.append(({"kind": Kind.EVENT_RECORD, "event": index}, 1, [], None))
                wait = {"kind": Kind.STREAM_WAIT, "event": index, "stream": group + 1}
                program.rows.append((wait, 1, [], None))
            details = {
                "communicator": group,
                "sequence_in_communicator": numbers[group],
                "input_bytes": size,
                "async_handle": index,
            }
            numbers[group] += 1
            stream = group + 1
            columns = {"kind": Kind.COLLECTIVE, "stream": stream}
            program.rows.append((columns, 1, [(1, draw(share))], details))
            if not asynchronous or draw(st.booleans()):
                waits = {"kind": Kind.WAIT, "stream": 0, "blocking": int(draw(st.booleans()))}
                program.rows.append((waits, 1, [], {"communicator": group, "async_handle": index}))
        program.rows.append(({"kind": Kind.DEVICE_SYNC}, 1, [], None))
        made.append((RankClass(members[0], members), program))
    return sorted(made, key=lambda each: each[0].rank), groups


def trace_of(group: RankClass, program: Program, groups: tuple[Communicator, ...]) -> RankTrace:
    tables = Tables(("op",), ("{}",), communicators=groups)
    return RankTrace(group.rank, program.operations(), tables, np.zeros(0, MEMORY_DTYPE))


def input_of(trace: RankTrace, program: Program) -> RankInput:
    kernels, gaps = program.costs()
    return RankInput(trace.rank, trace.operations, kernels, gaps, trace.tables)


@given(job=jobs())
@settings(max_examples=120, deadline=None)
def test_representatives_take_what_all_ranks_take(
    job: tuple[list[tuple[RankClass, Program]], tuple[Communicator, ...]],
) -> None:
    classes, groups = job
    traces = [trace_of(group, program, groups) for group, program in classes]
    several = any(len(group.ranks) > 1 for group, _ in classes)
    assert stand_for_their_classes([group for group, _ in classes], traces) == several
    everyone = [
        input_of(member, program)
        for (group, program), trace in zip(classes, traces, strict=True)
        for member in ranks_of_class(trace, group).values()
    ]
    alone = [input_of(trace, program) for (_, program), trace in zip(classes, traces, strict=True)]
    network = BytesAndMembers()
    full = simulate(everyone, network=FixedTimeNetwork(network), settings=Settings(**CONSTANTS))
    few = simulate(
        alone,
        network=FixedTimeNetwork(network),
        settings=Settings(**CONSTANTS, absent_members_arrive=True),
    )
    for group, _ in classes:
        for rank in group.ranks:
            for rows in ("kernels_of", "hosts_of"):
                one, other = getattr(full, rows)(rank), getattr(few, rows)(group.rank)
                for column in one.dtype.names:
                    if column != "rank":
                        assert (one[column] == other[column]).all(), (rank, column)


def collective(group: int) -> Program:
    details = {"communicator": group, "input_bytes": 1}
    return Program([({"kind": Kind.COLLECTIVE}, 1, [], details)])


def test_groups_that_differ_within_a_class_need_every_rank() -> None:
    pairs = tuple(Communicator(f"pair {first}", (first, first + 1)) for first in (0, 2))
    whole = RankClass(0, (0, 1, 2, 3), {2: (pairs[1],), 3: (pairs[1],)})
    trace = trace_of(whole, collective(0), (pairs[0],))
    assert not stand_for_their_classes([whole], [trace])
    assert not stand_for_their_classes([RankClass(0, (0, 1, 2, 3))], [trace])  # 2 and 3 are no members
    assert stand_for_their_classes([RankClass(0, (0, 1))], [trace])


def test_a_member_that_never_comes_needs_every_rank() -> None:
    world = (Communicator("world", (0, 1, 2)),)
    silent = Program([({"kind": Kind.KERNEL}, 1, [], None)])
    classes = [RankClass(0, (0, 1)), RankClass(2, (2,))]
    traces = [trace_of(classes[0], collective(0), world), trace_of(classes[1], silent, world)]
    assert not stand_for_their_classes(classes, traces)


@pytest.mark.parametrize("kind", [Kind.SEND, Kind.RECV])
def test_messages_need_every_rank(kind: Kind) -> None:
    world = (Communicator("world", (0, 1)),)
    program = Program([({"kind": kind}, 1, [], {"communicator": 0, "peer": 1})])
    assert not stand_for_their_classes(
        [RankClass(0, (0, 1))], [trace_of(RankClass(0, (0, 1)), program, world)]
    )
