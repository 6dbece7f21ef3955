"""Module paths, parameters, batches, and what a hook pair costs."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from maya.emulator.script.batches import infer_batch
from maya.emulator.script.modules import ModuleHooks
from maya.emulator.script.stop import StopController, StopRun


@pytest.fixture
def stop() -> Iterator[StopController]:
    stop = StopController(on_request=lambda: None, on_deadline=lambda: None)
    yield stop
    stop.settle()


@pytest.fixture
def hooks(native: Any, stop: StopController) -> Iterator[ModuleHooks]:
    hooks = ModuleHooks(native, stop)
    hooks.install()
    yield hooks
    hooks.remove()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


PATHS = ["Net", "Net.layers.0", "Net.layers.1", "Net.head", "Net.head.0", "Net.head.1"]


@pytest.mark.usefixtures("hooks")
def test_paths_in_order(native: Any) -> None:
    Net()(torch.ones(3, 4))
    assert native.entered == PATHS
    assert native.stack == []


@pytest.mark.usefixtures("hooks")
def test_parameters_are_bound_to_the_module_that_holds_them(native: Any) -> None:
    net = Net()
    net(torch.ones(3, 4))
    assert native.bound == {
        id(net.layers[0].weight): "Net.layers.0",
        id(net.layers[0].bias): "Net.layers.0",
        id(net.layers[1].weight): "Net.layers.1",
        id(net.layers[1].bias): "Net.layers.1",
        id(net.head[1].weight): "Net.head.1",
        id(net.head[1].bias): "Net.head.1",
    }


@pytest.mark.usefixtures("hooks")
def test_exceptions_unwind(native: Any) -> None:
    class Bad(nn.Module):
        def forward(self, _: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no")

    class Tolerant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad = nn.Sequential(Bad())
            self.after = nn.Identity()

        def forward(self, x: torch.Tensor) -> Any:
            with pytest.raises(RuntimeError):
                self.bad(x)
            assert native.stack == ["Tolerant"]
            return self.after(x)

    Tolerant()(torch.ones(1))
    assert native.stack == []


@pytest.mark.usefixtures("hooks")
def test_an_interrupt_does_not_shift_later_paths(native: Any) -> None:
    class Interrupted(nn.Module):
        def forward(self, _: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    net = nn.Sequential(nn.Sequential(Interrupted()))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            net(torch.ones(1))
        assert native.stack == ["Sequential", "Sequential.0", "Sequential.0.0"]  # hooks heard nothing
    net[0][0] = nn.Identity()
    net(torch.ones(1))
    assert native.stack == []


def test_submodules_that_appear_later(native: Any, hooks: ModuleHooks) -> None:
    net = Net()
    net(torch.ones(3, 4))
    net.head.append(nn.Tanh())
    net(torch.ones(3, 4))
    assert native.entered[-1] == "Net.head.2"
    assert hooks.path_of(net.head[2]) == "Net.head.2"


@pytest.mark.usefixtures("hooks")
def test_modules_made_in_forward_are_named_by_class_and_walk_the_root_rarely(native: Any) -> None:
    walks = 0

    class Makes(nn.Module):
        def named_modules(self, *args: Any, **kwargs: Any) -> Any:
            nonlocal walks
            walks += 1
            return super().named_modules(*args, **kwargs)

        def forward(self, x: torch.Tensor) -> Any:
            return nn.Softmax(dim=-1)(x)

    model = Makes()
    for _ in range(100):
        model(torch.ones(2))
    assert set(native.entered) == {"Makes", "Makes.<Softmax>"}
    assert walks < 10


def test_two_roots_of_one_class_are_told_apart_and_names_are_reused(native: Any, hooks: ModuleHooks) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    first(torch.ones(2))
    second(torch.ones(2))
    assert native.entered == ["Linear", "Linear#2"]
    del second
    gc.collect()
    third = nn.Linear(2, 2)
    third(torch.ones(2))
    assert hooks.path_of(third) == "Linear#2"


def test_dead_modules_are_forgotten(hooks: ModuleHooks) -> None:
    for _ in range(50):
        Net()(torch.ones(1, 4))
    gc.collect()
    assert hooks._entries == {}


def test_a_wrapped_model_gets_the_wrappers_path(native: Any, hooks: ModuleHooks) -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor) -> Any:
            return self.module(x)

    net = Net()
    net(torch.ones(3, 4))
    wrapper = Wrapper(net)
    wrapper(torch.ones(3, 4))
    hooks.announce_batch()
    assert hooks.path_of(net.layers[0]) == "Wrapper.module.layers.0"
    batches = [args for name, args in native.operations if name == "maya::batch"]
    assert batches == [{"samples": 3, "tokens": 0, "module": "Wrapper"}]


def test_recomputed_parts_keep_their_path_on_another_thread_and_are_no_batch(
    native: Any, hooks: ModuleHooks
) -> None:
    net = Net()
    net(torch.ones(3, 4))
    hooks.announce_batch()
    native.operations.clear()
    thread = threading.Thread(target=lambda: net.layers[1](torch.ones(3, 4)))
    thread.start()
    thread.join()
    hooks.announce_batch()
    assert native.entered[-1] == "Net.layers.1"
    assert native.operations == []


def test_no_batch_without_gradients_or_parameters(native: Any, hooks: ModuleHooks) -> None:
    net, loss = Net(), nn.CrossEntropyLoss()
    with torch.no_grad():
        net(torch.ones(3, 4))
    hooks.announce_batch()
    loss(net(torch.ones(5, 4)), torch.zeros(5, dtype=torch.long))
    hooks.announce_batch()
    hooks.announce_batch()
    batches = [args for name, args in native.operations if name == "maya::batch"]
    assert batches == [{"samples": 5, "tokens": 0, "module": "Net"}]
    assert hooks.path_of(loss) == "CrossEntropyLoss"


@pytest.mark.parametrize(
    ("args", "kwargs", "batch"),
    [
        ((torch.zeros(8, 128, dtype=torch.long), torch.zeros(8, 128)), {}, (8, 1024)),
        ((torch.zeros(8, 3, 32, 32),), {}, (8, 0)),
        ((), {"labels": None, "input_ids": torch.zeros(2, 5, dtype=torch.int32)}, (2, 10)),
        (([{"image": torch.zeros(7, 3)}],), {}, (7, 0)),
        ((torch.tensor(3.0), torch.zeros(4)), {}, (4, 0)),
        ((torch.zeros(4, 4, dtype=torch.bool),), {}, (4, 0)),
        (("text", 3), {}, (0, 0)),
    ],
)
def test_batch_inference(args: Any, kwargs: Any, batch: tuple[int, int]) -> None:
    assert infer_batch(args, kwargs) == batch


@pytest.mark.usefixtures("hooks")
def test_forward_raises_while_stopping(stop: StopController) -> None:
    with pytest.raises(StopRun):
        stop.request()
    with pytest.raises(StopRun):
        nn.Linear(2, 2)(torch.ones(2))


def test_a_hook_pair_is_cheap(stop: StopController) -> None:
    class Silent:
        """Native calls that cost nothing, so that only the hooks are timed."""

        enter_module = staticmethod(len)
        leave_module = staticmethod(dict)

        def module_id(self, path: str) -> str:
            return path

        def bind_parameter(self, tensor: Any, module: int) -> None: ...

        def mark(self, operator: str, metadata: str) -> None: ...

    hooks = ModuleHooks(Silent(), stop)  # type: ignore[arg-type]
    before, after = hooks._make_before(), hooks._make_after()
    net = Net()
    leaf = net.layers[0]
    before(net, ())
    before(leaf, ())
    after(leaf, (), {}, None)
    best = float("inf")
    for _ in range(20):
        begin = time.process_time_ns()
        for _ in range(1000):
            before(leaf, ())
            after(leaf, (), {}, None)
        best = min(best, (time.process_time_ns() - begin) / 1000)
    assert best < 2000, f"{best:.0f} ns a pair"
