"""Host costs of operator classes from real traces: ratios from Kineto, the scale from event-timed floors.

A profiler slows the host two- to fourfold and each trace has another CPU, so no absolute time of a trace is
used: for every trace the median time from one innermost operator's start to the next is taken by class,
divided by that of a plain forward operator that launches a kernel, and the median over traces kept. Of a
communication it is the time inside its c10d operator.
The scale comes from NeuSight's H100 labels, timed without a profiler: small forward operators less
the floor of an event pair around a call that launches nothing.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TRACES = (
    "hta_a100_8gpu_control_rank3.json.gz",
    "hta_v100_2gpu_test_rank1.json.gz",
    "hta_a100_2gpu_nccl_data_rank0.json.gz",
    "hta_v100_32g_1gpu_ns_resolution.json.gz",
    "param_2080ti_resnet.json.gz",
    "param_2080ti_linear.json.gz",
)
SYNCHRONISING = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMalloc",
    "cudaFree",
)
LAUNCHING = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync")
LONGEST_GAP_US = 150.0
"""Longer gaps are data loading, a collective's setup or the end of a step, not dispatch."""
SMALL_ELEMENTS = 300_000


def _timeline(events: Iterable[dict[str, Any]]) -> tuple[dict[Any, list[Any]], dict[Any, list[Any]]]:
    operators: dict[Any, list[Any]] = defaultdict(list)
    runtime: dict[Any, list[Any]] = defaultdict(list)
    for event in events:
        if event.get("ph") != "X":
            continue
        start, duration = float(event["ts"]), float(event["dur"])
        if event.get("cat") in ("cpu_op", "user_annotation"):
            operators[event["tid"]].append((start, -duration, str(event["name"]), event["cat"]))
        elif event.get("cat") == "cuda_runtime":
            runtime[event["tid"]].append((start, str(event["name"])))
    return operators, runtime


def gaps_by_class(events: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
    """Class → microseconds from the start of an innermost operator to the next one's, same thread.

    Classes: `forward`, `backward` (inside an autograd node), `copy` (launches a memcpy or a copy kernel),
    `view` (launches nothing).
    """
    operators, runtime = _timeline(events)
    result: dict[str, list[float]] = defaultdict(list)
    for thread, rows in operators.items():
        calls = sorted(runtime.get(thread, []))
        launches = [start for start, name in calls if name.startswith(LAUNCHING)]
        stops = [start for start, name in calls if name.startswith(SYNCHRONISING)]
        leaves = _leaves(sorted(rows))
        for (start, end, name, in_backward), following in pairwise(leaves):
            gap = following[0] - start
            stop = bisect_left(stops, start)
            if gap >= LONGEST_GAP_US or (stop < len(stops) and stops[stop] < following[0]):
                continue
            if bisect_left(launches, end) == bisect_left(launches, start):
                result["view"].append(gap)
            elif name == "aten::copy_":
                result["copy"].append(gap)
            else:
                result["backward" if in_backward else "forward"].append(gap)
    return result


def _leaves(rows: list[Any]) -> list[tuple[float, float, str, bool]]:
    """Innermost aten operators: (start, end, name, inside an autograd node)."""
    stack: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    for start, negative, name, category in rows:
        while stack and stack[-1]["end"] <= start:
            stack.pop()
        in_backward = any("evaluate_function" in node["name"] for node in stack)
        node = {"start": start, "end": start - negative, "name": name, "leaf": True, "backward": in_backward}
        if stack and category == "cpu_op":
            stack[-1]["leaf"] = False
        stack.append(node)
        nodes.append(node)
    return [
        (node["start"], node["end"], node["name"], node["backward"])
        for node in nodes
        if node["leaf"] and node["name"].startswith("aten::")
    ]


def issue_times(events: Iterable[dict[str, Any]]) -> list[float]:
    """Microseconds that each c10d operator holds its thread: bookkeeping, events and the launch."""
    return [
        float(event["dur"])
        for event in events
        if event.get("ph") == "X" and event.get("cat") == "cpu_op" and str(event["name"]).startswith("c10d::")
    ]


def plain_ns(data: Path) -> float:
    """Host time of one plain forward operator on the H100 host, nanoseconds."""
    table = pd.read_parquet(data / "kernels" / "train_ops_neusight.parquet")
    table = table[table["gpu"] == "H100-SXM5-80GB"]
    small = table[table["rows"].astype(np.int64) * table["cols"] < SMALL_ELEMENTS]
    launching = small[small["op"].isin(["mul_fwd", "sub_fwd", "add_fwd", "activation_fwd"])]
    # The gradient of an addition launches nothing: what remains is the event pair and the call around it.
    idle = table[
        (table["op"] == "add_bwd") & (table["rows"].astype(np.int64) * table["cols"] < 4 * SMALL_ELEMENTS)
    ]
    return 1e3 * float(launching["time_us"].median() - idle["time_us"].quantile(0.1))


def fit_host(data: Path) -> dict[str, Any]:
    """The host card: plain cost, ratios by class, and each trace's medians."""
    medians: dict[str, dict[str, float]] = {}
    for name in TRACES:
        with gzip.open(data / "traces" / name, "rt") as handle:
            events = json.load(handle)["traceEvents"]
        found = gaps_by_class(events) | {"communication": issue_times(events)}
        medians[name] = {
            kind: round(float(np.median(gaps)), 3) for kind, gaps in sorted(found.items()) if gaps
        }
    for trace in medians.values():
        # An autograd node carries two more profiler annotations than a forward operator; together they
        # cost about what a profiled view does.
        trace["backward_corrected"] = round(trace["backward"] - trace["view"], 3)
    names = {
        "backward": "backward_corrected",
        "communication": "communication",
        "copy": "copy",
        "view": "view",
    }
    ratios = {
        kind: round(
            float(np.median([trace[key] / trace["forward"] for trace in medians.values() if key in trace])), 3
        )
        for kind, key in names.items()
    }
    return {"plain_ns": round(plain_ns(data)), "ratios": ratios, "trace_medians_us": medians}
