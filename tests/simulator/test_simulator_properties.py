"""What must hold for any program: checked on random ones against independent arithmetic."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from maya.simulator import FixedTimeNetwork, Settings, breakdown, iteration_times, simulate
from maya.simulator.engine import run_general
from maya.simulator.inputs import check_rank
from maya.simulator.program import compile_program
from maya.simulator.schedule import make_timeline

STREAMS = 3
CONSTANTS = st.builds(
    Settings,
    launch_latency_ns=st.integers(0, 12),
    launch_queue_depth=st.sampled_from([1, 2, 3, 1024]),
    kernel_gap_ns=st.integers(0, 3),
    sync_return_ns=st.integers(0, 4),
)
TIME = st.integers(0, 40)
SHARE = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
SHARES = st.tuples(SHARE, SHARE, SHARE)


def steps(streams: int = STREAMS, *, contended: bool = True):
    """Random operations as (method, positional, keyword) of the Script builder."""
    stream = st.integers(0, streams - 1)
    shares = SHARES if contended else st.just((0.0, 0.0, 0.0))
    event = st.integers(0, 2)
    kinds = [
        st.tuples(
            st.just("kernel"),
            st.lists(TIME, min_size=0, max_size=3).map(tuple),
            st.fixed_dictionaries(
                {"gap": TIME, "stream": stream, "shares": shares, "blocking": st.sampled_from([0, 0, 0, 1])}
            ),
        ),
        st.tuples(st.just("record"), st.tuples(event, stream), st.fixed_dictionaries({"gap": TIME})),
        st.tuples(st.just("wait"), st.tuples(event, stream), st.fixed_dictionaries({"gap": TIME})),
        st.tuples(st.just("event_sync"), st.tuples(event), st.fixed_dictionaries({"gap": TIME})),
        st.tuples(st.just("stream_sync"), st.tuples(stream), st.fixed_dictionaries({"gap": TIME})),
        st.tuples(st.just("device_sync"), st.just(()), st.fixed_dictionaries({"gap": TIME})),
        st.tuples(st.just("host"), st.tuples(TIME), st.just({})),
    ]
    if contended:
        direction = st.sampled_from(["h2d", "d2h", "d2d", "p2p"])
        more = st.fixed_dictionaries({"gap": TIME, "stream": stream, "blocking": st.integers(0, 1)})
        kinds.append(st.tuples(st.just("copy"), st.tuples(TIME, direction), more))
    # Lengths spread evenly: plain st.lists prefers short ones, which rarely make anything wait.
    return st.integers(1, 25).flatmap(lambda n: st.lists(st.one_of(kinds), min_size=n, max_size=n))


def build(script, program):
    made = script()
    for method, positional, keyword in program:
        getattr(made, method)(*positional, **keyword)
    return made


def general(rank, constants):
    check_rank(rank)
    program = compile_program(rank, constants)
    return make_timeline([program], run_general([program], None, constants))


@given(program=steps(1), constants=CONSTANTS)
@settings(max_examples=120, deadline=None)
def test_the_fast_path_is_the_general_engine(script, program, constants):
    rank = build(script, program).input()
    fast, slow = simulate([rank], settings=constants), general(rank, constants)
    assert (fast.kernels == slow.kernels).all()
    assert (fast.hosts == slow.hosts).all()


@given(program=steps(), constants=CONSTANTS)
@settings(max_examples=50, deadline=None)
def test_equal_input_gives_equal_output(script, program, constants):
    first = simulate([build(script, program).input()], settings=constants)
    second = simulate([build(script, program).input()], settings=constants)
    assert (first.kernels == second.kernels).all()
    assert (first.hosts == second.hosts).all()
    assert first.makespan_ns == second.makespan_ns


@given(program=steps(), constants=CONSTANTS)
@settings(max_examples=80, deadline=None)
def test_streams_are_fifo_and_never_overlap_themselves(script, program, constants):
    timeline = simulate([build(script, program).input()], settings=constants)
    rows = timeline.kernels
    for stream in range(STREAMS):
        mine = rows[rows["stream"] == stream]
        assert (mine["end_ns"] >= mine["start_ns"]).all()
        assert (mine["start_ns"][1:] >= mine["end_ns"][:-1] + constants.kernel_gap_ns).all()
    assert (timeline.hosts["issue_ns"] >= timeline.hosts["start_ns"]).all()
    assert (timeline.hosts["end_ns"] >= timeline.hosts["issue_ns"]).all()
    # Within an operation the host may block between launches, so only the last is bound by its end.
    issued = timeline.hosts["issue_ns"][rows["operation"]]
    assert (rows["start_ns"] >= issued + constants.launch_latency_ns).all()


@given(program=steps(), constants=CONSTANTS)
@settings(max_examples=80, deadline=None)
def test_work_is_conserved_and_no_resource_oversubscribed(script, program, constants):
    made = build(script, program)
    timeline = simulate([made.input()], settings=constants)
    rows = timeline.kernels
    copies = {i for i, (method, *_) in enumerate(program) if method == "copy"}
    links = {i for i in copies if program[i][1][1] == "p2p"}
    jobs = []
    columns = made.columns()
    for row, work, sm, hbm, link in zip(
        rows, columns.work_ns, columns.sm_share, columns.hbm_share, columns.link_share, strict=True
    ):
        operation = int(row["operation"])
        if operation in copies and operation not in links:
            link = 0.0  # the copy engine is the link
        jobs.append(
            (int(row["start_ns"]), int(row["end_ns"]), int(work), (float(sm), float(hbm), float(link)))
        )
    instants = sorted({time for start, end, *_ in jobs for time in (start, end)})
    done = [0.0] * len(jobs)
    for begin, end in pairwise(instants):
        running = [i for i, job in enumerate(jobs) if job[0] <= begin and job[1] >= end]
        totals = [max(1.0, sum(jobs[i][3][r] for i in running)) for r in range(3)]
        used = [0.0, 0.0, 0.0]
        for i in running:
            factor = max([totals[r] for r in range(3) if jobs[i][3][r] > 0], default=1.0)
            done[i] += (end - begin) / factor
            for r in range(3):
                used[r] += jobs[i][3][r] / factor
        assert max(used) <= 1 + 1e-6
    for work_done, (start, end, work, _) in zip(done, jobs, strict=True):
        assert end - start >= work
        assert work - 1e-2 <= work_done <= work + 1  # ends are rounded up to 1 ns


@given(program=steps(contended=False), constants=CONSTANTS)
@settings(max_examples=120, deadline=None)
def test_kernels_start_exactly_when_their_dependencies_allow(script, program, constants):
    """Without contention a kernel starts at the latest of what it waits for, and not a ns later."""
    depth = constants.launch_queue_depth
    rank = build(script, program).input()
    timeline = simulate([rank], settings=constants)
    expected = []
    finished = [None] * STREAMS  # end of the last entry of each stream
    free = [0] * STREAMS
    left = [[] for _ in range(STREAMS)]
    events = {}
    now = 0
    passes = []

    def enqueue(stream, *others):
        nonlocal now
        if len(left[stream]) >= depth:
            now = max(now, left[stream][-depth])
        begin = max([now + constants.launch_latency_ns, *others], default=0)
        begin = max(begin, finished[stream] or 0)
        left[stream].append(begin)
        return begin

    def await_(time):
        nonlocal now
        if time is not None:
            now = max(now, time + constants.sync_return_ns)

    for method, positional, keyword in program:
        now += positional[0] if method == "host" else keyword.get("gap", 0)
        if method == "kernel":
            stream = keyword["stream"]
            for work in positional:
                start = enqueue(stream, free[stream])
                finished[stream] = start + work
                free[stream] = finished[stream] + constants.kernel_gap_ns
                expected.append((start, finished[stream]))
            if keyword["blocking"]:
                await_(finished[stream])
        elif method == "record":
            events[positional[0]] = finished[positional[1]] = enqueue(positional[1])
        elif method == "wait" and positional[0] in events:
            finished[positional[1]] = enqueue(positional[1], events[positional[0]])
        elif method == "event_sync":
            await_(events.get(positional[0]))
        elif method == "stream_sync":
            await_(finished[positional[0]])
        elif method == "device_sync":
            for time in finished:
                await_(time)
        passes.append(now)
    rows = timeline.kernels
    assert list(zip(rows["start_ns"].tolist(), rows["end_ns"].tolist(), strict=True)) == expected
    assert timeline.hosts["end_ns"].tolist() == passes


@given(
    program=steps(contended=False), constants=CONSTANTS, place=st.integers(0, 25), stream=st.integers(0, 3)
)
@settings(max_examples=80, deadline=None)
def test_adding_a_sync_never_shortens(script, program, constants, place, stream):
    sync = ("device_sync", (), {}) if stream == 3 else ("stream_sync", (stream,), {})
    before = simulate([build(script, program).input()], settings=constants)
    longer = simulate([build(script, [*program[:place], sync, *program[place:]]).input()], settings=constants)
    assert longer.makespan_ns >= before.makespan_ns
    assert (longer.kernels["end_ns"] >= before.kernels["end_ns"]).all()


@given(program=steps(), constants=CONSTANTS, cuts=st.lists(st.integers(0, 24), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_iterations_tile_the_run_and_breakdowns_add_up(script, program, constants, cuts):
    timeline = simulate([build(script, program).input()], settings=constants)
    ends = sorted({cut % len(program) for cut in cuts})
    times = iteration_times(timeline, ends)
    assert (times.duration_ns >= 0).all()
    assert times.start_ns[0] == 0
    assert (times.start_ns[1:] == times.end_ns[:-1]).all()
    for end, end_ns in zip(ends, times.end_ns.tolist(), strict=True):
        rows = timeline.kernels[timeline.kernels["operation"] <= end]
        assert end_ns == max([int(timeline.hosts["end_ns"][end]), *rows["end_ns"].tolist()])
    for parts, duration in zip(
        breakdown(timeline, times.start_ns, times.end_ns), times.duration_ns, strict=True
    ):
        assert parts.total_ns == duration
        assert min(parts.compute_ns, parts.exposed_communication_ns, parts.host_ns, parts.idle_ns) >= 0


@given(program=steps(), constants=CONSTANTS, window=st.tuples(st.integers(0, 300), st.integers(0, 300)))
@settings(max_examples=60, deadline=None)
def test_breakdown_equals_counting_nanoseconds(script, program, constants, window):
    timeline = simulate([build(script, program).input()], settings=constants)
    begin, end = sorted(window)
    device, host = set(), set()
    for row in timeline.kernels:
        device.update(range(int(row["start_ns"]), int(row["end_ns"])))
    for row in timeline.hosts:
        host.update(range(int(row["start_ns"]), int(row["issue_ns"])))
    inside = set(range(begin, end))
    parts = breakdown(timeline, [begin], [end])[0]
    assert parts.compute_ns == len(inside & device)
    assert parts.host_ns == len(inside & host - device)
    assert parts.idle_ns == len(inside - host - device)


@given(
    works=st.lists(st.tuples(st.lists(TIME, min_size=4, max_size=4), TIME, SHARES), min_size=1, max_size=6),
    constants=CONSTANTS,
)
@settings(max_examples=60, deadline=None)
def test_ranks_in_lock_step_start_collectives_together(script, works, constants):
    class Cost:
        def duration_ns(self, transfer):
            return transfer.input_bytes

    ranks = [script(rank, ((0, 1, 2, 3),)) for rank in range(4)]
    for sequence, (compute, size, shares) in enumerate(works):
        for made, work in zip(ranks, compute, strict=True):
            made.kernel(work, gap=work % 3, shares=shares)
            made.record(1)
            made.wait(1, stream=1)
            made.collective(sequence, stream=1, bytes=size, shares=shares, handle=sequence)
            made.kernel(work, gap=1, shares=shares)
            made.handle_wait(sequence)
    inputs = [made.input() for made in ranks]
    timeline = simulate(inputs, network=FixedTimeNetwork(Cost()), settings=constants)
    again = simulate(inputs[::-1], network=FixedTimeNetwork(Cost()), settings=constants)
    assert (timeline.kernels == again.kernels).all()
    per_rank = [timeline.kernels_of(rank) for rank in range(4)]
    for index in range(len(works)):
        rows = [mine[mine["stream"] == 1][index] for mine in per_rank]
        assert len({int(row["start_ns"]) for row in rows}) == 1
        assert len({int(row["end_ns"]) for row in rows}) == 1
        assert rows[0]["end_ns"] - rows[0]["start_ns"] >= works[index][1]
        # Not before the kernel that each rank ran first.
        firsts = [mine[mine["stream"] == 0][2 * index]["end_ns"] for mine in per_rank]
        assert rows[0]["start_ns"] >= max(firsts)
