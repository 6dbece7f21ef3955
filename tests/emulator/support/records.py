"""What a piece of code recorded, as the arrays and texts that the trace is written from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.traces import MEMORY_DTYPE, OPERATION_DTYPE, TENSOR_DTYPE, Kind


@dataclass(frozen=True)
class Records:
    """Rows of one recording and the tables they index into."""

    rows: NDArray[np.void]
    tensors: NDArray[np.void]
    memory: NDArray[np.void]
    operators: list[str]
    metadata: list[str]
    modules: list[str]
    source_lines: list[str]

    def name(self, row: np.void) -> str:
        return self.operators[row["operator"]]

    def data(self, row: np.void) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.metadata[row["metadata"]])
        return parsed

    def module(self, row: np.void) -> str | None:
        return self.modules[row["module"]] if row["module"] >= 0 else None

    def line(self, row: np.void) -> str | None:
        return self.source_lines[row["source_line"]] if row["source_line"] >= 0 else None

    def named(self, operator: str) -> list[np.void]:
        return [row for row in self.rows if self.name(row) == operator]

    def one(self, operator: str) -> np.void:
        (row,) = self.named(operator)
        return row

    def uses(self, row: np.void) -> NDArray[np.void]:
        """The tensors of one operation."""
        position = int(np.flatnonzero(self.rows["id"] == row["id"])[0])
        begin = int(self.rows["tensor_count"][:position].sum())
        return self.tensors[begin : begin + row["tensor_count"]]

    def kernels(self) -> list[np.void]:
        return [row for row in self.rows if row["kind"] == Kind.KERNEL]


def recorded(step: Callable[[], object]) -> Records:
    """Run `step` with recording on."""
    from emulated_gpu import native

    native.drain()
    native.drain_memory()
    native.recording(True)
    try:
        step()
    finally:
        native.recording(False)
    operations, tensors, _ = native.drain()
    tables = {
        table: native.interned(table, 0) for table in ("operators", "metadata", "modules", "source_lines")
    }
    return Records(
        np.frombuffer(operations, OPERATION_DTYPE),
        np.frombuffer(tensors, TENSOR_DTYPE),
        np.frombuffer(native.drain_memory(), MEMORY_DTYPE),
        **tables,
    )
