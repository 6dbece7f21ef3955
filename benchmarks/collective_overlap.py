"""How much slower compute kernels run while NCCL's run, in Kineto traces of training.

    python benchmarks/collective_overlap.py [--data ../shared/data] [--output FILE.md]

Kernels are the same if name, grid and block are; compared are the medians of those that ran beside an NCCL
kernel for at least 90% of their time and of those that did so for under 5%. What the simulator makes of the
shares of `maya.kernel_models.collectives.occupancy` should lie in this range.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

TRACES = {
    "hta_a100_8gpu_control_rank3": ("A100-SXM4-40GB", 8),
    "hta_a100_2gpu_nccl_data_rank0": ("A100-SXM4-40GB", 2),
    "hta_v100_2gpu_test_rank1": ("V100-SXM2-16GB", 2),
    "hta_ws128_sampled_rank0": ("unknown, A100 era", 128),
}
BESIDE, ALONE = 0.9, 0.05
LEAST_US = 15.0
"""Shorter kernels are mostly launch latency."""
LEAST_COUNT = 2
HEAD = """Made by `benchmarks/collective_overlap.py` from Kineto traces: time of the same compute kernel
beside an NCCL kernel over its time alone. The mean is weighted by time beside NCCL; ratios above 2.5 are left
out of it (kernels of data-dependent length). The model's shares give a kernel that fills the GPU 1.13
beside 24 blocks, 1.09 beside 16, 1.04 beside 8 and 1.02 beside 2."""
QUANTILES = (0.25, 0.5, 0.75, 0.9)


def ratios(events: Sequence[dict[str, Any]]) -> tuple[list[float], list[float], list[int]]:
    """Of each distinct compute kernel: time beside NCCL over time alone, us beside NCCL; NCCL's blocks."""
    kernels = [event for event in events if event.get("ph") == "X" and event.get("cat") == "kernel"]
    nccl = [event for event in kernels if "nccl" in event["name"].lower()]
    starts = np.asarray([float(event["ts"]) for event in nccl])
    ends = starts + np.asarray([float(event["dur"]) for event in nccl])
    alone: dict[tuple[str, str], list[float]] = defaultdict(list)
    beside: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in kernels:
        if "nccl" in event["name"].lower():
            continue
        start, duration = float(event["ts"]), float(event["dur"])
        shared = np.clip(np.minimum(ends, start + duration) - np.maximum(starts, start), 0, None).sum()
        arguments = event.get("args", {})
        key = (event["name"], f"{arguments.get('grid')} {arguments.get('block')}")
        if shared >= BESIDE * duration:
            beside[key].append(duration)
        elif shared < ALONE * duration:
            alone[key].append(duration)
    both = [
        key
        for key in beside
        if min(len(alone[key]), len(beside[key])) >= LEAST_COUNT and np.median(alone[key]) >= LEAST_US
    ]
    blocks = [int(np.prod(event["args"]["grid"])) for event in nccl if "grid" in event.get("args", {})]
    return (
        [float(np.median(beside[k]) / np.median(alone[k])) for k in both],
        [sum(beside[k]) for k in both],
        blocks,
    )


def report(data: Path) -> str:
    """The page."""
    lines = [
        "# Compute beside NCCL",
        "",
        HEAD,
        "",
        "| trace | GPU | ranks | most NCCL blocks | kernels | p25 | p50 | p75 | p90 | weighted mean |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (gpu, ranks) in TRACES.items():
        with gzip.open(data / "traces" / f"{name}.json.gz", "rt") as handle:
            found, weight, blocks = ratios(json.load(handle)["traceEvents"])
        kept = [(ratio, each) for ratio, each in zip(found, weight, strict=True) if ratio < 2.5]
        mean = float(np.average([ratio for ratio, _ in kept], weights=[each for _, each in kept]))
        cells = [name, gpu, str(ranks), str(max(blocks, default=0)), str(len(found))]
        cells += [f"{np.quantile(found, share):.2f}" for share in QUANTILES]
        lines.append("| " + " | ".join([*cells, f"{mean:.2f}"]) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    root = Path(__file__).resolve().parent.parent
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    partial = options.output.with_suffix(".partial")
    partial.write_text(report(options.data))
    os.replace(partial, options.output)


if __name__ == "__main__":
    main()
