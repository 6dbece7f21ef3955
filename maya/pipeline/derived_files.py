"""What of a run folder can be computed again: the prediction, kernel times, timeline, assumptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from maya.kernel_models import KernelTimes
from maya.pipeline.durations import write_durations
from maya.pipeline.predict import PredictedRun
from maya.pipeline.priced_run import PricedRun
from maya.reports.perfetto import render_timeline

PREDICTION_NAME = "prediction.json"
TIMELINE_NAME = "timeline.perfetto-trace"
ASSUMPTIONS_NAME = "assumptions.json"


def write_derived(run_dir: Path, predicted: PredictedRun) -> None:
    """Write them all, the prediction last.

    Raises:
        OSError: the folder cannot be written; no half file keeps its final name.
    """
    if predicted.priced is not None:
        priced = predicted.priced
        for representative, times in _times_of_classes(priced).items():
            with written_whole(run_dir / f"durations-{representative}.npz") as file:
                write_durations(file, times)
        with written_whole(run_dir / TIMELINE_NAME) as file:
            render_timeline(priced.simulated(), file)
    with written_whole(run_dir / ASSUMPTIONS_NAME) as file:
        rows = [asdict(entry) for entry in predicted.prediction.assumptions]
        file.write((json.dumps(rows, indent=1) + "\n").encode())
    with written_whole(run_dir / PREDICTION_NAME) as file:
        file.write(predicted.prediction.to_json().encode())


def derived_files_are_whole(run_dir: Path, predicted: PredictedRun) -> bool:
    """Whether every file that `write_derived` would write is there."""
    names = [ASSUMPTIONS_NAME, PREDICTION_NAME]
    if predicted.priced is not None:
        names.append(TIMELINE_NAME)
        names += [f"durations-{rank}.npz" for rank in _times_of_classes(predicted.priced)]
    return all((run_dir / name).exists() for name in names)


def _times_of_classes(priced: PricedRun) -> dict[int, KernelTimes]:
    """Representative of each class → its kernels' times, which all of its ranks share."""
    of_times: dict[int, tuple[int, KernelTimes]] = {}
    for rank in priced.ranks:  # ascending, so the lowest of a class comes first
        of_times.setdefault(id(rank.times), (rank.rank, rank.times))
    return dict(of_times.values())


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name only once everything is in it."""
    temporary = path.with_name(f"{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
