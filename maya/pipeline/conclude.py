"""After the script: predict, write the derived files, give the folder its name, choose the exit code."""

from __future__ import annotations

import platform
import re
import shutil
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
from maya.pipeline.job_end import JobEnd, Unfinished, end_of_job
from maya.pipeline.launch_report import REPORT_NAME
from maya.pipeline.models import NPROC_PER_NODE
from maya.pipeline.predict import DATA_LOADING, FAILED_RANK, HANG_CAUSE, failed_prediction, predict
from maya.pipeline.rank_streams import LOGS_NAME
from maya.pipeline.request import UNLIMITED_BYTES, JobResult, RunRequest
from maya.pipeline.run_folder import RunFolder
from maya.pipeline.supervise import ChildEnd
from maya.pipeline.verdict import SIGNAL_EXIT_BASE, judge, signal_name
from maya.reports.console import Console
from maya.traces import (
    Ended,
    Manifest,
    RankClass,
    StepSettings,
    merge_equal_ranks,
    single_rank,
    write_manifest,
)

SPAWN_ERRORS = frozenset({"ProcessRaisedException", "ProcessExitedException"})
"""What `torch.multiprocessing.spawn` raises when a process that it started has failed."""
SPAWN_NOTE = (
    "processes that a script starts itself see no emulated GPU; where they are ranks, let torchrun's way "
    "start them: maya run --nproc-per-node G script.py, the script reading RANK and LOCAL_RANK"
)


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
    job = end_of_job(
        folder.partial,
        end,
        ranks=None if request.launch is None else request.world_size,
        timeout_s=request.timeout_s,
    )
    if isinstance(job, Unfinished):
        return _without_folder(request, gpu, folder, job, console)
    if end.leftovers:
        console.detail(f"ended {end.leftovers} processes that the script left behind")
    if job.stopped_late:
        late = ", ".join(str(rank) for rank in job.stopped_late)
        console.note(f"rank {late} had not finished its last iteration when the others had stopped")
    console.progress("pricing and simulating")
    with _explaining_full_disk(folder.final.parent):
        classes = merge_equal_ranks(folder.partial, request.world_size)
        manifest = manifest_of(request, gpu, job, classes)
        predicted = predict(folder.partial, manifest)
        console.detail("priced and simulated")
        write_derived(folder.partial, predicted)
        _tidy(folder.partial)
        write_manifest(folder.partial, replace(manifest, cause=predicted.prediction.cause or ""))
        run_dir = folder.complete()
    console.detail(f"wrote {run_dir}")
    if (job.telling.cause or {}).get("type") in SPAWN_ERRORS:
        console.note(SPAWN_NOTE)
    code = job.exit_code
    if predicted.cannot_meet:  # the ranks ended well here, where large collectives wait for nobody
        code = code or EXIT_FAILURE
    return JobResult(code, predicted.prediction, run_dir)


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


def manifest_of(
    request: RunRequest, gpu: GpuSpec, job: JobEnd, classes: tuple[RankClass, ...] | None = None
) -> Manifest:
    """The manifest of a run; `classes` of several ranks."""
    outcome = job.telling
    options = {
        DATA_LOADING: request.data_loading,
        "visible_gpus": request.visible_gpus,
        **price_to_options(find_price(gpu, request.prices)),
    }
    if request.launch is not None:
        options |= {NPROC_PER_NODE: request.launch.nproc_per_node, "nnodes": request.launch.nnodes}
    if job.failed_rank is not None:
        options[FAILED_RANK] = job.failed_rank
    if job.hang:
        options[HANG_CAUSE] = job.hang
    return Manifest(
        command=(("-m",) if request.is_module else ()) + request.program,
        gpu=gpu.name,
        torch=outcome.torch_version,
        world_size=request.world_size,
        rank_classes=single_rank() if classes is None else classes,
        ended=job.ended,
        exit_code=outcome.exit_code,
        cause=job.hang or judge(outcome).cause or "",
        iterations=job.iterations,
        settings=StepSettings(request.steps, request.warmup, request.step_marker or ""),
        working_directory=str(Path.cwd()),
        python=platform.python_version(),
        maya=maya.__version__,
        host=default_host().name,
        gpu_memory_bytes=_emulated_memory(request, gpu),
        oom_caught=any(each.oom is not None and each.ended != Ended.OOM for each in job.outcomes.values()),
        options=options,
    )


def _without_folder(
    request: RunRequest, gpu: GpuSpec, folder: RunFolder, job: Unfinished, console: Console
) -> JobResult:
    """No whole trace, so no run folder."""
    folder.discard()
    console.error(job.cause, job.hint)
    if job.stacks:
        console.detail(job.stacks.rstrip())
    prediction = failed_prediction(gpu.name, job.cause, request.program, world_size=request.world_size)
    return JobResult(job.exit_code, prediction, None)


def _tidy(run_dir: Path) -> None:
    """Leave out what only mattered while the process ran."""
    ours = re.compile(
        "|".join(
            re.escape(name).replace(re.escape("{rank}"), rf"(\d+|{rank_process.LAUNCHER})")
            for name in (
                "spec-{rank}.json",
                rank_process.WHERE_FILE,
                rank_process.CRASH_FILE,
                rank_process.RESERVE_FILE,
                "error-{rank}.json",
                REPORT_NAME,
            )
        )
    )
    for path in run_dir.iterdir():
        if ours.fullmatch(path.name):
            path.unlink()
    shutil.rmtree(run_dir / LOGS_NAME, ignore_errors=True)
