"""What a script reads on the emulated device: known values are exact, unknown ones are asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent / "support"))
from device_values import BIG, DEVICE, big_model, policy, small_model, state, unknown
from on_device import on_device

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
    with policy(lambda *_: 0.5) as asked:
        loss = model(x).pow(2).mean()
        loss.backward()
        assert not torch.isnan(loss)
        assert not torch.isinf(loss)
        assert torch.isfinite(loss)
        assert torch.isfinite(x).all()
        assert not torch.isnan(x).any()
        assert not (x != x).any()
        assert not (loss != loss)  # noqa: SIM202 - how a script writes it
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
    with policy(lambda *_: 0):
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
