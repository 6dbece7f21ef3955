"""`python -m maya.kernel_models.fit --data DIR`: fit every family and write the card.

Deterministic: the same data give the same card. Held out are whole size families (for products all
rows of an (n, k), for convolutions of a channel pair, for others of a row length), a fifth at a time:
every fifth in turn for groups of up to 2,000 rows, one fifth for larger ones. Errors and intervals in
the card come from those, the parameters from all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from maya.kernel_models.artifact import FILE_NAME, SCHEMA_VERSION
from maya.kernel_models.collectives.card import FILE_NAME as COLLECTIVES_CARD
from maya.kernel_models.fit.attention_data import load_attention
from maya.kernel_models.fit.collectives import write_collectives
from maya.kernel_models.fit.convolution_data import load_convolution
from maya.kernel_models.fit.gemm_data import load_gemm
from maya.kernel_models.fit.groups import fit_family
from maya.kernel_models.fit.host_data import fit_host
from maya.kernel_models.fit.label_data import load_labels
from maya.kernel_models.fit.measurements import Measurements
from maya.kernel_models.fit.memory_data import load_layers, load_liger, load_sweeps
from maya.kernel_models.fit.network_traces import load_networks
from maya.kernel_models.fit.recurrent_data import load_recurrent
from maya.kernel_models.fit.trace_data import load_traces
from maya.kernel_models.host import HOST_CARD

LOADERS = (
    load_gemm,
    load_attention,
    load_convolution,
    load_sweeps,
    load_layers,
    load_labels,
    load_liger,
    load_traces,
    load_networks,
    load_recurrent,
)


def gather(data: Path, only: Sequence[str] = ()) -> dict[str, Measurements]:
    """Rows of every family, those of several loaders joined."""
    joined: dict[str, Measurements] = {}
    for loader in LOADERS:
        for found in loader(data):
            if only and found.family not in only:
                continue
            if found.family in joined:
                joined[found.family].extend(found)
            else:
                joined[found.family] = found
    return joined


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m maya.kernel_models.fit", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with kernels/*.parquet")
    default = Path(__file__).resolve().parent.parent / "artifacts" / FILE_NAME
    parser.add_argument("--output", type=Path, default=default)
    parser.add_argument(
        "--only", nargs="*", default=[], help="families (or host, collectives); others keep what the card has"
    )
    options = parser.parse_args(arguments)
    entries: list[dict[str, Any]] = []
    if options.only and options.output.exists():
        old = json.loads(options.output.read_text())["fits"]
        entries = [entry for entry in old if entry["family"] not in options.only]
    for family, measurements in sorted(gather(options.data, options.only).items()):
        for entry in fit_family(measurements):
            entries.append(entry)
            error = entry["held_out"]
            print(
                f"{family:20s} {entry['math']:5s} {entry['generation']:9s} {entry['rows']:6d} rows  "
                f"held out {error['rows']:5d}  p50 {error['p50']:.3f}  p90 {error['p90']:.3f}  "
                f"bias {error['bias']:+.3f}",
                file=sys.stderr,
                flush=True,
            )
    entries.sort(key=lambda entry: (entry["family"], entry["math"], entry["generation"]))
    _write(options.output, {"schema_version": SCHEMA_VERSION, "fits": entries})
    if not options.only or "host" in options.only:
        _write(options.output.with_name(HOST_CARD), fit_host(options.data))
    if not options.only or "collectives" in options.only:
        write_collectives(options.data, options.output.with_name(COLLECTIVES_CARD))
    return 0


def _write(path: Path, card: dict[str, Any]) -> None:
    """Replace a card in one step."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(card, indent=1, sort_keys=True) + "\n")
    os.replace(partial, path)


if __name__ == "__main__":
    raise SystemExit(main())
