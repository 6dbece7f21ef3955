"""Damaged files: a clear error with file, byte offset and node; never anything worse."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maya.errors import MayaError
from maya.traces import (
    OPERATION_DTYPE,
    TraceError,
    find_problems,
    find_warnings,
    read_et,
    read_operations,
    read_rank,
    repair_et,
    validate_et,
)
from maya.traces.chakra_schema import messages
from maya.traces.frames import find_messages, open_trace
from maya.traces.node_encoder import ROW_PREFIX
from maya.traces.wire import varint


def chakra_file(path: Path, *nodes: dict[str, Any], version: str = "0.0.4") -> Path:
    """A Chakra file of nodes given as fields of Node."""
    made = [messages().GlobalMetadata(version=version), *(messages().Node(**node) for node in nodes)]
    path.write_bytes(
        b"".join(varint(len(body)) + body for body in (node.SerializeToString() for node in made))
    )
    return path


COMP = {"type": 4, "name": "k"}


def test_sound_file(tmp_path: Path) -> None:
    path = chakra_file(tmp_path / "a.et", {"id": 7, **COMP}, {"id": 3, "data_deps": [7], **COMP})
    trace = validate_et(path)
    assert trace.ids.tolist() == [7, 3]
    assert trace.data.of(1).tolist() == [7]
    assert find_warnings(trace) == []


def test_dependencies_on_later_nodes_are_sound(tmp_path: Path) -> None:
    nodes = ({"id": 1, "data_deps": [3], **COMP}, {"id": 2, **COMP}, {"id": 3, "data_deps": [2], **COMP})
    assert validate_et(chakra_file(tmp_path / "a.et", *nodes)).count == 3


def test_gzip(tmp_path: Path) -> None:
    path = chakra_file(tmp_path / "a.et", {"id": 7, **COMP})
    packed = tmp_path / "a.et.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert validate_et(packed).ids.tolist() == [7]
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(TraceError, match=r"a\.et\.gz at byte \d+: broken gzip"):
        read_et(packed)


def test_duplicate_id(tmp_path: Path) -> None:
    path = chakra_file(tmp_path / "a.et", {"id": 1, **COMP}, {"id": 2, **COMP}, {"id": 1, **COMP})
    starts, _ = find_messages(open_trace(path), path)
    with pytest.raises(TraceError, match=rf"a\.et at byte {starts[3]}, node 1: duplicate id") as caught:
        validate_et(path)
    assert (caught.value.node, caught.value.offset) == (1, starts[3])


def test_dangling_dependency(tmp_path: Path) -> None:
    path = chakra_file(tmp_path / "a.et", {"id": 1, **COMP}, {"id": 2, "data_deps": [1, 9], **COMP})
    with pytest.raises(TraceError, match=r"at byte \d+, node 2: dangling data dependency on node 9"):
        validate_et(path)
    assert repair_et(path, tmp_path / "b.et") == [
        "dangling dependencies: 1 on nodes that are not in the file were dropped"
    ]
    assert validate_et(tmp_path / "b.et").data.of(1).tolist() == [1]


def test_cycle_is_spelled_out(tmp_path: Path) -> None:
    nodes = (
        {"id": 1, **COMP},
        {"id": 2, "data_deps": [1, 5], **COMP},
        {"id": 5, "data_deps": [4], **COMP},
        {"id": 4, "data_deps": [2], **COMP},
        {"id": 6, "data_deps": [4], **COMP},
    )
    path = chakra_file(tmp_path / "a.et", *nodes)
    with pytest.raises(
        TraceError, match=r"node \d: cyclic dependencies: (\d) after \d after \d after \1$"
    ) as caught:
        validate_et(path)
    assert set(caught.value.problem.split()[2::2]) == {"2", "4", "5"}
    with pytest.raises(TraceError, match="cyclic"):
        repair_et(path, tmp_path / "b.et")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.et"]


def test_dangling_dependencies_are_no_cycle(tmp_path: Path) -> None:
    nodes = ({"id": 1, "data_deps": [3, 9], **COMP}, {"id": 3, "data_deps": [8], **COMP})
    problems = find_problems(read_et(chakra_file(tmp_path / "a.et", *nodes)))
    found = [(problem.node, problem.problem.split()[0]) for problem in problems]
    assert found == [(1, "dangling"), (3, "dangling")]


@pytest.mark.parametrize(("column", "value"), [("kind", 14), ("phase", 6), ("id", 5)])
def test_columns_out_of_range(small_et: Path, column: str, value: int) -> None:
    whole = bytearray(small_et.read_bytes())
    starts, _ = find_messages(bytes(whole), small_et)
    at = int(starts[3]) + len(ROW_PREFIX) + OPERATION_DTYPE.fields[column][1]
    whole[at] = value
    small_et.write_bytes(whole)
    with pytest.raises(
        TraceError, match=rf"byte {starts[3]}, node 2: corrupt: (unknown {column}|ids are not)"
    ):
        read_operations(small_et)
    with pytest.raises(TraceError, match="node 2"):
        validate_et(small_et)


def test_a_node_after_itself(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="node 2: cyclic dependencies: 2 after 2"):
        validate_et(chakra_file(tmp_path / "a.et", {"id": 2, "data_deps": [2], **COMP}))


def test_unknown_node_type(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="node 2: unknown node type 12"):
        validate_et(chakra_file(tmp_path / "a.et", {"id": 2, "type": 12}))


def test_unknown_collective(tmp_path: Path) -> None:
    node = {"id": 2, "type": 7, "attr": [messages().AttributeProto(name="comm_type", int64_val=77)]}
    with pytest.raises(TraceError, match="node 2: unknown comm_type 77"):
        validate_et(chakra_file(tmp_path / "a.et", node))


def test_what_feeders_would_misread_is_a_warning(tmp_path: Path) -> None:
    attributes = [
        messages().AttributeProto(name="comm_type", int64_val=0),
        messages().AttributeProto(name="comm_size", uint64_val=8),
    ]
    trace = validate_et(
        chakra_file(tmp_path / "a.et", {"id": 2, "type": 7, "attr": attributes, "ctrl_deps": [1]})
    )
    assert [warning.split("(")[0] for warning in find_warnings(trace)] == [
        "1 control dependencies on nodes that are not in the file",
        "1 of 1 COMM_COLL_NODEs have no comm_size as int64_val ",
    ]


def test_other_schema_version(tmp_path: Path) -> None:
    with pytest.raises(
        TraceError, match=r"a\.et at byte 0: Chakra schema '0\.0\.3', this Maya reads 0\.0\.4"
    ):
        read_et(chakra_file(tmp_path / "a.et", version="0.0.3"))


def test_older_schema_that_does_not_state_itself(tmp_path: Path) -> None:
    """0.0.3: parent = 4, attribute = 11 {name = 1, type = 2, i = 6}."""
    attribute = b"\x0a\x01a\x10\x02\x30\x07"
    node = b"\x08\x05\x12\x01k\x18\x04\x5a" + bytes((len(attribute),)) + attribute
    path = tmp_path / "a.et"
    path.write_bytes(b"\x00" + bytes((len(node),)) + node)
    with pytest.raises(TraceError, match=r"node 5: fields \[11\] are not of Chakra schema 0\.0\.4"):
        read_et(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"\x05abc", "truncated: message 0 needs 5 bytes, 3 are left"),
        (b"\xff", "ends inside the length of message 0"),
        (b"\xff\xff\xff\xff\xff\x01", "a length of more than 5 bytes"),
        (b"\xff\xff\xff\xff\x0f" + b"x" * 99, "a length of 4294967295 bytes"),
        (b"{\n" + b'"schema": 1}' * 20, "does not begin with Chakra's global metadata"),
        (b"\x00\x03\xff\xff\xff", "corrupt: message 1 .the first node. is not a node"),
    ],
)
def test_not_a_trace(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "a.et"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=problem) as caught:
        read_et(path)
    assert "a.et" in caught.value.message


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.et: no such file"):
        read_et(tmp_path / "none.et")
    with pytest.raises(TraceError, match="cannot be read"):
        read_et(tmp_path)


def test_every_truncation_is_seen(small_et: Path) -> None:
    """Of a run: also between two nodes, where the Chakra file alone cannot show it."""
    whole = small_et.read_bytes()
    starts, _ = find_messages(whole, small_et)
    for length in sorted({*range(0, len(whole), 13), *(starts - 1).tolist(), *starts.tolist()}, reverse=True):
        os.truncate(small_et, length)
        with pytest.raises(TraceError, match=r"rank-0\.et"):
            read_rank(small_et.parent)
    small_et.write_bytes(whole[: starts[5] + 3])
    with pytest.raises(TraceError, match=rf"at byte {starts[5] - 2}: truncated"):
        read_et(small_et)
    done = repair_et(small_et, small_et.with_name("fixed.et"))
    assert done[0].startswith("cut: 5 bytes after byte")
    assert read_operations(small_et.with_name("fixed.et")).count == 4


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_a_maya_error_or_readable(small_et: Path, data: st.DataObject) -> None:
    whole = small_et.read_bytes()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = small_et.with_name("damaged.et")
    path.write_bytes(damaged)
    for read in (validate_et, read_operations):
        try:
            read(path)
        except MayaError as error:
            assert "damaged.et" in error.message  # noqa: PT017


def test_a_corrupt_length_costs_no_memory(small_et: Path) -> None:
    """Under a limit of memory, in a process of its own: lengths and counts are held against the file."""
    whole = small_et.read_bytes()
    starts, _ = find_messages(whole, small_et)
    huge_count = bytearray(whole)
    # tensor_count of the second operation: 15 bytes of prefix, then its offset in the row.
    at = int(starts[2]) + 15 + 60
    huge_count[at : at + 4] = (1 << 30).to_bytes(4, "little")
    for index, content in enumerate((whole + b"\xff\xff\xff\x7f" + b"x" * 100, bytes(huge_count))):
        path = small_et.with_name(f"huge-{index}.et")
        path.write_bytes(content)
        code = (
            "import sys; from maya.errors import MayaError; from maya.traces import read_operations\n"
            "import resource; import google.protobuf.message\n"
            f"resource.setrlimit(resource.RLIMIT_AS, ({3 << 30}, {resource.RLIM_INFINITY}))\n"
            "try: read_operations(sys.argv[1])\n"
            "except MayaError as error: print(error.message)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"OPENBLAS_NUM_THREADS": "1", "PATH": ""},
        )
        assert done.returncode == 0, done.stderr
        assert ("truncated", "does not fit tensor_count")[index] in done.stdout


def test_references_beyond_the_tables(
    tmp_path: Path, small: Any, tables: Any, write_trace: Callable[..., Path]
) -> None:
    from dataclasses import replace

    path = write_trace(tmp_path / "run", small)
    starts, _ = find_messages(open_trace(path), path)
    with pytest.raises(
        TraceError, match=rf"at byte {starts[2]}, node 1: corrupt: module is not in the tables"
    ):
        read_operations(path, replace(tables, modules=tables.modules[:1]))


def test_a_chakra_file_of_someone_else(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not one recorded by Maya"):
        read_operations(chakra_file(tmp_path / "a.et", {"id": 1, **COMP}))


def test_trace_of_another_maya(small_et: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from maya.traces import names

    monkeypatch.setattr(names, "MAYA_TRACE_SCHEMA_VERSION", 2)
    with pytest.raises(TraceError, match="Maya trace schema 1, this Maya reads 2"):
        read_operations(small_et)
