"""RankWriter: streams what one rank does to its files of the run folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maya.traces.json_files import write_json
from maya.traces.memory_file import MemoryWriter, memory_path, read_memory
from maya.traces.node_encoder import NodeEncoder, global_metadata
from maya.traces.operations import (
    COMMUNICATION_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    MemoryAction,
    Operations,
)
from maya.traces.spool import OperationSpool
from maya.traces.tables import Tables
from maya.traces.tables_file import tables_path, write_tables
from maya.traces.wire import varint

PARTIAL_SUFFIX = ".partial"

_COLUMN_OF_TABLE = {
    "operators": "operator",
    "metadata": "metadata",
    "modules": "module",
    "source_lines": "source_line",
}
"""Field of Tables → the column that indexes it."""


def trace_path(run_dir: str | os.PathLike[str], rank: int) -> Path:
    """Where a rank's Chakra trace lies."""
    return Path(run_dir) / f"rank-{rank}.et"


def assumptions_path(run_dir: str | os.PathLike[str], rank: int) -> Path:
    """Where a rank's log of assumed values lies."""
    return Path(run_dir) / f"assumptions-{rank}.json"


class RankWriter:
    """Writes `rank-N.et`, `rank-N.tables.json`, `memory-N.npy` and `assumptions-N.json`.

    While the script runs, columns go to spool files as they are, which costs next to nothing; only
    `finish` encodes them as Chakra nodes, a batch at a time. Memory stays flat throughout. Every
    file has a temporary name (`.partial`) until it is whole, and `rank-N.et` is the last to get
    its own, so that a trace with its name is complete.

    Args:
        run_dir: the run's folder; made if it is not there.
        rank: global rank.
    """

    def __init__(self, run_dir: str | os.PathLike[str], rank: int = 0) -> None:
        if rank < 0:
            raise ValueError(f"rank must not be negative, not {rank}")
        self.run_dir = Path(run_dir)
        self.rank = rank
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._operation_count = 0
        self._communication_count = 0
        self._needed = {"operators": 0, "metadata": 0, "modules": 0, "source_lines": 0}
        self._path = trace_path(run_dir, rank)
        self._memory_path = memory_path(run_dir, rank)
        self._memory = MemoryWriter(_partial(self._memory_path))
        self._spool = OperationSpool(self._path)

    @property
    def operation_count(self) -> int:
        """Operations written so far, which is the id the next one must have."""
        return self._operation_count

    def append(
        self,
        operations: Operations,
        operators: Sequence[str],
        metadata: Sequence[str],
        modules: Sequence[str],
        source_lines: Sequence[str],
    ) -> None:
        """Take operations that follow on the ones before.

        Args:
            operations: ids continue from the last batch's; `communications` holds the new rows
                only, while the column `communication` counts from the rank's first row.
            operators: names interned so far, at least those the batch refers to; so the others.
            metadata: JSON texts.
            modules: dotted paths.
            source_lines: `file:line`.

        Raises:
            ValueError: columns that do not fit together; nothing of the batch is written.
        """
        self._check(operations, len(operators), len(metadata), len(modules), len(source_lines))
        if not operations.count:
            return
        self._spool.append(operations)
        self._operation_count += operations.count
        self._communication_count += len(operations.communications)

    def append_memory(self, rows: NDArray[np.void]) -> None:
        """Write rows of the allocator's log, [n] of MEMORY_DTYPE, in order."""
        self._memory.append(rows)

    def finish(self, tables: Tables, assumptions: Sequence[Mapping[str, Any]] = ()) -> None:
        """Close the files and give them their names.

        Args:
            tables: everything the operations refer to, and where iterations end.
            assumptions: one JSON object for each unknown value that the script read.

        Raises:
            ValueError: the tables do not have all that was appended with them, or iteration ends are
                not ascending ids of operations.
        """
        self._check_tables(tables)
        self._memory.close()
        self._spool.close()
        self._write_nodes(tables)
        write_tables(tables_path(self.run_dir, self.rank), tables, self._operation_count)
        write_json(assumptions_path(self.run_dir, self.rank), list(assumptions), indent=1)
        _partial(self._memory_path).replace(self._memory_path)
        _partial(self._path).replace(self._path)
        self._spool.delete()

    def _write_nodes(self, tables: Tables) -> None:
        encoder = NodeEncoder(self.rank, tables, self._spool.communications())
        freed = read_memory(_partial(self._memory_path))
        freed = freed[freed["action"] == MemoryAction.FREE][["operation", "allocation"]]
        # Threads log in the order of their locks, which need not be that of the operations.
        freed = freed[np.argsort(freed["operation"], kind="stable")]
        first_free = 0
        with _partial(self._path).open("wb") as file:
            metadata = global_metadata(self.rank)
            file.write(varint(len(metadata)) + metadata)
            for rows, tensors in self._spool.batches():
                next_free = int(np.searchsorted(freed["operation"], rows["id"][-1], side="right"))
                batch = freed[first_free:next_free]
                encoder.dependencies.free(batch["allocation"].tolist(), batch["operation"].tolist())
                first_free = next_free
                file.write(encoder.encode(rows, tensors))

    def abort(self) -> None:
        """Close and delete the half-written files."""
        self._memory.close()
        self._spool.close()
        self._spool.delete()
        for path in (self._memory_path, self._path):
            _partial(path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._spool.closed:
            self.abort()

    def _check_tables(self, tables: Tables) -> None:
        for name, needed in self._needed.items():
            if len(getattr(tables, name)) < needed:
                raise ValueError(f"tables.{name} lacks entries that operations refer to ({needed} needed)")
        ends = tables.iteration_ends
        if any(later <= earlier for earlier, later in pairwise(ends)) or (ends and ends[0] < 0):
            raise ValueError(f"iteration_ends must be ascending operation ids, not {ends[:8]}")
        if ends and ends[-1] >= self._operation_count:
            raise ValueError(f"an iteration ends at {ends[-1]}, beyond {self._operation_count} operations")

    def _check(
        self, operations: Operations, operators: int, metadata: int, modules: int, source_lines: int
    ) -> None:
        rows, tensors, communications = operations.rows, operations.tensors, operations.communications
        for name, array, dtype in (
            ("rows", rows, OPERATION_DTYPE),
            ("tensors", tensors, TENSOR_DTYPE),
            ("communications", communications, COMMUNICATION_DTYPE),
        ):
            if array.dtype != dtype or array.ndim != 1:
                raise ValueError(f"{name} must be one-dimensional and of its own dtype, not {array.dtype}")
        expected = np.arange(self._operation_count, self._operation_count + len(rows))
        if not np.array_equal(rows["id"], expected):
            raise ValueError(f"ids must continue densely from {self._operation_count}")
        if len(rows) and int(rows["tensor_count"].min()) < 0:
            raise ValueError("tensor_count must not be negative")
        if int(rows["tensor_count"].sum(dtype=np.int64)) != len(tensors):
            raise ValueError(f"tensor_count adds up to another number than the {len(tensors)} tensors given")
        for column, count, lowest in (
            ("operator", operators, 0),
            ("metadata", metadata, -1),
            ("module", modules, -1),
            ("source_line", source_lines, -1),
            ("communication", self._communication_count + len(communications), -1),
        ):
            if len(rows) and not lowest <= int(rows[column].min()) <= int(rows[column].max()) < count:
                raise ValueError(f"{column} refers to an entry outside {lowest}..{count - 1}")
        if len(rows):
            for name, column in _COLUMN_OF_TABLE.items():
                self._needed[name] = max(self._needed[name], int(rows[column].max()) + 1)
        used = rows["communication"]
        used = used[used >= self._communication_count]
        if len(np.unique(used)) != len(communications):
            raise ValueError("every communication row must belong to an operation of its batch")


def _partial(path: Path) -> Path:
    return path.with_name(path.name + PARTIAL_SUFFIX)
