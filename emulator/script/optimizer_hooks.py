"""Optimizer steps as the script makes them: phase, markers, iteration ends.

torch's global step hooks see every `torch.optim.Optimizer` subclass, frameworks' own included.
Steps inside steps (ZeRO wrappers, a GradScaler's call of the optimizer) count once, and a step
that a GradScaler skipped counts too.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from maya.emulator.script.iterations import IterationTracker
from maya.emulator.script.native import ScriptNative
from maya.emulator.script.stop import StopController
from maya.traces.operations import MARK_OPTIMIZER_BEGIN, MARK_OPTIMIZER_END, Phase

NO_METADATA = '{"args": {}, "out": []}'
AUTOMATIC_PHASE = -1


class _Running(threading.local):
    """The steps this thread is inside of, outermost first: (optimizer, frame of its step)."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, FrameType | None]] = []
        self.previous_phase = AUTOMATIC_PHASE


class OptimizerHooks:
    """Installs itself into torch.optim and GradScaler until `remove`.

    Args:
        count_iterations: False when a `--step-marker` says where iterations end.
        on_iteration: called after each iteration that is known to have ended.
    """

    def __init__(
        self,
        native: ScriptNative,
        tracker: IterationTracker,
        stop: StopController,
        *,
        count_iterations: bool = True,
        on_iteration: Callable[[], None] = lambda: None,
    ) -> None:
        self._native = native
        self._tracker = tracker
        self._stop = stop
        self._count_iterations = count_iterations
        self._on_iteration = on_iteration
        self._running = _Running()
        self._handles: list[Any] = []
        self._scaler_step: Any = None

    def install(self) -> None:
        """Register the hooks. Call once, before the script runs."""
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        original = self._scaler_step = GradScaler.step
        hooks = self

        @functools.wraps(original)
        def step(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if not hooks._handles:
                return original(self, optimizer, *args, **kwargs)
            hooks._begin(id(optimizer), None)
            running = hooks._running.steps
            depth = len(running)
            try:
                result = original(self, optimizer, *args, **kwargs)
            except BaseException:
                del running[depth - 1 :]
                if not running:
                    hooks._leave_phase()
                raise
            del running[depth:]
            hooks._end(id(optimizer))
            return result

        GradScaler.step = step

    def remove(self) -> None:
        """Take the hooks out again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._scaler_step is not None:
            GradScaler.step = self._scaler_step
            self._scaler_step = None

    def drop_abandoned_steps(self) -> None:
        """Forget steps that an exception left, which post hooks never hear of.

        The frame of a step that still runs is among the callers of this one.
        """
        running = self._running.steps
        if not running:
            return
        callers = set()
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            callers.add(id(frame))
            frame = frame.f_back
        for depth, (_, step_frame) in enumerate(running):
            if step_frame is not None and id(step_frame) not in callers:
                del running[depth:]
                if not running:
                    self._leave_phase()
                return

    def _before_step(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._stop.requested:
            self._stop.raise_again()
        self.drop_abandoned_steps()
        self._begin(id(optimizer), sys._getframe(1))
        # A closure runs forward and backward inside the step; they are not the optimizer's work.
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside_optimizer(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._outside_optimizer(kwargs["closure"])}
        return None

    def _after_step(
        self,
        optimizer: torch.optim.Optimizer,
        args: tuple[Any, ...],  # noqa: ARG002 - torch calls with these
        kwargs: dict[str, Any],  # noqa: ARG002
    ) -> None:
        running = self._running.steps
        frame = sys._getframe(1)
        for depth in range(len(running) - 1, -1, -1):
            if running[depth][1] is frame:
                del running[depth + 1 :]
                self._end(id(optimizer))
                return

    def _begin(self, optimizer: int, frame: FrameType | None) -> None:
        running = self._running
        if not running.steps:
            if self._count_iterations and self._tracker.starting(optimizer):
                self._iteration_ended()
            self._native.mark(MARK_OPTIMIZER_BEGIN, NO_METADATA)
            running.previous_phase = self._native.set_phase(int(Phase.OPTIMIZER))
        running.steps.append((optimizer, frame))

    def _end(self, optimizer: int) -> None:
        running = self._running
        running.steps.pop()
        if running.steps:
            return
        self._leave_phase()
        if self._count_iterations and self._tracker.stepped(optimizer, self._native.next_operation_id() - 1):
            self._iteration_ended()

    def _iteration_ended(self) -> None:
        self._on_iteration()
        if self._tracker.enough:
            self._stop.request()

    def _leave_phase(self) -> None:
        self._native.set_phase(self._running.previous_phase)
        self._native.mark(MARK_OPTIMIZER_END, NO_METADATA)

    def _outside_optimizer(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(closure, updated=())
        def outside(*args: Any, **kwargs: Any) -> Any:
            native = self._native
            native.mark(MARK_OPTIMIZER_END, NO_METADATA)
            phase = native.set_phase(AUTOMATIC_PHASE)
            try:
                return closure(*args, **kwargs)
            finally:
                native.set_phase(phase)
                native.mark(MARK_OPTIMIZER_BEGIN, NO_METADATA)

        return outside
