"""Reads back what RankWriter wrote: operation columns, tables, allocator log, assumptions.

The columns lie in each node as raw bytes at its start, so reading is finding the messages and
gathering; the readable attributes and dependencies are not parsed (`validate_et` does).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.traces import names
from maya.traces.chakra_schema import messages
from maya.traces.file_header import check_header
from maya.traces.frames import Buffer, TraceError, find_messages, open_trace
from maya.traces.json_files import read_json
from maya.traces.memory_file import memory_path, read_memory
from maya.traces.node_encoder import COMMUNICATION_PREFIX, ROW_PREFIX, TENSORS_PREFIX
from maya.traces.operations import (
    COMMUNICATION_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Kind,
    Operations,
    Phase,
    Role,
)
from maya.traces.tables import Tables
from maya.traces.tables_file import read_tables_and_count, tables_path
from maya.traces.writer import assumptions_path, trace_path

_CHUNK = 1 << 16
"""Messages or tensors gathered at once: bounds the temporary copies."""


@dataclass(frozen=True)
class RankTrace:
    """Everything recorded of one rank.

    Attributes:
        rank: global rank.
        operations: columns.
        tables: what they index.
        memory: the allocator's log, [n] of MEMORY_DTYPE.
        assumptions: one JSON object for each unknown value that the script read.
    """

    rank: int
    operations: Operations
    tables: Tables
    memory: NDArray[np.void]
    assumptions: tuple[dict[str, Any], ...] = ()


def read_rank(run_dir: str | os.PathLike[str], rank: int = 0) -> RankTrace:
    """Read one rank's files.

    Raises:
        MayaError: a file is missing, damaged, of another version, or they do not belong together.
    """
    tables, count = read_tables_and_count(tables_path(run_dir, rank))
    path = trace_path(run_dir, rank)
    operations = read_operations(path, tables)
    if operations.count != count:
        raise TraceError(
            path,
            f"has {operations.count} operations, but its tables are of {count}",
            hint="the trace was cut short, or the files are of two runs; record the run again",
        )
    memory = read_memory(memory_path(run_dir, rank))
    return RankTrace(rank, operations, tables, memory, _read_assumptions(assumptions_path(run_dir, rank)))


def read_operations(path: str | os.PathLike[str], tables: Tables | None = None) -> Operations:
    """The operation columns of a trace that Maya wrote.

    Args:
        path: the `.et` file.
        tables: to check the columns' references against; None leaves that out.

    Raises:
        TraceError: not Maya's, damaged, or inconsistent; names byte offset and node id.
    """
    buffer = open_trace(path)
    check_header(buffer, path, of_maya=True)
    starts, ends = find_messages(buffer, path)
    data = np.frombuffer(buffer, dtype=np.uint8)
    starts, ends = starts[1:], ends[1:]
    operations = _gather(data, starts, ends)
    if operations is None:
        operations = _parse(buffer, starts, ends, path)
    _check(operations, tables, starts, path)
    return operations


def _gather(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Operations | None:
    """Columns of nodes that start as NodeEncoder writes them; None if one does not."""
    row_end = len(ROW_PREFIX) + OPERATION_DTYPE.itemsize
    if len(starts) and int((ends - starts).min()) < row_end:
        return None
    if not _has_prefix(data, starts, ROW_PREFIX).all():
        return None
    rows = _take(data, starts + len(ROW_PREFIX), OPERATION_DTYPE)
    position = starts + row_end
    counts = rows["tensor_count"].astype(np.int64)
    if len(counts) and (
        int(counts.min()) < 0 or bool((counts * TENSOR_DTYPE.itemsize > ends - starts).any())
    ):
        return None

    # attribute { name, bytes } with two lengths that depend on how many tensors there are
    with_tensors = counts > 0
    value_bytes = counts * TENSOR_DTYPE.itemsize
    value_length = _varint_bytes(value_bytes)
    attribute_bytes = len(TENSORS_PREFIX) + value_length + value_bytes
    name_at = position + 1 + _varint_bytes(attribute_bytes)
    value_at = name_at + len(TENSORS_PREFIX) + value_length
    position = np.where(with_tensors, value_at + value_bytes, position)
    if bool((position > ends).any()) or not _has_prefix(data, name_at[with_tensors], TENSORS_PREFIX).all():
        return None
    tensors = _take(data, _ragged(value_at, counts, TENSOR_DTYPE.itemsize), TENSOR_DTYPE)

    referring = np.flatnonzero(rows["communication"] >= 0)
    at = position[referring]
    room = at + len(COMMUNICATION_PREFIX) + COMMUNICATION_DTYPE.itemsize <= ends[referring]
    referring, at = referring[room], at[room]
    has = _has_prefix(data, at, COMMUNICATION_PREFIX)
    referring, at = referring[has], at[has]
    found = _take(data, at + len(COMMUNICATION_PREFIX), COMMUNICATION_DTYPE)
    return Operations(rows, tensors, _by_index(rows["communication"][referring], found))


def _has_prefix(data: NDArray[np.uint8], at: NDArray[np.int64], prefix: bytes) -> NDArray[np.bool_]:
    """Which of the places (all with room) hold the prefix."""
    wanted = np.frombuffer(prefix, dtype=np.uint8)
    same = np.ones(len(at), dtype=np.bool_)
    for index, byte in enumerate(wanted):
        same &= data[at + index] == byte
    return same


def _take(data: NDArray[np.uint8], at: NDArray[np.int64], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """The records that begin at the places."""
    out = np.empty(len(at), dtype=dtype)
    if not len(at):
        return out
    windows = np.lib.stride_tricks.sliding_window_view(data, dtype.itemsize)
    raw = out.view(np.uint8).reshape(len(at), dtype.itemsize)
    for start in range(0, len(at), _CHUNK):
        raw[start : start + _CHUNK] = windows[at[start : start + _CHUNK]]
    return out


def _ragged(first: NDArray[np.int64], counts: NDArray[np.int64], stride: int) -> NDArray[np.int64]:
    """first[i], first[i] + stride, ... counts[i] of them, for every i, one after another."""
    ends = np.cumsum(counts)
    index = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    return np.repeat(first, counts) + index * stride


def _varint_bytes(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bytes each (below 2**28) takes as a varint."""
    return 1 + (values > 0x7F).astype(np.int64) + (values > 0x3FFF) + (values > 0x1FFFFF)


def _by_index(index: NDArray[np.int32], rows: NDArray[np.void]) -> NDArray[np.void]:
    table = np.zeros(int(index.max()) + 1 if len(index) else 0, dtype=COMMUNICATION_DTYPE)
    table[index] = rows
    return table


def _parse(
    buffer: Buffer, starts: NDArray[np.int64], ends: NDArray[np.int64], path: str | os.PathLike[str]
) -> Operations:
    """Columns of nodes that another tool has written anew: the attributes, wherever they are."""
    from google.protobuf.message import DecodeError

    node_class = messages().Node
    rows: list[bytes] = []
    tensors: list[bytes] = []
    communications: dict[int, bytes] = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        try:
            node = node_class.FromString(buffer[start:end])
        except DecodeError as error:
            raise TraceError(path, f"corrupt: not a node: {error}", offset=start) from error
        attributes = {entry.name: entry.bytes_val for entry in node.attr if entry.HasField("bytes_val")}
        row = attributes.get(names.ROW, b"")
        if len(row) != OPERATION_DTYPE.itemsize:
            raise TraceError(
                path, f"no {names.ROW} of {OPERATION_DTYPE.itemsize} bytes", offset=start, node=node.id
            )
        record = np.frombuffer(row, dtype=OPERATION_DTYPE)[0]
        uses = attributes.get(names.TENSORS, b"")
        if len(uses) != max(int(record["tensor_count"]), 0) * TENSOR_DTYPE.itemsize:
            raise TraceError(path, f"{names.TENSORS} does not fit tensor_count", offset=start, node=node.id)
        rows.append(row)
        tensors.append(uses)
        communication = attributes.get(names.COMMUNICATION)
        if communication is not None:
            index = int(record["communication"])
            if len(communication) != COMMUNICATION_DTYPE.itemsize or not 0 <= index < len(starts):
                raise TraceError(path, f"{names.COMMUNICATION} is damaged", offset=start, node=node.id)
            communications[index] = communication
    index_of = np.array(list(communications), dtype=np.int32)
    return Operations(
        np.frombuffer(b"".join(rows), dtype=OPERATION_DTYPE).copy(),
        np.frombuffer(b"".join(tensors), dtype=TENSOR_DTYPE).copy(),
        _by_index(index_of, np.frombuffer(b"".join(communications.values()), dtype=COMMUNICATION_DTYPE)),
    )


def _check(
    operations: Operations,
    tables: Tables | None,
    starts: NDArray[np.int64],
    path: str | os.PathLike[str],
) -> None:
    rows = operations.rows

    def refuse(wrong: NDArray[np.bool_], problem: str, of: NDArray[np.int64] | None = None) -> None:
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            operation = first if of is None else int(of[first])
            raise TraceError(
                path,
                f"corrupt: {problem}",
                offset=int(starts[operation]),
                node=operation,
                hint="the file is damaged; record the run again",
            )

    refuse(rows["id"] != np.arange(len(rows)), "ids are not dense from 0 in order")
    refuse(rows["kind"] > max(Kind), "unknown kind")
    refuse(rows["phase"] > max(Phase), "unknown phase")
    owner = np.repeat(np.arange(len(rows)), rows["tensor_count"])
    refuse(operations.tensors["role"] > max(Role), "unknown tensor role", owner)
    communication = rows["communication"]
    refuse(communication >= len(operations.communications), "communication row is missing")
    if tables is None:
        return
    for column, entries, lowest in (
        ("operator", tables.operators, 0),
        ("metadata", tables.metadata, -1),
        ("module", tables.modules, -1),
        ("source_line", tables.source_lines, -1),
    ):
        index = rows[column]
        refuse((index < lowest) | (index >= len(entries)), f"{column} is not in the tables")


def _read_assumptions(path: Path) -> tuple[dict[str, Any], ...]:
    value = read_json(path, "the assumption log", "the run was not finished")
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise TraceError(path, "not a list of objects", hint="the file is damaged; record the run again")
    return tuple(value)
