"""Measures the constants of `maya.simulator.Settings` in real Kineto traces (../shared/data/traces).

    python benchmarks/simulator_launch_constants.py [TRACE.json.gz ...]

For each trace, in µs, the 10th, 50th and 90th percentile of
- launch: end of the launch call to the kernel's start, where the stream was idle at the call;
- gap: between two kernels of one stream, where the second was launched at least 8 µs before the
  first ended (so the queue was not empty);
- return: last device work's end to the end of a cudaStreamSynchronize or cudaDeviceSynchronize that
  really waited (over 20 µs).
NCCL kernels are left out: they wait for other ranks.
"""

from __future__ import annotations

import argparse
import bisect
import gzip
import json
import statistics
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
QUEUED_MARGIN_US = 8
WAITED_US = 20


def measure(events: list[dict]) -> dict[str, list[float]]:
    """Samples in µs under "launch", "gap" and "return"."""
    launches: dict[int, dict] = {}
    kernels: dict[tuple, list[dict]] = defaultdict(list)
    device_ends: list[float] = []
    syncs: list[tuple[float, float]] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        arguments, category = event.get("args", {}), event.get("cat", "").lower()
        end = event["ts"] + event["dur"]
        if category in ("cuda_runtime", "runtime") and "Launch" in event["name"]:
            launches[arguments.get("correlation")] = event
        if event["name"] in ("cudaStreamSynchronize", "cudaDeviceSynchronize"):
            syncs.append((event["ts"], end))
        if category in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            device_ends.append(end)
        if category == "kernel" and "nccl" not in event["name"].lower():
            kernels[event["pid"], arguments.get("stream", event["tid"])].append(event)
    samples: dict[str, list[float]] = {"launch": [], "gap": [], "return": []}
    for stream in kernels.values():
        stream.sort(key=lambda event: event["ts"])
        for before, kernel in pairwise(stream):
            launch = launches.get(kernel["args"].get("correlation"))
            if launch is None:
                continue
            before_end, call_end = before["ts"] + before["dur"], launch["ts"] + launch["dur"]
            if before_end < launch["ts"]:
                samples["launch"].append(kernel["ts"] - call_end)
            elif call_end + QUEUED_MARGIN_US < before_end:
                samples["gap"].append(kernel["ts"] - before_end)
    device_ends.sort()
    for begin, end in syncs:
        index = bisect.bisect_right(device_ends, end) - 1
        if end - begin > WAITED_US and index >= 0 and device_ends[index] > begin:
            samples["return"].append(end - device_ends[index])
    return samples


def main() -> None:
    """Print one line for each trace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", type=Path)
    traces = parser.parse_args().traces or sorted(
        path for path in TRACES.glob("*.json.gz") if "_et." not in path.name
    )
    for path in traces:
        with gzip.open(path) as stream:
            samples = measure(json.load(stream)["traceEvents"])
        cells = []
        for name, values in samples.items():
            if len(values) < 5:
                cells.append(f"{name:>7} n={len(values)}")
                continue
            tenths, middle = statistics.quantiles(values, n=10), statistics.median(values)
            cells.append(f"{name:>7} {tenths[0]:6.2f} {middle:6.2f} {tenths[-1]:7.2f} n={len(values)}")
        print(f"{path.name.removesuffix('.json.gz'):<36}" + " | ".join(cells))


if __name__ == "__main__":
    main()
