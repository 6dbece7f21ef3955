"""Readings of nvidia-smi from BERT-large fine-tuning on a V100, with the script of the benchmark."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
CASES = CHECKOUT.parent / "shared" / "data" / "memory" / "cases.csv"
SCRIPT = CHECKOUT / "benchmarks" / "bert_large_training.py"
CONTEXT_GIB = 1341 / 1024  # the report's own reading before training, without the allocator's segment


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("C001", "--batch 4"),
        ("C002", "--batch 1 --accumulation 4"),
        pytest.param("C003", "--batch 1 --accumulation 4 --checkpointing", marks=pytest.mark.slow),
    ],
)
def test_reserved_memory_and_context_are_what_nvml_read(tmp_path: Path, case: str, options: str) -> None:
    pytest.importorskip("transformers")
    if not CASES.exists():
        pytest.skip(f"needs {CASES}")
    with CASES.open(newline="") as file:
        measured_gib = next(float(row["peak_reported"]) for row in csv.DictReader(file) if row["id"] == case)
    command = [sys.executable, "-m", "maya.cli", "run", "-q", "--gpu", "V100-SXM2-16GB", "-o", "x.maya"]
    done = subprocess.run(
        [*command, str(SCRIPT), *options.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    memory = json.loads((tmp_path / "x.maya" / "prediction.json").read_text())["peak_memory_bytes"]
    assert memory["reserved"] / 2**30 + CONTEXT_GIB == pytest.approx(measured_gib, rel=0.02)
