"""What holds of every example's trace: valid, attributed to modules, and enough to predict from again."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from maya.traces import Phase, read_rank

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SMALL = {
    "gpt": "--layers 2 --heads 2 --width 128 --block-size 64 --batch-size 4 --accumulation 2 --workers 0",
    "resnet50": "--blocks 1 1 1 1 --width 16 --image-size 64 --classes 10 --batch-size 16 --amp",
    "bert": "--layers 2 --width 128 --heads 2 --vocab-size 64 --sequence-length 32 --batch-size 8 --workers 0"
    " --gradient-checkpointing",
    "dlrm": "--tables 2 --rows 1000 --width 16 --bottom 64 --top 64 --batch-size 256 --workers 0",
}


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "maya.cli", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @functools.cache
    def record(name: str) -> Path:
        if name == "bert":
            pytest.importorskip("transformers")
        folder = tmp_path_factory.mktemp(name)
        script = str(EXAMPLES / f"train_{name}.py")
        run(folder, "run", "-q", "-o", "x.maya", "--steps", "2", script, *SMALL[name].split())
        return folder / "x.maya"

    return record


@pytest.mark.parametrize("name", SMALL)
def test_the_trace_is_valid(name: str, recorded: Callable[[str], Path]) -> None:
    shown = run(recorded(name).parent, "trace", "validate", "x.maya")
    assert "error" not in shown.lower()


@pytest.mark.parametrize("name", SMALL)
def test_the_prediction_follows_from_the_trace_files(
    name: str, recorded: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = tmp_path / "again.maya"
    shutil.copytree(recorded(name), copy)
    before = (copy / "prediction.json").read_text()
    for derived in ("prediction.json", "durations-0.npz", "timeline.perfetto-trace"):
        (copy / derived).unlink()
    assert run(tmp_path, "report", "again.maya", "--format", "json") == before


@pytest.mark.parametrize("name", SMALL)
def test_backward_time_belongs_to_modules(name: str, recorded: Callable[[str], Path]) -> None:
    trace = read_rank(recorded(name), 0)
    archive = np.load(recorded(name) / "durations-0.npz")
    sums = np.concatenate(([0], np.cumsum(archive["work_ns"])))
    time_ns = sums[archive["operation_offsets"][1:]] - sums[archive["operation_offsets"][:-1]]
    rows = trace.operations.rows
    backward = rows["phase"] == Phase.BACKWARD
    total = int(time_ns[backward].sum())
    attributed = int(time_ns[backward & (rows["module"] >= 0)].sum())
    assert total > 0
    assert attributed >= 0.99 * total
