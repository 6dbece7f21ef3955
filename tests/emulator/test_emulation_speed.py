"""The emulated device is fast: ratios within one run, as `benchmarks/emulation_overhead.py` measures them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "emulation_overhead.py"
META_OVER_EMULATED = 15
OWN_US_AN_OPERATOR = 6


@pytest.mark.slow
def test_a_gpt_step_beats_the_meta_device() -> None:
    run = subprocess.run(
        [sys.executable, str(BENCHMARK), "--json"], capture_output=True, text=True, check=True, timeout=600
    )
    result = json.loads(run.stdout)
    assert result["meta_over_recording"] >= META_OVER_EMULATED
    assert result["own_us_an_operator"] <= OWN_US_AN_OPERATOR
