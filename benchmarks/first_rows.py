"""First comparison with reality: NVIDIA's published ResNet-50 and BERT times against predictions.

    python benchmarks/first_rows.py [--data ../shared/data] [--output FILE.md] [--only ID ...]

Four rows of `e2e/measured.csv.gz` were asked for; every other row of the same kinds (DeepLearningExamples,
ResNet-50 v1.5 and BERT-large SQuAD fine-tuning, one GPU and eight) is predicted beside them, so that nothing
is picked. Neither the scripts nor the kernel models were fitted to any of them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import first_rows_text as text
import numpy as np

from maya.hardware import find_gpu
from maya.kernel_models import RooflineModel
from maya.traces import iteration_of, read_rank

HERE = Path(__file__).parent
FAMILY_SHARE = 0.02
"""Families below this share of the time are summed up."""


@dataclass(frozen=True)
class Row:
    """A published row and the run that stands for it."""

    id: str
    gpu: str
    script: str
    options: tuple[str, ...]
    ranks: int = 1


RESNET, BERT = "resnet50_train.py", "bert_squad_train.py"
ASKED_FOR = ("e2e-00678", "e2e-00682", "e2e-00841", "e2e-00853")
AMP, TF32, FP32 = ("--batch", "256", "--amp"), ("--batch", "256", "--tf32"), ("--batch", "112")
A100, V100, V100_32 = "A100-SXM4-80GB", "V100-SXM2-16GB", "V100-SXM2-32GB"
ROWS = (
    Row("e2e-00677", A100, RESNET, TF32),
    Row("e2e-00678", A100, RESNET, AMP),
    Row("e2e-00681", V100, RESNET, FP32),
    Row("e2e-00682", V100, RESNET, AMP),
    Row("e2e-00685", V100_32, RESNET, FP32),
    Row("e2e-00686", V100_32, RESNET, AMP),
    Row("e2e-00840", A100, BERT, ("--batch", "32", "--tf32")),
    Row("e2e-00841", A100, BERT, ("--batch", "32", "--fp16")),
    Row("e2e-00852", V100_32, BERT, ("--batch", "8")),
    Row("e2e-00853", V100_32, BERT, ("--batch", "16", "--fp16")),
    Row("e2e-00679", A100, RESNET, TF32, 8),
    Row("e2e-00680", A100, RESNET, AMP, 8),
    Row("e2e-00683", V100, RESNET, FP32, 8),
    Row("e2e-00684", V100, RESNET, AMP, 8),
    Row("e2e-00687", V100_32, RESNET, FP32, 8),
    Row("e2e-00688", V100_32, RESNET, AMP, 8),
    Row("e2e-00842", A100, BERT, ("--batch", "32", "--tf32"), 8),
    Row("e2e-00843", A100, BERT, ("--batch", "32", "--fp16"), 8),
    Row("e2e-00854", V100_32, BERT, ("--batch", "8"), 8),
    Row("e2e-00855", V100_32, BERT, ("--batch", "16", "--fp16"), 8),
)


VARIANTS = tuple(
    Row(row.id, row.gpu, row.script, (*row.options, "--scripted-gelu"))
    for row in ROWS
    if row.script == BERT and row.ranks == 1
)
"""Their code as written, its scripted GELU as six operations forward and more backward: what it takes if no
fuser merged them."""


@dataclass(frozen=True)
class Family:
    """Kernels of one family in an iteration: their time and the ends of its 80% interval, ms."""

    name: str
    ms: float
    low_ms: float
    high_ms: float


@dataclass(frozen=True)
class Compared:
    """A row, its measured time and the prediction, ms an iteration."""

    row: Row
    measured_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    host_ms: float
    idle_ms: float
    communication_ms: float
    families: tuple[Family, ...]

    @property
    def error(self) -> float:
        """Signed, relative to the measurement."""
        return self.predicted_ms / self.measured_ms - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the 80% interval."""
        return self.low_ms <= self.measured_ms <= self.high_ms


def measured_times(data: Path) -> dict[str, float]:
    """Row id → ms an iteration.

    Raises:
        OSError: the table is missing.
    """
    with gzip.open(data / "e2e" / "measured.csv.gz", "rt", encoding="utf-8", newline="") as handle:
        return {
            row["id"]: float(row["iteration_time_ms"])
            for row in csv.DictReader(handle)
            if row["iteration_time_ms"]
        }


def families_of(run: Path, gpu_name: str) -> tuple[Family, ...]:
    """Kernels of rank 0's last whole iteration by family, largest first."""
    trace = read_rank(run, 0)
    gpu = find_gpu(gpu_name)
    times = RooflineModel().predict(trace.operations, trace.tables, gpu)
    last = len(trace.tables.iteration_ends) - 1
    operations = np.flatnonzero(iteration_of(trace.operations, trace.tables) == last)
    kernels = slice(
        int(times.operation_offsets[operations[0]]), int(times.operation_offsets[operations[-1] + 1])
    )
    family = times.family[kernels]
    sums = [
        np.bincount(family, weights=column[kernels], minlength=len(times.families)) / 1e6
        for column in (times.work_ns, times.low_ns, times.high_ns)
    ]
    found = [Family(name, *map(float, values)) for name, *values in zip(times.families, *sums, strict=True)]
    return tuple(sorted((f for f in found if f.ms > 0), key=lambda f: -f.ms))


def compare(row: Row, measured_ms: float, folder: Path) -> Compared:
    """Run the row's script under Maya and read its prediction."""
    run = folder / f"{row.id}.maya"
    command = [
        sys.executable,
        "-P",
        "-m",
        "maya.cli",
        "run",
        "-f",
        "--json",
        "--gpu",
        row.gpu,
        "-o",
        str(run),
    ]
    if row.ranks > 1:
        command += ["--nproc-per-node", str(row.ranks)]
    shown = subprocess.run(
        [*command, str(HERE / row.script), *row.options], check=True, capture_output=True, text=True
    )
    value = json.loads(shown.stdout)
    parts = value["breakdown"]
    return Compared(
        row,
        measured_ms,
        value["iteration_time_ms"],
        value["low_ms"],
        value["high_ms"],
        parts["host"],
        parts["idle"],
        parts["exposed_communication"],
        families_of(run, row.gpu),
    )


def percent(value: float) -> str:
    """A signed share."""
    return f"{100 * value:+.1f}%"


def error_table(found: Sequence[Compared]) -> list[str]:
    """One line a row, worst first."""
    lines = [
        "| row | GPU | ranks | script and options | measured ms | predicted ms | error "
        "| 80% interval | inside |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in sorted(found, key=lambda one: -abs(one.error)):
        cells = [
            f"**{one.row.id}**" if one.row.id in ASKED_FOR else one.row.id,
            one.row.gpu,
            str(one.row.ranks),
            f"{one.row.script.partition('_')[0]} {' '.join(one.row.options)}",
            f"{one.measured_ms:.1f}",
            f"{one.predicted_ms:.1f}",
            percent(one.error),
            f"{one.low_ms:.0f}..{one.high_ms:.0f}",
            "yes" if one.inside else "no",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def split_table(one: Compared) -> list[str]:
    """Where a row's predicted time goes, and which part alone could explain the error."""
    missing = one.measured_ms - one.predicted_ms
    lines = ["| part | ms | share | 80% interval, ms | factor that alone gives the measured time |"]
    lines += ["|---|---|---|---|---|"]
    small = [f for f in one.families if f.ms < FAMILY_SHARE * one.predicted_ms]
    rest = Family(
        "other kernels", *(sum(getattr(f, key) for f in small) for key in ("ms", "low_ms", "high_ms"))
    )
    for family in (*(f for f in one.families if f not in small), rest):
        if family.ms <= 0:
            continue
        factor = 1.0 + missing / family.ms
        within = family.low_ms <= family.ms + missing <= family.high_ms
        shown = "none" if factor <= 0 else f"{factor:.2f}{' (within its interval)' if within else ''}"
        interval = f"{family.low_ms:.1f}..{family.high_ms:.1f}"
        share = f"{100 * family.ms / one.predicted_ms:.0f}%"
        lines.append(f"| {family.name} | {family.ms:.1f} | {share} | {interval} | {shown} |")
    for name, ms in (
        ("host (GPU waits for a launch)", one.host_ms),
        ("idle (GPU drained, host waits or starts again)", one.idle_ms),
        ("exposed communication", one.communication_ms),
        ("data loading", 0.0),
    ):
        lines.append(f"| {name} | {ms:.1f} | {100 * ms / one.predicted_ms:.0f}% | | |")
    return lines


def report(found: Sequence[Compared], variants: Sequence[Compared]) -> str:
    """The Markdown text."""
    asked = [one for one in found if one.row.id in ASKED_FOR]
    single = [one for one in found if one.row.ranks == 1]
    several = [one for one in found if one.row.ranks > 1]
    lines = [text.HEAD, "", "## The four rows asked for, worst first", "", *error_table(asked)]
    lines += ["", "## All rows of these kinds on one GPU, worst first", "", *error_table(single)]
    lines += ["", text.summary([one.error for one in single], sum(one.inside for one in single))]
    if variants:
        lines += ["", "## BERT if its scripted GELU ran unfused, worst first", "", text.VARIANTS, ""]
        lines += error_table(variants)
    if several:
        lines += ["", "## The same with eight GPUs (DistributedDataParallel), worst first", ""]
        lines += [*error_table(several), ""]
        lines += [text.summary([one.error for one in several], sum(one.inside for one in several))]
        lines += ["", text.SEVERAL]
    lines += ["", "## Where the predicted time goes, and which part carries the error", "", text.PARTS]
    for one in sorted(single, key=lambda one: (one.row.id not in ASKED_FOR, -abs(one.error))):
        what = f"{one.row.script.partition('_')[0]} {' '.join(one.row.options)}"
        title = f"{one.row.id}: {what} on {one.row.gpu}"
        lines += ["", f"### {title}, {percent(one.error)}", "", *split_table(one)]
        judgement = text.JUDGEMENTS.get(one.row.id)
        lines += ["", judgement] if judgement else []
    return "\n".join([*lines, "", text.DIFFERENCES]) + "\n"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="row ids")
    parser.add_argument("--most-ranks", type=int, default=8)
    options = parser.parse_args()
    measured = measured_times(options.data)
    chosen = [row for row in ROWS if row.ranks <= options.most_ranks]
    chosen = [row for row in chosen if not options.only or row.id in options.only]
    chosen_variants = [row for row in VARIANTS if not options.only or row.id in options.only]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for row in (*chosen, *chosen_variants):
            found.append(compare(row, measured[row.id], Path(folder)))
            print(f"{row.id} {percent(found[-1].error)}", file=sys.stderr, flush=True)
    content = report(found[: len(chosen)], found[len(chosen) :])
    if options.output is None:
        print(content, end="")
        return 0
    partial = options.output.with_suffix(".partial")
    partial.write_text(content, encoding="utf-8")
    os.replace(partial, options.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
