"""Where values go: copies, views, files, and the state of a storage."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent / "support"))
from device_values import BIG, DEVICE, policy, small_model, state, unknown
from on_device import on_device

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
    for wrong, message in (
        (torch.zeros(5), "must match the size"),
        (torch.zeros(2, 3, 4), "broadcast shape"),
    ):
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
    for read in (
        lambda: x[beyond],
        lambda: x.index_select(0, beyond),
        lambda: F.embedding(beyond, x[:, None]),
    ):
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
