"""`maya report RUN`: predict anew from a run's trace files and show it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from maya.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("run_dir", type=Path, metavar="RUN.maya", help="a folder that `maya run` wrote")
    parser.add_argument(
        "--format",
        choices=("text", "json", "perfetto"),
        default="text",
        help="summary (default), prediction.json, or a timeline for ui.perfetto.dev",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there, not to stdout")


def run(options: argparse.Namespace) -> int:
    """Recompute, restore the derived files that are missing, render."""
    if options.format == "perfetto" and options.output is None and sys.stdout.isatty():
        raise UsageError(
            "a timeline is binary and would garble the terminal",
            hint="-o timeline.perfetto-trace writes a file",
        )
    from maya.pipeline.recompute import recompute
    from maya.reports.console import Console
    from maya.reports.renderers import renderer_for
    from maya.reports.text import wants_colour

    report = recompute(options.run_dir, Console(options.verbose))
    to_stdout = options.output is None
    renderer = renderer_for(options.format, colour=to_stdout and wants_colour(sys.stdout))
    if to_stdout:
        sys.stdout.flush()
        renderer.render(report, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return 0
    from maya.pipeline.derived_files import written_whole

    try:
        with written_whole(options.output) as file:
            renderer.render(report, file)
    except OSError as error:
        raise UsageError(f"cannot write {options.output}: {error.strerror}") from error
    return 0
