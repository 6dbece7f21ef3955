"""ResNet-50, BERT and DLRM: for real on the CPU, and unchanged under `maya run`."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
REAL = {
    "resnet50": "--blocks 1 1 1 1 --width 16 --image-size 32 --classes 10 --batch-size 16 --steps 20"
    " --warmup-steps 2 --log-every 4",
    "bert": "--layers 2 --width 32 --heads 2 --vocab-size 64 --sequence-length 16 --batch-size 16"
    " --steps 60 --learning-rate 3e-3 --warmup-steps 5 --workers 0",
    "dlrm": "--tables 2 --rows 100 --width 16 --bottom 64 --top 64 --batch-size 256 --steps 80"
    " --optimizer adagrad --log-every 16 --workers 0 --checkpoint checkpoints/dlrm.pt",
}
# Parameters; bytes a parameter of weights, gradients and optimizer states in float32.
SIZES = {
    "resnet50": (25_557_032, 4 + 4 + 4),
    "bert": (108_893_186, 4 + 4 + 8),
    "dlrm": (512_622_209, 4 + 4),
}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # the operators are tiny
    )


def train(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The example itself, on the CPU and small."""
    pytest.importorskip("transformers") if name == "bert" else None
    script = str(EXAMPLES / f"train_{name}.py")
    return run(folder, script, "--device", "cpu", *REAL[name].split(), *options)


def emulate(folder: Path, name: str, *options: str) -> dict[str, Any]:
    """`maya run` of the example; its prediction."""
    pytest.importorskip("transformers") if name == "bert" else None
    script = str(EXAMPLES / f"train_{name}.py")
    done = run(folder, "-m", "maya.cli", "run", "-o", "x.maya", script, *options)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert f"train_{name}.py" in done.stdout
    found = json.loads((folder / "x.maya" / "prediction.json").read_text())
    assert isinstance(found, dict)
    return found


def losses(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"\bloss'?:? +'?([\d.]+)", text)]


@pytest.mark.parametrize("name", REAL)
def test_it_learns_on_the_cpu(tmp_path: Path, name: str) -> None:
    done = train(tmp_path, name)
    assert done.returncode == 0, done.stderr
    found = losses(done.stdout)
    assert len(found) >= 5
    assert all(math.isfinite(loss) for loss in found)
    assert found[-1] < 0.92 * found[0]
    assert list((tmp_path / "checkpoints").rglob("*.*"))


def test_resnet50_learns_from_a_folder(tmp_path: Path) -> None:
    assert run(tmp_path, str(EXAMPLES / "train_resnet50.py"), "--make-sample", "images").returncode == 0
    assert len(list((tmp_path / "images").rglob("*.ppm"))) == 16
    options = ("--data", "images", "--amp", "--workers", "1", "--label-smoothing", "0")
    done = train(tmp_path, "resnet50", *options)
    assert done.returncode == 0, done.stderr
    assert "2 classes" in done.stdout
    assert losses(done.stdout)[-1] < 0.2  # colours tell the two classes apart
    state = torch.load(tmp_path / "checkpoints" / "resnet50.pt")
    assert state["step"] == 20
    assert state["model"]["fc.weight"].shape == (2, 512)


@pytest.fixture(scope="module")
def predictions(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """Maya's prediction of an example with the settings a user would start with."""

    @functools.cache
    def predict(name: str) -> dict[str, Any]:
        options = ("--amp",) if name == "resnet50" else ()
        return emulate(tmp_path_factory.mktemp(name), name, *options)

    return predict


@pytest.mark.parametrize("name", SIZES)
def test_maya_predicts_it_as_it_is(name: str, predictions: Callable[[str], dict[str, Any]]) -> None:
    found = predictions(name)
    assert (found["verdict"], found["scope"], found["iterations"]) == ("ok", "iteration", 3)
    assert 0 < found["low_ms"] < found["iteration_time_ms"] < found["high_ms"]
    shares = found["breakdown"]
    assert sum(shares.values()) == pytest.approx(found["iteration_time_ms"], rel=1e-6)
    assert shares["exposed_communication"] == 0
    assert found["samples_per_s"] > 0
    assert 0 < found["mfu"] < 1
    parameters, bytes_each = SIZES[name]
    memory = found["peak_memory_bytes"]
    assert parameters * bytes_each * 0.99 < memory["allocated"] <= memory["reserved"] < memory["capacity"]


def test_the_work_of_resnet50_is_what_its_layers_need(
    predictions: Callable[[str], dict[str, Any]],
) -> None:
    found = predictions("resnet50")
    # 4.089 G multiply-adds an image forward, twice that backward, less the gradient of the images.
    convolutions = 128 * (3 * 2 * 4.089e9 - 2 * 64 * 112 * 112 * 3 * 49)
    assert found["model_flops_per_step"] == pytest.approx(convolutions, rel=0.001)
    assert found["mfu_peak"] == "fp16"


def test_checkpointing_trades_memory_for_time(
    tmp_path: Path, predictions: Callable[[str], dict[str, Any]]
) -> None:
    plain, frugal = predictions("bert"), emulate(tmp_path, "bert", "--gradient-checkpointing")
    assert frugal["peak_memory_bytes"]["allocated"] < 0.65 * plain["peak_memory_bytes"]["allocated"]
    assert 1.15 < frugal["iteration_time_ms"] / plain["iteration_time_ms"] < 1.5


def test_resnet50_reads_its_folder_under_maya(tmp_path: Path) -> None:
    assert run(tmp_path, str(EXAMPLES / "train_resnet50.py"), "--make-sample", "images").returncode == 0
    found = emulate(tmp_path, "resnet50", "--data", "images", "--batch-size", "8", "--workers", "1")
    assert (found["verdict"], found["iterations"]) == ("ok", 3)


def test_bert_classifies_in_half_precision_under_maya(tmp_path: Path) -> None:
    """fp16: the Trainer's GradScaler must not believe that a step overflowed."""
    options = ("--task", "classification", "--precision", "fp16", "--accumulation", "2")
    found = emulate(tmp_path, "bert", *options)
    assert (found["verdict"], found["iterations"]) == ("ok", 3)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_examples_know_nothing_of_maya(path: Path) -> None:
    text = path.read_text()
    assert "maya" not in text.lower()
    assert len(text.splitlines()) <= 300


def test_resnet50_has_the_usual_parameters() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import torch, train_resnet50\n"
        "with torch.device('meta'):\n"
        "    model = train_resnet50.ResNet()\n"
        "print(sum(p.numel() for p in model.parameters()))"
    )
    done = run(EXAMPLES, "-c", code)
    assert int(done.stdout) == SIZES["resnet50"][0], done.stderr


def test_sparse_gradients_spare_dlrm_its_dense_ones(
    tmp_path: Path, predictions: Callable[[str], dict[str, Any]]
) -> None:
    sparse = emulate(tmp_path, "dlrm", "--sparse")
    dense = predictions("dlrm")
    assert (sparse["verdict"], sparse["iterations"]) == ("ok", 3)
    tables = 8 * 1_000_000 * 64 * 4
    saved = dense["peak_memory_bytes"]["allocated"] - sparse["peak_memory_bytes"]["allocated"]
    assert saved > 0.9 * tables
    assert sparse["iteration_time_ms"] < 0.7 * dense["iteration_time_ms"]
