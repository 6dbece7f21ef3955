"""Whole iterations against published measurements: `python benchmarks/published_times.py [--json]`.

NVIDIA's DeepLearningExamples measured ResNet-50 v1.5 training on one GPU with PyTorch (README, "Training
performance": images a second; batch sizes from its configs.yml). `resnet50_train.py` does the same step
on random images; their data loading (DALI) overlaps with it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("resnet50_train.py")


@dataclass(frozen=True)
class Published:
    """One measurement: GPU, options of the script, ms an iteration."""

    gpu: str
    options: tuple[str, ...]
    measured_ms: float


ROWS = (
    Published("A100-SXM4-80GB", ("--batch", "256", "--tf32"), 272.92),
    Published("A100-SXM4-80GB", ("--batch", "256", "--amp"), 103.64),
    Published("V100-SXM2-16GB", ("--batch", "112"), 305.18),
    Published("V100-SXM2-16GB", ("--batch", "256", "--amp"), 213.33),
    Published("V100-SXM2-32GB", ("--batch", "112"), 314.61),
    Published("V100-SXM2-32GB", ("--batch", "256", "--amp"), 221.45),
)


def predict(row: Published, folder: Path) -> dict[str, float]:
    """Maya's prediction of one row: its iteration and interval in ms."""
    command = [sys.executable, "-m", "maya.cli", "run", "-f", "--json", "--gpu", row.gpu]
    shown = subprocess.run(
        [*command, "-o", str(folder / "run.maya"), str(SCRIPT), *row.options],
        check=True,
        capture_output=True,
        text=True,
    )
    value = json.loads(shown.stdout)
    return {key: value[key] for key in ("iteration_time_ms", "low_ms", "high_ms")}


def main() -> None:
    """Predict every row and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            predicted = predict(row, Path(folder))
            error = predicted["iteration_time_ms"] / row.measured_ms - 1
            found.append({**asdict(row), **predicted, "error": error})
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'GPU':16} {'options':20} {'measured':>9} {'predicted':>9} {'80% interval':>17} {'error':>7}")
    for entry in found:
        interval = f"{entry['low_ms']:.0f}..{entry['high_ms']:.0f}"
        print(
            f"{entry['gpu']:16} {' '.join(entry['options']):20} {entry['measured_ms']:9.1f} "
            f"{entry['iteration_time_ms']:9.1f} {interval:>17} {entry['error']:+7.1%}"
        )


if __name__ == "__main__":
    main()
