"""Everything that watches a script while it runs in the rank's process, in one object."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from maya.emulator.script.checkpoint import SparseCheckpoints, made_up_storages
from maya.emulator.script.children import end_child_processes, ignore_worker_deaths, shut_down_loaders
from maya.emulator.script.compiled import EagerCompile
from maya.emulator.script.iterations import IterationTracker
from maya.emulator.script.main_module import ScriptTarget
from maya.emulator.script.modules import ModuleHooks
from maya.emulator.script.native import ScriptNative
from maya.emulator.script.optimizer_hooks import OptimizerHooks
from maya.emulator.script.phases import BackwardMarkers, LoaderMarkers
from maya.emulator.script.processes import ProcessBoundary
from maya.emulator.script.runner import execute, join_threads
from maya.emulator.script.step_marker import StepMarker, StepMarkerHook
from maya.emulator.script.stop import GRACE_S, StopController, StopRun
from maya.emulator.script.uncaught import exit_code_of, flush_streams, show_uncaught, strip_own_frames
from maya.emulator.script.values import ValuePolicy, ValueSettings
from maya.errors import MayaError, UsageError

EXIT_INTERRUPTED = 130
"""What a shell reports for a process that Ctrl-C ended: 128 + SIGINT."""


class Ending(Enum):
    """How a script came to its end."""

    FINISHED = "finished"
    """It ran to the end of its code."""
    STOPPED = "stopped"
    """Maya stopped it after the wanted iterations."""
    EXITED = "exited"
    """It called `sys.exit` or `os._exit`."""
    RAISED = "raised"
    """An exception was not caught."""
    INTERRUPTED = "interrupted"
    """Ctrl-C."""


@dataclass(frozen=True)
class ScriptOutcome:
    """How the script ended.

    Attributes:
        ending: in which way.
        exit_code: what plain Python would exit with; 0 if Maya stopped it.
        error: the exception that was not caught, already printed; None otherwise.
    """

    ending: Ending
    exit_code: int
    error: BaseException | None = None

    @property
    def cause(self) -> str:
        """One line for the manifest, `RuntimeError: ...`; empty if nothing went wrong."""
        if self.error is None:
            return ""
        message = str(self.error).strip().partition("\n")[0]
        return f"{type(self.error).__name__}: {message}" if message else type(self.error).__name__


class Part(Protocol):
    """Hooks that are there while the script runs."""

    def install(self) -> None: ...
    def remove(self) -> None: ...


@dataclass(frozen=True)
class FollowSettings:
    """What to watch for.

    Attributes:
        warmup: iterations that run before those that are wanted.
        steps: wanted iterations; None lets the script run to its own end.
        step_marker: `module:function` whose returns end iterations, instead of optimizer steps.
        values: the value policy's defaults.
        grace_s: how long a stopped script may clean up.
        replace_first_path: whether `sys.path[0]` belongs to this process rather than to the user.
    """

    warmup: int = 1
    steps: int | None = 3
    step_marker: str | None = None
    values: ValueSettings = field(default_factory=ValueSettings)
    grace_s: float = GRACE_S
    replace_first_path: bool = True


class ScriptFollower:
    """Installs every hook, runs the script, and knows afterwards what happened.

    Args:
        native: the compiled backend, its fake device installed.
        settings: what to watch for.
        on_abrupt_end: writes the results when the process ends inside the script: `os._exit`, or
            a stopped script that would not end. Called at most once, and then `run` never returns.
    """

    def __init__(
        self,
        native: ScriptNative,
        settings: FollowSettings,
        *,
        on_abrupt_end: Callable[[ScriptOutcome], object],
    ) -> None:
        self._native = native
        self._settings = settings
        self._on_abrupt_end = on_abrupt_end
        wanted = None if settings.steps is None else settings.warmup + settings.steps
        self.tracker = IterationTracker(wanted)
        self.stop = StopController(
            on_request=lambda: native.recording(False),
            on_deadline=self._end_at_deadline,
            grace_s=settings.grace_s,
        )
        self.policy = ValuePolicy(settings.values, native.source_line)
        self._marker = None
        if settings.step_marker is not None:
            self._marker = StepMarkerHook(StepMarker.parse(settings.step_marker), self._marked_step)
        self._optimizers = OptimizerHooks(
            native,
            self.tracker,
            self.stop,
            count_iterations=self._marker is None,
            on_iteration=self.policy.iteration_ended,
        )
        self._modules = ModuleHooks(native, self.stop, on_root_forward=self._optimizers.drop_abandoned_steps)
        self._backward = BackwardMarkers(native, self.stop, on_accumulate=self._modules.announce_batch)
        self._loaders = LoaderMarkers(native, self.stop)
        self._checkpoints = SparseCheckpoints(
            made_up_storages(native), native.record_storage_to_host, self.policy.assume
        )
        self._compile = EagerCompile(self.policy.assume)
        self._boundary = ProcessBoundary(self._before_exit, self._in_forked_child)

    @property
    def iteration_ends(self) -> tuple[int, ...]:
        """Ids of the operations after which each iteration ended."""
        return tuple(self.tracker.iteration_ends)

    @property
    def optimizer_steps(self) -> int:
        """How often an optimizer stepped, or its GradScaler skipped the step."""
        return self.tracker.optimizer_steps

    @property
    def backward_out_of_memory_line(self) -> str:
        """The line whose backward pass ran out of memory last, "" if none did."""
        return self._backward.out_of_memory_line

    @property
    def data_wait_ns(self) -> int:
        """Wall time spent waiting for DataLoaders on this machine."""
        return self._loaders.wait_ns

    def assumptions(self) -> list[dict[str, Any]]:
        """Every distinct unknown value that was read: kind, producer, count, source_line, value."""
        return self.policy.assumptions()

    def run(self, target: ScriptTarget) -> ScriptOutcome:
        """Run the script to its end or until enough iterations have run.

        Nothing is printed but what plain Python would print. A child that the script forked and
        that comes back here exits as it would from plain Python.

        Raises:
            MayaError: from inside the script (a feature Maya lacks) or UsageError: no such file.
        """
        self._install()
        try:
            outcome = self._run(target)
            if not self._boundary.is_rank:
                self._exit_forked_child(outcome.exit_code)
            if outcome.ending is Ending.STOPPED:
                shut_down_loaders(self._loaders.iterators)
                end_child_processes()
            self.stop.settle()
            self.tracker.finish()
            self._check_marker(outcome)
            return outcome
        finally:
            self._native.recording(False)
            self._uninstall()

    def _run(self, target: ScriptTarget) -> ScriptOutcome:
        outcome = self._outcome_of(
            lambda: execute(target, marker=self._marker, replace_first_path=self._settings.replace_first_path)
        )
        flush_streams()
        after = self._outcome_of(join_threads)
        return outcome if after.ending in (Ending.FINISHED, Ending.STOPPED) else after

    def _outcome_of(self, run: Callable[[], None]) -> ScriptOutcome:
        stopped = ScriptOutcome(Ending.STOPPED, 0)
        try:
            run()
        except StopRun:
            return stopped
        except MayaError as error:
            strip_own_frames(error)
            raise
        except SystemExit as request:
            return stopped if self.stop.requested else ScriptOutcome(Ending.EXITED, exit_code_of(request))
        except BaseException as error:
            # Whatever a script makes of being stopped is no failure of the script.
            if self.stop.requested:
                return stopped
            show_uncaught(error)
            if isinstance(error, KeyboardInterrupt):
                return ScriptOutcome(Ending.INTERRUPTED, EXIT_INTERRUPTED, error)
            return ScriptOutcome(Ending.RAISED, 1, error)
        return stopped if self.stop.requested else ScriptOutcome(Ending.FINISHED, 0)

    def _install(self) -> None:
        for part in self._parts():
            part.install()
        if self._marker is not None:
            self._marker.install()
        self._boundary.install()
        self._native.set_value_policy(self.policy)

    def _uninstall(self) -> None:
        self._boundary.remove()
        if self._marker is not None:
            self._marker.remove()
        for part in reversed(self._parts()):
            part.remove()

    def _parts(self) -> tuple[Part, ...]:
        return (
            self._optimizers,
            self._modules,
            self._backward,
            self._loaders,
            self._checkpoints,
            self._compile,
        )

    def _marked_step(self) -> None:
        if self.stop.requested:
            self.stop.raise_again()
        self.tracker.iteration_ended(self._native.next_operation_id() - 1)
        self.policy.iteration_ended()
        if self.tracker.enough:
            self.stop.request()

    def _check_marker(self, outcome: ScriptOutcome) -> None:
        if self._marker is None or self.tracker.completed or outcome.error is not None:
            return
        name = f"{self._marker.marker.module}:{self._marker.marker.function}"
        what = "was never called" if self._marker.found else "was never imported"
        raise UsageError(
            f"--step-marker {name} {what}",
            hint="Name a function that the script calls once a step, by the module that defines it.",
        )

    def end_process(self, outcome: ScriptOutcome) -> None:
        """Write the results and end the process wherever the script is; nothing if it has ended.

        For another thread than the script's own.
        """
        self._native.recording(False)
        self.stop.end_process(lambda: self._end_abruptly(outcome), outcome.exit_code)

    def _end_at_deadline(self) -> None:
        self._end_abruptly(ScriptOutcome(Ending.STOPPED, 0))

    def _end_abruptly(self, outcome: ScriptOutcome) -> None:
        self._boundary.remove()
        self.tracker.finish()
        self._on_abrupt_end(outcome)
        ignore_worker_deaths(self._loaders.iterators)
        end_child_processes()
        flush_streams()

    def _before_exit(self, status: int) -> None:
        self.stop.settle()
        self._native.recording(False)
        self.tracker.finish()
        stopped = self.stop.requested
        ending = Ending.STOPPED if stopped else Ending.EXITED
        self._on_abrupt_end(ScriptOutcome(ending, 0 if stopped else status & 0xFF))

    def _in_forked_child(self) -> None:
        self._native.recording(False)
        self.stop.forget()
        self._uninstall()

    def _exit_forked_child(self, code: int) -> None:
        atexit._run_exitfuncs()
        flush_streams()
        sys.stderr.flush()
        os._exit(code)
