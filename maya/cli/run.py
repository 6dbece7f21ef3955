"""`maya run [options] script.py [args]`, `maya run [options] -m module [args]`, and behind torchrun."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from maya.cli.amounts import memory_limit, positive_integer, positive_seconds, whole_number
from maya.cli.job_of_ranks import Counts, job_of
from maya.errors import UsageError

USAGE = """maya run [options] script.py [args ...]
       maya run [options] -m module [args ...]
       maya run [options] -- torchrun [torchrun's options] script.py [args ...]"""
DEFAULT_GPU = "H100-SXM5-80GB"


MOST_VISIBLE_GPUS = 64
"""What the emulated device supports (kMaxDevices of emulator/csrc/device/devices.h)."""
UNLIKELY_FOR_A_SCRIPT = frozenset(
    {
        "--gpu",
        "--gpu-memory",
        "--visible-gpus",
        "--step-marker",
        "--prices",
        "--data-loading",
        "--nproc-per-node",
    }
)
"""Options of `maya run`; --steps, --warmup, --json and the short ones are common in scripts too."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options. Whatever follows the script belongs to the script."""
    parser.usage = USAGE
    parser.add_argument(
        "--gpu", default=DEFAULT_GPU, metavar="NAME", help=f"see `maya gpus` (default {DEFAULT_GPU})"
    )
    parser.add_argument(
        "--nproc-per-node",
        metavar="G",
        help="ranks on each node, a process and a GPU for each, as torchrun starts them",
    )
    parser.add_argument("--nnodes", metavar="N", help="nodes with as many ranks each (default 1)")
    parser.add_argument(
        "--visible-gpus",
        type=positive_integer,
        metavar="K",
        help="how many GPUs the script sees (default 1; with --nproc-per-node G of them)",
    )
    parser.add_argument(
        "--steps",
        type=positive_integer,
        default=3,
        metavar="S",
        help="iterations to predict from (default 3)",
    )
    parser.add_argument(
        "--warmup",
        type=whole_number,
        default=1,
        metavar="W",
        help="iterations to leave out first (default 1)",
    )
    parser.add_argument(
        "--gpu-memory", type=memory_limit, metavar="BYTES", help="such as 40GiB, or `unlimited`"
    )
    parser.add_argument(
        "--step-marker",
        metavar="MODULE:FUNCTION",
        help="a call of this function ends an iteration (default: optimizer steps)",
    )
    parser.add_argument(
        "--timeout", type=positive_seconds, metavar="SECONDS", help="give up on the script after this long"
    )
    parser.add_argument("--prices", type=Path, metavar="FILE", help="TOML price list instead of Maya's")
    parser.add_argument(
        "--data-loading",
        choices=("excluded", "measured"),
        default="excluded",
        help="count waiting for data as it took on this machine, or leave it out (default)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="RUN.maya", help="folder to write")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an earlier run")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print prediction.json on stdout; what the script prints goes to stderr then",
    )
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-q", "--quiet", action="store_true", help="no summary and no progress")
    loudness.add_argument("-v", "--verbose", action="count", default=0, help="more; -vv shows tracebacks")
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module, as `python -m` does")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="script.py [args ...]")


def run(options: argparse.Namespace) -> int:
    """Run the script, predict, print the summary; the exit code is as in `maya.pipeline.endings`."""
    if options.visible_gpus and options.visible_gpus > MOST_VISIBLE_GPUS:
        raise UsageError(
            f"--visible-gpus {options.visible_gpus} is more than the {MOST_VISIBLE_GPUS} one process may see",
            hint="no server holds more GPUs; ranks on other nodes are other processes",
        )
    job = job_of(
        options.program,
        is_module=options.as_module,
        counts=Counts(options.nproc_per_node, options.nnodes),
        gpu=options.gpu,
        visible_gpus=options.visible_gpus,
        environment=os.environ,
    )
    _check_program(job.program, is_module=job.is_module)
    _note_misplaced_options(job.program[1:])
    if not options.quiet:
        for note in job.notes:
            print(f"maya: note: {note}", file=sys.stderr)

    from maya.pipeline.job import run_job
    from maya.pipeline.request import RunRequest

    request = RunRequest(
        program=job.program,
        is_module=job.is_module,
        gpu=options.gpu,
        visible_gpus=job.visible_gpus,
        steps=options.steps,
        warmup=options.warmup,
        gpu_memory_bytes=options.gpu_memory,
        step_marker=options.step_marker,
        timeout_s=options.timeout,
        prices=options.prices,
        data_loading=options.data_loading,
        output=options.output,
        force=options.force,
        stdout_is_ours=options.json,
        verbosity=-1 if options.quiet else options.verbose,
        launch=job.launch,
    )
    result = run_job(request)
    if result.prediction is None:
        return result.exit_code
    if options.json:
        sys.stdout.write(result.prediction.to_json())
    elif not options.quiet and result.run_dir is not None:
        from maya.pipeline.derived_files import TIMELINE_NAME
        from maya.reports.console import Console
        from maya.reports.prediction import OK
        from maya.reports.report import Report
        from maya.reports.text import print_summary

        print_summary(Report(result.prediction, None, result.run_dir))
        if result.prediction.verdict == OK:
            timeline = result.run_dir / TIMELINE_NAME
            Console(options.verbose).note(f"next: open {timeline} at https://ui.perfetto.dev")
    return result.exit_code


def _note_misplaced_options(arguments: tuple[str, ...]) -> None:
    """Maya's options behind the script are the script's; one that no script is likely to have is told of."""
    misplaced = [word for word in arguments if word.partition("=")[0] in UNLIKELY_FOR_A_SCRIPT]
    if misplaced:
        print(
            f"maya: note: {misplaced[0]} stands behind the script and is passed to it; "
            "options of `maya run` stand before the script",
            file=sys.stderr,
        )


def _check_program(program: tuple[str, ...], *, is_module: bool) -> None:
    """Check the script as far as it can be without running it."""
    if not program:
        raise UsageError("no script to run", hint=USAGE.splitlines()[0])
    name = program[0]
    if is_module:
        return
    if os.path.isdir(name):
        raise UsageError(f"{name} is a folder, not a script", hint="`-m package` runs a package's __main__")
    if not os.path.exists(name):
        raise UsageError(
            f"there is no script {name}",
            hint="options of `maya run` stand before the script; `-m` runs a module by name",
        )
