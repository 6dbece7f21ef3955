"""What communication leaves in the trace: rows, bytes, communicators, streams, order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from maya.traces import Kind

sys.path.insert(0, str(Path(__file__).parent))
from on_ranks import on_ranks

ALL_REDUCE, REDUCE, ALL_GATHER, GATHER, SCATTER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, BARRIER = (
    *range(8),
    9,
)


def recorded(step: Any) -> Any:
    from ranks_gpu import recorded as record

    return record(step)


def native() -> Any:
    from ranks_gpu import native as module

    return module


def kinds_of(records: Any, *, host: bool = False) -> list[Kind]:
    return [Kind(row["kind"]) for row in records.rows if host or row["kind"] != Kind.HOST]


@on_ranks(2)
def test_every_collective_has_a_row_with_its_bytes() -> None:
    big = torch.zeros(100_000, device="cuda")
    small = torch.zeros(50_000, device="cuda")
    both = [torch.zeros(50_000, device="cuda") for _ in range(2)]

    def step() -> None:
        dist.all_reduce(big)
        dist.broadcast(big, src=1)
        dist.reduce(big, dst=0, op=dist.ReduceOp.MAX)
        dist.all_gather_into_tensor(big, small)
        dist.reduce_scatter_tensor(small, big)
        dist.all_to_all_single(big, big.clone())
        dist.gather(small, both if dist.get_rank() == 0 else None, dst=0)
        dist.scatter(small, both if dist.get_rank() == 1 else None, src=1)

    records = recorded(step)
    rows = records.transfers()
    whole, shard = 400_000, 200_000
    columns = ("collective", "input_bytes", "output_bytes", "peer")
    told = [(records.operators[row["operator"]], *(int(c[name]) for name in columns)) for row, c in rows]
    assert told == [
        ("c10d::allreduce_", ALL_REDUCE, whole, whole, -1),
        ("c10d::broadcast_", BROADCAST, whole, whole, 1),
        ("c10d::reduce_", REDUCE, whole, whole, 0),
        ("c10d::_allgather_base_", ALL_GATHER, shard, whole, -1),
        ("c10d::_reduce_scatter_base_", REDUCE_SCATTER, whole, shard, -1),
        ("c10d::alltoall_base_", ALL_TO_ALL, whole, whole, -1),
        ("c10d::gather_", GATHER, shard, whole, 0),
        ("c10d::scatter_", SCATTER, whole, shard, 1),
    ]
    assert all(row["kind"] == Kind.COLLECTIVE for row, _ in rows)
    assert [int(row["communication"]) for row, _ in rows] == list(range(8))
    sequences = [int(c["sequence_in_communicator"]) for _, c in rows]
    assert sequences == list(range(sequences[0], sequences[0] + 8))
    assert records.arguments(rows[0][0])["tensors"][0]["dtype"] == "float32"
    assert records.arguments(rows[0][0])["reduce_op"] == "sum"
    assert native().communicators()[0][1] == [0, 1]


@on_ranks(4)
def test_communicators_list_global_ranks() -> None:
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    mine = groups[dist.get_rank() % 2]
    tensor = torch.zeros(100_000, device="cuda")
    rank = dist.get_rank()
    peer = (rank + 2) % 4

    def step() -> None:
        dist.all_reduce(tensor, group=mine)
        dist.broadcast(tensor, src=2 + rank % 2, group=mine)
        if rank < 2:
            dist.send(tensor, peer, group=mine)
        else:
            dist.recv(tensor, peer, group=mine)

    rows = recorded(step).transfers()
    named = native().communicators()
    for _, communication in rows:
        assert named[communication["communicator"]][1] == [rank % 2, rank % 2 + 2]
    assert [int(c["peer"]) for _, c in rows] == [-1, 2 + rank % 2, peer]
    assert [Kind(row["kind"]) for row, _ in rows][2] == (Kind.SEND if rank < 2 else Kind.RECV)
    assert [int(c["collective"]) for _, c in rows][2] == -1


@on_ranks(2)
def test_asynchronous_work_runs_beside_the_current_stream() -> None:
    tensor = torch.zeros(100_000, device="cuda")
    work = dist.all_reduce(tensor, async_op=True)  # the group's stream exists from here on
    work.wait()

    def step() -> None:
        pending = dist.all_reduce(tensor, async_op=True)
        pending.wait()

    records = recorded(step)
    assert kinds_of(records) == [
        Kind.EVENT_RECORD,  # inputs are ready
        Kind.STREAM_WAIT,
        Kind.COLLECTIVE,
        Kind.EVENT_RECORD,  # the work's end
        Kind.EVENT_RECORD,  # the future's
        Kind.STREAM_WAIT,
    ]
    ready, waits, collective, ends, _, joined = records.rows
    assert collective["stream"] > 0
    assert (ready["stream"], waits["stream"], waits["event"]) == (0, collective["stream"], ready["event"])
    assert (ends["stream"], joined["stream"], joined["event"]) == (collective["stream"], 0, ends["event"])


@on_ranks(2)
def test_synchronous_work_runs_on_the_current_stream() -> None:
    tensor = torch.zeros(100_000, device="cuda")
    other = torch.cuda.Stream()

    def step() -> None:
        with torch.cuda.stream(other):
            dist.all_reduce(tensor)

    rows = recorded(step).rows
    assert Kind.STREAM_WAIT not in [Kind(row["kind"]) for row in rows]
    (collective,) = [row for row in rows if row["kind"] == Kind.COLLECTIVE]
    assert collective["stream"] == other.stream_id


@on_ranks(2)
def test_a_barrier_is_waited_for_by_the_host() -> None:
    records = recorded(dist.barrier)
    kinds = kinds_of(records)
    assert kinds[-1] == Kind.STREAM_SYNC
    ((row, communication),) = records.transfers()
    assert int(communication["collective"]) == BARRIER
    assert (int(communication["input_bytes"]), int(communication["output_bytes"])) == (4, 4)
    assert records.operators[row["operator"]] == "c10d::barrier"


@on_ranks(2)
def test_messages_use_the_pairs_stream_and_batches_the_groups() -> None:
    rank = dist.get_rank()
    tensor, other = torch.zeros(100_000, device="cuda"), torch.zeros(100_000, device="cuda")
    dist.all_reduce(tensor, async_op=True).wait()

    def step() -> None:
        dist.all_reduce(tensor, async_op=True).wait()
        if rank == 0:
            dist.isend(tensor, 1).wait()
        else:
            dist.irecv(tensor, 0).wait()
        sends = dist.P2POp(dist.isend, tensor, 1 - rank)
        receives = dist.P2POp(dist.irecv, other, 1 - rank)
        for request in dist.batch_isend_irecv([sends, receives]):
            request.wait()

    rows = recorded(step).transfers()
    streams = [int(row["stream"]) for row, _ in rows]
    assert streams[0] == streams[2] == streams[3] != streams[1] != 0
    groups = [int(c["coalescing_group"]) for _, c in rows]
    assert groups[:2] == [-1, -1]
    assert groups[2] == groups[3] >= 0


@on_ranks(2)
def test_lists_are_gathered_through_one_flat_tensor() -> None:
    outputs = [torch.zeros(50_000, device="cuda") for _ in range(2)]
    tensor = torch.zeros(50_000, device="cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    records = recorded(lambda: dist.all_gather(outputs, tensor))
    copies = [row for row in records.rows if row["kind"] == Kind.MEMCPY]
    assert len(copies) == 2
    assert torch.cuda.max_memory_allocated() - before == 400_384  # 2 × 200,000 bytes in blocks of 512


@on_ranks(2)
def test_coalesced_collectives_share_a_group_and_keep_their_sequence() -> None:
    tensors = [torch.zeros(100_000, device="cuda") for _ in range(3)]

    def step() -> None:
        for _ in range(2):
            with dist._coalescing_manager(async_ops=True) as manager:
                for tensor in tensors:
                    dist.all_reduce(tensor)
            manager.wait()

    rows = recorded(step).transfers()
    groups = [int(c["coalescing_group"]) for _, c in rows]
    assert groups[:3] == [groups[0]] * 3
    assert groups[3:] == [groups[3]] * 3
    assert groups[0] != groups[3]
    sequences = [int(c["sequence_in_communicator"]) for _, c in rows]
    assert sequences == list(range(sequences[0], sequences[0] + 6))


@on_ranks(2)
def test_a_replayed_graph_communicates_anew() -> None:
    tensor = torch.zeros(100_000, device="cuda")
    dist.all_reduce(tensor)
    graph = torch.cuda.CUDAGraph()

    def step() -> None:
        with torch.cuda.graph(graph):
            dist.all_reduce(tensor)
        for _ in range(2):
            graph.replay()
        dist.all_reduce(tensor)

    records = recorded(step)
    rows = records.transfers()
    assert len(rows) == 4
    assert [int(row["communication"]) for row, _ in rows] == list(range(4))
    sequences = [int(c["sequence_in_communicator"]) for _, c in rows]
    assert sequences == list(range(sequences[0], sequences[0] + 4))


@on_ranks(2, start=False)
def test_nothing_is_recorded_for_the_cpu() -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl")
    tensor = torch.zeros(10)
    assert recorded(lambda: dist.all_reduce(tensor)).transfers() == []
