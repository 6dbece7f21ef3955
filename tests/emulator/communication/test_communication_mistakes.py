"""Mistakes: what ProcessGroupNCCL refuses, ranks that disagree, peers that end or never were."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))
from on_ranks import on_ranks


def small(size: int = 4, **options: Any) -> torch.Tensor:
    return torch.ones(size, device="cuda", **options)


@on_ranks(1)
def test_arguments_are_refused_as_nccl_refuses_them() -> None:
    with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
        dist.all_reduce(torch.ones(2))
    with pytest.raises(ValueError, match="Tensors must be contiguous"):
        dist.all_reduce(torch.ones(4, 4, device="cuda").t()[:, 1:])
    with pytest.raises(TypeError, match="data type is not supported for NCCL process group"):
        dist.all_reduce(small(dtype=torch.int16))
    with pytest.raises(ValueError, match=r"Cannot use ReduceOp\.BAND with NCCL"):
        dist.all_reduce(small(dtype=torch.int32), op=dist.ReduceOp.BAND)
    with pytest.raises(TypeError, match="AVG with boolean"):
        dist.all_reduce(small(dtype=torch.bool), op=dist.ReduceOp.AVG)
    with pytest.raises(TypeError, match="output tensor must have the same type as input tensor"):
        dist.all_gather_into_tensor(small(), small(dtype=torch.float64))
    with pytest.raises(ValueError, match="must be equal to world_size times input tensor size"):
        dist.all_gather_into_tensor(small(3), small(2))
    with pytest.raises(ValueError, match="same size as output size times world size"):
        dist.reduce_scatter_tensor(small(3), small(2))
    with pytest.raises(RuntimeError, match="Split sizes doesn't match total dim 0 size"):
        dist.all_to_all_single(small(2), small(2), [1], [1])
    with pytest.raises(ValueError, match="monitored_barrier is only implemented for GLOO"):
        dist.monitored_barrier()


@on_ranks(2)
def test_a_disagreement_names_ranks_and_calls() -> None:
    rank = dist.get_rank()
    with pytest.raises(RuntimeError, match="disagree in process group") as caught:
        dist.all_reduce(small(4 + 4 * rank))
    told = str(caught.value)
    assert "all_reduce of float32[4] (sum)" in told
    assert "all_reduce of float32[8] (sum)" in told
    assert "ranks 0 and 1" in told or "ranks 1 and 0" in told


@on_ranks(2)
def test_a_disagreement_with_a_large_tensor_is_found_by_the_rank_that_waits() -> None:
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match=r"rank 1 calls all_reduce of float32\[100000\]"):
            dist.all_reduce(small(4))
    else:
        dist.all_reduce(small(100_000))
        time.sleep(3)


@on_ranks(2)
def test_another_order_is_found() -> None:
    first = dist.broadcast if dist.get_rank() == 0 else dist.all_reduce
    arguments = {"src": 1} if dist.get_rank() == 0 else {}
    with pytest.raises(RuntimeError, match="broadcast of float32"):
        first(small(), **arguments)


@on_ranks(2)
def test_an_ended_peer_ends_the_wait() -> None:
    store = dist.distributed_c10d._get_default_store()
    raw = store
    while hasattr(raw, "underlying_store"):
        raw = raw.underlying_store
    if dist.get_rank() == 1:
        time.sleep(1)
        assert '"operation":"all_reduce"' in raw.get("maya/waiting/0").decode()
        raw.set("maya/ended/1", "exception")  # the launcher's word
    else:
        with pytest.raises(
            RuntimeError, match=r"rank 0 waits in all_reduce .* for rank 1: rank 1 has ended \(exception\)"
        ):
            dist.all_reduce(small())
        assert not raw.check(["maya/waiting/0"])


@on_ranks(1, start=False)
def test_absent_peers_do_not_hang() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("nccl", store=FakeStore(), rank=0, world_size=8)
    large = torch.ones(100_000, device="cuda")
    dist.all_reduce(large)  # nothing to exchange: recorded
    with pytest.raises(RuntimeError, match="Launch every rank: maya run --nproc-per-node 8"):
        dist.all_reduce(small())
    dist.destroy_process_group()
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=2)
    with pytest.raises(RuntimeError, match="lives within one process"):
        dist.all_reduce(small())


@on_ranks(1)
def test_a_group_of_one_needs_no_store() -> None:
    before = dist.distributed_c10d._get_default_store().num_keys()
    tensor = small()
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    gathered = torch.zeros(4, device="cuda")
    dist.all_gather_into_tensor(gathered, tensor)
    dist.barrier()
    assert gathered.tolist() == [1.0] * 4
    assert dist.distributed_c10d._get_default_store().num_keys() == before


@on_ranks(2)
def test_read_values_leave_the_store() -> None:
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(small())
    dist.barrier()
    before = store.num_keys()
    for _ in range(10):
        dist.all_reduce(small())
        dist.broadcast(small(), 0)
        dist.all_to_all_single(small(), small())
    dist.barrier()
    time.sleep(0.3)  # the last reader removes
    assert store.num_keys() <= before + 2


@on_ranks(2, start=False)
def test_starting_again_in_one_process() -> None:
    for number in range(2):
        dist.init_process_group("nccl")
        tensor = small() * (dist.get_rank() + number)
        dist.all_reduce(tensor)
        assert tensor[0].item() == 1.0 + 2 * number
        dist.barrier()
        dist.destroy_process_group()
    assert os.environ["WORLD_SIZE"] == "2"


@on_ranks(1, start=False)
def test_options_are_those_of_nccl() -> None:
    import copy

    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas = 4
    options.config.cta_policy = dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO
    options.whatever = 1
    again = copy.deepcopy(options)
    assert (again.is_high_priority_stream, again.config.min_ctas) == (True, 4)
    dist.init_process_group("nccl", pg_options=options)
    assert dist.is_nccl_available()
    assert dist.get_backend() == "nccl"
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda"))
    assert isinstance(backend, dist.ProcessGroupNCCL)
    assert backend.options.is_high_priority_stream
    assert not backend._is_initialized()
    work = dist.all_reduce(small(), async_op=True)
    work.wait()
    assert backend._is_initialized()


@on_ranks(2)
def test_an_interrupt_reaches_a_rank_that_waits() -> None:
    import signal

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    if dist.get_rank() == 1:
        time.sleep(2)
        dist.all_reduce(small())
        return
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        dist.all_reduce(small())
    assert time.monotonic() - began < 1.9
