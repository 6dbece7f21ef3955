"""Schedules worked out by hand, to the nanosecond, in both engines where both apply."""

from __future__ import annotations

import pytest

from maya.simulator import Settings, breakdown, iteration_times, simulate
from maya.simulator.engine import run_general
from maya.simulator.inputs import check_rank
from maya.simulator.program import compile_program
from maya.simulator.schedule import make_timeline

PLAIN = Settings(launch_latency_ns=10, launch_queue_depth=1024, kernel_gap_ns=0, sync_return_ns=0)


def general(rank, settings):
    """The timeline of one rank by the general engine, whatever the program looks like."""
    check_rank(rank)
    program = compile_program(rank, settings)
    return make_timeline([program], run_general([program], None, settings))


@pytest.fixture(params=["chosen", "general"])
def run(request):
    def call(script, settings=PLAIN):
        rank = script.input()
        return simulate([rank], settings=settings) if request.param == "chosen" else general(rank, settings)

    return call


def spans(timeline):
    return list(zip(timeline.kernels["start_ns"].tolist(), timeline.kernels["end_ns"].tolist(), strict=True))


def test_host_bound(script, run):
    s = script()
    for _ in range(3):
        s.kernel(30, gap=100)
    timeline = run(s)
    # Launched at 100, 200, 300; each starts 10 later and is done long before the next.
    assert spans(timeline) == [(110, 140), (210, 240), (310, 340)]
    assert timeline.makespan_ns == 340
    times = iteration_times(timeline, [0, 1, 2])
    assert times.duration_ns.tolist() == [140, 100, 100]
    parts = breakdown(timeline, times.start_ns, times.end_ns)[1]
    # 140..240: the host issues until 200 (and has issued the third by 300): busy all the time.
    assert (parts.compute_ns, parts.exposed_communication_ns, parts.host_ns, parts.idle_ns) == (30, 0, 70, 0)


def test_device_bound(script, run):
    s = script()
    for _ in range(4):
        s.kernel(50, 50, gap=20)
    timeline = run(s)
    assert spans(timeline) == [(30 + 50 * i, 80 + 50 * i) for i in range(8)]
    assert timeline.hosts["end_ns"].tolist() == [20, 40, 60, 80]  # the host runs ahead
    times = iteration_times(timeline, [1, 3])
    assert times.end_ns.tolist() == [230, 430]
    assert times.steady_ns() == 200


def test_sync_every_step(script, run):
    s = script()
    for _ in range(3):
        s.kernel(50, gap=20)
        s.device_sync(gap=5)
    timeline = run(s)
    # Launch at 20, run 30..80, host on at 80; 100, run 110..160; ...
    assert spans(timeline) == [(30, 80), (110, 160), (190, 240)]
    times = iteration_times(timeline, [1, 3, 5])
    assert times.duration_ns.tolist() == [80, 80, 80]
    parts = breakdown(timeline, times.start_ns, times.end_ns)[1]
    # 20 ns of issue, 10 ns of launch latency in which the host issues for 5, then 50 of compute.
    assert (parts.compute_ns, parts.host_ns, parts.idle_ns) == (50, 25, 5)


def test_an_iteration_ends_with_all_work_issued_in_it(script, run):
    s = script()
    s.kernel(500, stream=1, shares=(0.5, 0, 0))
    s.kernel(20, stream=0, shares=(0.5, 0, 0))
    s.host(5)  # the iteration's last operation, long passed when stream 1 is done
    s.kernel(20, stream=0, shares=(0.5, 0, 0))  # the next one's work is done before the first ends
    times = iteration_times(run(s), [2, 3])
    assert times.end_ns.tolist() == [510, 510]
    assert times.duration_ns.tolist() == [510, 0]
    assert times.steady_ns() == 0


def test_sync_return_takes_time(script, run):
    s = script()
    s.kernel(50, gap=20)
    s.stream_sync()
    s.kernel(50, gap=20)
    timeline = run(s, Settings(launch_latency_ns=10, sync_return_ns=7, kernel_gap_ns=0))
    assert timeline.hosts["end_ns"].tolist() == [20, 87, 107]


def test_kernel_gap_separates_kernels_of_one_stream(script, run):
    s = script()
    s.kernel(50, 50, gap=20)
    s.record(1)
    s.kernel(50)
    timeline = run(s, Settings(launch_latency_ns=10, kernel_gap_ns=3, sync_return_ns=0))
    assert spans(timeline) == [(30, 80), (83, 133), (136, 186)]


def test_two_streams_with_event_wait(script, run):
    s = script()
    s.kernel(100, gap=10, stream=0, shares=(0.5, 0, 0))
    s.record(7, stream=0, gap=10)
    s.kernel(30, gap=10, stream=5, shares=(0.5, 0, 0))  # free to overlap
    s.wait(7, stream=5, gap=10)
    s.kernel(30, gap=10, stream=5, shares=(0.5, 0, 0))  # not before the first kernel's end
    timeline = run(s)
    assert spans(timeline) == [(20, 120), (40, 70), (120, 150)]


def test_wait_takes_the_latest_recording_at_the_call(script, run):
    s = script()
    s.kernel(100, gap=10, stream=0, shares=(0.2, 0, 0))
    s.record(7, stream=0)
    s.wait(7, stream=5)  # waits for the first recording, done at 120
    s.kernel(1000, stream=0, shares=(0.2, 0, 0))
    s.record(7, stream=0)
    s.kernel(30, stream=5, shares=(0.2, 0, 0))
    assert spans(run(s)) == [(20, 120), (120, 1120), (120, 150)]


def test_waiting_for_an_event_never_recorded_is_nothing(script, run):
    s = script()
    s.wait(3, stream=2)
    s.event_sync(4)
    s.kernel(30, stream=2, gap=10)
    s.record(3, stream=0)  # recorded only later
    timeline = run(s)
    assert spans(timeline) == [(20, 50)]
    assert timeline.hosts["end_ns"].tolist() == [0, 0, 10, 10]


def test_event_sync_waits_for_the_event_only(script, run):
    s = script()
    s.kernel(100, gap=10)
    s.record(1)
    s.kernel(500)
    s.event_sync(1)
    s.host(5)
    timeline = run(s)
    assert timeline.hosts["end_ns"].tolist() == [10, 10, 10, 120, 125]


def test_overlap_slows_down(script, run):
    s = script()
    s.kernel(100, gap=10, stream=0)
    s.kernel(100, gap=40, stream=1)
    # Alone 20..60: 40 of 100 done. Both at half speed from 60: the first has 60 left, so it ends at
    # 180; by then the second has 60 done and ends alone 40 later.
    assert spans(run(s)) == [(20, 180), (60, 220)]


def test_overlap_on_different_resources_is_free(script, run):
    s = script()
    s.kernel(100, gap=10, stream=0, shares=(0.6, 0.1, 0))
    s.kernel(100, gap=40, stream=1, shares=(0.4, 0.9, 0))
    assert spans(run(s)) == [(20, 120), (60, 160)]


def test_scarcest_resource_decides(script, run):
    s = script()
    s.kernel(100, gap=10, stream=0, shares=(0.2, 1.0, 0))
    s.kernel(100, stream=1, shares=(0.8, 0.5, 0))
    # HBM is asked for 1.5 times: both stretch by 1.5 from 20; the second is a twin in time.
    assert spans(run(s)) == [(20, 170), (20, 170)]


def test_odd_sharing_rounds_up_to_whole_nanoseconds(script, run):
    s = script()
    for stream in range(3):
        s.kernel(10, stream=stream, shares=(0.7, 0, 0))
    # 2.1 times oversubscribed: 21 ns each.
    assert spans(run(s)) == [(10, 31)] * 3


def test_full_launch_queue_blocks_the_host(script, run):
    s = script()
    for _ in range(5):
        s.kernel(100, gap=1)
    timeline = run(s, Settings(launch_latency_ns=10, launch_queue_depth=2, kernel_gap_ns=0, sync_return_ns=0))
    # Starts at 11, 111, 211, ... The queue holds two that have not started: the third launch waits
    # for the first's start (11), the fourth for the second's (111), the fifth for the third's.
    assert spans(timeline) == [(11 + 100 * i, 111 + 100 * i) for i in range(5)]
    assert timeline.hosts["end_ns"].tolist() == [1, 2, 11, 111, 211]
    assert timeline.hosts["issue_ns"].tolist() == [1, 2, 3, 12, 112]


def test_one_operation_can_fill_the_queue(script, run):
    s = script()
    s.kernel(100, 100, 100, 100, gap=1)
    s.host(5)
    timeline = run(s, Settings(launch_latency_ns=10, launch_queue_depth=1, kernel_gap_ns=0, sync_return_ns=0))
    assert spans(timeline) == [(11, 111), (111, 211), (211, 311), (311, 411)]
    assert timeline.hosts["end_ns"].tolist() == [211, 216]


def test_blocking_copy(script, run):
    s = script()
    s.kernel(100, gap=10)
    s.copy(40, "d2h", gap=10, blocking=1)
    s.kernel(100, gap=10)
    timeline = run(s)
    assert spans(timeline) == [(20, 120), (120, 160), (180, 280)]
    assert timeline.hosts["end_ns"].tolist() == [10, 160, 170]
    assert timeline.hosts["issue_ns"].tolist() == [10, 20, 170]


def test_copy_engines_run_one_copy_each_beside_kernels(script, run):
    s = script()
    s.kernel(200, stream=0)
    s.copy(50, "h2d", stream=1)
    s.copy(50, "h2d", stream=2)  # the same engine: after the other
    s.copy(50, "d2h", stream=3)  # the other direction: at once
    assert spans(run(s)) == [(10, 210), (10, 60), (60, 110), (10, 60)]


def test_copy_waits_for_its_engine_in_order_of_readiness(script, run):
    s = script()
    s.copy(100, "h2d", stream=1)
    s.kernel(60, stream=2)
    s.copy(10, "h2d", stream=2)  # ready at 70
    s.kernel(50, stream=3, shares=(0, 0, 0))
    s.copy(10, "h2d", stream=3)  # ready at 60, launched later
    assert spans(run(s)) == [(10, 110), (10, 70), (120, 130), (10, 60), (110, 120)]


def test_stream_sync_leaves_other_streams_running(script, run):
    s = script()
    s.kernel(100, stream=0, shares=(0.5, 0, 0))
    s.kernel(500, stream=1, shares=(0.5, 0, 0))
    s.stream_sync(0)
    s.device_sync()
    assert run(s).hosts["end_ns"].tolist() == [0, 0, 110, 510]


def test_device_sync_is_for_one_device(script, run):
    s = script()
    s.kernel(100, device=0)
    s.kernel(500, device=1)  # another GPU: no sharing either
    s.device_sync(device=0)
    timeline = run(s)
    assert spans(timeline) == [(10, 110), (10, 510)]
    assert timeline.hosts["end_ns"].tolist() == [0, 0, 110]


def test_data_wait_costs_nothing_by_default(script, run):
    s = script()
    s.host(5)
    s.data_wait_end()
    assert run(s).hosts["end_ns"].tolist() == [5, 5]
    waiting = run(s, Settings(data_wait_ns=1000))
    assert waiting.hosts["end_ns"].tolist() == [5, 1005]
    parts = breakdown(waiting, [0], [1005])[0]
    assert (parts.host_ns, parts.idle_ns) == (5, 1000)


def test_kernels_without_work_take_no_time(script, run):
    s = script()
    s.kernel(0, gap=10)
    s.kernel(0, stream=1)
    s.kernel(5, gap=10)
    assert spans(run(s)) == [(20, 20), (20, 20), (30, 35)]


def test_a_program_without_device_work(script, run):
    s = script()
    s.host(7)
    s.device_sync(gap=3)
    s.stream_sync(4)
    timeline = run(s, Settings(sync_return_ns=50))
    assert timeline.makespan_ns == 10
    assert len(timeline.kernels) == 0


def test_an_empty_program(script, run):
    timeline = run(script())
    assert timeline.makespan_ns == 0
    assert len(iteration_times(timeline, []).duration_ns) == 0
