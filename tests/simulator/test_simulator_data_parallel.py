"""A data parallel step by hand: buckets reduced beside the backward pass, the optimizer behind the last."""

from __future__ import annotations

from maya.simulator import (
    FixedTimeNetwork,
    Settings,
    breakdown,
    busy_ns,
    iteration_times,
    simulate,
    waiting_ns,
)

PLAIN = Settings(launch_latency_ns=0, kernel_gap_ns=0, sync_return_ns=0)
REDUCER = 9
"""The communicator's own stream."""


class Eighty:
    """Every bucket takes 80 ns."""

    def duration_ns(self, transfer):  # noqa: ARG002
        return 80


def step(script, rank, world, backward=(100, 100, 100), shares=None):
    """Forward, a backward pass whose gradients of each layer are one bucket, optimizer."""
    s = script(rank, (tuple(range(world)),))
    s.kernel(100)
    for bucket, work in enumerate(backward):
        s.kernel(work)
        s.record(2 * bucket)
        s.wait(2 * bucket, stream=REDUCER)
        s.collective(bucket, stream=REDUCER, bytes=1, shares=shares)
        s.record(2 * bucket + 1, stream=REDUCER)
    for bucket in range(len(backward)):
        s.wait(2 * bucket + 1)
    s.kernel(50)
    return s


def run(*scripts):
    return simulate([s.input() for s in scripts], network=FixedTimeNetwork(Eighty()), settings=PLAIN)


def spans(timeline, rank, stream):
    rows = timeline.kernels_of(rank)
    rows = rows[rows["stream"] == stream]
    return list(zip(rows["start_ns"].tolist(), rows["end_ns"].tolist(), strict=True))


def test_buckets_hide_behind_the_backward_pass_but_for_the_last(script):
    timeline = run(*(step(script, rank, 4) for rank in range(4)))
    for rank in range(4):
        assert spans(timeline, rank, REDUCER) == [(200, 280), (300, 380), (400, 480)]
        assert spans(timeline, rank, 0)[-1] == (480, 530)
        parts = breakdown(timeline, [0], [530], rank=rank)[0]
        assert (parts.compute_ns, parts.exposed_communication_ns) == (450, 80)
        assert (parts.host_ns, parts.idle_ns) == (0, 0)
        kernels = timeline.kernels_of(rank)
        reduced = kernels[kernels["stream"] == REDUCER]
        assert busy_ns(reduced["start_ns"], reduced["end_ns"], 0, 530) == 240
        assert busy_ns(reduced["start_ns"], reduced["end_ns"], 210, 310) == 80


def test_a_straggler_holds_every_bucket_up(script):
    slow = (150, 150, 150)
    timeline = run(step(script, 0, 2), step(script, 1, 2, slow))
    for rank in range(2):
        assert spans(timeline, rank, REDUCER) == [(250, 330), (400, 480), (550, 630)]
        assert spans(timeline, rank, 0)[-1] == (630, 680)
    # The fast rank waits: for the second bucket from 400 on, then between it and the third.
    waiting, busy = (breakdown(timeline, [0], [680], rank=rank)[0] for rank in range(2))
    assert (waiting.compute_ns, waiting.exposed_communication_ns, waiting.idle_ns) == (450, 160, 70)
    assert waiting_ns(timeline, 0, 680, rank=0) == 70
    assert waiting_ns(timeline, 500, 540, rank=0) == 40
    assert waiting_ns(timeline, 0, 680, rank=1) == 0
    reduced = timeline.kernels_of(0)
    reduced = reduced[reduced["stream"] == REDUCER]
    assert reduced["ready_ns"].tolist() == [200, 330, 480]
    assert (busy.compute_ns, busy.exposed_communication_ns, busy.idle_ns) == (600, 80, 0)


def test_buckets_that_take_longer_than_their_layer_queue_up(script):
    timeline = run(*(step(script, rank, 2, backward=(30, 30, 30)) for rank in range(2)))
    assert spans(timeline, 0, REDUCER) == [(130, 210), (210, 290), (290, 370)]
    parts = breakdown(timeline, [0], [420], rank=0)[0]
    assert (parts.compute_ns, parts.exposed_communication_ns) == (240, 180)


def test_a_bucket_that_takes_sms_slows_the_backward_pass(script):
    shares = (0.25, 0.0, 0.0)
    timeline = run(*(step(script, rank, 2, backward=(100, 100), shares=shares) for rank in range(2)))
    # The second layer (all SMs) beside the first bucket: 1.25 times slower both, until the bucket's 80 ns
    # of work are done at 300; the 20 ns that the layer has left then run alone.
    assert spans(timeline, 0, REDUCER) == [(200, 300), (320, 400)]
    assert spans(timeline, 0, 0) == [(0, 100), (100, 200), (200, 320), (400, 450)]


def test_iterations_of_each_rank_end_with_its_own_work(script):
    a, b = step(script, 0, 2), step(script, 1, 2)
    b.kernel(25)  # rank 1 writes a log
    timeline = run(a, b)
    ends = [len(a.rows) - 1], [len(b.rows) - 1]
    assert iteration_times(timeline, ends[0], rank=0).end_ns.tolist() == [530]
    assert iteration_times(timeline, ends[1], rank=1).end_ns.tolist() == [555]
