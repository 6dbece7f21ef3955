"""`python -m maya.kernel_models.fit.learned_families --data DIR [--only NAME ...]`: train learned families.

Writes `artifacts/learned/NAME.{txt,json}`. Deterministic: the same data give the same files.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from maya.kernel_models.fit.learned import evaluate, print_progress, ship
from maya.kernel_models.fit.learned_attention import load_attention_calls
from maya.kernel_models.fit.learned_gemm import load_gemm_calls
from maya.kernel_models.fit.learned_rows import MeasuredCalls
from maya.kernel_models.learned.artifact import write_trained
from maya.kernel_models.learned.attention import ATTENTION
from maya.kernel_models.learned.family import LearnedFamily
from maya.kernel_models.learned.gemm import GEMM

Loader = Callable[[Path], MeasuredCalls]

LOADERS: tuple[tuple[LearnedFamily, Loader], ...] = (
    (GEMM, load_gemm_calls),
    (ATTENTION, load_attention_calls),
)
"""Every learned family with what reads its measurements. Order matters where one is the base of another."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m maya.kernel_models.fit.learned_families", description=__doc__
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with kernels/*.parquet")
    default = Path(__file__).resolve().parent.parent / "artifacts" / "learned"
    parser.add_argument("--output", type=Path, default=default)
    parser.add_argument("--only", nargs="*", default=[], help="families; others keep their files")
    parser.add_argument(
        "--quick", action="store_true", help="no held-out trainings: the card then has no errors"
    )
    options = parser.parse_args(arguments)
    for family, loader in LOADERS:
        if options.only and family.name not in options.only:
            continue
        start = time.process_time()
        measured = loader(options.data)
        held_out = [] if options.quick else evaluate(family, measured, print_progress)
        card, text = ship(family, measured, held_out)
        write_trained(options.output, family.name, card, text)
        print_progress(f"{family.name}: {len(text) / 1e6:.1f} MB, {time.process_time() - start:.0f} CPU s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
