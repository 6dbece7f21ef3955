"""Where iterations end: groups of optimizers, scalers, closures, wrappers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maya.emulator.script.iterations import IterationTracker
from maya.emulator.script.optimizer_hooks import OptimizerHooks
from maya.emulator.script.stop import StopController, StopRun
from maya.traces.operations import Phase


def ends_of(steps: str, wanted: int | None = None) -> list[int]:
    """Iteration ends, as positions in a sequence of optimizer names."""
    tracker = IterationTracker(wanted)
    for position, name in enumerate(steps):
        tracker.starting(ord(name))
        tracker.stepped(ord(name), position)
    tracker.finish()
    return tracker.iteration_ends


@pytest.mark.parametrize(
    ("steps", "ends"),
    [
        ("", []),
        ("A", [0]),
        ("AAAA", [0, 1, 2, 3]),
        ("DGDGDG", [1, 3, 5]),
        ("DG", [1]),
        ("DGDGD", [1, 3]),  # the last pass broke off in the middle
        ("ABCABC", [2, 5]),
        ("ABCBAC", [2, 5]),
        ("AAABBB", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_groups(steps: str, ends: list[int]) -> None:
    assert ends_of(steps) == ends


def test_an_optimizer_that_joins_later_does_not_double_the_iterations() -> None:
    ends = ends_of("AAA" + "BA" * 10)
    assert ends[:3] == [0, 1, 2]
    assert len(ends) in (13, 14)


def test_a_known_group_ends_with_its_last_step() -> None:
    tracker = IterationTracker(2)
    results = []
    for position, name in enumerate("DGDG"):
        tracker.starting(ord(name))
        results.append(tracker.stepped(ord(name), position))
    assert results == [False, False, False, True]
    assert tracker.enough


@given(members=st.integers(1, 6), loops=st.integers(1, 20))
def test_any_fixed_order_is_one_iteration_a_loop(members: int, loops: int) -> None:
    steps = "".join(chr(65 + index) for index in range(members)) * loops
    assert ends_of(steps) == [members * (loop + 1) - 1 for loop in range(loops)]


@given(st.text("ABC", max_size=40))
def test_ends_ascend_whatever_steps(steps: str) -> None:
    ends = ends_of(steps)
    assert ends == sorted(set(ends))
    assert all(0 <= end < len(steps) for end in ends)


def test_at_least_one_iteration_has_to_be_wanted() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        IterationTracker(0)


class Hooked:
    def __init__(self, native: Any) -> None:
        self.native = native
        self.tracker = IterationTracker(None)
        self.stop = StopController(on_request=lambda: None, on_deadline=lambda: None)
        self.hooks = OptimizerHooks(native, self.tracker, self.stop)
        self.hooks.install()

    def ends(self) -> int:
        return self.tracker.completed


@pytest.fixture
def hooked(native: Any) -> Iterator[Hooked]:
    hooked = Hooked(native)
    yield hooked
    hooked.hooks.remove()
    hooked.stop.settle()


def parameter() -> torch.nn.Parameter:
    result = torch.nn.Parameter(torch.ones(2))
    result.grad = torch.ones(2)
    return result


def test_phase_and_markers(hooked: Hooked) -> None:
    native = hooked.native
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: native.issue("work"))
    for _ in range(2):
        optimizer.step()
        native.issue("between")
    assert (
        native.operations
        == [
            ("maya::optimizer_begin", {}),
            ("work", (int(Phase.OPTIMIZER), "")),
            ("maya::optimizer_end", {}),
            ("between", (-1, "")),
        ]
        * 2
    )
    assert hooked.tracker.iteration_ends == [2, 6]


def test_a_skipped_scaler_step_counts(hooked: Hooked) -> None:
    weight = parameter()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = weight.detach().clone()
    for infinite in (False, True, False, True):
        scaler.scale(weight.sum()).backward()
        if infinite:
            weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert not torch.equal(before, weight)
    assert hooked.native.names() == ["maya::optimizer_begin", "maya::optimizer_end"] * 4
    hooked.tracker.finish()
    assert hooked.ends() == 4


def test_a_disabled_scaler_counts_once(hooked: Hooked) -> None:
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(3):
        scaler.step(optimizer)
    hooked.tracker.finish()
    assert hooked.ends() == 3


def test_a_closure_is_outside_the_optimizer(hooked: Hooked) -> None:
    native = hooked.native
    weight = parameter()
    optimizer = torch.optim.LBFGS([weight], max_iter=3)

    def closure() -> torch.Tensor:
        native.issue("closure")
        optimizer.zero_grad()
        loss = ((weight - 3) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.step(closure=closure)
    closures = [operation for operation in native.operations if operation[0] == "closure"]
    assert len(closures) >= 2
    assert {phase for _, (phase, _) in closures} == {-1}
    assert native.phase == -1
    hooked.tracker.finish()
    assert hooked.ends() == 2


def test_an_optimizer_inside_an_optimizer_counts_once(hooked: Hooked) -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure: Any = None) -> Any:
            return self.inner.step(closure)

    optimizer = Wrapper(torch.optim.SGD([parameter()], lr=0.1))
    for _ in range(3):
        optimizer.step()
    hooked.tracker.finish()
    assert hooked.ends() == 3
    assert hooked.native.names() == ["maya::optimizer_begin", "maya::optimizer_end"] * 3


def test_a_step_that_raised_is_forgotten(hooked: Hooked) -> None:
    class Broken(torch.optim.SGD):
        fails = True

        def step(self, closure: Any = None) -> Any:
            if self.fails:
                raise RuntimeError("out of memory")
            return super().step(closure)

    broken = Broken([parameter()], lr=0.1)
    with pytest.raises(RuntimeError, match="out of memory"):
        broken.step()
    assert hooked.native.phase == int(Phase.OPTIMIZER)  # nothing told us yet
    hooked.hooks.drop_abandoned_steps()
    assert hooked.native.phase == -1
    other = torch.optim.SGD([parameter()], lr=0.1)
    for _ in range(3):
        other.step()
    hooked.tracker.finish()
    assert hooked.ends() == 3


def test_optimizers_inside_backward_are_one_group(hooked: Hooked) -> None:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(4)]
    optimizers = {id(weight): torch.optim.SGD([weight], lr=0.1) for weight in weights}
    for weight in weights:
        weight.register_post_accumulate_grad_hook(lambda tensor: optimizers[id(tensor)].step())
    for _ in range(3):
        sum(weight.sum() for weight in weights).backward()  # type: ignore[union-attr]
    hooked.tracker.finish()
    assert hooked.ends() == 3


def test_steps_raise_while_stopping(hooked: Hooked) -> None:
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    with pytest.raises(StopRun):
        hooked.stop.request()
    with pytest.raises(StopRun):
        optimizer.step()


def test_hooks_can_be_removed(native: Any) -> None:
    hooked = Hooked(native)
    hooked.hooks.remove()
    torch.optim.SGD([parameter()], lr=0.1).step()
    assert native.operations == []
