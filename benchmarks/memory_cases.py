"""Peak memory against public reports: `python benchmarks/memory_cases.py` rewrites memory_cases.md.

Every case of ../shared/data/memory/cases.csv that is of grade A, ran on one GPU and can be written down
in full with the libraries at hand runs under `maya run`; the two training scripts lie beside this file.
What is compared depends on what was read: NVML readings hold the CUDA context, so Maya's peak of reserved
memory is compared after adding the context that the same report read before training.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CASES = HERE.parent.parent / "shared" / "data" / "memory" / "cases.csv"
PAGE = HERE / "memory_cases.md"
GIB, MIB = 2**30, 2**20
# C001's note: 1,343 MiB were in use after `torch.ones((1, 1)).to("cuda")`, 2 MiB of it the allocator's.
CONTEXT_OF_2022_BYTES = 1341 * MIB


@dataclass(frozen=True)
class Case:
    """A report and how to run it.

    Attributes:
        id: its row of cases.csv.
        gpu: of Maya's catalogue.
        script, options: what `maya run` runs.
        context_bytes: added to the peak of reserved memory before comparing.
        remark: what the two runs do not share.
    """

    id: str
    gpu: str
    script: str
    options: str
    context_bytes: int = 0
    remark: str = ""


def _bert(id: str, options: str, remark: str = "") -> Case:
    return Case(id, "V100-SXM2-16GB", "bert_large_training.py", options, CONTEXT_OF_2022_BYTES, remark)


def _llama(id: str, options: str, remark: str = "") -> Case:
    shape = "llama-3.2-3b --dtype bf16 --batch 4 --length 768"
    said = "every batch is as long as their longest"
    return Case(id, "L40S", "language_model_training.py", f"{shape} {options}".strip(), 0, remark or said)


def _ran_out(id: str, options: str, remark: str = "") -> Case:
    return Case(id, "RTX3090", "language_model_training.py", f"{options} --attention eager", 0, remark)


TITAN = "a Titan RTX with 23.65 GiB; here an RTX 3090 with 23.56"
RUNS = (
    _bert("C001", "--batch 4"),
    _bert("C002", "--batch 1 --accumulation 4"),
    _bert("C003", "--batch 1 --accumulation 4 --checkpointing"),
    _bert("C004", "--batch 4 --fp16"),
    _bert("C005", "--batch 1 --accumulation 4 --checkpointing --fp16"),
    _bert("C006", "--batch 4 --optimizer adafactor"),
    _bert("C007", "--batch 1 --accumulation 4 --checkpointing --fp16 --optimizer adafactor"),
    _llama("C238", "", "as long as their longest; their evaluation by generation is left out"),
    _llama("C239", "--lora 32"),
    _llama("C240", "--lora 64"),
    _llama("C241", "--lora 10 --targets gate_proj up_proj down_proj"),
    _ran_out("C216", "gpt2-xl --length 1024", TITAN),
    _ran_out("C218", "gpt2-xl --length 1024 --autocast fp16", TITAN),
    _ran_out("C221", "t5-3b --length 128 --autocast fp16"),
    _ran_out("C306", "gpt2-xl --length 1024 --autocast bf16", "nanoGPT's model there, transformers' here"),
)


@dataclass(frozen=True)
class Result:
    """A case, its row of the csv and Maya's prediction.json."""

    case: Case
    row: dict[str, str]
    found: dict[str, Any]
    asked_bytes: int | None

    @property
    def measured_gib(self) -> float | None:
        return float(self.row["peak_reported"]) if self.row["peak_reported"] else None

    @property
    def predicted_gib(self) -> float:
        return (int(self.found["peak_memory_bytes"]["reserved"]) + self.case.context_bytes) / GIB

    @property
    def error(self) -> float | None:
        return None if self.measured_gib is None else self.predicted_gib / self.measured_gib - 1

    @property
    def same_verdict(self) -> bool:
        return (self.found["verdict"] == "oom") == (self.row["verdict"] == "oom")


def run(case: Case, row: dict[str, str]) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "maya.cli", "run", "-q", "--gpu", case.gpu, "-o", "x.maya"]
        command += [str(HERE / case.script), *case.options.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        prediction = Path(folder) / "x.maya" / "prediction.json"
        if not prediction.exists():
            raise RuntimeError(f"{case.id}: no prediction\n{done.stderr[-2000:]}")
        found = json.loads(prediction.read_text())
        if found["verdict"] not in ("ok", "oom"):
            raise RuntimeError(f"{case.id}: {found['verdict']}: {found['cause']}")
        outcome = json.loads((Path(folder) / "x.maya" / "outcome-0.json").read_text())
    return Result(case, row, found, outcome["oom"] and outcome["oom"]["requested_bytes"])


def page(results: list[Result]) -> str:
    fits = [result for result in results if result.error is not None]
    fits.sort(key=lambda result: -abs(result.error or 0.0))
    ran_out = [result for result in results if result.error is None]
    lines = ["| case | trained | read there | Maya | error | of it context | differs |"]
    lines += ["|---|---|---:|---:|---:|---:|---|"]
    for result in fits:
        context = f"{result.case.context_bytes / GIB:.2f}" if result.case.context_bytes else "-"
        row = result.row
        trained = f"{row['model'].split(' ')[0]} {row['task'].split(' (')[0]}, `{result.case.options}`"
        lines.append(
            f"| {result.case.id} | {trained} | {result.measured_gib:.3f} GiB |"
            f" {result.predicted_gib:.3f} GiB | {result.error:+.1%} | {context} | {result.case.remark} |"
        )
    lines += ["", "| case | trained | there | Maya | failed on there | failed on here | differs |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for result in ran_out:
        row = result.row
        tried = f"{float(row['oom_tried_gib']) * 1024:.0f} MiB, {row['oom_allocated_gib']} GiB allocated"
        peak = result.found["peak_memory_bytes"]["allocated"] / GIB
        asked = f"{(result.asked_bytes or 0) / MIB:.0f} MiB, {peak:.2f} GiB allocated"
        lines.append(
            f"| {result.case.id} | `{result.case.options}` | {row['verdict']} | {result.found['verdict']} |"
            f" {tried} | {asked} | {result.case.remark} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ids", nargs="*", help="of cases; all, and the page is rewritten, if none is given")
    chosen = parser.parse_args().ids
    with CASES.open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    results = []
    for case in RUNS:
        if chosen and case.id not in chosen:
            continue
        result = run(case, rows[case.id])
        results.append(result)
        error = "" if result.error is None else f"{result.error:+.2%}"
        print(case.id, result.found["verdict"], f"{result.predicted_gib:.3f} GiB", error, flush=True)
    if chosen:
        return
    before, _, after = PAGE.read_text().partition("<!-- tables: written by memory_cases.py -->\n")
    _, _, after = after.partition("<!-- end -->")
    text = f"{before}<!-- tables: written by memory_cases.py -->\n\n{page(results)}\n\n<!-- end -->{after}"
    PAGE.with_suffix(".partial").write_text(text)
    PAGE.with_suffix(".partial").replace(PAGE)


if __name__ == "__main__":
    main()
