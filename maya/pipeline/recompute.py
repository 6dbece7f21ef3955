"""Predict a recorded run again, from its trace files alone."""

from __future__ import annotations

from pathlib import Path

from maya.errors import UsageError
from maya.pipeline.derived_files import derived_files_are_whole, write_derived
from maya.pipeline.predict import predict
from maya.pipeline.run_folder import is_run_folder
from maya.reports.console import Console
from maya.reports.report import Report
from maya.traces import read_manifest


def recompute(run_dir: Path, console: Console) -> Report:
    """Predict; write the derived files anew where they are missing.

    Raises:
        UsageError: not a run folder.
        MayaError: a trace file is missing or damaged.
    """
    if not is_run_folder(run_dir):
        is_partial = ".partial-" in run_dir.name and run_dir.is_dir()
        raise UsageError(
            f"{run_dir} is not a run of Maya's" + (": it was never finished" if is_partial else ""),
            hint="give a folder that `maya run` wrote, such as train.maya",
        )
    predicted = predict(run_dir, read_manifest(run_dir))
    if not derived_files_are_whole(run_dir, predicted):
        try:
            write_derived(run_dir, predicted)
        except OSError as error:  # a read-only archive can still be looked at
            console.detail(f"derived files not restored: {error.strerror}")
    simulated = None if predicted.priced is None else predicted.priced.simulated()
    return Report(predicted.prediction, simulated, run_dir)
