"""Operations and metadata made by hand, as the emulator would record them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from maya.traces.operations import OPERATION_DTYPE, TENSOR_DTYPE, Kind, Operations, Phase, no_communications
from maya.traces.tables import Tables


def tensor_json(
    shape: Sequence[int],
    dtype: str = "bfloat16",
    *,
    stride: Sequence[int] | None = None,
    device: str = "cuda",
    scalar: bool = False,
) -> dict[str, Any]:
    """A tensor of a metadata object; contiguous unless told otherwise."""
    dense: list[int] = []
    step = 1
    for size in reversed(shape):
        dense.insert(0, step)
        step *= size
    value: dict[str, Any] = {
        "dtype": dtype,
        "shape": list(shape),
        "stride": list(stride or dense),
        "device": device,
    }
    if scalar:
        value["scalar"] = True
    return value


class Recorder:
    """Collects operations as columns."""

    def __init__(self) -> None:
        self.operators: list[str] = []
        self.metadata: list[str] = []
        self.rows: list[dict[str, int]] = []

    def add(
        self,
        operator: str,
        args: dict[str, Any] | None = None,
        out: Sequence[Any] = (),
        *,
        kind: Kind = Kind.KERNEL,
        phase: Phase = Phase.FORWARD,
        extra: dict[str, Any] | None = None,
        **columns: int,
    ) -> Recorder:
        text = json.dumps({"args": args or {}, "out": list(out)} | (extra or {}))
        for table, value in ((self.operators, operator), (self.metadata, text)):
            if value not in table:
                table.append(value)
        row = {
            "operator": self.operators.index(operator),
            "metadata": self.metadata.index(text),
            "kind": int(kind),
            "phase": int(phase),
        }
        self.rows.append(row | columns)
        return self

    def finish(self) -> tuple[Operations, Tables]:
        rows = np.zeros(len(self.rows), dtype=OPERATION_DTYPE)
        rows["id"] = np.arange(len(rows))
        for name in ("event", "module", "source_line", "communication", "graph", "sequence"):
            rows[name] = -1
        for position, row in enumerate(self.rows):
            for name, value in row.items():
                rows[name][position] = value
        tables = Tables(operators=tuple(self.operators), metadata=tuple(self.metadata))
        return Operations(rows, np.zeros(0, dtype=TENSOR_DTYPE), no_communications()), tables


@pytest.fixture
def tensor() -> Callable[..., dict[str, Any]]:
    return tensor_json


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def shared_data() -> Any:
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared is not here")
    return folder
