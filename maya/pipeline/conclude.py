"""After the script: predict, write the derived files, give the folder its name, choose the exit code."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import maya
from maya.errors import EXIT_FAILURE, MayaError
from maya.hardware import GpuSpec, default_host
from maya.pipeline import rank_process
from maya.pipeline.cost import find_price, price_to_options
from maya.pipeline.derived_files import write_derived
from maya.pipeline.outcome import RankOutcome, read_outcome
from maya.pipeline.predict import DATA_LOADING, failed_prediction, predict
from maya.pipeline.request import UNLIMITED_BYTES, JobResult, RunRequest
from maya.pipeline.run_folder import RunFolder
from maya.pipeline.supervise import ChildEnd
from maya.pipeline.verdict import SIGNAL_EXIT_BASE, judge, signal_name
from maya.pipeline.where import innermost_user_frame
from maya.reports.console import Console
from maya.traces import Ended, Manifest, StepSettings, single_rank, write_manifest


def conclude(
    request: RunRequest, gpu: GpuSpec, folder: RunFolder, end: ChildEnd, console: Console
) -> JobResult:
    """Turn what the rank left behind into a whole run folder and a prediction.

    Raises:
        MayaError: the trace is damaged, or the disk is full.
    """
    if end.interrupted_by is not None:
        folder.discard()
        console.error(f"interrupted by {signal_name(end.interrupted_by)}")
        return JobResult(SIGNAL_EXIT_BASE + end.interrupted_by, None, None)
    outcome = None if end.timed_out else read_outcome(folder.partial, 0)
    if outcome is None:
        return _without_outcome(request, gpu, folder, end, console)
    if outcome.ended == Ended.INTERNAL_ERROR:
        cause = outcome.cause or {}
        raise MayaError(
            str(cause.get("message") or "the emulator failed"),
            hint=str(cause.get("hint") or ""),
            exit_code=outcome.exit_code or EXIT_FAILURE,
        )
    if end.leftovers:
        console.detail(f"ended {end.leftovers} processes that the script left behind")
    manifest = manifest_of(request, gpu, outcome)
    console.progress("pricing and simulating")
    with _explaining_full_disk(folder.final.parent):
        predicted = predict(folder.partial, manifest)
        console.detail("priced and simulated")
        write_derived(folder.partial, predicted)
        _tidy(folder.partial)
        write_manifest(folder.partial, replace(manifest, cause=predicted.prediction.cause or ""))
        run_dir = folder.complete()
    console.detail(f"wrote {run_dir}")
    return JobResult(judge(outcome).exit_code, predicted.prediction, run_dir)


def _emulated_memory(request: RunRequest, gpu: GpuSpec) -> int | None:
    """`Manifest.gpu_memory_bytes`, where None is without limit."""
    if request.gpu_memory_bytes is None:
        return gpu.total_memory_bytes
    return request.gpu_memory_bytes if request.gpu_memory_bytes < UNLIMITED_BYTES else None


@contextmanager
def _explaining_full_disk(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not rank_process.is_full_disk(error):
            raise
        raise MayaError(
            f"no space is left for the run in {place.resolve()}",
            hint="free some, or choose another place with -o",
        ) from error


def manifest_of(request: RunRequest, gpu: GpuSpec, outcome: RankOutcome) -> Manifest:
    """The manifest of a run of one rank."""
    verdict = judge(outcome)
    return Manifest(
        command=(("-m",) if request.is_module else ()) + request.program,
        gpu=gpu.name,
        torch=outcome.torch_version,
        world_size=1,
        rank_classes=single_rank(),
        ended=outcome.ended,
        exit_code=outcome.exit_code,
        cause=verdict.cause or "",
        iterations=outcome.iterations,
        settings=StepSettings(request.steps, request.warmup, request.step_marker or ""),
        working_directory=str(Path.cwd()),
        python=platform.python_version(),
        maya=maya.__version__,
        host=default_host().name,
        gpu_memory_bytes=_emulated_memory(request, gpu),
        oom_caught=outcome.oom is not None and outcome.ended != Ended.OOM,
        options={
            DATA_LOADING: request.data_loading,
            "visible_gpus": request.visible_gpus,
            **price_to_options(find_price(gpu, request.prices)),
        },
    )


def _without_outcome(
    request: RunRequest, gpu: GpuSpec, folder: RunFolder, end: ChildEnd, console: Console
) -> JobResult:
    """The script's process did not live to tell: no whole trace, so no run folder."""
    where = innermost_user_frame(end.where)
    at = "" if not where else f" {where}" if where.startswith("at ") else f", {where}"
    hint = ""
    if end.timed_out:
        cause = f"timed out after {request.timeout_s:g} s{at}"
        hint = "a longer --timeout, or a smaller --steps; -v shows all stacks"
        code = EXIT_FAILURE
    elif end.signal_number is not None:
        name = signal_name(end.signal_number)
        cause = f"the script's process was ended by {name}{at}"
        if name == "SIGKILL":
            hint = "often the kernel's out-of-memory killer: `dmesg | tail` tells"
        code = SIGNAL_EXIT_BASE + end.signal_number
    else:
        code = end.exit_code or 0
        cause = f"the script's process ended with code {code} without giving Maya a chance to finish"
        hint = "os._exit and exec* cannot be followed"
        code = code or EXIT_FAILURE
    folder.discard()
    console.error(cause, hint)
    if end.where:
        console.detail(end.where.rstrip())
    return JobResult(code, failed_prediction(gpu.name, cause, request.program), None)


def _tidy(run_dir: Path) -> None:
    """Leave out what only mattered while the process ran."""
    ours = re.compile(
        "|".join(
            re.escape(name).replace(re.escape("{rank}"), r"\d+")
            for name in (
                "spec-{rank}.json",
                rank_process.WHERE_FILE,
                rank_process.CRASH_FILE,
                rank_process.RESERVE_FILE,
            )
        )
    )
    for path in run_dir.iterdir():
        if ours.fullmatch(path.name):
            path.unlink()
