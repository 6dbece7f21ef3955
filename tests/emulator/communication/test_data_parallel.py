"""DistributedDataParallel on emulated ranks: gradients really average, buckets are the reducer's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

from maya.traces import Kind

sys.path.insert(0, str(Path(__file__).parent))
from on_ranks import on_ranks


def native() -> Any:
    from ranks_gpu import native as module

    return module


def recorded(step: Any) -> Any:
    from ranks_gpu import recorded as record

    return record(step)


def here() -> int:
    return dist.get_rank()


def small_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def inputs(rank: int) -> Tensor:
    return torch.arange(24.0).reshape(4, 6) / (10 + rank)


def expected_gradients(ranks: int = 2) -> list[Tensor]:
    """The mean over ranks, on the CPU in one process."""
    sums: list[Tensor] = []
    for rank in range(ranks):
        model = small_net()
        model(inputs(rank)).square().sum().backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        sums = [a + b for a, b in zip(sums, gradients, strict=True)] if sums else gradients
    return [total / ranks for total in sums]


def check_gradients(model: nn.Module, tolerance: float = 1e-5) -> None:
    for parameter, expected in zip(model.parameters(), expected_gradients(), strict=True):
        assert parameter.grad is not None
        assert native().is_known(parameter.grad)
        torch.testing.assert_close(parameter.grad.cpu(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
        {"broadcast_buffers": False, "bucket_cap_mb": 1},
    ],
)
@on_ranks(2)
def test_known_gradients_average(options: dict[str, Any]) -> None:
    model = DDP(small_net(here()).cuda(), device_ids=[here()], **options)  # rank 0's weights win
    for _ in range(3):
        model.zero_grad()
        model(inputs(here()).cuda()).square().sum().backward()
        check_gradients(model)


@on_ranks(2)
def test_no_sync_accumulates_and_then_averages() -> None:
    model = DDP(small_net().cuda(), device_ids=[here()])
    with model.no_sync():
        records = recorded(lambda: model(inputs(here()).cuda()).square().sum().backward())
        assert records.transfers() == []
    model(inputs(here()).cuda()).square().sum().backward()
    for parameter, expected in zip(model.parameters(), expected_gradients(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.cpu(), 2 * expected, rtol=1e-5, atol=1e-5)


@on_ranks(2)
def test_compressed_gradients() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DDP(small_net().cuda(), device_ids=[here()])
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    records = recorded(lambda: model(inputs(here()).cuda()).square().sum().backward())
    check_gradients(model, tolerance=3e-2)
    (row, communication) = records.transfers()[0]
    assert records.arguments(row)["tensors"][0]["dtype"] == "bfloat16"
    assert int(communication["input_bytes"]) == 2 * sum(p.numel() for p in model.parameters())


def deep_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(512, 512) for _ in range(12)))  # about 1 MiB each


def buckets_of_gloo() -> list[int]:
    """Bytes of each bucket in order, as the reducer of a CPU model with the same settings makes them."""
    sizes: list[int] = []

    def note(_group: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        sizes.append(bucket.buffer().nbytes)
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model = DDP(deep_net(), process_group=dist.new_group(backend="gloo"), bucket_cap_mb=3)
    note.__annotations__.clear()  # PyTorch wants classes there, not their names
    model.register_comm_hook(None, note)
    for _ in range(3):
        sizes.clear()
        model(torch.ones(2, 512)).sum().backward()
    return sizes


@on_ranks(2)
def test_buckets_are_the_reducers_in_size_order_and_place() -> None:
    expected = buckets_of_gloo()
    assert len(expected) >= 4
    model = DDP(deep_net().cuda(), device_ids=[here()], bucket_cap_mb=3)
    x = torch.randn(16, 512, device="cuda")
    for _ in range(2):  # buckets are rebuilt after the first backward
        model(x).sum().backward()
    records = recorded(lambda: model(x).sum().backward())
    rows = records.transfers()
    assert {records.operators[row["operator"]] for row, _ in rows} == {"c10d::allreduce_"}
    assert [int(c["input_bytes"]) for _, c in rows] == expected
    # They start inside the backward pass, on a stream of their own, and are joined at its end.
    positions = [int(row["id"]) for row, _ in rows]
    kernels = [int(row["id"]) for row in records.rows if row["kind"] == Kind.KERNEL]
    assert sum(kernel > positions[0] for kernel in kernels) > 10
    streams = {int(row["stream"]) for row, _ in rows}
    assert len(streams) == 1
    assert 0 not in streams
    joins = [int(row["id"]) for row in records.rows if row["kind"] == Kind.STREAM_WAIT and row["stream"] == 0]
    assert len(joins) >= len(rows)
    assert min(joins) > positions[-1]


@on_ranks(2)
def test_equal_ranks_record_the_same() -> None:
    model = DDP(nn.Linear(512, 512).cuda(), device_ids=[here()])
    x = torch.randn(16, 512, device="cuda")
    model(x).sum().backward()
    records = recorded(lambda: model(x).sum().backward())
    mine = [(records.operators[row["operator"]], int(row["kind"]), int(row["phase"])) for row in records.rows]
    both: list[Any] = [None, None]
    dist.all_gather_object(both, mine)
    assert both[0] == both[1]


@on_ranks(2)
def test_differing_models_are_refused_by_pytorch_itself() -> None:
    model = nn.Linear(4, 4 + here()).cuda()
    if here() == 0:  # what the others are compared with
        DDP(model, device_ids=[0])
    else:
        with pytest.raises(RuntimeError, match="appears not to match"):
            DDP(model, device_ids=[1])


@on_ranks(2)
def test_uneven_inputs_join() -> None:
    model = DDP(small_net().cuda(), device_ids=[here()])
    with model.join():
        for _ in range(2 + here()):
            model(inputs(here()).cuda()).square().sum().backward()


@on_ranks(2)
def test_unused_parameters_are_found() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            chosen: Tensor = (self.left if dist.get_rank() == 0 else self.right)(x)
            return chosen

    model = DDP(Branches().cuda(), device_ids=[here()], find_unused_parameters=True)
    for _ in range(2):
        model.zero_grad()
        model(torch.ones(2, 3, device="cuda")).sum().backward()
    assert model.module.left.bias.grad.tolist() == [1.0] * 3
    assert model.module.right.bias.grad.tolist() == [1.0] * 3


@on_ranks(2)
def test_batch_norm_over_ranks() -> None:
    torch.manual_seed(0)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    model = DDP(model.cuda(), device_ids=[here()])
    records = recorded(lambda: model(torch.randn(2, 3, 8, 8, device="cuda")).sum().backward())
    names = [records.operators[row["operator"]] for row, _ in records.transfers()]
    assert "c10d::_allgather_base_" in names
    assert names.count("c10d::allreduce_") >= 2


@on_ranks(2)
def test_sharded_optimizer_and_its_state() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(small_net().cuda(), device_ids=[here()])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    before = [parameter.detach().cpu().clone() for parameter in model.parameters()]
    model(inputs(here()).cuda()).square().sum().backward()
    optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    after = [parameter.detach().cpu() for parameter in model.parameters()]
    assert all(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
    both: list[Any] = [None, None]
    dist.all_gather_object(both, [tensor.tolist() for tensor in after])
    assert both[0] == both[1]


@pytest.mark.parametrize("kind", ["fsdp1", "fsdp2"])
@on_ranks(2)
def test_fully_sharded_training_runs(kind: str) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    model: Any = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    if kind == "fsdp1":
        model = FullyShardedDataParallel(model, use_orig_params=True, device_id=here())
    else:
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.randn(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    rows = recorded(step).transfers()
    parameters = (256 * 512 + 512 + 512 * 256 + 256) * 4
    by_kind: dict[int, int] = {}
    for _, communication in rows:
        collective = int(communication["collective"])
        size = max(int(communication["input_bytes"]), int(communication["output_bytes"]))
        by_kind[collective] = by_kind.get(collective, 0) + size
    assert by_kind[7] >= parameters  # reduce-scatter of the gradients
    assert by_kind[2] >= parameters  # all-gather of the parameters
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert norm is not None


@on_ranks(2)
def test_distributed_tensors() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cuda", (2,))
    left = torch.arange(16.0, device="cuda").reshape(4, 4)
    right = torch.eye(4, device="cuda") * 2
    product = distribute_tensor(left, mesh, [Shard(0)]) @ distribute_tensor(right, mesh, [Replicate()])
    whole = product.redistribute(mesh, [Replicate()]).to_local()
    assert whole.tolist() == (left.cpu() * 2).tolist()
    assert distribute_tensor(left, mesh, [Shard(1)]).sum().full_tensor().item() == 120.0


@on_ranks(2)
def test_the_healthy_branch_is_taken_on_every_rank() -> None:
    model = DDP(nn.Linear(512, 512).cuda(), device_ids=[here()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scale = scaler.get_scale()
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(8, 512, device="cuda")).float().square().mean()
        assert not torch.isnan(loss)
        total = loss.detach().clone()
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        assert torch.isfinite(total)
        assert not torch.isnan(total).any()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert torch.isfinite(norm)
        found = sum(
            state["found_inf_per_device"][loss.device].item()
            for state in scaler._per_optimizer_states.values()
        )
        skips = torch.tensor([found], device="cuda")
        dist.all_reduce(skips, op=dist.ReduceOp.MAX)
        assert skips.item() == 0
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == scale
    bad = torch.tensor([float("nan") if here() == 1 else 1.0], device="cuda")
    dist.all_reduce(bad)
    assert torch.isnan(bad).item()  # a value that is known to be bad is told to all


@on_ranks(2)
def test_unknown_and_known_do_not_mix() -> None:
    tensor = torch.ones(4, device="cuda")
    if here() == 1:
        native().forget_values(tensor, "aten::mean")
    gathered = torch.zeros(8, device="cuda")
    dist.all_gather_into_tensor(gathered, tensor)
    assert not native().is_known(gathered)
    listed = [torch.zeros(4, device="cuda") for _ in range(2)]
    dist.all_gather(listed, tensor)
    assert [native().is_known(item) for item in listed] == [True, False]
    dist.all_reduce(tensor)
    assert not native().is_known(tensor)
    dist.broadcast(tensor.fill_(here()), src=1)
    assert tensor.tolist() == [1.0] * 4


@on_ranks(2)
def test_waiting_for_the_device_is_waiting_for_the_work() -> None:
    tensor = torch.full((2,), float(here() + 1), device="cuda")
    work = dist.all_reduce(tensor, async_op=True)
    torch.cuda.synchronize()
    assert tensor.tolist() == [3.0, 3.0]
    assert work.is_completed()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.then(lambda done: done.value()[0].tolist()).wait() == [6.0, 6.0]


@on_ranks(2, start=False)
def test_debug_mode_checks_collectives_itself() -> None:
    dist.set_debug_level_from_env()
    import os

    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    dist.init_process_group("nccl")
    tensor = torch.ones(4, device="cuda")
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2.0] * 4
    model = DDP(small_net().cuda(), device_ids=[here()])
    model(inputs(here()).cuda()).square().sum().backward()
    check_gradients(model)
    gathered: list[Any] = [None, None]
    dist.all_gather_object(gathered, here())
    assert gathered == [0, 1]
