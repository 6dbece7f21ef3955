"""How many operations a second go through the simulator's engine, and whether the results agree.

    python benchmarks/simulator_speed.py [--operations 100000] [--repeats 3] [--json FILE]

Each case is one call of `simulate` (checks, compilation, engine, timeline columns), best of the
repeats; CPU time of this process, so that a busy machine does not count. Cases:
- one stream: a training step's mix (60% kernels, 39% views and other host-only operations, 1% event
  records), by the single-stream path and by the general engine on the same trace (results must be equal);
- two streams: kernels that contend for SMs and HBM on two streams, copies on a third, events between;
- eight ranks: each with compute and asynchronous all-reduces on a second stream.
The goal is 300,000 operations/s on one stream and at least 100,000 everywhere.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from maya.simulator import (
    FixedTimeNetwork,
    KernelColumns,
    RankInput,
    Settings,
    Timeline,
    Transfer,
    breakdown,
    iteration_times,
    simulate,
)
from maya.simulator.engine import run_general
from maya.simulator.program import compile_program
from maya.simulator.schedule import make_timeline
from maya.traces.operations import COMMUNICATION_DTYPE, OPERATION_DTYPE, TENSOR_DTYPE, Kind, Operations
from maya.traces.tables import Communicator, Tables

GOAL_PER_S = 300_000
FLOOR_PER_S = 100_000
RANKS = 8


def rank_input(kinds: np.ndarray, streams: np.ndarray, rank: int = 0, seed: int = 0) -> RankInput:
    """A trace of the given kinds and streams with random costs; events alternate between two ids."""
    random = np.random.default_rng(seed + rank)
    count = len(kinds)
    rows = np.zeros(count, dtype=OPERATION_DTYPE)
    rows["id"] = np.arange(count)
    rows["kind"] = kinds
    rows["stream"] = streams
    events = np.isin(kinds, [Kind.EVENT_RECORD, Kind.STREAM_WAIT])
    rows["event"] = np.where(events, 1, -1)
    collectives = np.flatnonzero(np.isin(kinds, [Kind.COLLECTIVE, Kind.WAIT]))
    rows["communication"] = -1
    rows["communication"][collectives] = np.arange(len(collectives))
    communications = np.zeros(len(collectives), dtype=COMMUNICATION_DTYPE)
    sequence = np.cumsum(kinds[collectives] == Kind.COLLECTIVE) - 1
    communications["sequence_in_communicator"] = sequence
    communications["async_handle"] = sequence
    communications["coalescing_group"] = -1
    communications["input_bytes"] = 1 << 20
    launched = np.isin(kinds, [Kind.KERNEL, Kind.MEMCPY, Kind.COLLECTIVE])
    total = int(launched.sum())
    kernels = KernelColumns(
        operation_offsets=np.concatenate([[0], np.cumsum(launched)]),
        work_ns=random.integers(2_000, 20_000, total),
        sm_share=random.choice([0.25, 0.5, 1.0], total).astype(np.float32),
        hbm_share=random.choice([0.25, 0.5, 1.0], total).astype(np.float32),
        link_share=np.zeros(total, dtype=np.float32),
    )
    copy = json.dumps({"args": {}, "out": [], "memcpy": {"direction": "h2d", "bytes": 1}})
    return RankInput(
        rank=rank,
        operations=Operations(rows, np.zeros(0, dtype=TENSOR_DTYPE), communications),
        kernels=kernels,
        host_gap_ns=random.integers(2_000, 8_000, count),
        tables=Tables(("op",), (copy,), communicators=(Communicator("world", tuple(range(RANKS))),)),
    )


def one_stream(count: int) -> RankInput:
    """A step's mix on the default stream."""
    random = np.random.default_rng(1)
    kinds = random.choice([Kind.KERNEL, Kind.HOST, Kind.EVENT_RECORD], count, p=[0.6, 0.39, 0.01])
    return rank_input(kinds, np.zeros(count, dtype=np.int64))


def two_streams(count: int) -> RankInput:
    """Groups of ten: kernels on streams 0 and 1, a copy on 2, an event from 2 to 0, host operations."""
    group = [
        (Kind.MEMCPY, 2),
        (Kind.EVENT_RECORD, 2),
        (Kind.KERNEL, 1),
        (Kind.KERNEL, 0),
        (Kind.HOST, 0),
        (Kind.KERNEL, 1),
        (Kind.STREAM_WAIT, 0),
        (Kind.KERNEL, 0),
        (Kind.HOST, 0),
        (Kind.KERNEL, 0),
    ]
    kinds, streams = np.array(group * (count // len(group))).T
    return rank_input(kinds, streams)


def ranks_with_collectives(count: int) -> list[RankInput]:
    """Groups of twenty on each rank: compute, one asynchronous all-reduce, later its wait."""
    group = [(Kind.KERNEL, 0)] * 10 + [(Kind.COLLECTIVE, 1)] + [(Kind.HOST, 0)] * 8 + [(Kind.WAIT, 0)]
    kinds, streams = np.array(group * (count // RANKS // len(group))).T
    return [rank_input(kinds, streams, rank) for rank in range(RANKS)]


class _Cost:
    def duration_ns(self, transfer: Transfer) -> int:
        return 20_000 + transfer.input_bytes // 300


def best(call: Callable[[], Timeline], repeats: int) -> tuple[float, Timeline]:
    """Least CPU time of several calls, and the result."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        timeline = call()
        seconds.append(time.process_time() - begin)
    return min(seconds), timeline


def main() -> None:
    """Measure, print a table, optionally write JSON; exits 1 if engines disagree or the floor is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    settings = Settings()
    single, double = one_stream(arguments.operations), two_streams(arguments.operations)
    many = ranks_with_collectives(arguments.operations)

    def general(rank: RankInput) -> Timeline:
        program = compile_program(rank, settings)
        return make_timeline([program], run_general([program], None, settings))

    cases: dict[str, tuple[int, Callable[[], Timeline]]] = {
        "one stream": (single.operations.count, lambda: simulate([single])),
        "one stream, general engine": (single.operations.count, lambda: general(single)),
        "two streams, contended": (double.operations.count, lambda: simulate([double])),
        "eight ranks, all-reduces": (
            sum(rank.operations.count for rank in many),
            lambda: simulate(many, network=FixedTimeNetwork(_Cost())),
        ),
    }
    rates, results = {}, {}
    for name, (count, call) in cases.items():
        seconds, results[name] = best(call, arguments.repeats)
        rates[name] = round(count / seconds)
        print(f"{name:<28} {count:>8} operations {seconds * 1e3:8.1f} ms {rates[name]:>9} operations/s")
    fast, slow = results["one stream"], results["one stream, general engine"]
    equal = bool((fast.kernels == slow.kernels).all() and (fast.hosts == slow.hosts).all())
    print("engines agree to the nanosecond" if equal else "ENGINES DISAGREE")
    ends = list(range(999, single.operations.count, 1000))
    begin = time.process_time()
    times = iteration_times(fast, ends)
    breakdown(fast, times.start_ns, times.end_ns)
    spent_ms = (time.process_time() - begin) * 1e3
    print(f"iteration times and breakdown of {len(ends)} iterations: {spent_ms:.1f} ms")
    reached = rates["one stream"] >= GOAL_PER_S and min(rates.values()) >= FLOOR_PER_S
    print(f"goal {GOAL_PER_S} on one stream, {FLOOR_PER_S} everywhere: {'reached' if reached else 'MISSED'}")
    if arguments.json:
        report = {"operations_per_s": rates, "engines_agree": equal, "goal_reached": reached}
        report["machine"] = (
            f"{platform.processor() or platform.machine()}, Python {platform.python_version()}"
        )
        temporary = arguments.json.with_suffix(".partial")
        temporary.write_text(json.dumps(report, indent=2) + "\n")
        temporary.replace(arguments.json)
    raise SystemExit(0 if equal and min(rates.values()) >= FLOOR_PER_S else 1)


if __name__ == "__main__":
    main()
