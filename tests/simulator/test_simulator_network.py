"""Several ranks over a trivial network: rendezvous, groups, handles, sharing, deadlocks."""

from __future__ import annotations

import pytest

from maya.errors import MayaError
from maya.simulator import MESSAGE, Activity, FixedTimeNetwork, Settings, breakdown, simulate

PLAIN = Settings(launch_latency_ns=0, kernel_gap_ns=0, sync_return_ns=0)


class BytesAsTime:
    """A transfer takes as many ns as it has bytes."""

    def __init__(self):
        self.seen = []

    def duration_ns(self, transfer):
        self.seen.append(transfer)
        return transfer.output_bytes


def run(*scripts, settings=PLAIN, cost=None):
    network = FixedTimeNetwork(cost or BytesAsTime())
    return simulate([s.input() for s in scripts], network=network, settings=settings)


def spans(timeline, rank):
    rows = timeline.kernels_of(rank)
    return list(zip(rows["start_ns"].tolist(), rows["end_ns"].tolist(), strict=True))


def test_collective_starts_when_the_last_member_arrives(script):
    a, b = (script(rank, ((0, 1),)) for rank in range(2))
    a.kernel(100)
    a.collective(0, bytes=50)
    b.kernel(300)
    b.collective(0, bytes=50)
    cost = BytesAsTime()
    timeline = run(a, b, cost=cost)
    assert spans(timeline, 0) == [(0, 100), (300, 350)]
    assert spans(timeline, 1) == [(0, 300), (300, 350)]
    assert cost.seen[0].ranks == (0, 1)
    assert cost.seen[0].communicator.name == "group0"
    parts = breakdown(timeline, [0], [350], rank=0)[0]
    assert (parts.compute_ns, parts.exposed_communication_ns, parts.idle_ns) == (100, 50, 200)
    assert timeline.kernels_of(0)["activity"].tolist() == [Activity.COMPUTE, Activity.COMMUNICATION]
    assert timeline.kernels_of(0)["kernel"].tolist() == [0, -1]


def test_members_see_each_others_delays_through_chains(script):
    ranks = [script(rank, ((0, 1), (1, 2), (2, 3))) for rank in range(4)]
    ranks[0].kernel(1000)
    for left in range(3):  # 0-1, then 1-2, then 2-3
        ranks[left].collective(0, communicator=left, bytes=10)
        ranks[left + 1].collective(0, communicator=left, bytes=10)
    timeline = run(*ranks)
    assert [spans(timeline, rank)[-1] for rank in range(4)] == [
        (1000, 1010),
        (1010, 1020),
        (1020, 1030),
        (1020, 1030),
    ]


def test_asynchronous_collective_overlaps_and_is_waited_for(script):
    ranks = [script(rank, ((0, 1),)) for rank in range(2)]
    for s in ranks:
        s.collective(0, stream=9, bytes=100, handle=4)
        s.kernel(30)
        s.handle_wait(4)
        s.kernel(30)
        s.handle_wait(4, blocking=1)
        s.host(1)
    timeline = run(*ranks)
    assert spans(timeline, 0) == [(0, 100), (0, 30), (100, 130)]
    assert timeline.hosts_of(1)["end_ns"].tolist() == [0, 0, 0, 0, 130, 131]


def test_compute_beside_a_collective_slows_both(script):
    ranks = [script(rank, ((0, 1),)) for rank in range(2)]
    for s in ranks:
        s.collective(0, stream=9, bytes=100, shares=(0.5, 0, 0))
    ranks[1].kernel(40, shares=(1.0, 0, 0))  # only on one rank: the transfer is as slow there
    timeline = run(*ranks)
    # 1.5 times from 0 to 60: the kernel ends, 40 of the transfer are done, 60 remain.
    assert spans(timeline, 1) == [(0, 120), (0, 60)]
    assert spans(timeline, 0) == [(0, 120)]


def test_send_and_receive_meet(script):
    a, b = (script(rank, ((0, 1),)) for rank in range(2))
    a.kernel(20)
    a.send(1, bytes=5)
    a.send(1, bytes=7)
    b.recv(0, bytes=5)
    b.recv(0, bytes=7)
    cost = BytesAsTime()
    timeline = run(a, b, cost=cost)
    assert spans(timeline, 0) == [(0, 20), (20, 25), (25, 32)]
    assert spans(timeline, 1) == [(20, 25), (25, 32)]
    assert [(t.collective, t.ranks, t.sequence) for t in cost.seen] == [
        (MESSAGE, (0, 1), 0),
        (MESSAGE, (0, 1), 1),
    ]


def test_tags_keep_messages_apart(script):
    a, b = (script(rank, ((0, 1),)) for rank in range(2))
    a.send(1, bytes=5, tag=1, stream=1)
    a.send(1, bytes=7, tag=2, stream=2)
    b.recv(0, bytes=7, tag=2)
    b.recv(0, bytes=5, tag=1)
    assert spans(run(a, b), 1) == [(0, 7), (7, 12)]


def test_coalesced_exchange_does_not_deadlock(script):
    ranks = [script(rank, ((0, 1),)) for rank in range(2)]
    for rank, s in enumerate(ranks):
        s.send(1 - rank, bytes=5, group=0)
        s.recv(1 - rank, bytes=5, group=0)
        s.kernel(1)
    assert spans(run(*ranks), 0) == [(0, 5), (0, 5), (5, 6)]


def test_uncoalesced_exchange_deadlocks_and_says_so(script):
    ranks = [script(rank, ((0, 1),)) for rank in range(2)]
    for rank, s in enumerate(ranks):
        s.send(1 - rank, bytes=5)
        s.recv(1 - rank, bytes=5)
    with pytest.raises(MayaError) as caught:
        run(*ranks)
    assert "deadlock" in caught.value.message
    assert "rank 0" in caught.value.message
    assert "waits for ranks [1]" in caught.value.message
    assert "operation 0" in caught.value.message
    assert caught.value.hint


def test_deadlock_names_host_stream_and_missing_rank(script):
    a, b = (script(rank, ((0, 1),)) for rank in range(2))
    a.kernel(10)
    a.collective(3, bytes=5, stream=9)
    a.record(1, stream=9)
    a.wait(1, stream=0)
    a.event_sync(1)
    b.kernel(10)
    with pytest.raises(MayaError) as caught:
        run(a, b)
    text = caught.value.message
    assert "1 of 2 ranks" in text
    assert "host is at aten::kernel (operation 4) and waits for aten::kernel (operation 2)" in text
    assert "stream 9 of device 0: aten::kernel (operation 1), number 3 of communicator 'group0'" in text
    assert "stream 0 of device 0: aten::kernel (operation 3) waits for aten::kernel (operation 2)" in text
    assert "rank 1" not in text.replace("waits for ranks [1]", "")


def test_different_collectives_at_the_same_place_are_an_error(script):
    a, b = (script(rank, ((0, 1),)) for rank in range(2))
    a.collective(0, bytes=5, collective=0)
    b.collective(0, bytes=5, collective=7)
    with pytest.raises(MayaError, match="differs between ranks"):
        run(a, b)


def test_communicator_of_one_needs_no_network(script):
    s = script(0, ((0,),))
    s.collective(0, shares=(1, 0, 0), handle=1)
    s.handle_wait(1, blocking=1)
    s.kernel(5)
    timeline = simulate([s.input()], settings=PLAIN)
    assert spans(timeline, 0) == [(0, 1), (1, 6)]
    assert timeline.kernels["activity"].tolist() == [Activity.COMMUNICATION, Activity.COMPUTE]


def test_missing_network_or_member_is_explained(script):
    s = script(0, ((0, 1),))
    s.collective(0, bytes=5)
    with pytest.raises(MayaError, match="no network model"):
        simulate([s.input()], settings=PLAIN)
    with pytest.raises(MayaError, match=r"needs ranks \[1\] which are not simulated"):
        run(s)
    absent = Settings(launch_latency_ns=0, kernel_gap_ns=0, absent_members_arrive=True)
    assert spans(run(s, settings=absent), 0) == [(0, 5)]


def test_rank_outside_its_communicator_is_an_error(script):
    s = script(0, ((1, 2),))
    s.collective(0, bytes=5)
    with pytest.raises(MayaError, match="not a member"):
        run(s)


@pytest.mark.parametrize("duration", [-1, 2.5])
def test_bad_durations_from_a_cost_model_are_refused(script, duration):
    class Bad:
        def duration_ns(self, transfer):  # noqa: ARG002
            return duration

    ranks = [script(rank, ((0, 1),)) for rank in range(2)]
    for s in ranks:
        s.collective(0)
    with pytest.raises(ValueError, match="integer >= 0"):
        run(*ranks, cost=Bad())


def test_transfers_share_a_link_unless_the_network_divides_it(script):
    def ranks():
        made = [script(rank, ((0, 1), (0, 1))) for rank in range(2)]
        for s in made:
            s.collective(0, communicator=0, stream=1, bytes=100, shares=(0, 0, 1.0))
            s.collective(0, communicator=1, stream=2, bytes=100, shares=(0, 0, 1.0))
        return made

    assert spans(run(*ranks()), 0) == [(0, 200), (0, 200)]

    class OwnLinks(FixedTimeNetwork):
        shares_links = True

    timeline = simulate([s.input() for s in ranks()], network=OwnLinks(BytesAsTime()), settings=PLAIN)
    assert spans(timeline, 0) == [(0, 100), (0, 100)]


def test_network_that_goes_back_in_time_is_refused(script):
    class Backwards(FixedTimeNetwork):
        def next_event_ns(self):
            return -5

    ranks = [script(rank, ((0, 1),)) for rank in range(2)]
    for s in ranks:
        s.collective(0, bytes=5)
    with pytest.raises(ValueError, match="back in time"):
        simulate([s.input() for s in ranks], network=Backwards(BytesAsTime()), settings=PLAIN)


def test_order_of_the_ranks_given_does_not_matter(script):
    a, b = (script(rank, ((0, 1),)) for rank in range(2))
    for s, work in ((a, 10), (b, 20)):
        s.kernel(work)
        s.collective(0, bytes=5)
    assert (run(a, b).kernels == run(b, a).kernels).all()
