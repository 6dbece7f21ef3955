"""What recording, writing and reading a trace costs.

    python benchmarks/trace_io.py [--operations 25000] [--read-operations 200000] [--repeats 3] [--json FILE]

The trace is made up in the proportions of a GPT-2 training step: 60% kernels with one to five tensors,
40% views, foreach optimizer operators over 150 tensors, 2,500 distinct (operator, shapes, module).
CPU time of this process, best of the repeats, so that a busy machine does not count. Cases:
- append: what `RankWriter.append` costs while the user's script runs, in batches of 4,096;
- finish: encoding as Chakra nodes with dependencies, after the script has ended;
- read: `read_rank`, and what it adds to the peak memory of a fresh process, scaled to 1 M operations;
- read as anyone's: `read_et`, which parses every node and attribute; validate; export with durations;
- import: `import maya.traces` in a fresh interpreter that has imported numpy.
Goals: append and finish together at most 15 us an operation (25,000 in under 0.5 s is 20), reading 1 M
operations in under 5 s and 1 GB, importing in under 100 ms.

Measured 2026-11-30, two cores of an AMD EPYC, Python 3.11.7, NumPy 2.4.6, protobuf 7.36.2 (upb): append
0.12 us, finish 10.3 us an operation (25,000 in 0.26 s), 554 bytes an operation; 1 M operations read in
1.5 s and 0.86 GB (0.55 GB of it the mapped file); read_et 17 us, validate 18 us, export 11 us a node;
import 25 ms. The recorded trace of examples/train_gpt.py (30,090 operations): finish 8 to 11 us, read 0.05 s.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from maya.traces import (
    MEMORY_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Kind,
    MemoryAction,
    Operations,
    Phase,
    RankWriter,
    Role,
    Tables,
    export_with_durations,
    no_communications,
    read_et,
    read_rank,
    validate_et,
)

STEP_OPERATIONS = 2_500
STORAGES = 1_500
FOREACH_TENSORS = 150
BATCH = 4_096


def tensor(*shape: int) -> dict[str, Any]:
    """A tensor of the metadata texts."""
    stride = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    return {"dtype": "bfloat16", "shape": list(shape), "stride": stride, "device": "cuda"}


def make_trace(count: int) -> tuple[Operations, Tables, np.ndarray]:
    """Operations, tables and an allocator log: every step frees and makes anew what it wrote."""
    random = np.random.default_rng(0)
    within = np.arange(count) % STEP_OPERATIONS
    step = np.arange(count) // STEP_OPERATIONS
    rows = np.zeros(count, OPERATION_DTYPE)
    rows["id"] = np.arange(count)
    rows["operator"] = within % 120
    rows["metadata"] = within % 400
    rows["module"] = within * 150 // STEP_OPERATIONS
    rows["source_line"] = within * 60 // STEP_OPERATIONS
    for column in ("event", "communication", "graph"):
        rows[column] = -1
    rows["sequence"] = np.where(within < 1_100, within, -1)
    rows["kind"] = np.where(within % 5 < 2, Kind.HOST, Kind.KERNEL)
    rows["phase"] = np.select(
        [within < 1_100, within < 2_490], [Phase.FORWARD, Phase.BACKWARD], Phase.OPTIMIZER
    )
    rows["tensor_count"] = np.where(within >= 2_490, FOREACH_TENSORS, random.integers(1, 6, count))
    owner = np.repeat(np.arange(count), rows["tensor_count"])
    tensors = np.zeros(len(owner), TENSOR_DTYPE)
    last = np.concatenate((np.diff(owner) > 0, [True]))
    # Reads reach back to what the operations shortly before wrote, or to a weight.
    read = np.where(random.random(len(owner)) < 0.3, random.integers(0, 150, len(owner)), 0)
    recent = np.maximum(within[owner] - random.integers(1, 9, len(owner)), 0) % STORAGES
    made = 1_000 + step[owner] * STORAGES
    tensors["storage"] = np.where(
        last, made + within[owner] % STORAGES, np.where(read > 0, read, made + recent)
    )
    tensors["extent_bytes"] = 4_096
    tensors["role"] = np.where(last, Role.WRITE, Role.READ)
    steps = int(step[-1]) + 1
    memory = np.zeros(steps * STORAGES, MEMORY_DTYPE)
    memory["action"] = MemoryAction.FREE
    memory["operation"] = np.repeat((np.arange(steps) + 1) * STEP_OPERATIONS, STORAGES)
    memory["allocation"] = 1_000 + np.arange(steps * STORAGES)
    tables = Tables(
        operators=tuple(f"aten::operator_{index}.Tensor" for index in range(120)),
        metadata=tuple(
            json.dumps({"args": {"self": tensor(8, size), "other": tensor(size, 8)}, "out": [tensor(8, 8)]})
            for size in range(400)
        ),
        modules=tuple(f"GPT.transformer.h.{index}.attn" for index in range(150)),
        source_lines=tuple(f"/home/user/train.py:{index}" for index in range(60)),
        iteration_ends=tuple(range(STEP_OPERATIONS - 1, count, STEP_OPERATIONS)),
    )
    return Operations(rows, tensors, no_communications()), tables, memory


def write(run_dir: Path, trace: tuple[Operations, Tables, np.ndarray]) -> tuple[float, float]:
    """CPU seconds of all appends, and of finish."""
    operations, tables, memory = trace
    offsets = operations.tensor_offsets()
    start = time.process_time()
    writer = RankWriter(run_dir, 0)
    for first in range(0, operations.count, BATCH):
        end = min(first + BATCH, operations.count)
        batch = Operations(
            operations.rows[first:end], operations.tensors[offsets[first] : offsets[end]], no_communications()
        )
        writer.append(batch, tables.operators, tables.metadata, tables.modules, tables.source_lines)
    writer.append_memory(memory)
    appended = time.process_time()
    writer.finish(tables)
    return appended - start, time.process_time() - appended


def best(repeats: int, action: Callable[[], object]) -> float:
    """Least CPU seconds of an action."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def peak_mb(code: str, *arguments: str) -> float:
    """Peak resident memory of a fresh process that runs code, above what it had before (Linux)."""
    program = (
        "import sys\n"
        "from maya.traces import read_rank\n"
        "from maya.traces.chakra_schema import messages; messages()\n"
        "def peak():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return int(next(line for line in lines if line.startswith('VmHWM')).split()[1]) / 1024\n"
        f"before = peak()\n{code}\nprint(peak() - before)\n"
    )
    return float(subprocess.check_output([sys.executable, "-c", program, *arguments], text=True))


def import_ms(repeats: int) -> float:
    """Least CPU time of `import maya.traces` beyond numpy."""
    code = (
        "import numpy, time; start = time.process_time(); import maya.traces\n"
        "print((time.process_time() - start) * 1e3)"
    )
    command = [sys.executable, "-c", code]
    return min(float(subprocess.check_output(command, text=True)) for _ in range(repeats))


def measure(count: int, read_count: int, repeats: int) -> dict[str, float]:
    """All cases."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        trace = make_trace(count)
        timed = [write(Path(folder) / str(index), trace) for index in range(repeats)]
        found["append_us_per_operation"] = min(append for append, _ in timed) / count * 1e6
        found["finish_us_per_operation"] = min(finish for _, finish in timed) / count * 1e6
        found["write_s"] = min(append + finish for append, finish in timed)
        run_dir = Path(folder) / "0"
        et = run_dir / "rank-0.et"
        found["bytes_per_operation"] = et.stat().st_size / count
        found["dependencies_per_operation"] = len(read_et(et).data.ids) / count
        found["read_et_us_per_operation"] = best(repeats, lambda: read_et(et)) / count * 1e6
        found["validate_us_per_operation"] = best(repeats, lambda: validate_et(et)) / count * 1e6
        durations = np.full(count, 1_000)
        exported = best(repeats, lambda: export_with_durations(run_dir, Path(folder) / "out.et", durations))
        found["export_us_per_operation"] = exported / count * 1e6

        large = str(Path(folder) / "large")
        write(Path(large), make_trace(read_count))
        found["read_s_per_million"] = best(repeats, lambda: read_rank(large)) / read_count * 1e6
        reading = peak_mb("trace = read_rank(sys.argv[1])", large)
        found["read_memory_mb_per_million"] = reading / read_count * 1e6
    found["import_ms"] = import_ms(repeats)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--operations", type=int, default=25_000)
    parser.add_argument("--read-operations", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    found = measure(args.operations, args.read_operations, args.repeats)
    print(f"{args.operations:,} operations written, {args.read_operations:,} read; {platform.platform()}")
    for name, value in found.items():
        print(f"  {name:<28} {value:10.2f}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
