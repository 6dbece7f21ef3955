"""Checkpoints of tensors without contents: whole in layout, holes on disk.

Without the fake device, CPU storages stand in for device ones: those in `on_device` claim to be on
`cuda:0`, which is all that `torch.save` goes by.
"""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from maya.emulator.script.checkpoint import SparseCheckpoints


class Device:
    """Which storages pretend to be on a device, which of them hold nothing real, and the notes."""

    def __init__(self) -> None:
        self.addresses: set[int] = set()
        self.made_up: set[int] = set()
        self.notes: list[Any] = []
        self.copied: list[int] = []

    def empty(self, *shape: int, **options: Any) -> torch.Tensor:
        tensor = torch.full(shape, 9, **options)
        self.adopt(tensor, made_up=True)
        return tensor

    def adopt(self, tensor: torch.Tensor, *, made_up: bool) -> None:
        address = tensor.untyped_storage().data_ptr()
        self.addresses.add(address)
        if made_up:
            self.made_up.add(address)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    device = Device()
    real = torch._C.StorageBase.device

    def pretended(storage: Any) -> torch.device:
        if storage.data_ptr() in device.addresses:
            return torch.device("cuda:0")
        return real.__get__(storage)  # type: ignore[no-any-return]

    monkeypatch.setattr(torch.UntypedStorage, "device", property(pretended), raising=False)
    checkpoints = SparseCheckpoints(
        lambda storage: storage.data_ptr() in device.made_up,
        device.copied.append,
        lambda *note: device.notes.append(note),
    )
    checkpoints.install()
    yield device
    checkpoints.remove()


def test_140_gb_take_few_bytes(tmp_path: Path, device: Device) -> None:
    weights = {}
    for index in range(2):
        # A mapped file without blocks is memory that overcommit limits do not count.
        weight = torch.from_file(
            str(tmp_path / f"memory-{index}"), shared=True, size=35_000_000_000, dtype=torch.bfloat16
        )
        device.adopt(weight, made_up=True)
        weights[f"layer.{index}"] = weight
    path = tmp_path / "model.pt"
    torch.save(weights, path)
    assert path.stat().st_size > 140e9
    assert path.stat().st_blocks * 512 < 1 << 20
    assert device.notes == [("checkpoint", "torch.save", 0)] * 2
    assert len(device.copied) == 2  # the trace must show the copies to the host
    with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        loaded = torch.load(path, mmap=True, map_location="cpu")
    assert loaded["layer.1"].shape == (35_000_000_000,)
    assert float(loaded["layer.1"][-1]) == 0.0


@pytest.mark.parametrize("weights_only", [True, False])
def test_real_and_made_up_contents_load(tmp_path: Path, device: Device, weights_only: bool) -> None:
    shared = device.empty(4, 4, dtype=torch.float32)
    state = {"real": torch.arange(5), "a": shared, "b": shared[1:], "after": torch.ones(3), "step": 7}
    path = tmp_path / "state.pt"
    torch.save(state, path)
    loaded = torch.load(path, map_location="cpu", weights_only=weights_only)
    assert torch.equal(loaded["real"], torch.arange(5))
    assert torch.equal(loaded["after"], torch.ones(3))
    assert torch.equal(loaded["a"], torch.zeros(4, 4))
    assert loaded["b"].untyped_storage().data_ptr() == loaded["a"].untyped_storage().data_ptr()
    assert loaded["step"] == 7
    assert len(device.notes) == 1


def test_open_files_and_buffers(tmp_path: Path, device: Device) -> None:
    state = {"x": device.empty(1000), "y": torch.ones(2)}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with open(tmp_path / "file.pt", "wb") as stream:
        torch.save(state, stream)
    for source in (io.BytesIO(buffer.getvalue()), tmp_path / "file.pt"):
        loaded = torch.load(source, map_location="cpu")
        assert torch.equal(loaded["x"], torch.zeros(1000, dtype=torch.long))
        assert torch.equal(loaded["y"], torch.ones(2))
    assert len(device.notes) == 2


def test_known_contents_are_written(tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(4)
    device.adopt(tensor, made_up=False)
    copies = []
    # The pretended device cannot copy; what matters is that a copy is asked for.
    monkeypatch.setattr(
        torch.UntypedStorage, "copy_", lambda self, source, _: copies.append(source) or self, raising=False
    )
    torch.save(tensor, tmp_path / "x.pt")
    assert [source.data_ptr() for source in copies] == [tensor.untyped_storage().data_ptr()]
    assert device.notes == []


def test_outside_of_a_save_storages_are_copied(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = device.empty(4)
    monkeypatch.setattr(torch.UntypedStorage, "copy_", lambda self, *_: self, raising=False)
    assert isinstance(tensor.untyped_storage().cpu(), torch.UntypedStorage)
    assert device.notes == []


def test_a_failing_save_leaves_no_trace(tmp_path: Path, device: Device) -> None:
    with pytest.raises(Exception, match="pickle"):
        torch.save({"bad": lambda: None, "x": device.empty(3)}, tmp_path / "x.pt")
    test_real_and_made_up_contents_load(tmp_path, device, True)


def test_everything_is_put_back() -> None:
    opener, cpu = torch.serialization._open_zipfile_writer, torch.UntypedStorage.cpu
    checkpoints = SparseCheckpoints(lambda _: True, lambda _: None, lambda *_: None)
    checkpoints.install()
    assert torch.UntypedStorage.cpu is not cpu
    checkpoints.remove()
    assert torch.serialization._open_zipfile_writer is opener
    assert torch.UntypedStorage.cpu is cpu
