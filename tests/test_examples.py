"""The examples run for real, on the CPU and without Maya."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TINY = (
    "--device cpu --layers 2 --heads 2 --width 32 --block-size 32 --vocab-size 256"
    " --batch-size 4 --accumulation 2"
)


def train(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "train_gpt.py"), *TINY.split(), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # the operators are tiny
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("gpt")
    return folder, train(folder, "--steps", "40", "--warmup-steps", "5", "--learning-rate", "3e-3")


def test_gpt_learns(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = run
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    losses = [float(text) for text in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 40
    assert losses[0] == pytest.approx(5.5, abs=0.3)  # ln 256
    assert losses[-1] < losses[0] - 1


def test_gpt_writes_a_checkpoint_that_loads(run: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = run
    state = torch.load(folder / "checkpoints" / "gpt.pt")
    assert state["step"] == 40
    assert state["model"]["wte.weight"].shape == (256, 32)
    assert state["optimizer"]["state"][0]["step"] == 40
    assert not (folder / "checkpoints" / "gpt.partial").exists()


def test_gpt_refuses_a_batch_larger_than_its_data(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("abc " * 20)
    done = train(tmp_path, "--data", "short.txt", "--steps", "1")
    assert done.returncode == 2
    assert "fewer than a batch" in done.stderr


def test_gpt_is_gpt_2_by_default() -> None:
    """124M parameters, with the embedding padded to 50,304 rows and shared with the output."""
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import torch, train_gpt\n"
        "with torch.device('meta'):\n"
        "    model = train_gpt.GPT(50304, 1024, 12, 12, 768)\n"
        "print(sum(p.numel() for p in model.parameters()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) == 124_475_904
