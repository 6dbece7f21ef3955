"""The work of a rank's process: the device, the script on it, and what is left behind on disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.emulator import torch_distributed
from maya.emulator.device import DeviceSettings, install_device
from maya.emulator.held_memory import fullest_device, out_of_memory, peaks
from maya.emulator.memory_owners import memory_owners
from maya.emulator.rank_spec import UNLIMITED_BYTES, RankOutcome, RankSpec
from maya.emulator.recording import RankRecording
from maya.emulator.script import Ending, FollowSettings, ScriptFollower, ScriptOutcome, ScriptTarget
from maya.hardware import find_gpu
from maya.traces import Ended, MemoryAction, memory_path, read_memory
from maya.traces.oracle import DurationOracle

HOST_GAP_NS = 5_000
"""Host time between two launches on the clock that the script sees; the prediction has its own model."""


def install_for(spec: RankSpec) -> ModuleType:
    """Put the device that a rank's specification asks for into this process; see `install_device`."""
    unlimited = _is_unlimited(spec)
    return install_device(
        DeviceSettings(
            gpu=find_gpu(spec.gpu),
            visible_gpus=spec.visible_gpus,
            memory_bytes=None if unlimited else spec.gpu_memory_bytes,
            unlimited_memory=unlimited,
        )
    )


def _is_unlimited(spec: RankSpec) -> bool:
    return spec.gpu_memory_bytes is not None and spec.gpu_memory_bytes >= UNLIMITED_BYTES


class Rank:
    """One rank in this process: install, record, run, conclude.

    Args:
        spec: which rank, and what it runs.
        oracle: the device clock that the script sees.
        native: the device, if it is installed already (in a process that forked this one).
        on_outcome: called once everything is written, before the process goes on to its end.
    """

    def __init__(
        self,
        spec: RankSpec,
        oracle: DurationOracle | None,
        *,
        native: ModuleType | None = None,
        on_outcome: Callable[[RankOutcome], object] | None = None,
    ) -> None:
        self._spec = spec
        self._oracle = oracle
        self._on_outcome = on_outcome
        self._given_native = native
        self._began_ns = 0
        self._running: ScriptFollower | None = None

    def run(self) -> RankOutcome:
        """Run the script to its end, or to the end of the iterations asked for."""
        spec = self._spec
        target = ScriptTarget(spec.program[0], tuple(spec.program[1:]), spec.is_module)
        target.check()
        self._native = install_for(spec) if self._given_native is None else self._given_native
        torch_distributed.install(self._native, rank=spec.rank, world_size=spec.world_size)
        gpu_bytes = find_gpu(spec.gpu).total_memory_bytes
        self._capacity_bytes = gpu_bytes if _is_unlimited(spec) else spec.gpu_memory_bytes or gpu_bytes
        self._native.set_host_gap_ns(HOST_GAP_NS)
        if self._oracle is not None:
            self._native.set_oracle(self._oracle.duration_ns)
        self._recording = RankRecording(self._native, spec.run_dir, spec.rank)
        self._follower = ScriptFollower(
            self._native,
            FollowSettings(
                warmup=spec.warmup, steps=spec.steps, step_marker=spec.step_marker, replace_first_path=False
            ),
            on_abrupt_end=self._conclude,
        )
        self._began_ns = time.monotonic_ns()
        self._recording.start()
        self._running = self._follower
        return self._conclude(self._follower.run(target))

    def end_process(self, *, exit_code: int, stopped: bool) -> None:
        """Write what has been recorded so far and end the process, unless the script has ended already.

        For another thread than the one that runs the script, which may wait for ever by now.

        Args:
            exit_code: of this process.
            stopped: whether the rank counts as stopped after its iterations, not as interrupted.
        """
        if self._running is None:  # nothing is recorded yet
            os._exit(exit_code)
        ending = Ending.STOPPED if stopped else Ending.INTERRUPTED
        self._running.end_process(ScriptOutcome(ending, exit_code))

    def _conclude(self, outcome: ScriptOutcome) -> RankOutcome:
        elapsed_ns = time.monotonic_ns() - self._began_ns
        self._recording.finish(self._follower.iteration_ends, self._follower.assumptions())
        written_ns = time.monotonic_ns() - self._began_ns - elapsed_ns
        ended = self._ended(outcome)
        memory = read_memory(memory_path(self._spec.run_dir, self._spec.rank))
        allocated, reserved = peaks(memory, fullest_device(memory))
        values = {
            "ended": ended.value,
            "exit_code": outcome.exit_code,
            "cause": _cause(outcome, self._native),
            "iterations": len(self._follower.iteration_ends),
            "optimizer_steps": self._follower.optimizer_steps,
            "oom": self._out_of_memory(memory),
            "memory": {"allocated": allocated, "reserved": reserved, "capacity": self._capacity_bytes},
            "torch_version": _torch_version(),
            "data_wait_ns": self._follower.data_wait_ns,
            "emulation_wall_ns": elapsed_ns,
            "trace_writing_wall_ns": written_ns,
            "statistics": self._native.statistics(),
        }
        path = self._spec.run_dir / f"outcome-{self._spec.rank}.json"
        partial = path.with_suffix(".json.partial")
        partial.write_text(json.dumps(values, indent=1) + "\n")
        partial.replace(path)
        result = RankOutcome(ended, outcome.exit_code)
        if self._on_outcome is not None:
            self._on_outcome(result)
        return result

    def _out_of_memory(self, memory: NDArray[np.void]) -> dict[str, Any] | None:
        if not (memory["action"] == MemoryAction.OUT_OF_MEMORY).any():
            return None
        modules = self._native.interned("modules", 0)
        line = self._native.out_of_memory_line() or self._follower.backward_out_of_memory_line
        return out_of_memory(memory, modules, line, memory_owners(self._native))

    def _ended(self, outcome: ScriptOutcome) -> Ended:
        if outcome.ending is Ending.STOPPED:
            return Ended.STOPPED
        if outcome.ending is Ending.INTERRUPTED:
            return Ended.INTERRUPTED
        if outcome.ending is Ending.RAISED:
            return Ended.OOM if _is_out_of_memory(outcome.error) else Ended.EXCEPTION
        if outcome.ending is Ending.EXITED and outcome.exit_code != 0:
            return Ended.EXIT
        return Ended.FINISHED if self._follower.iteration_ends else Ended.NEVER_STEPPED


def _is_out_of_memory(error: BaseException | None) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError)


def _cause(outcome: ScriptOutcome, native: ModuleType) -> dict[str, Any] | None:
    error = outcome.error
    if error is None:
        return None
    line, traceback = "", error.__traceback__
    while traceback is not None:  # the innermost frame that the user wrote
        path = traceback.tb_frame.f_code.co_filename
        if native.is_user_file(path):
            line = f"{path}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return {"type": type(error).__name__, "message": str(error), "source_line": line}


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
