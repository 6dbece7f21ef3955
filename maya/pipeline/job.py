"""The job of `maya run`: launch, supervise, conclude."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from maya.hardware import find_gpu
from maya.pipeline.request import JobResult, RunRequest
from maya.pipeline.run_folder import RunFolder
from maya.pipeline.supervise import supervise
from maya.reports.console import Console

WARM_MODULES = ("numpy", "maya.traces", "maya.kernel_models", "maya.simulator", "maya.pipeline.conclude")
"""Imported while the child still imports torch, so that they cost nothing after the script's end."""


def run_job(request: RunRequest, console: Console | None = None) -> JobResult:
    """Run the script on the emulated device and predict.

    Raises:
        MayaError: see its message; the partial run folder is gone then.
    """
    console = Console(request.verbosity) if console is None else console
    gpu = find_gpu(request.gpu)
    if request.prices is not None:
        from maya.pipeline.cost import find_price

        find_price(gpu, request.prices)  # a mistake in the file is told before the script runs
    folder = RunFolder(request.output or request.default_output(), force=request.force)
    try:
        spec = _write_spec(request, gpu.name, folder.partial)
        label = _label(request, gpu.name)
        end = supervise(
            spec,
            run_dir=folder.partial,
            timeout_s=request.timeout_s,
            stdout_to_stderr=request.stdout_is_ours,
            meanwhile=[_importer(name) for name in WARM_MODULES],
            on_wait=lambda _: console.progress(label),
            ranks=request.world_size,
            environment=None if request.launch is None else request.launch.launcher_environment(os.environ),
        )
        console.detail("the script's process has ended")
        from maya.pipeline.conclude import conclude

        return conclude(request, gpu, folder, end, console)
    except BaseException:
        folder.discard()
        raise


def _label(request: RunRequest, gpu_name: str) -> str:
    if request.launch is None:
        return f"running {request.program[0]} on an emulated {gpu_name}"
    return f"running {request.program[0]} on {request.world_size} emulated {gpu_name}"


def _write_spec(request: RunRequest, gpu_name: str, run_dir: Path) -> Path:
    """Everything the rank's process must know, as JSON (`maya.emulator.RankSpec`)."""
    path = run_dir / "spec-0.json"
    values: dict[str, Any] = {
        "rank": 0,
        "world_size": request.world_size,
        "run_dir": str(run_dir.resolve()),
        "parent_pid": os.getpid(),
        "program": list(request.program),
        "is_module": request.is_module,
        "gpu": gpu_name,
        "visible_gpus": request.visible_gpus,
        "gpu_memory_bytes": request.gpu_memory_bytes,
        "steps": request.steps,
        "warmup": request.warmup,
        "step_marker": request.step_marker,
        "data_loading": request.data_loading,
        "verbosity": request.verbosity,
    }
    if request.launch is not None:
        values["launch"] = request.launch.to_json()
    path.write_text(json.dumps(values, indent=1) + "\n")
    return path.resolve()


def _importer(name: str) -> Callable[[], None]:
    def warm() -> None:
        import_module(name)

    return warm
