"""Dependencies against a byte-by-byte oracle, and case by case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maya.traces import Kind, Operations, Role, read_et, validate_et
from maya.traces import dependencies as subject
from maya.traces.dependencies import DependencyTracker

Use = tuple[int, int, int, Role]
Build = Callable[..., Operations]


def track(operations: list[tuple[int, list[Use]]]) -> list[tuple[set[int], set[int]]]:
    """(control, data) of kernels given as (stream, uses)."""
    tracker = DependencyTracker()
    found = []
    for index, (stream, uses) in enumerate(operations):
        control = tracker.control(index, Kind.KERNEL, (0, stream), -1, None, 0, 0)
        data = tracker.data(index, (0, stream), *([use[part] for use in uses] for part in range(4)))
        found.append((control, data))
    return found


uses = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 8), st.sampled_from(list(Role))),
    min_size=1,
    max_size=3,
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), uses), max_size=25),
    st.sampled_from([1, 2, subject.MAX_SEGMENTS]),
)
def test_every_conflict_is_ordered_and_nothing_else_follows(
    operations: list[tuple[int, list[Use]]], max_segments: int
) -> None:
    """Two operations that touch a byte, one of them writing, are ordered by the graph (perhaps through
    others). Every data edge joins operations that use one storage, and goes to a smaller id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "MAX_SEGMENTS", max_segments)
        found = track(operations)
    before: list[set[int]] = []
    for index, (control, data) in enumerate(found):
        assert all(earlier < index for earlier in control | data)
        closure = control | data
        for earlier in control | data:
            closure = closure | before[earlier]
        before.append(closure)
    for index, (_, mine) in enumerate(operations):
        for earlier in range(index):
            theirs = operations[earlier][1]
            if any(conflict(one, other) for one in mine for other in theirs):
                assert earlier in before[index], (earlier, index)
        for earlier in found[index][1]:
            theirs = {use[0] for use in operations[earlier][1]}
            assert theirs & {use[0] for use in mine}


def conflict(one: Use, other: Use) -> bool:
    if one[0] != other[0] or (one[3] == Role.READ and other[3] == Role.READ):
        return False
    return one[1] < other[1] + other[2] and other[1] < one[1] + one[2]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), uses), max_size=20))
def test_a_reader_follows_the_last_writers_directly(
    operations: list[tuple[int, list[Use]]],
) -> None:
    last: dict[tuple[int, int], int] = {}
    for index, ((_, data), (_, mine)) in enumerate(zip(track(operations), operations, strict=True)):
        touched = {(use[0], byte) for use in mine for byte in range(use[1], use[1] + use[2])}
        assert {last[place] for place in touched if place in last} <= data
        for use in mine:
            if use[3] != Role.READ:
                last.update({(use[0], byte): index for byte in range(use[1], use[1] + use[2])})


def test_views_of_disjoint_bytes_are_independent() -> None:
    found = track(
        [
            (0, [(5, 0, 100, Role.WRITE)]),
            (1, [(5, 0, 50, Role.WRITE)]),
            (2, [(5, 50, 50, Role.WRITE)]),
            (1, [(5, 0, 50, Role.READ)]),
            (2, [(5, 40, 20, Role.READ)]),
        ]
    )
    assert [data for _, data in found] == [set(), {0}, {0}, {1}, {1, 2}]


def test_write_after_read_on_another_stream() -> None:
    found = track([(0, [(5, 0, 8, Role.WRITE)]), (1, [(5, 0, 8, Role.READ)]), (0, [(5, 0, 8, Role.WRITE)])])
    assert found[2][1] == {0, 1}


def test_host_memory_and_empty_tensors_are_not_followed() -> None:
    found = track(
        [
            (0, [(-1, 0, 8, Role.WRITE), (5, 0, 0, Role.WRITE)]),
            (1, [(-1, 0, 8, Role.READ), (5, 0, 0, Role.READ)]),
        ]
    )
    assert found[1][1] == set()


def test_streams_order_their_own_work_only() -> None:
    found = track([(0, []), (1, []), (0, []), (1, [])])
    assert [control for control, _ in found] == [set(), set(), {0}, {1}]


def control_of(tmp_path: Path, write_trace: Any, operations: Operations) -> list[list[int]]:
    trace = validate_et(write_trace(tmp_path / "run", operations))
    return [sorted(trace.control.of(node).tolist()) for node in range(trace.count)]


def test_events_join_streams(tmp_path: Path, build_operations: Build, op: Any, write_trace: Any) -> None:
    kernel = Kind.KERNEL
    operations = build_operations(
        [
            op(kernel, stream=0),
            op(Kind.EVENT_RECORD, stream=0, event=9),
            op(kernel, stream=0),
            op(kernel, stream=4),
            op(Kind.STREAM_WAIT, stream=4, event=9),
            op(kernel, stream=4),
            op(Kind.EVENT_SYNC, event=9),
            op(kernel, stream=0),
            op(Kind.STREAM_WAIT, stream=4, event=1),  # never recorded: CUDA goes on at once
        ]
    )
    assert control_of(tmp_path, write_trace, operations) == [
        [],
        [0],
        [1],
        [],
        [1, 3],
        [4],
        [1],
        [2, 6],
        [5, 6],
    ]


def test_synchronisation_follows_streams_and_holds_the_host(
    tmp_path: Path, build_operations: Build, op: Any, write_trace: Any
) -> None:
    kernel = Kind.KERNEL
    operations = build_operations(
        [
            op(kernel, stream=0),
            op(kernel, stream=4),
            op(Kind.STREAM_SYNC, stream=4),
            op(kernel, stream=0),
            op(kernel, stream=0, device=1),
            op(Kind.DEVICE_SYNC, device=0),
            op(Kind.HOST),
            op(Kind.MEMCPY, blocking=1),
            op(kernel, stream=4),
        ]
    )
    assert control_of(tmp_path, write_trace, operations) == [
        [],
        [],
        [1],
        [0, 2],
        [2],
        [1, 2, 3],
        [5],
        [3, 6],
        [1, 7],
    ]


def test_host_operations_do_not_wait_for_the_device(
    tmp_path: Path, build_operations: Build, op: Any, write_trace: Any
) -> None:
    operations = build_operations(
        [
            op(Kind.KERNEL, tensors=[(1, 0, 8, Role.WRITE)]),
            op(Kind.HOST, tensors=[(1, 0, 8, Role.READ)]),
            op(Kind.KERNEL, stream=3, tensors=[(1, 0, 8, Role.READ)]),
        ]
    )
    trace = validate_et(write_trace(tmp_path / "run", operations))
    assert trace.control.of(1).tolist() == trace.data.of(1).tolist() == []
    assert trace.data.of(2).tolist() == [0]


def test_a_thread_that_takes_over_follows_the_other(
    tmp_path: Path, build_operations: Build, op: Any, write_trace: Any
) -> None:
    operations = build_operations(
        [
            op(Kind.HOST, host_thread=0),
            op(Kind.HOST, host_thread=1),
            op(Kind.HOST, host_thread=1),
            op(Kind.HOST, host_thread=0),
        ]
    )
    assert control_of(tmp_path, write_trace, operations) == [[], [0], [1], [0, 2]]


def test_waiting_for_a_communication(
    tmp_path: Path, build_operations: Build, op: Any, write_trace: Any
) -> None:
    def handle(number: int) -> dict[str, int]:
        return {"communicator": 0, "async_handle": number, "collective": 0}

    operations = build_operations(
        [
            op(Kind.COLLECTIVE, 3, stream=7, communication=handle(1)),
            op(Kind.COLLECTIVE, 3, stream=7, communication=handle(2)),
            op(Kind.WAIT, stream=0, communication=handle(1)),
            op(Kind.KERNEL, stream=0),
        ]
    )
    assert control_of(tmp_path, write_trace, operations) == [[], [0], [0], [2]]


def test_memory_is_bounded_by_what_is_alive() -> None:
    tracker = DependencyTracker()
    for index in range(5_000):
        tracker.free([index - 3], [index])
        tracker.control(index, Kind.EVENT_RECORD, (0, 0), index, None, 0, 0)
        tracker.data(index, (0, index % 4), [index, 10**9], [0, 0], [8, 8], [Role.WRITE, Role.READ])
    assert tracker.live_storages <= 5
    segments = tracker._storages[10**9]
    assert len(segments) == 1
    assert len(segments[0][3]) == 4


def test_slices_without_end_are_folded() -> None:
    tracker = DependencyTracker()
    for index in range(1_000):
        tracker.data(index, (0, index % 2), [1], [index * 8], [8], [Role.WRITE])
    assert len(tracker._storages[1]) <= subject.MAX_SEGMENTS + 1
    assert {998, 999} <= tracker.data(1_000, (0, 2), [1], [0], [8_000], [Role.READ])


def test_forgotten_events_are_followed_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_LIVE_MARKS", 10)
    tracker = DependencyTracker()
    for index in range(100):
        tracker.control(index, Kind.EVENT_RECORD, (0, index % 2), index, None, 0, 0)
    assert tracker.control(100, Kind.EVENT_SYNC, (0, 0), 95, None, 0, 0) == {95}
    # Event 3 is forgotten: its stream's youngest forgotten record stands for it.
    assert tracker.control(101, Kind.EVENT_SYNC, (0, 0), 3, None, 0, 0) == {88, 89, 100}


def test_an_event_recorded_again_is_young_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_LIVE_MARKS", 10)
    tracker = DependencyTracker()
    for index in range(100):
        tracker.control(index, Kind.EVENT_RECORD, (0, 0), 7 if index % 5 == 0 else index, None, 0, 0)
    assert tracker.control(100, Kind.EVENT_SYNC, (0, 0), 7, None, 0, 0) == {95}


@pytest.mark.parametrize("batch", [1, 2, 3, 8192])
def test_freed_storage_is_forgotten_only_after_its_last_use(
    tmp_path: Path, build_operations: Build, op: Any, tables: Any, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maya.traces.spool.BATCH_OPERATIONS", batch)
    from maya.traces import MEMORY_DTYPE, MemoryAction, RankWriter

    use = [(1, 0, 8, Role.WRITE)]
    operations = build_operations([op(Kind.KERNEL, stream=index, tensors=use) for index in range(4)])
    freed = np.zeros(2, MEMORY_DTYPE)
    freed["action"], freed["allocation"], freed["operation"] = MemoryAction.FREE, [9, 1], [4, 2]
    writer = RankWriter(tmp_path)
    writer.append(operations, tables.operators, tables.metadata, tables.modules, tables.source_lines)
    writer.append_memory(freed)
    writer.finish(tables)
    trace = read_et(tmp_path / "rank-0.et")
    assert [trace.data.of(node).tolist() for node in range(4)] == [[], [0], [], [2]]
