"""Models far larger than this machine, built on the emulated device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "large_model_host_memory.py"


def test_a_llama_of_70_billion_parameters_trains_in_4_gb_of_host_memory() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--json"], stdout=subprocess.PIPE, text=True, timeout=300, check=True
    )
    found = json.loads(done.stdout)
    width, key_value, feed_forward, vocabulary = 8192, 1024, 28672, 128256
    block = 2 * width * width + 2 * width * key_value + 3 * width * feed_forward + 2 * width
    assert found["parameters"] == 80 * block + 2 * vocabulary * width + width
    assert found["peak_host_bytes"] < 4e9
    # bf16 parameters and their gradients, at least
    assert found["device_peak_bytes"] > 4 * found["parameters"]
    assert found["iteration_time_ms"] > 0
    # A fill costs the same whatever its size: nothing is written. Ten times what an idle machine takes.
    fills = {name: value for name, value in found.items() if name.startswith("fill ")}
    assert len(fills) == 6
    assert max(fills.values()) < 300, fills
