"""Data parallel training of the examples, by `--nproc-per-node` and by torchrun's command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MAYA = (sys.executable, "-m", "maya.cli")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=500, check=False, env=environment
    )


def emulate(folder: Path, *words: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    done = run(folder, *MAYA, "run", "-o", "x.maya", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "x.maya" / "prediction.json").read_text())
    assert isinstance(found, dict)
    return found, done


def check(found: dict[str, Any], world_size: int, gradients: int) -> None:
    """What holds for every data parallel run: each gradient is reduced once a step, in float32.

    Args:
        gradients: how many numbers they have.
    """
    assert (found["verdict"], found["iterations"], found["world_size"]) == ("ok", 3, world_size)
    assert sum(found["breakdown"].values()) == pytest.approx(found["iteration_time_ms"], rel=1e-6)
    communication = found["communication"]
    assert communication["bytes_per_step"]["all_reduce"] == pytest.approx(4 * gradients, rel=1e-3)
    assert 0 <= communication["exposed_ms"] < communication["total_ms"]
    members = sorted(rank for each in found["rank_classes"] for rank in each["ranks"])
    assert members == list(range(world_size))


def test_resnet50_on_two(tmp_path: Path) -> None:
    script = str(EXAMPLES / "train_resnet50.py")
    found, done = emulate(tmp_path, "--nproc-per-node", "2", script, "--amp", "--batch-size", "32")
    check(found, 2, 25_557_032)
    assert "2, all alike: priced once" in done.stdout
    assert not list((tmp_path / "x.maya").glob("rank-1.*"))  # stored once
    # Batch norms' statistics come from rank 0 before every forward pass.
    assert found["communication"]["bytes_per_step"]["broadcast"] > 2 * 53 * 64 * 4
    assert found["communication"]["overlapped_share"] > 0.5
    # Gradients live in the reducer's buckets.
    assert found["peak_memory_bytes"]["allocated"] > 25_557_032 * 4 * 4
    assert done.stdout.count("25.6M parameters") == 1  # rank 0 alone talks
    assert run(tmp_path, *MAYA, "trace", "validate", "x.maya").returncode == 0


def test_gpt_on_four_by_torchrun(tmp_path: Path) -> None:
    script = str(EXAMPLES / "train_gpt.py")
    small = ("--layers", "4", "--block-size", "256", "--accumulation", "2", "--workers", "0")
    found, done = emulate(tmp_path, "--", "torchrun", "--nproc-per-node", "4", script, *small)
    parameters = re.search(r"([\d.]+)M parameters.*4 x cuda:0", done.stdout)
    assert parameters, done.stdout
    check(found, 4, round(float(parameters[1]) * 1e6))  # once a step: micro-batches wait (`no_sync`)
    classes = {each["rank"]: each["ranks"] for each in found["rank_classes"]}
    assert classes == {0: [0], 1: [1, 2, 3]}  # rank 0 reads and prints the loss
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1  # rank 0 alone saves


@pytest.mark.slow
def test_bert_on_two(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found, _ = emulate(tmp_path, "--nproc-per-node", "2", str(EXAMPLES / "train_bert.py"))
    check(found, 2, 108_893_186)


@pytest.mark.slow
def test_synchronised_batch_norm_on_two(tmp_path: Path) -> None:
    """Images from a folder, each rank its own; statistics gathered in every layer."""
    script = str(EXAMPLES / "train_resnet50.py")
    assert run(tmp_path, sys.executable, script, "--make-sample", "images").returncode == 0
    options = ("--sync-bn", "--data", "images", "--batch-size", "4", "--workers", "1", "--image-size", "64")
    found, _ = emulate(tmp_path, "--nproc-per-node", "2", script, *options)
    assert (found["verdict"], found["iterations"]) == ("ok", 3)
    assert found["communication"]["calls_per_step"]["all_gather"] == 53


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "resnet50"])
def test_they_run_for_real_with_gloo(tmp_path: Path, name: str) -> None:
    small = {
        "gpt": "--layers 2 --heads 2 --width 32 --block-size 32 --vocab-size 256 --batch-size 4 --workers 0",
        "resnet50": "--blocks 1 1 1 1 --width 16 --image-size 32 --classes 10 --batch-size 8 --log-every 1",
    }
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    script = str(EXAMPLES / f"train_{name}.py")
    done = run(tmp_path, *torchrun, script, "--device", "cpu", "--steps", "3", *small[name].split())
    assert done.returncode == 0, done.stderr
    assert "2 x cpu" in done.stdout
    assert done.stdout.count("step     2") == 1
