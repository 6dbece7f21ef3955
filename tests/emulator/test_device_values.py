"""Values on the emulated device: small tensors are exact, unknown ones are never silent garbage."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent / "support"))
from on_device import on_device

DEVICE = "cuda"
BIG = 70_000
"""Elements of a float32 tensor whose values are not followed."""


def backend() -> Any:
    from emulated_gpu import native

    return native


def unknown(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A small tensor as an operator without values would have left it."""
    tensor = torch.zeros(*shape, dtype=dtype, device=DEVICE)
    backend().forget_values(tensor, "aten::mean")
    return tensor


def state(tensor: Tensor) -> str:
    answer: str = backend().value_state(tensor)
    return answer


@contextmanager
def policy(answer: Callable[[str, str, str, int], float]) -> Iterator[list[tuple[str, str, str, int]]]:
    """Every question asked of the value policy while open."""
    asked: list[tuple[str, str, str, int]] = []

    def ask(kind: str, producer: str, dtype: str, numel: int, reads: int) -> float:
        del reads
        asked.append((kind, producer, dtype, numel))
        return answer(kind, producer, dtype, numel)

    backend().set_value_policy(ask)
    try:
        yield asked
    finally:
        backend().set_value_policy(None)


def small_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(DEVICE)


def big_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(DEVICE)


# Reads of unknown values


@on_device
def test_every_unknown_read_reaches_the_policy_with_its_producer() -> None:
    big = torch.randn(300, 300, device=DEVICE)
    product = big @ big
    loss = product.mean()
    with policy(lambda *_: 3.0) as asked:
        assert loss.item() == 3.0
        assert float(loss) == 3.0
        assert loss.cpu().item() == 3.0
        assert product[0, :2].tolist() == [3.0, 3.0]
        assert product.cpu().shape == (300, 300)
        assert bool(loss > 0)
        assert product.argmax().item() == 3
    assert asked == [
        ("item", "aten::mean.dim", "Float", 1),
        ("item", "aten::mean.dim", "Float", 1),
        ("item", "aten::mean.dim", "Float", 1),
        ("copy", "aten::mm", "Float", 2),
        ("copy", "aten::mm", "Float", 90_000),
        ("bool", "aten::gt.Scalar", "Bool", 1),
        ("item", "aten::argmax", "Long", 1),
    ]


@on_device
def test_known_reads_never_reach_the_policy() -> None:
    with policy(lambda *_: 99.0) as asked:
        x = torch.arange(6.0, device=DEVICE).view(2, 3)
        assert x.sum().item() == 15
        assert (x > 2).nonzero().tolist() == [[1, 0], [1, 1], [1, 2]]
        assert torch.full((1000, 1000), 2.5, device=DEVICE)[7, 7].item() == 2.5
        assert bool(torch.ones(BIG, device=DEVICE).all())
        assert x.cpu().numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert asked == []


@on_device
def test_a_copy_keeps_the_producer_of_the_numbers() -> None:
    loss = (torch.randn(300, 300, device=DEVICE) * 2).sum()
    total = torch.zeros((), device=DEVICE)
    total.copy_(loss)
    clone = total.detach().clone()
    with policy(lambda *_: 1.0) as asked:
        clone.item()
    assert asked[0][1] == "aten::sum.dim_IntList"


@on_device
def test_selections_ask_how_many() -> None:
    big = torch.randn(300, 300, device=DEVICE)
    with policy(lambda kind, *_: 7 if kind == "count" else 1) as asked:
        assert torch.nonzero(big > 0).shape == (7, 2)
        assert torch.nonzero(big > 0).stride() == (1, 7)
        assert [index.shape[0] for index in torch.nonzero(big > 0, as_tuple=True)] == [7, 7]
        assert big[big > 0].shape == (7,)
        assert torch.masked_select(big, big > 0).shape == (7,)
        assert torch.unique(big).shape == (7,)
        values, inverse, counts = torch.unique(big, return_inverse=True, return_counts=True)
        assert (values.shape, inverse.shape, counts.shape) == ((7,), (300, 300), (7,))
        assert torch.unique(big, dim=0).shape == (7, 300)
    assert {kind for kind, *_ in asked} == {"count"}
    # A mask that is known selects what it says, whatever is selected from.
    mask = torch.zeros(300, 300, dtype=torch.bool, device=DEVICE)
    mask[:2, :3] = True
    with policy(lambda *_: 1.0) as asked:
        assert torch.masked_select(big, mask).shape == (6,)
        assert big[mask].shape == (6,)
        big[mask] = 0
    assert asked == []


# What training scripts do with values


@on_device
def test_a_healthy_run_is_finite() -> None:
    model = big_model()
    x = torch.randn(64, 512, device=DEVICE)
    with policy(lambda kind, *_: 0.5) as asked:
        loss = model(x).pow(2).mean()
        loss.backward()
        assert not torch.isnan(loss)
        assert not torch.isinf(loss)
        assert torch.isfinite(loss)
        assert torch.isfinite(x).all()
        assert not torch.isnan(x).any()
        assert not (x != x).any()
        assert not (loss != loss)
        assert (x == x).all()
        assert all(torch.isfinite(p.grad).all() for p in model.parameters())
        assert not any(p.grad.isnan().any() or p.grad.isinf().any() for p in model.parameters())
        bad = torch.isnan(x) | torch.isinf(x)
        assert not bad.any()
        assert bad.sum().item() == 0
        assert not torch.stack([p.grad.isnan().any() for p in model.parameters()]).any()
    assert asked == []


@on_device
@pytest.mark.parametrize("foreach", [True, False, None])
def test_clip_grad_norm(foreach: bool | None) -> None:
    model = big_model()
    model(torch.randn(64, 512, device=DEVICE)).sum().backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True, foreach=foreach)
    with policy(lambda *_: 1.25) as asked:
        assert norm.item() == 1.25
    assert asked[0][1] == "aten::linalg_vector_norm"
    small = small_model()
    small(torch.ones(2, 8, device=DEVICE)).sum().backward()
    reference = torch.stack([p.grad.cpu().norm() for p in small.parameters()]).norm()
    norm = nn.utils.clip_grad_norm_(small.parameters(), 1.0, foreach=foreach)
    assert torch.equal(norm.cpu(), reference)


@on_device
@pytest.mark.parametrize("big", [True, False])
def test_grad_scaler_grows_and_takes_every_step(big: bool) -> None:
    model = big_model() if big else small_model()
    width = 512 if big else 8
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10, growth_interval=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps: list[int] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    scales = []
    with policy(lambda *_: 1.0) as asked:
        for _ in range(6):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.ones(4, width, device=DEVICE)).float().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
    assert len(steps) == 6
    assert scales == [1024, 2048, 2048, 4096, 4096, 8192]
    assert asked == []


@on_device
def test_grad_scaler_backs_off_on_known_infinities() -> None:
    model = small_model()
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**8, growth_interval=100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [p.tolist() for p in model.parameters()]
    loss = model(torch.ones(2, 8, device=DEVICE)).sum() * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 128
    assert [p.tolist() for p in model.parameters()] == before


@on_device
def test_learning_rate_in_a_tensor_follows_its_schedule() -> None:
    model = small_model()
    rate = torch.tensor(0.1, device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for expected in (0.1, 0.05, 0.025):
        assert optimizer.param_groups[0]["lr"].item() == pytest.approx(expected, rel=1e-6)
        model(torch.ones(2, 8, device=DEVICE)).sum().backward()
        optimizer.step()
        schedule.step()


@on_device
def test_early_stopping_and_metrics() -> None:
    model = big_model()
    best, waited, epochs = float("inf"), 0, 0
    losses = iter([3.0, 2.0, 2.5, 2.5, 2.5])
    with policy(lambda *_: next(losses)), torch.no_grad():
        while waited < 3:
            value = model(torch.randn(64, 512, device=DEVICE)).mean().item()
            waited = 0 if value < best else waited + 1
            best = min(best, value)
            epochs += 1
    assert (best, epochs) == (2.0, 5)
    predictions = model(torch.randn(64, 512, device=DEVICE)).argmax(1)
    targets = torch.randint(0, 10, (64,), device=DEVICE)
    with policy(lambda kind, *_: 0):
        labels = predictions.cpu().numpy()
        assert labels.dtype == np.int64
        assert labels.shape == (64,)
        assert 0 <= (predictions == targets).float().mean().item() <= 1
        confusion = np.zeros((10, 10), dtype=int)
        np.add.at(confusion, (targets.cpu().numpy(), labels), 1)
        assert confusion.sum() == 64


@on_device
def test_random_numbers_are_known_and_repeatable() -> None:
    torch.manual_seed(7)
    state_of_cpu = torch.get_rng_state()
    first = [
        torch.randperm(20, device=DEVICE),
        torch.randint(0, 9, (5,), device=DEVICE),
        torch.rand(3, device=DEVICE),
        torch.multinomial(torch.ones(2, 6, device=DEVICE), 3),
        torch.empty(4, device=DEVICE).normal_(),
        torch.bernoulli(torch.full((8,), 0.5, device=DEVICE)),
    ]
    assert sorted(first[0].tolist()) == list(range(20))
    assert first[0].tolist() != list(range(20))
    assert all(state(tensor) == "known" for tensor in first)
    assert torch.equal(torch.get_rng_state(), state_of_cpu)  # the script's own random numbers go on
    torch.manual_seed(7)
    assert torch.randperm(20, device=DEVICE).tolist() == first[0].tolist()
    assert torch.randperm(20, device=DEVICE).tolist() != first[0].tolist()
    kept = torch.cuda.get_rng_state()
    assert kept.numel() == 16
    one = torch.rand(3, device=DEVICE).tolist()
    torch.cuda.set_rng_state(kept)
    assert torch.rand(3, device=DEVICE).tolist() == one
    generator = torch.Generator(device=DEVICE)
    generator.manual_seed(3)
    again = torch.Generator(device=DEVICE)
    again.manual_seed(3)
    drawn = torch.rand(3, device=DEVICE, generator=generator)
    assert drawn.tolist() == torch.rand(3, device=DEVICE, generator=again).tolist()
    assert state(torch.randperm(100_000, device=DEVICE)) == "known"
    assert torch.arange(1_000_000, device=DEVICE)[-1].item() == 999_999


@on_device
def test_printing_never_fails() -> None:
    big = torch.randn(300, 300, device=DEVICE)
    for tensor in (
        big,
        big @ big,
        unknown(3),
        unknown(0, 4),
        unknown(2, 2, dtype=torch.complex64),
        unknown(4, dtype=torch.bool),
        unknown(4, dtype=torch.int32),
        unknown(4, dtype=torch.bfloat16),
        torch.zeros(BIG * 10, device=DEVICE),
        nn.Parameter(big),
        big[None].expand(4, 300, 300).transpose(0, 2),
    ):
        assert "cuda:0" in repr(tensor)
        assert str(tensor)
    assert repr(torch.arange(3, device=DEVICE)) == "tensor([0, 1, 2], device='cuda:0')"
    assert f"{torch.tensor(1.5, device=DEVICE):.2f}" == "1.50"


# Moving and keeping values


@on_device
def test_copies_between_host_and_device() -> None:
    base = torch.arange(24.0).view(2, 3, 4)
    for host in (base, base.transpose(0, 2), base[:, ::2], base[..., 1], base.expand(5, 2, 3, 4)):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool):
            device = host.to(DEVICE, dtype)
            expected = host.to(dtype, copy=True)
            assert (device.stride(), device.dtype) == (expected.stride(), dtype)
            assert torch.equal(device.cpu(), expected)
            assert torch.equal(device.to("cpu", torch.float32), expected.to(torch.float32))
            back = torch.full(host.shape[::-1], 9.0).permute(*range(host.dim() - 1, -1, -1))
            back.copy_(device)
            assert torch.equal(back, expected.to(torch.float32))
    target = torch.zeros(3, 4, device=DEVICE)
    target.t()[1:3].copy_(torch.arange(6).view(2, 3))
    assert target.tolist() == [[0, 0, 3, 0], [0, 1, 4, 0], [0, 2, 5, 0]]
    target.copy_(torch.arange(4))  # broadcast
    assert target.tolist() == [[0, 1, 2, 3]] * 3
    for wrong, message in ((torch.zeros(5), "must match the size"), (torch.zeros(2, 3, 4), "broadcast shape")):
        with pytest.raises(RuntimeError, match=message):
            target.copy_(wrong)


@on_device
def test_numpy_lists_pickles_and_files() -> None:
    x = torch.arange(6, device=DEVICE).view(2, 3)
    with pytest.raises(TypeError, match="can't convert cuda"):
        x.numpy()
    assert x.cpu().numpy().sum() == 15
    assert torch.from_numpy(np.eye(2)).to(DEVICE).tolist() == [[1, 0], [0, 1]]
    assert torch.tensor(np.arange(3), device=DEVICE).tolist() == [0, 1, 2]
    assert torch.as_tensor([1.5], device=DEVICE).item() == 1.5
    assert copy.deepcopy(x).tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    assert torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)).tolist() == x.tolist()
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 8, device=DEVICE)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    for where in ("cuda", "cpu"):
        file.seek(0)
        saved = torch.load(file, map_location=where)
        assert saved["model"]["0.weight"].device.type == where
        assert torch.equal(saved["model"]["0.weight"].cpu(), model[0].weight.cpu())
        assert saved["optimizer"]["state"][0]["step"].item() == 1
    twin = copy.deepcopy(model)
    twin.load_state_dict(model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


@on_device
def test_pinned_loader_with_workers() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(10.0), torch.arange(10))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=1)
    seen = []
    for values, labels in loader:
        assert values.is_pinned()
        assert not values.to(DEVICE).is_pinned()
        seen += labels.to(DEVICE, non_blocking=True).tolist()
        assert values.to(DEVICE, non_blocking=True).sum().item() == values.sum().item()
    assert seen == list(range(10))


@on_device
def test_views_share_values() -> None:
    x = torch.arange(12.0, device=DEVICE)
    x.view(3, 4)[1].mul_(10)
    assert x[4:8].tolist() == [40, 50, 60, 70]
    x.as_strided((2, 2), (1, 4)).fill_(-1)
    assert x[:6].tolist() == [-1, -1, 2, 3, -1, -1]
    assert x.unfold(0, 3, 4).tolist() == [[-1, -1, 2], [-1, -1, 60], [8, 9, 10]]
    assert torch.tensor([1.0], device=DEVICE).view(torch.int32).item() == 0x3F800000
    z = torch.view_as_complex(torch.arange(4.0, device=DEVICE).view(2, 2))
    assert z.conj().tolist() == [-1j, 2 - 3j]
    assert z.conj().imag.tolist() == [-1, -3]
    assert torch.view_as_real(z.conj().resolve_conj()).tolist() == [[0, -1], [2, -3]]
    assert (z.conj() * z).real.tolist() == [1, 13]
    assert x.data.is_set_to(x)
    y = torch.zeros(2, device=DEVICE)
    y.data = x[:2]
    y.fill_(5)
    assert x[:3].tolist() == [5, 5, 2]
    window = torch.empty(0, device=DEVICE).set_(x.untyped_storage(), 6, (2,), (3,))
    assert window.tolist() == [60, 9]
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0
    x.untyped_storage().resize_(48)
    x.copy_(torch.arange(12.0))
    assert x.tolist() == list(range(12))
    x.resize_(2, 7)
    assert x.flatten()[:12].tolist() == list(range(12))


@on_device
def test_writes_to_shared_elements_are_refused() -> None:
    row = torch.zeros(1, device=DEVICE).expand(5)
    for write in (lambda: row.add_(1), lambda: row.copy_(torch.ones(5)), lambda: row.normal_()):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            write()
    row.zero_()
    x = torch.zeros(BIG, device=DEVICE)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        x[1:].add_(x[:-1])
    x[1:].copy_(x[1:])


@on_device
def test_an_index_beyond_its_dimension_is_an_error_of_the_device() -> None:
    x = torch.arange(3.0, device=DEVICE)
    beyond = torch.tensor([7], device=DEVICE)
    for read in (lambda: x[beyond], lambda: x.index_select(0, beyond), lambda: F.embedding(beyond, x[:, None])):
        with pytest.raises(RuntimeError, match="device-side assert"):
            read()


# States of a storage


@on_device
def test_unknown_writes_poison_and_whole_known_writes_heal() -> None:
    x = torch.zeros(4, 4, device=DEVICE)
    assert state(x + 0) in ("known", "constant")
    x[0].add_(unknown(4))
    assert state(x) == "unknown"
    assert state(x[3]) == "unknown"  # the state is the storage's
    x[1:].fill_(1)
    assert state(x) == "unknown"  # part of it does not heal the rest
    x.fill_(1)
    assert state(x) in ("known", "constant")
    assert x.sum().item() == 16
    x.mul_(unknown(4, 4))
    assert state(x) == "unknown"
    x.copy_(torch.arange(16.0).view(4, 4))
    assert x[1].tolist() == [4, 5, 6, 7]
    x.add_(unknown(4, 4))
    torch.add(torch.ones(4, 4, device=DEVICE), 1, out=x)
    assert x.tolist() == [[2.0] * 4] * 4
    x.copy_(unknown(4, 4))
    x.t().copy_(torch.arange(16.0).view(4, 4))  # all of it, in another order
    assert x.t().tolist() == torch.arange(16.0).view(4, 4).tolist()
    assert state(torch.cat([torch.zeros(2, device=DEVICE), unknown(2)])) == "unknown"
    assert state(unknown(2).to(torch.float64)) == "unknown"
    assert state(F.dropout(torch.ones(4, device=DEVICE))) == "unknown"


@on_device
def test_running_statistics_follow_their_batches() -> None:
    layer = nn.BatchNorm2d(3).to(DEVICE)
    layer(unknown(2, 3, 4, 4))
    assert state(layer.running_mean) == "unknown"  # though the schema does not mark it as written
    assert layer.num_batches_tracked.item() == 1
    known = nn.BatchNorm1d(3).to(DEVICE)
    reference = nn.BatchNorm1d(3)
    batch = torch.randn(5, 3)
    known(batch.to(DEVICE))
    reference(batch)
    assert torch.equal(known.running_var.cpu(), reference.running_var)
    frozen = nn.BatchNorm2d(3).to(DEVICE).eval()
    frozen(unknown(2, 3, 4, 4))
    assert frozen.running_mean.tolist() == [0, 0, 0]


@on_device
def test_constants_of_any_size() -> None:
    zeros = torch.zeros(1000, 1000, device=DEVICE)
    ones = torch.ones(1000, 1000, device=DEVICE)
    with policy(lambda *_: 99.0) as asked:
        assert zeros[3, 4].item() == 0
        assert (ones * 3 + 1)[5, 5].item() == 4
        assert (ones == 1).all()
        assert not zeros.any()
        assert not (ones * 0).bool().any()
        assert zeros.sum().item() == 0
        assert ones.mean().item() == 1
        assert ones.max().item() == 1
        assert torch.full((1000, 1000), 2.0, device=DEVICE).sqrt().clamp(max=1.25)[0, 0].item() == 1.25
        assert (ones.half() * 2).float()[1, 1].item() == 2
        assert torch.where(ones > 0, ones, zeros)[9, 9].item() == 1
        ones.mul_(5)
        assert ones.t().contiguous()[7, 7].item() == 5
        ones.zero_()
        assert not ones.any()
        mask = torch.ones(2048, 2048, dtype=torch.bool, device=DEVICE)
        assert mask.all()
        assert ones.cpu().sum().item() == 0
    assert asked == []
    ones[0, 0] = 1
    assert state(ones) == "unknown"
    assert state(ones + torch.randn(1000, 1000, device=DEVICE)) == "unknown"
    large = torch.zeros(1000, 1000, device=DEVICE)
    large[:10].zero_()  # the same constant again
    assert not large.any()
    large.view(torch.int32)[0, 0] = 0
    assert torch.ones(100_000, device=DEVICE).view(torch.int32).min().shape == ()


@on_device
def test_factorizations_without_values_succeed() -> None:
    matrix = unknown(4, 4)
    with policy(lambda *_: 1.0) as asked:
        assert torch.linalg.inv(matrix).shape == (4, 4)
        assert torch.linalg.solve(matrix, unknown(4, 2)).shape == (4, 2)
        assert torch.linalg.cholesky(matrix).shape == (4, 4)
        assert torch.linalg.lu(matrix)[0].shape == (4, 4)
    assert asked == []
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.inv(torch.zeros(3, 3, device=DEVICE))


@on_device
def test_masks_one_hot_topk_and_friends() -> None:
    x = torch.tensor([3.0, 1.0, 2.0], device=DEVICE)
    assert x[x > 1].tolist() == [3, 2]
    x[x > 2] = 0
    assert x.tolist() == [0, 1, 2]
    x[x > 0] = torch.tensor([7.0, 8.0], device=DEVICE)
    assert x.tolist() == [0, 7, 8]
    assert x.topk(2).indices.tolist() == [2, 1]
    assert F.one_hot(torch.tensor([1, 2], device=DEVICE)).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert F.one_hot(torch.tensor([1], device=DEVICE), 4).tolist() == [[0, 1, 0, 0]]
    assert torch.where(x > 0, 1.0, 2.0).tolist() == [2, 1, 1]
    assert torch.equal(x, x.clone())
    assert not torch.equal(x, x + 1)
    assert torch.allclose(x, x + 1e-9)
    values, counts = torch.unique(torch.tensor([3, 1, 1, 2], device=DEVICE), return_counts=True)
    assert (values.tolist(), counts.tolist()) == ([1, 2, 3], [2, 1, 1])
    assert torch.unique_consecutive(torch.tensor([3, 1, 1, 3], device=DEVICE)).tolist() == [3, 1, 3]
    assert torch.bincount(torch.tensor([0, 2, 2], device=DEVICE)).tolist() == [1, 0, 2]
    assert torch.repeat_interleave(torch.tensor([1, 0, 2], device=DEVICE)).tolist() == [0, 2, 2]
    average = torch.zeros(2, device=DEVICE)
    for _ in range(3):
        average.mul_(0.5).add_(torch.ones(2, device=DEVICE), alpha=0.5)
    assert average.tolist() == [0.875, 0.875]
