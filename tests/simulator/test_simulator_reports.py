"""Memory over time, top kernels and the critical path, on small timelines worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from maya.simulator import (
    FixedTimeNetwork,
    Settings,
    critical_path,
    iteration_times,
    memory_curve,
    simulate,
    top_kernels,
)
from maya.traces.operations import MEMORY_DTYPE, MemoryAction

PLAIN = Settings(launch_latency_ns=10, kernel_gap_ns=0, sync_return_ns=0)


def memory_rows(*events):
    rows = np.zeros(len(events), dtype=MEMORY_DTYPE)
    for row, (operation, action, size, device) in zip(rows, events, strict=True):
        row["operation"], row["action"], row["size_bytes"], row["device"] = operation, action, size, device
    return rows


def test_memory_follows_the_host(script):
    s = script()
    s.kernel(500, gap=10)
    s.kernel(500, gap=10)
    s.device_sync()
    timeline = simulate([s.input()], settings=PLAIN)
    curve = memory_curve(
        timeline,
        memory_rows(
            (0, MemoryAction.SEGMENT_ALLOCATE, 2048, 0),
            (0, MemoryAction.ALLOCATE, 512, 0),
            (1, MemoryAction.ALLOCATE, 1024, 0),
            (2, MemoryAction.FREE, 512, 0),
            (2, MemoryAction.RECLAIM, 512, 0),
            (3, MemoryAction.SEGMENT_FREE, 2048, 0),
            (3, MemoryAction.ALLOCATE, 77, 1),
        ),
    )
    assert curve.time_ns.tolist() == [0, 0, 10, 20, 20, 1020]
    assert curve.allocated_bytes.tolist() == [0, 512, 1536, 1024, 1024, 1024]
    assert curve.reserved_bytes.tolist() == [2048, 2048, 2048, 2048, 2048, 0]
    assert (curve.peak_allocated_bytes, curve.peak_reserved_bytes) == (1536, 2048)
    assert memory_curve(
        timeline, memory_rows((9, MemoryAction.ALLOCATE, 5, 1)), device=1
    ).time_ns.tolist() == [1020]
    empty = memory_curve(timeline, memory_rows())
    assert (len(empty.time_ns), empty.peak_allocated_bytes) == (0, 0)


@pytest.mark.parametrize("bad", [[(1, 0, 5, 0), (0, 0, 5, 0)], [(0, 0, -5, 0)], [(-1, 0, 5, 0)]])
def test_bad_memory_events_are_refused(script, bad):
    s = script()
    s.host(5)
    with pytest.raises(ValueError, match="memory events must"):
        memory_curve(simulate([s.input()]), memory_rows(*bad))


def test_top_kernels_rank_by_time_then_name(script):
    s = script(0, ((0, 1),))
    other = script(1, ((0, 1),))
    s.kernel(30, 50, 20)
    s.kernel(20)
    for one in (s, other):
        one.collective(0)

    class Cost:
        def duration_ns(self, transfer):  # noqa: ARG002
            return 30

    timeline = simulate(
        [s.input(), other.input()],
        network=FixedTimeNetwork(Cost()),
        settings=Settings(launch_latency_ns=0, kernel_gap_ns=0),
    )
    names = SimpleNamespace(name=np.array([2, 1, 0, 0], dtype=np.int32), names=("b", "long", "a"))
    found = top_kernels(timeline, names)
    assert [(k.name, k.calls, k.total_ns) for k in found] == [
        ("long", 1, 50),
        ("b", 2, 40),
        ("(communication)", 1, 30),
        ("a", 1, 30),
    ]
    assert found[0].share == pytest.approx(50 / 150)
    assert [k.name for k in top_kernels(timeline, names, start_ns=30, end_ns=80, limit=1)] == ["long"]
    assert top_kernels(timeline, names, start_ns=10**9) == []
    with pytest.raises(ValueError, match="names only 1"):
        top_kernels(timeline, SimpleNamespace(name=np.array([0]), names=("a",)))


def path(script, settings=PLAIN, start=0, end=None):
    timeline = simulate([script.input()], settings=settings)
    return critical_path(timeline, start, timeline.makespan_ns if end is None else end, settings)


def test_device_bound_path_is_all_kernels(script):
    s = script()
    for _ in range(4):
        s.kernel(100, gap=20)
    found = path(s)
    assert (found.compute_ns, found.host_ns, found.wait_ns) == (400, 20, 10)
    assert found.operation_ns.tolist() == [120, 100, 100, 100]


def test_host_bound_path_is_the_host_and_the_last_kernel(script):
    s = script()
    for _ in range(4):
        s.kernel(5, gap=100)
    found = path(s)
    assert (found.compute_ns, found.host_ns, found.wait_ns) == (5, 400, 10)


def test_path_through_a_blocking_copy(script):
    s = script()
    s.kernel(100, gap=10)
    s.copy(40, "d2h", gap=10, blocking=1)
    s.kernel(100, gap=10)
    settings = Settings(launch_latency_ns=10, kernel_gap_ns=0, sync_return_ns=7)
    found = path(s, settings)
    # 10 host, 10 latency, 100 kernel, 40 copy, 7 return, 10 host, 10 latency, 100 kernel.
    assert (found.compute_ns, found.copy_ns, found.host_ns, found.wait_ns) == (200, 40, 20, 27)


def test_path_follows_an_event_to_another_stream(script):
    s = script()
    s.kernel(300, stream=1, gap=5, shares=(0.5, 0, 0))
    s.record(1, stream=1)
    s.kernel(50, stream=0, shares=(0.5, 0, 0))
    s.wait(1, stream=0)
    s.kernel(50, stream=0, shares=(0.5, 0, 0))
    found = path(s)
    assert found.operation_ns.tolist() == [305, 0, 0, 0, 50]
    assert found.wait_ns == 10


OPERATION = st.one_of(
    st.tuples(st.just("kernel"), st.integers(0, 30), st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.just("copy"), st.integers(0, 30), st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.sampled_from(["record", "wait"]), st.integers(0, 1), st.integers(0, 2), st.just(0)),
    st.tuples(st.sampled_from(["device_sync", "host"]), st.integers(0, 9), st.just(0), st.just(0)),
)


@given(
    program=st.integers(1, 20).flatmap(lambda n: st.lists(OPERATION, min_size=n, max_size=n)),
    constants=st.builds(
        Settings,
        launch_latency_ns=st.integers(0, 5),
        launch_queue_depth=st.sampled_from([1, 2, 1024]),
        kernel_gap_ns=st.integers(0, 2),
        sync_return_ns=st.integers(0, 3),
    ),
    cuts=st.tuples(st.integers(0, 19), st.integers(0, 19)),
)
@hypothesis_settings(max_examples=120, deadline=None)
def test_the_path_always_ends_and_adds_up(script, program, constants, cuts):
    s = script()
    for method, amount, stream, blocking in program:
        if method == "kernel":
            s.kernel(amount, stream=stream, blocking=blocking, gap=amount % 7)
        elif method == "copy":
            s.copy(amount, stream=stream, blocking=blocking, gap=amount % 3)
        elif method in ("record", "wait"):
            getattr(s, method)(amount, stream)
        else:
            getattr(s, method)(amount)
    timeline = simulate([s.input()], settings=constants)
    times = iteration_times(timeline, sorted({cut % len(program) for cut in cuts}))
    for start, end in zip(times.start_ns.tolist(), times.end_ns.tolist(), strict=True):
        found = critical_path(timeline, start, end, constants)
        assert found.total_ns == end - start
        parts = (found.compute_ns, found.copy_ns, found.communication_ns, found.host_ns, found.wait_ns)
        assert min(parts) >= 0
        assert found.operation_ns.sum() == found.total_ns - found.wait_ns
