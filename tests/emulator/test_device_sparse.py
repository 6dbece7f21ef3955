"""Sparse (COO) tensors on the device: gradients of embeddings, the optimizers that take them, sums."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent / "support"))
from on_device import on_device

OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "made": lambda s: s,
    "coalesced": lambda s: s.coalesce(),
    "added": lambda s: s + s,
    "subtracted": lambda s: s - 2 * s,
    "added to a dense one": lambda s: torch.ones(2, 3, device=s.device) + s,
    "multiplied by a dense one": lambda s: s.coalesce() * torch.full((2, 3), 3.0, device=s.device),
    "transposed": lambda s: s.t(),
    "mapped": lambda s: s.coalesce().sqrt(),
    "masked": lambda s: torch.arange(6.0, device=s.device).view(2, 3).sparse_mask(s.coalesce()),
    "sum": lambda s: torch.sparse.sum(s),
    "back and forth": lambda s: s.to_dense().to_sparse(),
    "other dtype": lambda s: s.to(torch.float64),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sparse adam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


def sample(device: str) -> Tensor:
    indices = torch.tensor([[0, 1, 1, 0], [2, 0, 0, 2]], device=device)
    return torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2, 3, 4], device=device), (2, 3))


@pytest.mark.parametrize("name", list(OPERATIONS))
@on_device
def test_small_sparse_tensors_are_computed_as_on_the_cpu(name: str) -> None:
    cpu, gpu = (OPERATIONS[name](sample(device)) for device in ("cpu", "cuda"))
    assert gpu.is_cuda
    assert (gpu.layout, gpu.dtype, gpu.shape) == (cpu.layout, cpu.dtype, cpu.shape)
    torch.testing.assert_close(gpu.cpu().to_dense(), cpu.to_dense())


@pytest.mark.parametrize("name", list(OPTIMIZERS))
@on_device
def test_embeddings_with_sparse_gradients_train_as_on_the_cpu(name: str) -> None:
    weights = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        tables = [nn.Embedding(20, 4, sparse=True), nn.EmbeddingBag(20, 4, mode="sum", sparse=True)]
        parameters = [table.to(device).weight for table in tables]
        optimizer = OPTIMIZERS[name](parameters)
        for _ in range(3):
            rows = torch.tensor([[1, 2, 2], [4, 1, 0]], device=device)
            optimizer.zero_grad()
            sum(table(rows).square().sum() for table in tables).backward()
            assert parameters[0].grad.is_sparse
            optimizer.step()
        weights.append(torch.cat([parameter.detach().cpu() for parameter in parameters]))
    torch.testing.assert_close(weights[1], weights[0])


@on_device
def test_gradients_too_large_to_follow_have_as_many_rows_as_were_looked_up() -> None:
    from emulated_gpu import native

    table = nn.Embedding(30_000, 64, sparse=True, device="cuda")
    rows = torch.randint(30_000, (64, 64), device="cuda")
    table(rows).sum().backward()
    gradient = table.weight.grad
    assert (gradient._nnz(), gradient._values().shape) == (64 * 64, (64 * 64, 64))
    assert not native.is_known(gradient._values())
    coalesced = gradient.coalesce()
    assert coalesced.is_coalesced()
    assert torch.equal(coalesced.indices()[0].cpu(), rows.cpu().unique())
    assert coalesced.values().shape == (rows.unique().numel(), 64)
    torch.optim.SparseAdam([table.weight]).step()
    torch.optim.SGD([table.weight], lr=1).step()


@on_device
def test_the_trace_has_the_kernels_of_a_sparse_step() -> None:
    import numpy as np
    from emulated_gpu import native

    from maya.traces import OPERATION_DTYPE

    table = nn.EmbeddingBag(1000, 16, mode="sum", sparse=True, device="cuda")
    optimizer = torch.optim.SGD([table.weight], lr=0.1)
    native.drain()
    native.recording(True)
    table(torch.arange(40, device="cuda").view(8, 5)).sum().backward()
    table.weight.grad.coalesce()
    optimizer.step()
    native.recording(False)
    rows = np.frombuffer(native.drain()[0], OPERATION_DTYPE)
    operators = native.interned("operators", 0)
    names = [operators[row["operator"]] for row in rows]
    assert {"aten::_embedding_bag", "aten::_unique2", "aten::index_add_"} <= set(names)


@on_device
def test_adding_on_cuda_appends_and_coalescing_adds_up() -> None:
    indices = torch.tensor([[0, 7, 7, 0], [2, 0, 0, 2]], device="cuda")
    one = torch.sparse_coo_tensor(indices, torch.ones(4, device="cuda"), (20, 3))
    total = one + one
    assert (total._nnz(), total.is_coalesced()) == (8, False)
    assert total.coalesce()._nnz() == 2
    full = sample("cuda") + sample("cuda")  # more entries than elements: CUDA adds them up at once
    assert (full._nnz(), full.is_coalesced()) == (2, True)


@on_device
def test_mistakes_are_those_of_cuda() -> None:
    with pytest.raises(RuntimeError, match="not supported"):
        sample("cuda") + torch.ones(2, 3, device="cuda")
    with pytest.raises(RuntimeError, match="same size"):
        torch.ones(3, 3, device="cuda").add_(sample("cuda"))
    with pytest.raises(NotImplementedError, match="Maya does not emulate"):
        torch.eye(3, device="cuda").to_sparse_csr()
