"""Small known values really travel: every collective gives what gloo gives on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))
from on_ranks import on_ranks

DTYPES = ["float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "int8", "bool"]


def mine(rank: int, *shape: int, dtype: str = "float32") -> torch.Tensor:
    """A rank's own small numbers."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 4, shape, generator=generator).to(getattr(torch, dtype))


def on_both(collective: Any) -> None:
    """`collective(device, group)` on the CPU by gloo and on the device by nccl; results must be equal."""
    gloo = dist.new_group(backend="gloo")
    expected = collective("cpu", gloo)
    found = collective("cuda", None)
    assert len(expected) == len(found)
    for want, got in zip(expected, found, strict=True):
        assert got.is_cuda
        assert got.dtype == want.dtype
        assert torch.equal(got.cpu(), want), (got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@on_ranks(3)
def test_all_reduce_sums_in_every_dtype(dtype: str) -> None:
    def collective(device: str, group: Any) -> list[torch.Tensor]:
        tensor = mine(dist.get_rank(), 2, 5, dtype=dtype)
        tensor = tensor.to(device)
        if device == "cpu" and dtype == "bool":  # gloo cannot sum booleans; NCCL's answer is "or"
            as_int = tensor.to(torch.uint8)
            dist.all_reduce(as_int, op=dist.ReduceOp.MAX, group=group)
            return [as_int.to(torch.bool)]
        dist.all_reduce(tensor, group=group)
        return [tensor]

    on_both(collective)


@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MIN", "MAX"])
@on_ranks(3)
def test_reductions(op: str) -> None:
    def collective(device: str, group: Any) -> list[torch.Tensor]:
        rank = dist.get_rank()
        reduce_op = getattr(dist.ReduceOp, op)
        everywhere = mine(rank, 7).to(device)
        work = dist.all_reduce(everywhere, op=reduce_op, group=group, async_op=True)
        work.wait()
        at_root = mine(rank, 4).to(device)
        dist.reduce(at_root, dst=1, op=reduce_op, group=group)
        shard = torch.zeros(2, device=device)
        dist.reduce_scatter_tensor(shard, mine(rank, 6).to(device), op=reduce_op, group=group)
        of_list = torch.zeros(3, device=device)
        parts = [mine(rank + 10 * part, 3).to(device) for part in range(3)]
        dist.reduce_scatter(of_list, parts, op=reduce_op, group=group)
        return [everywhere, shard, of_list] + ([at_root] if rank == 1 else [])

    on_both(collective)


@on_ranks(2)
def test_average_and_premultiplied_sum() -> None:
    tensor = torch.tensor([1.0, 2.0], device="cuda") * (dist.get_rank() + 1)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    assert tensor.tolist() == [1.5, 3.0]
    whole = torch.tensor([5, 8], device="cuda") + dist.get_rank()
    dist.all_reduce(whole, op=dist.ReduceOp.AVG)
    assert whole.tolist() == [5, 8]
    scaled = torch.ones(2, device="cuda") * (dist.get_rank() + 1)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    assert scaled.tolist() == [1.5, 1.5]


@on_ranks(3)
def test_gathering_and_scattering() -> None:
    def collective(device: str, group: Any) -> list[torch.Tensor]:
        rank = dist.get_rank()
        own = mine(rank, 2, 3).to(device)
        listed = [torch.zeros(2, 3, device=device) for _ in range(3)]
        dist.all_gather(listed, own, group=group)
        single = torch.zeros(6, 3, device=device)
        dist.all_gather_into_tensor(single, own, group=group)
        root = [torch.zeros(2, 3, device=device) for _ in range(3)] if rank == 2 else None
        dist.gather(own, root, dst=2, group=group)
        scattered = torch.zeros(4, device=device)
        parts = [mine(20 + part, 4).to(device) for part in range(3)] if rank == 0 else None
        dist.scatter(scattered, parts, src=0, group=group)
        sent = mine(rank, 5).to(device)
        dist.broadcast(sent, src=1, group=group)
        return [*listed, single, *(root or []), scattered, sent]

    on_both(collective)


@on_ranks(3)
def test_all_to_all() -> None:
    def collective(device: str, group: Any) -> list[torch.Tensor]:
        rank = dist.get_rank()
        even = torch.zeros(6, device=device)
        dist.all_to_all_single(even, mine(rank, 6).to(device), group=group)
        gives = [[1, 2, 0], [3, 0, 1], [2, 2, 2]]
        takes = [[gives[source][target] for source in range(3)] for target in range(3)]
        uneven = torch.zeros(sum(takes[rank]), device=device)
        given = mine(rank, sum(gives[rank])).to(device)
        dist.all_to_all_single(uneven, given, takes[rank], gives[rank], group=group)
        return [even, uneven]

    on_both(collective)
    rank = dist.get_rank()
    outputs = [torch.zeros(source + 1, device="cuda") for source in range(3)]
    inputs = [torch.full((rank + 1,), float(10 * rank + target), device="cuda") for target in range(3)]
    dist.all_to_all(outputs, inputs)
    assert [output.tolist() for output in outputs] == [[10.0 * s + rank] * (s + 1) for s in range(3)]


@on_ranks(3)
def test_uneven_lists() -> None:
    rank = dist.get_rank()
    outputs = [torch.zeros(source + 1, device="cuda") for source in range(3)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank), device="cuda"))
    assert [output.tolist() for output in outputs] == [[float(s)] * (s + 1) for s in range(3)]
    output = torch.zeros(rank + 1, device="cuda")
    inputs = [torch.full((target + 1,), float(rank + target), device="cuda") for target in range(3)]
    dist.reduce_scatter(output, inputs)
    assert output.tolist() == [float(3 + 3 * rank)] * (rank + 1)


@on_ranks(3)
def test_messages() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((3,), float(rank), device="cuda")
    got = torch.zeros(3, device="cuda")
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        dist.recv(got, 0)
        assert got.tolist() == [0.0] * 3
    requests = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, tensor, (rank + 1) % world),
            dist.P2POp(dist.irecv, got, (rank - 1) % world),
        ]
    )
    assert len(requests) == 1  # as NCCL: one work for the batch
    for request in requests:
        request.wait()
    assert got.tolist() == [float((rank - 1) % world)] * 3
    request = dist.isend(tensor, 2) if rank == 0 else dist.irecv(got, 0) if rank == 2 else None
    if request is not None:
        request.wait()
    if rank == 2:
        assert got.tolist() == [0.0] * 3


@on_ranks(2)
def test_coalesced_collectives() -> None:
    rank = dist.get_rank()
    tensors = [torch.full((size,), float(rank + size), device="cuda") for size in (1, 2, 3)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert [tensor[0].item() for tensor in tensors] == [3.0, 5.0, 7.0]
    shards = [torch.zeros(4, device="cuda") for _ in range(2)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for number, shard in enumerate(shards):
            dist.all_gather_into_tensor(shard, torch.full((2,), float(rank + number), device="cuda"))
    manager.wait()
    assert [shard.tolist() for shard in shards] == [[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 2.0, 2.0]]


@on_ranks(2)
def test_objects() -> None:
    rank = dist.get_rank()
    gathered: list[Any] = [None, None]
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (10 + 5000 * rank)})
    assert [len(item["text"]) for item in gathered] == [10, 5010]
    dist.all_gather_object(gathered, b"a" * 3_000_000)
    assert [len(item) for item in gathered] == [3_000_000] * 2
    listed = [rank, "said by", rank]
    dist.broadcast_object_list(listed, src=1)
    assert listed == [1, "said by", 1]
    at_root: list[Any] | None = [None, None] if rank == 0 else None
    dist.gather_object(("from", rank), at_root, dst=0)
    assert at_root is None or at_root == [("from", 0), ("from", 1)]
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, [["a"], ["b"]] if rank == 0 else None, src=0)
    assert scattered == [["a"] if rank == 0 else ["b"]]
    if rank == 0:
        dist.send_object_list([{"k": 1}], dst=1)
    else:
        received = [None]
        dist.recv_object_list(received, src=0)
        assert received == [{"k": 1}]


@on_ranks(2)
def test_objects_that_are_too_large_are_refused_in_words() -> None:
    gathered: list[Any] = [None, None]
    with pytest.raises(RuntimeError, match="too large to travel between emulated ranks"):
        dist.all_gather_object(gathered, b"a" * 40_000_000)


@on_ranks(2)
def test_complex_numbers_travel_as_pairs() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 1j], device="cuda") * (dist.get_rank() + 1)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3 + 6j, 9 - 3j]
    gathered = torch.zeros(4, dtype=torch.complex64, device="cuda")
    dist.all_gather_into_tensor(gathered, tensor)
    assert gathered.tolist() == [3 + 6j, 9 - 3j] * 2


@on_ranks(2)
def test_functional_collectives() -> None:
    import torch.distributed._functional_collectives as funcol

    rank = dist.get_rank()
    total = funcol.all_reduce(torch.full((2,), float(rank + 1), device="cuda"), "sum", [0, 1])
    assert total.tolist() == [3.0, 3.0]
    both = funcol.all_gather_tensor(torch.full((2,), float(rank), device="cuda"), 0, [0, 1])
    assert both.tolist() == [0.0, 0.0, 1.0, 1.0]
    part = funcol.reduce_scatter_tensor(torch.arange(4.0, device="cuda"), "sum", 0, [0, 1])
    assert part.tolist() == [[0.0, 2.0], [4.0, 6.0]][rank]


@on_ranks(4)
def test_groups_within_the_world() -> None:
    rank = dist.get_rank()
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    tensor = torch.full((2,), float(rank), device="cuda")
    dist.all_reduce(tensor, group=halves[rank // 2])
    assert tensor.tolist() == [[1.0, 1.0], [5.0, 5.0]][rank // 2]
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replica", "shard"))
    tensor = torch.full((1,), float(rank), device="cuda")
    dist.all_reduce(tensor, group=mesh["replica"].get_group())
    assert tensor.item() == [2.0, 4.0][rank % 2]
    tensor = torch.full((1,), float(rank), device="cuda")
    dist.broadcast(tensor, group_src=1, group=mesh["shard"].get_group())
    assert tensor.item() == [1.0, 3.0][rank // 2]


@on_ranks(4, start=False)
def test_split_group() -> None:
    rank = int(__import__("os").environ["RANK"])
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    parts = [[0, 1, 3], [2]]
    group = dist.split_group(split_ranks=parts)
    assert group is not None
    tensor = torch.full((1,), float(rank), device="cuda")
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == (2.0 if rank == 2 else 4.0)
    dist.barrier()


@on_ranks(2, start=False)
def test_gloo_beside_nccl() -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl")
    rank = dist.get_rank()
    for device in ("cpu", "cuda"):
        tensor = torch.full((2,), float(rank + 1), device=device)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [3.0, 3.0]
    group = dist.new_group(backend="gloo")
    dist.monitored_barrier(group)
    dist.barrier()
