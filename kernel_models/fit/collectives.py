"""`python -m maya.kernel_models.fit.collectives --data DIR`: fit the collectives and write their card.

Deterministic: the same data give the same card. Errors and intervals in it come from held-out octaves of
size; errors on held-out rank counts and numbers of nodes stand beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from maya.kernel_models.collectives.card import FILE_NAME, SCHEMA_VERSION
from maya.kernel_models.fit.collective_data import read_table
from maya.kernel_models.fit.collective_groups import fit_between_nodes, fit_links

DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "artifacts" / FILE_NAME


def write_collectives(data: Path, output: Path = DEFAULT_OUTPUT) -> None:
    """Fit the rows under `data` and replace the card at `output` in one step."""
    table = read_table(data)
    links = fit_links(table)
    for group, families in links.items():
        for family, each in families.items():
            large = each["held_out"].get("sizes", {}).get("large")
            error = f"p50 {large['p50']:.3f}  p90 {large['p90']:.3f}" if large else "derived"
            print(f"{group:20s} {family:15s} {each['rows']:5d} rows  >= 1 MiB {error}", file=sys.stderr)
    card = {
        "schema_version": SCHEMA_VERSION,
        "links": links,
        "network": fit_between_nodes(table, links),
    }
    partial = output.with_suffix(".partial")
    partial.write_text(json.dumps(card, indent=1, sort_keys=True) + "\n")
    os.replace(partial, output)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m maya.kernel_models.fit.collectives", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with kernels/collectives.parquet")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args(arguments)
    write_collectives(options.data, options.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
