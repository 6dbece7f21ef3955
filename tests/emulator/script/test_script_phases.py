"""Markers around backward passes and loader waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from maya.emulator.script.phases import BackwardMarkers, LoaderMarkers
from maya.emulator.script.stop import StopController, StopRun
from maya.errors import MayaError
from maya.traces.operations import Phase


@pytest.fixture
def stop() -> Iterator[StopController]:
    stop = StopController(on_request=lambda: None, on_deadline=lambda: None)
    yield stop
    stop.settle()


@pytest.fixture
def backward(native: Any, stop: StopController) -> Iterator[BackwardMarkers]:
    markers = BackwardMarkers(native, stop)
    markers.install()
    yield markers
    markers.remove()


BEGIN, END = "maya::backward_begin", "maya::backward_end"


@pytest.mark.usefixtures("backward")
def test_backward_and_grad(native: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    torch.autograd.backward([x.sum()])
    torch.autograd.grad(x.sum(), x)
    expected = [(name, {"accumulates": kind}) for kind in (True, True, False) for name in (BEGIN, END)]
    assert native.operations == expected


@pytest.mark.usefixtures("backward")
def test_a_backward_within_a_backward_is_part_of_it(native: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    checkpoint(lambda t: (t * t).sin(), x, use_reentrant=True).sum().backward()
    assert native.names() == [BEGIN, END]


@pytest.mark.usefixtures("backward")
def test_a_backward_that_fails_still_ends(native: Any) -> None:
    with pytest.raises(RuntimeError):
        torch.ones(2).sum().backward()
    assert native.names() == [BEGIN, END]


def test_everything_is_put_back(native: Any, stop: StopController) -> None:
    original = torch.autograd._engine_run_backward
    markers = BackwardMarkers(native, stop)
    markers.install()
    assert torch.autograd.graph._engine_run_backward is torch.autograd._engine_run_backward is not original
    markers.remove()
    assert torch.autograd.graph._engine_run_backward is torch.autograd._engine_run_backward is original


def test_another_torch_is_named(native: Any, stop: StopController, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.autograd.graph, "_engine_run_backward")
    with pytest.raises(MayaError, match=torch.__version__.replace("+", r"\+")):
        BackwardMarkers(native, stop).install()


@pytest.mark.usefixtures("backward")
def test_backward_raises_while_stopping(stop: StopController) -> None:
    with pytest.raises(StopRun):
        stop.request()
    with pytest.raises(StopRun):
        torch.ones(2, requires_grad=True).sum().backward()


def test_loader_waits(native: Any, stop: StopController) -> None:
    class Numbers(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            native.issue("item")
            return index

    markers = LoaderMarkers(native, stop)
    markers.install()
    try:
        iterator = iter(DataLoader(Numbers()))
        assert [int(batch) for batch in iterator] == [0, 1]
        assert list(markers.iterators) == [iterator]
    finally:
        markers.remove()
    wait = ["maya::data_wait_begin", "item", "maya::data_wait_end"]
    assert native.names() == [*wait, *wait, wait[0], wait[2]]
    assert native.operations[1] == ("item", (int(Phase.DATA), ""))
    assert native.phase == -1
