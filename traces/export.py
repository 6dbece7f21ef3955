"""A rank's trace with durations, as ASTRA-sim's feeder and other Chakra tools want it.

Chakra counts in whole microseconds, which is too coarse for kernels; the exact figure goes along
as `maya.duration_ns`. Feeders look only at data dependencies, so control dependencies are
repeated among them, without which a stream's order would be lost.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.traces import names
from maya.traces.chakra_schema import NodeType, messages
from maya.traces.file_header import check_header
from maya.traces.frames import find_messages, open_trace
from maya.traces.json_files import write_json
from maya.traces.manifest import MANIFEST_NAME, read_manifest
from maya.traces.operations import Kind
from maya.traces.rank_reader import RankTrace, read_rank
from maya.traces.tables import Tables
from maya.traces.wire import varint
from maya.traces.writer import trace_path

_DEVICE_WORK = [Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.COLLECTIVE, Kind.SEND, Kind.RECV]
"""Kinds that take time on the device, at least the microsecond that Chakra can express."""

EVERY_RANK = "0"
"""`pg_name` of all ranks of the job, which needs no entry in the file of groups."""


def export_with_durations(
    run_dir: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    duration_ns: NDArray[np.int64],
    *,
    rank: int = 0,
    host_gap_ns: NDArray[np.int64] | None = None,
    num_ops: NDArray[np.int64] | None = None,
    moved_bytes: NDArray[np.int64] | None = None,
) -> Path:
    """Write a rank's trace with durations.

    Args:
        run_dir: a finished run, or a folder with a rank's files (then every communicator gets
            an entry in the groups, as the size of the job is unknown).
        out_path: the `.et` to write; temporary name, then rename.
        duration_ns: [n], device time of each operation, all its kernels; 0 for host operations.
        rank: whose trace.
        host_gap_ns: [n], host time before each operation: the duration of host operations, and
            `maya.host_gap_ns` of every node.
        num_ops: [n], floating-point operations of each.
        moved_bytes: [n], bytes moved, for `tensor_size`; without it the tensors' own bytes.

    Returns:
        `out_path`.

    Raises:
        MayaError: the trace cannot be read.
        ValueError: an array of another length, or a negative figure.
    """
    trace = read_rank(run_dir, rank)
    count = trace.operations.count
    columns = {
        "duration_ns": duration_ns,
        "host_gap_ns": host_gap_ns,
        "num_ops": num_ops,
        "moved_bytes": moved_bytes,
    }
    for name, column in columns.items():
        if column is None:
            continue
        if np.shape(column) != (count,):
            raise ValueError(f"{name} has shape {np.shape(column)}, but the trace has {count} operations")
        if count and int(np.min(column)) < 0:
            raise ValueError(f"{name} must not be negative")
    micros = _micros(trace, duration_ns, host_gap_ns)
    group_names = _group_names(trace.tables, _world_size(run_dir))

    source = trace_path(run_dir, rank)
    buffer = open_trace(source)
    check_header(buffer, source, of_maya=True)
    starts, ends = find_messages(buffer, source)
    node_class = messages().Node
    out_path = Path(out_path)
    temporary = out_path.with_name(f"{out_path.name}.partial")
    communication = trace.operations.rows["communication"].tolist()
    with temporary.open("wb") as file:
        file.write(varint(int(ends[0] - starts[0])))
        file.write(buffer[int(starts[0]) : int(ends[0])])
        for index, (start, end) in enumerate(zip(starts[1:].tolist(), ends[1:].tolist(), strict=True)):
            node = node_class.FromString(buffer[start:end])
            node.duration_micros = micros[index]
            # Once each: the feeder would wait forever for the second of two equal ones.
            node.data_deps.extend(sorted(set(node.ctrl_deps).difference(node.data_deps)))
            added = node.attr
            added.add(name=names.DURATION_NS, int64_val=int(duration_ns[index]))
            if host_gap_ns is not None:
                added.add(name=names.HOST_GAP_NS, int64_val=int(host_gap_ns[index]))
            if node.type == NodeType.COMP:
                added.add(name=names.NUM_OPS, int64_val=0 if num_ops is None else int(num_ops[index]))
                _set_tensor_size(node, None if moved_bytes is None else int(moved_bytes[index]))
            elif node.type == NodeType.COMM_COLL:
                row = trace.operations.communications[communication[index]]
                _attribute(node, names.PG_NAME).string_val = group_names[int(row["communicator"])]
            body = node.SerializeToString()
            file.write(varint(len(body)))
            file.write(body)
    temporary.replace(out_path)
    return out_path


def write_groups(run_dir: str | os.PathLike[str], out_path: str | os.PathLike[str], *, rank: int = 0) -> Path:
    """Write the communicators of a rank as ASTRA-sim's group file, `{"1": [0, 1, ...], ...}`.

    The numbers are the `pg_name` of an exported trace; communicators of every rank are left out.
    """
    tables = read_rank(run_dir, rank).tables
    world_size = _world_size(run_dir)
    groups = {
        name: list(group.ranks)
        for name, group in zip(_group_names(tables, world_size), tables.communicators, strict=True)
        if name != EVERY_RANK
    }
    write_json(out_path, groups, indent=1)
    return Path(out_path)


def _micros(
    trace: RankTrace, duration_ns: NDArray[np.int64], host_gap_ns: NDArray[np.int64] | None
) -> list[int]:
    """Whole microseconds of each node: rounded, device work at least 1."""
    kind = trace.operations.rows["kind"]
    on_device = np.isin(kind, _DEVICE_WORK)
    exact = np.asarray(duration_ns, dtype=np.int64)
    if host_gap_ns is not None:
        exact = np.where(on_device, exact, np.asarray(host_gap_ns, dtype=np.int64))
    rounded = (exact + 500) // 1000
    whole: list[int] = np.where(on_device, np.maximum(rounded, 1), rounded).tolist()
    return whole


def _group_names(tables: Tables, world_size: int | None) -> list[str]:
    everyone = None if world_size is None else set(range(world_size))
    return [
        EVERY_RANK if everyone is not None and set(group.ranks) == everyone else str(index + 1)
        for index, group in enumerate(tables.communicators)
    ]


def _world_size(run_dir: str | os.PathLike[str]) -> int | None:
    # Exporting must also work before the manifest, which is written last.
    if not (Path(run_dir) / MANIFEST_NAME).exists():
        return None
    return read_manifest(run_dir).world_size


def _set_tensor_size(node: Any, moved_bytes: int | None) -> None:
    attribute = _attribute(node, names.TENSOR_SIZE)
    size = attribute.uint64_val if moved_bytes is None else moved_bytes
    # ASTRA-sim's roofline divides by it: 0 would stop the simulation for good.
    attribute.uint64_val = max(size, 1)


def _attribute(node: Any, name: str) -> Any:
    for attribute in node.attr:
        if attribute.name == name:
            return attribute
    return node.attr.add(name=name)
