"""Small traces to write and to damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maya.traces import (
    COMMUNICATION_DTYPE,
    MARK_BACKWARD_BEGIN,
    MARK_BACKWARD_END,
    MARK_ITERATION_END,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    CollectiveType,
    Communicator,
    Kind,
    Operations,
    Phase,
    RankWriter,
    Role,
    Tables,
)


def tensor_json(*shape: int, dtype: str = "float32", device: str = "cuda") -> dict[str, Any]:
    """A tensor as metadata texts have it, contiguous."""
    stride = [int(np.prod(shape[index + 1 :])) for index in range(len(shape))]
    return {"dtype": dtype, "shape": list(shape), "stride": stride, "device": device}


TABLES = Tables(
    operators=(
        "aten::mm",
        "aten::empty.memory_format",
        "aten::copy_",
        "c10d::allreduce_",
        MARK_BACKWARD_BEGIN,
        MARK_BACKWARD_END,
        MARK_ITERATION_END,
        "cudaEventRecord",
        "cudaStreamWaitEvent",
        "c10d::send",
    ),
    metadata=(
        json.dumps(
            {
                "args": {"self": tensor_json(4, 8), "mat2": tensor_json(8, 2), "alpha": 1},
                "out": [tensor_json(4, 2)],
            }
        ),
        json.dumps({"args": {}, "out": []}),
    ),
    modules=("Net", "Net.fc"),
    source_lines=("train.py:3", "train.py:7"),
    iteration_ends=(),
    communicators=(Communicator("default_pg", (0, 1)), Communicator("tp", (1, 0)), Communicator("own", (0,))),
)


def operation(kind: Kind, operator: int = 0, **columns: int) -> dict[str, Any]:
    """One operation's columns; those not named have their neutral value. `tensors`: (storage, offset,
    extent, role) tuples; `communication`: a dict of that table's columns."""
    neutral = {
        "sequence": -1,
        "stream": 0,
        "event": -1,
        "operator": operator,
        "metadata": 1,
        "module": -1,
        "source_line": -1,
        "graph": -1,
        "kind": int(kind),
        "tensors": (),
        "communication": None,
    }
    return {**neutral, **columns}


def build(operations: Sequence[dict[str, Any]]) -> Operations:
    """Columns of operations made by `operation`."""
    rows = np.zeros(len(operations), dtype=OPERATION_DTYPE)
    tensors: list[tuple[int, ...]] = []
    communications: list[tuple[int, ...]] = []
    for index, columns in enumerate(operations):
        row = rows[index]
        row["id"] = index
        for name, value in columns.items():
            if name not in ("tensors", "communication"):
                row[name] = value
        row["tensor_count"] = len(columns["tensors"])
        for position, (storage, offset, extent, role) in enumerate(columns["tensors"]):
            tensors.append((storage, offset, extent, position % 256, int(role), 0, 0))
        row["communication"] = -1
        if columns["communication"] is not None:
            row["communication"] = len(communications)
            defaults = dict.fromkeys(COMMUNICATION_DTYPE.names, -1)
            communications.append(tuple({**defaults, **columns["communication"]}.values()))
    return Operations(
        rows,
        np.array(tensors, dtype=TENSOR_DTYPE),
        np.array(communications, dtype=COMMUNICATION_DTYPE),
    )


def small_trace() -> Operations:
    """Two kernels, a host operation, a copy, a collective, a send, events and markers."""
    return build(
        [
            operation(Kind.HOST, 1, tensors=[(1, 0, 128, Role.WRITE)], module=0, phase=Phase.FORWARD),
            operation(
                Kind.KERNEL,
                0,
                metadata=0,
                module=1,
                source_line=0,
                sequence=3,
                phase=Phase.FORWARD,
                tensors=[(1, 0, 128, Role.READ), (2, 0, 64, Role.READ), (3, 0, 32, Role.WRITE)],
            ),
            operation(Kind.MARKER, 4),
            operation(
                Kind.KERNEL, 0, metadata=0, phase=Phase.BACKWARD, tensors=[(3, 0, 32, Role.READ_WRITE)]
            ),
            operation(Kind.EVENT_RECORD, 7, event=5),
            operation(Kind.STREAM_WAIT, 8, event=5, stream=7),
            operation(
                Kind.COLLECTIVE,
                3,
                stream=7,
                tensors=[(3, 0, 32, Role.READ_WRITE)],
                communication={
                    "communicator": 0,
                    "sequence_in_communicator": 0,
                    "collective": CollectiveType.ALL_REDUCE,
                    "reduce_op": 0,
                    "input_bytes": 32,
                    "output_bytes": 32,
                },
            ),
            operation(Kind.MARKER, 5),
            operation(
                Kind.SEND,
                9,
                stream=7,
                tensors=[(3, 0, 32, Role.READ)],
                communication={"communicator": 1, "input_bytes": 32, "output_bytes": 0, "peer": 1, "tag": 4},
            ),
            operation(Kind.MEMCPY, 2, blocking=1, tensors=[(3, 0, 32, Role.READ), (-1, 0, 32, Role.WRITE)]),
            operation(Kind.MARKER, 6),
            operation(Kind.KERNEL, 0, metadata=0, tensors=[(3, 0, 32, Role.WRITE)]),
        ]
    )


def write(run_dir: Path, operations: Operations, tables: Tables = TABLES, rank: int = 0) -> Path:
    """A rank's files; returns the path of its trace."""
    writer = RankWriter(run_dir, rank)
    writer.append(operations, tables.operators, tables.metadata, tables.modules, tables.source_lines)
    writer.finish(tables)
    return run_dir / f"rank-{rank}.et"


@pytest.fixture
def op() -> Callable[..., dict[str, Any]]:
    """`operation` above."""
    return operation


@pytest.fixture
def build_operations() -> Callable[[Sequence[dict[str, Any]]], Operations]:
    """`build` above."""
    return build


@pytest.fixture
def tables() -> Tables:
    """The tables of the small trace."""
    return TABLES


@pytest.fixture
def small() -> Operations:
    """The small trace."""
    return small_trace()


@pytest.fixture
def write_trace() -> Callable[..., Path]:
    """`write` above."""
    return write


@pytest.fixture
def small_et(tmp_path: Path) -> Path:
    """The small trace on disk, in a folder with all its files."""
    return write(tmp_path / "run", small_trace())
