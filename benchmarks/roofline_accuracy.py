"""Errors of the fitted roofline on size families it has not seen, worst first.

    python benchmarks/roofline_accuracy.py [--generations --data ../shared/data] [--output FILE.md]

Reads the card that ships with Maya, whose held-out errors `python -m maya.kernel_models.fit` computed with
a fifth of the size families left out. `--generations` also predicts every row of a GPU generation
with the parameters of the nearest other one and scores that (it loads the data, about a minute).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

TARGETS = {
    "gemm": (0.05, 0.15),
    "attention_forward": (0.06, None),
    "pointwise": (0.08, None),
    "norm_forward": (0.08, None),
    "softmax_forward": (0.08, None),
    "convolution": (0.15, None),
}
"""Wanted p50 and p90 on held-out families (design page, section "Accuracy wanted")."""
GENERATION_TARGETS = {"gemm": 0.12, "attention_forward": 0.15}
LEFT_OUT = (
    ("gemm", "bf16"),
    ("attention_forward", "bf16"),
    ("pointwise", "fp32"),
    ("softmax_forward", "fp32"),
)


def shipped_fits() -> list[dict[str, Any]]:
    """Entries of the card in the package."""
    text = (files("maya.kernel_models") / "artifacts" / "efficiency.json").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)["fits"]
    return entries


def total_coverage(fits: Sequence[dict[str, Any]]) -> float:
    """Share of all held-out rows inside their interval."""
    rows = [int(entry["held_out"]["rows"]) for entry in fits]
    inside = sum(count * float(entry["coverage"]) for count, entry in zip(rows, fits, strict=True))
    return inside / max(1, sum(rows))


def worst_coverage(fits: Sequence[dict[str, Any]], least_rows: int = 50, count: int = 4) -> str:
    """The groups whose coverage is farthest from 80%."""
    known = [entry for entry in fits if entry["held_out"]["rows"] >= least_rows]
    known.sort(key=lambda entry: -abs(float(entry["coverage"]) - 0.8))
    return ", ".join(
        f"{e['family']} {e['math']} {e['generation']} {100 * e['coverage']:.0f}%" for e in known[:count]
    )


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f}%"


def held_out_table(fits: Sequence[dict[str, Any]]) -> list[str]:
    """One line a fit, largest median error first."""
    lines = [
        "| family | math | generation | rows | held out | p50 | p90 | max | bias "
        "| p50 > 10 us | p50 < 10 us | wanted p50 | interval | coverage |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in sorted(fits, key=lambda entry: -float(entry["held_out"]["p50"])):
        error = entry["held_out"]
        large, small = error["above_10us"], error["below_10us"]
        wanted = TARGETS.get(entry["family"])
        cells = [
            entry["family"],
            entry["math"],
            entry["generation"],
            str(entry["rows"]),
            str(error["rows"]),
            percent(error["p50"]),
            percent(error["p90"]),
            percent(error["max"]),
            f"{100 * error['bias']:+.1f}%",
            percent(large["p50"]) if large["rows"] else "-",
            percent(small["p50"]) if small["rows"] else "-",
            percent(wanted[0]) if wanted else "-",
            f"{entry['low']:.2f}..{entry['high']:.2f}",
            f"{100 * entry['coverage']:.0f}%",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def gpu_table(fits: Sequence[dict[str, Any]]) -> list[str]:
    """Products, attention and convolutions by GPU."""
    rows = [
        (entry["family"], entry["math"], gpu, error)
        for entry in fits
        if entry["family"] in ("gemm", "attention_forward", "convolution")
        for gpu, error in entry["held_out_by_gpu"].items()
    ]
    lines = ["| family | math | GPU | held out | p50 | p90 | bias |", "|---|---|---|---|---|---|---|"]
    for family, math, gpu, error in sorted(rows, key=lambda row: -float(row[3]["p50"])):
        cells = [family, math, gpu, str(error["rows"]), percent(error["p50"]), percent(error["p90"])]
        lines.append("| " + " | ".join([*cells, f"{100 * error['bias']:+.1f}%"]) + " |")
    return lines


def left_out_table(data: Path) -> list[str]:
    """Every generation of some families, predicted with the nearest other generation's parameters."""
    import numpy as np

    from maya.kernel_models.artifact import Efficiencies, load_efficiencies
    from maya.kernel_models.fit.__main__ import gather
    from maya.kernel_models.fit.groups import errors
    from maya.kernel_models.fit.regression import make_problem
    from maya.kernel_models.pricing import find_fit

    shipped = load_efficiencies().fits
    measured = gather(data, [family for family, _ in LEFT_OUT])
    lines = [
        "| family | math | left out | predicted from | rows | p50 | p90 | bias | wanted p50 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows = []
    for family, math in LEFT_OUT:
        for (found_math, generation), chosen in sorted(measured[family].grouped().items()):
            if found_math != math:
                continue
            others = {
                key: fit for key, fit in shipped.items() if key[2] != generation and key[:2] == (family, math)
            }
            fit, _ = find_fit(Efficiencies(others), family, math, generation)
            problem = make_problem(measured[family], chosen)
            if fit is None:
                continue
            overheads = _overheads(shipped_fits(), family, math, generation, problem.extra_names)
            predicted = problem.predict(problem.form.defaults() | dict(fit.parameters), np.asarray(overheads))
            error = errors(predicted, problem.time_ns)
            wanted = GENERATION_TARGETS.get(family)
            cells = [family, math, generation, fit.generation, str(error["rows"])]
            cells += [percent(error["p50"]), percent(error["p90"]), f"{100 * error['bias']:+.1f}%"]
            rows.append((error["p50"], [*cells, percent(wanted) if wanted else "-"]))
    return lines + ["| " + " | ".join(cells) + " |" for _, cells in sorted(rows, key=lambda row: -row[0])]


def _overheads(
    fits: Sequence[dict[str, Any]], family: str, math: str, generation: str, names: Sequence[str]
) -> list[float]:
    """The timing method's overhead on the measured host is not the GPU model's to predict."""
    for entry in fits:
        if (entry["family"], entry["math"], entry["generation"]) == (family, math, generation):
            return [float(entry["timing_overhead_ns"][name]) for name in names]
    return [0.0] * len(names)


def report(fits: Sequence[dict[str, Any]], data: Path | None) -> str:
    """The Markdown text."""
    missed = [
        f"{entry['family']} {entry['math']} {entry['generation']}"
        for entry in fits
        if entry["family"] in TARGETS and entry["held_out"]["p50"] > TARGETS[entry["family"]][0]
    ]
    lines = [
        "# Accuracy of the fitted roofline",
        "",
        "Made by `benchmarks/roofline_accuracy.py`; the parameters by `python -m maya.kernel_models.fit`.",
        "Held out are whole size families: all rows of an (n, k) for products, of a channel pair for",
        "convolutions, of (heads, head size, sequence) for attention, of a row length for the rest: each",
        "fifth of them in turn (of groups above 2,000 rows one fifth; every fourth row where there are too",
        "few size families). Errors are |predicted / measured - 1| against the measurement as its source",
        "timed it (with the fitted overhead of event-timed rows).",
        "",
        "`interval` is the 80% interval of measured / predicted before it is widened for few rows, sizes",
        "outside the range and other generations; `coverage` the share of held-out rows inside an interval",
        "made from the other fifths (of groups above 2,000 rows: from every other held-out row); where that",
        "was below 78% the interval is wider than the quantiles. All rows together:",
        f"{100 * total_coverage(fits):.0f}%; worst groups of 50 rows and more: {worst_coverage(fits)}.",
        "",
        f"Groups that miss the wanted median ({len(missed)}): {', '.join(missed) or 'none'}.",
        "",
        "## Held-out size families, worst first",
        "",
        *held_out_table(fits),
        "",
        "## By GPU",
        "",
        *gpu_table(fits),
    ]
    if data is not None:
        lines += ["", "## A whole generation left out", "", *left_out_table(data)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the measurements, needed for --generations")
    parser.add_argument("--generations", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.generations and options.data is None:
        parser.error("--generations needs --data")
    text = report(shipped_fits(), options.data if options.generations else None)
    if options.output is None:
        print(text, end="")
        return 0
    partial = options.output.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, options.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
