"""`maya gpus`: what the catalogue holds, and where each figure of one GPU comes from."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maya.hardware import (
    FIGURE_GROUPS,
    PEAK_KEYS,
    GpuSpec,
    Price,
    all_gpus,
    find_gpu,
    load_gpus,
    load_prices,
    price_of,
)

_GIB = 1 << 30
_MINIMUM_WIDTH = 100
"""Columns of the table where stdout is no terminal and therefore has no width of its own."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", nargs="?", help="one GPU in full, with the source of every figure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--gpu-file", type=Path, metavar="FILE", help="add the GPUs of a TOML file")
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="use these prices instead of the shipped ones"
    )


def run(args: argparse.Namespace) -> int:
    """Print the catalogue or one GPU; always 0.

    Raises:
        UsageError: an unknown GPU, or a mistake in a file given.
    """
    own = load_gpus(args.gpu_file) if args.gpu_file else ()
    prices = load_prices(args.prices, own) if args.prices else None
    gpus = [find_gpu(args.name, own)] if args.name else [*own, *all_gpus()]
    if args.json:
        rows = [_as_json(gpu, price_of(gpu, prices)) for gpu in gpus]
        json.dump({"schema_version": 1, "gpus": rows}, sys.stdout, indent=2)
        print()
    elif args.name:
        _print_details(gpus[0], price_of(gpus[0], prices))
    else:
        _print_table(gpus, prices)
    return 0


def _as_json(gpu: GpuSpec, price: Price | None) -> dict[str, Any]:
    return {**asdict(gpu), "price": asdict(price) if price else None}


def _print_table(gpus: Sequence[GpuSpec], prices: Mapping[str, Price] | None) -> None:
    from rich.console import Console  # imported here: `maya gpus --json` and the dispatcher do without
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("GPU", no_wrap=True)
    for heading in ("generation", "sm", "SMs", "GiB", "GB/s", "fp32", "16 bit", "fp8", "NVLink", "W", "$/h"):
        table.add_column(heading, justify="left" if heading == "generation" else "right", no_wrap=True)
    for gpu in gpus:
        price = price_of(gpu, prices)
        table.add_row(
            gpu.name,
            gpu.generation,
            _capability(gpu),
            str(gpu.sm_count),
            f"{gpu.memory_bytes / _GIB:.0f}",
            f"{gpu.hbm_bandwidth_gbps:.0f}",
            _peak(gpu, "fp32"),
            _peak(gpu, "bf16") if "bf16" in gpu.peak_tflops else _peak(gpu, "fp16"),
            _peak(gpu, "fp8"),
            f"{gpu.nvlink_gbps:g}" if gpu.nvlink_gbps else "-",
            str(gpu.tdp_watts),
            f"{price.usd_per_gpu_hour:.2f}" if price else "-",
        )
    console = Console(width=None if sys.stdout.isatty() else _MINIMUM_WIDTH, highlight=False)
    console.print(table)
    console.print(
        "Peaks are dense TFLOPS (16 bit: bf16, else fp16); GB/s of device memory; NVLink GB/s one way; "
        "$/h per GPU, on demand. `maya gpus NAME` gives all figures with their sources."
    )


def _print_details(gpu: GpuSpec, price: Price | None) -> None:
    """One `figure  value` line each, grouped as the sources are, the source below its group."""
    print(f"{gpu.name}  ({', '.join(gpu.aliases) or 'no aliases'})")
    for group, fields in FIGURE_GROUPS.items():
        print()
        for field in fields:
            print(f"  {field:<36} {_shown(gpu, field)}")
        print(f"    source: {gpu.sources[group]}")
    print()
    if price is None:
        print("  no price known; give your own with --prices FILE")
    else:
        print(f"  {'usd_per_gpu_hour':<36} {price.usd_per_gpu_hour:g}")
        print(f"    source: {price.source} ({price.date})")


def _shown(gpu: GpuSpec, field: str) -> str:
    value = getattr(gpu, field)
    if field == "compute_capability":
        return _capability(gpu)
    if field == "peak_tflops":
        return ", ".join(f"{key} {value[key]:g}" for key in PEAK_KEYS if key in value)
    if field == "tensor_clock_mhz" and value is None:
        return "as boost_clock_mhz"
    if value is None:
        return "unknown"
    if field.endswith("_bytes") and value >= _GIB:
        return f"{value} ({value / _GIB:.2f} GiB)"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _capability(gpu: GpuSpec) -> str:
    major, minor = gpu.compute_capability
    return f"{major}.{minor}"


def _peak(gpu: GpuSpec, key: str) -> str:
    return f"{gpu.peak_tflops[key]:.4g}" if key in gpu.peak_tflops else "-"
