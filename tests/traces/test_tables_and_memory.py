"""rank-N.tables.json and memory-N.npy: what their readers refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maya.errors import MayaError
from maya.traces import MEMORY_DTYPE, Tables, read_memory, read_tables, write_tables
from maya.traces.memory_file import MemoryWriter


def test_tables_round_trip(tmp_path: Path, tables: Tables) -> None:
    write_tables(tmp_path / "t.json", tables, 12)
    assert read_tables(tmp_path / "t.json") == tables


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("schema_version", 9, "tables schema version 9, this Maya reads 1"),
        ("operators", ["a", None], "element 1 of 'operators' must be str"),
        ("iteration_ends", [3, 3], "ascending"),
        ("iteration_ends", [-1], "ascending"),
        ("iteration_ends", [12], "beyond the 12 operations"),
        ("iteration_ends", [True], "must be int, not bool"),
        ("operation_count", -1, "beyond the -1 operations"),
        (
            "communicators",
            [{"name": "a", "ranks": [0, 0], "backend": "nccl"}],
            "distinct.* in communicator 0",
        ),
        ("communicators", [{"name": "a", "ranks": [0]}], "'backend' is missing in communicator 0"),
        ("modules", None, "'modules' must be list"),
    ],
)
def test_damaged_tables(tmp_path: Path, tables: Tables, key: str, value: Any, problem: str) -> None:
    path = tmp_path / "t.json"
    write_tables(path, tables, 12)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(MayaError, match=problem) as caught:
        read_tables(path)
    assert str(path) in caught.value.message


def memory_rows(count: int) -> np.ndarray:
    """Rows that differ from each other."""
    rows = np.zeros(count, MEMORY_DTYPE)
    rows["allocation"] = np.arange(count)
    rows["size_bytes"] = 512
    return rows


@pytest.mark.parametrize("parts", [(), (0,), (1,), (3, 0, 4), (100_000, 1)])
def test_memory_log_is_a_plain_npy(tmp_path: Path, parts: tuple[int, ...]) -> None:
    path = tmp_path / "m.npy"
    with MemoryWriter(path) as writer:
        for count in parts:
            writer.append(memory_rows(count))
    expected = np.concatenate([memory_rows(0), *map(memory_rows, parts)])
    assert np.load(path, allow_pickle=False).tobytes() == expected.tobytes()
    read = read_memory(path)
    assert read.dtype == MEMORY_DTYPE
    assert read.tobytes() == expected.tobytes()


def test_memory_rows_of_another_form_are_refused(tmp_path: Path) -> None:
    with (
        MemoryWriter(tmp_path / "m.npy") as writer,
        pytest.raises(ValueError, match="must be of MEMORY_DTYPE"),
    ):
        writer.append(np.zeros(3))


def cut(content: bytes) -> bytes:
    """Half a row less."""
    return content[:-28]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (cut, "3 rows announced, which makes 680 bytes, but the file has 652"),
        (lambda content: content.replace(b"(3,)", b"(9999999999999,)"), "9999999999999 rows announced"),
        (lambda content: content.replace(b"(3,)", b"(-3,)"), "rows announced"),
        (lambda content: content.replace(b"(3,)", b"(1,3)"), "in 2 dimensions"),
        (lambda content: content.replace(b"'<i8'", b"'<f8'"), "not an allocator log of this Maya"),
        (lambda content: b"PK" + content, "not a readable allocator log"),
        (lambda content: content.replace(b"\x93NUMPY\x01", b"\x93NUMPY\x03"), "another version"),
        (lambda content: content[:30], "not a readable allocator log"),
        (lambda content: b"", "not a readable allocator log"),  # noqa: ARG005
        (lambda content: content.replace(b"[(", b"((("), "not a readable allocator log"),
    ],
)
def test_damaged_memory_log(tmp_path: Path, damage: Callable[[bytes], bytes], problem: str) -> None:
    path = tmp_path / "m.npy"
    with MemoryWriter(path) as writer:
        writer.append(memory_rows(3))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MayaError, match=problem):
        read_memory(path)


def test_pickles_are_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(MayaError, match="not an allocator log"):
        read_memory(tmp_path / "m.npy")


def test_no_memory_log(tmp_path: Path) -> None:
    with pytest.raises(MayaError, match="the allocator log is missing"):
        read_memory(tmp_path / "m.npy")
