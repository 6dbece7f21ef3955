"""What RankWriter is given, read_rank gives back, to the byte."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maya.errors import MayaError
from maya.traces import (
    COMMUNICATION_DTYPE,
    MEMORY_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Communicator,
    Kind,
    MemoryAction,
    Operations,
    Phase,
    RankWriter,
    Role,
    Tables,
    read_et,
    read_operations,
    read_rank,
)
from maya.traces.chakra_schema import messages
from maya.traces.frames import find_messages, open_trace
from maya.traces.wire import varint

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def traces(draw: st.DrawFn) -> tuple[Operations, Tables, np.ndarray, list[int]]:
    """Any operations that the format allows, with tables, an allocator log, and where to cut batches."""
    count = draw(st.integers(0, 30))
    tables = Tables(
        operators=tuple(draw(st.lists(TEXT, min_size=1, max_size=5))),
        metadata=tuple(draw(st.lists(TEXT, max_size=4))),
        modules=tuple(draw(st.lists(TEXT, max_size=4))),
        source_lines=tuple(draw(st.lists(TEXT, max_size=4))),
        iteration_ends=tuple(sorted(draw(st.sets(st.integers(0, count - 1), max_size=4)))) if count else (),
        communicators=tuple(
            Communicator(draw(TEXT), tuple(sorted(ranks)), draw(TEXT))
            for ranks in draw(st.lists(st.sets(st.integers(0, 99), max_size=3), max_size=2))
        ),
    )
    rows = draw(hnp.arrays(OPERATION_DTYPE, count))
    rows["id"] = np.arange(count)
    for column, entries, least in (
        ("operator", tables.operators, 0),
        ("metadata", tables.metadata, -1),
        ("module", tables.modules, -1),
        ("source_line", tables.source_lines, -1),
        ("tensor_count", range(5), 0),
        ("kind", Kind, 0),
        ("phase", Phase, 0),
    ):
        allowed = st.integers(least, len(entries) - 1)
        rows[column] = draw(st.lists(allowed, min_size=count, max_size=count))
    tensors = draw(hnp.arrays(TENSOR_DTYPE, int(rows["tensor_count"].sum())))
    tensors["role"] %= len(Role)
    communicates = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool)
    rows["communication"] = np.where(communicates, np.cumsum(communicates) - 1, -1)
    communications = draw(hnp.arrays(COMMUNICATION_DTYPE, int(communicates.sum())))
    memory = draw(hnp.arrays(MEMORY_DTYPE, st.integers(0, 9)))
    memory["action"] %= len(MemoryAction)
    memory["operation"] = np.sort(memory["operation"])
    cuts = sorted(draw(st.sets(st.integers(0, count), max_size=3)))
    return Operations(rows, tensors, communications), tables, memory, cuts


def batches(operations: Operations, cuts: list[int]) -> list[Operations]:
    """The operations cut into batches, as the emulator drains them."""
    bounds = [0, *cuts, operations.count]
    offsets = operations.tensor_offsets()
    communications = np.concatenate(([0], np.cumsum(operations.rows["communication"] >= 0)))
    return [
        Operations(
            operations.rows[start:end],
            operations.tensors[offsets[start] : offsets[end]],
            operations.communications[communications[start] : communications[end]],
        )
        for start, end in itertools.pairwise(bounds)
    ]


def same(one: Operations, other: Operations) -> bool:
    """Equal to the byte, padding included."""
    return all(
        getattr(one, name).dtype == getattr(other, name).dtype
        and getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("rows", "tensors", "communications")
    )


@settings(max_examples=80, deadline=None)
@given(traces(), st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2))
def test_everything_survives(
    trace: tuple[Operations, Tables, np.ndarray, list[int]], assumptions: list[dict[str, str]]
) -> None:
    operations, tables, memory, cuts = trace
    with tempfile.TemporaryDirectory() as folder:
        writer = RankWriter(folder, 3)
        for batch in batches(operations, cuts):
            writer.append(batch, tables.operators, tables.metadata, tables.modules, tables.source_lines)
            writer.append_memory(memory[: len(memory) // 2])
            memory = memory[len(memory) // 2 :]
        before = trace[2][: len(trace[2]) - len(memory)]
        writer.finish(tables, assumptions)
        read = read_rank(folder, 3)
        assert same(read.operations, operations)
        assert read.tables == tables
        assert read.memory.tobytes() == before.tobytes()
        assert np.load(Path(folder) / "memory-3.npy", allow_pickle=False).tobytes() == before.tobytes()
        assert list(read.assumptions) == assumptions
        # The columns survive tools that parse and write nodes anew, in another order of fields.
        rewritten = Path(folder) / "rewritten.et"
        rewrite(Path(folder) / "rank-3.et", rewritten)
        assert same(read_operations(rewritten, tables), operations)
        # And the standard part says the same.
        nodes = read_et(Path(folder) / "rank-3.et")
        assert nodes.ids.tolist() == list(range(operations.count))
        assert [nodes.names[index] for index in nodes.name_ids] == [
            tables.operators[index] for index in operations.rows["operator"]
        ]


def rewrite(source: Path, out: Path) -> None:
    buffer = open_trace(source)
    with out.open("wb") as file:
        for index, (start, end) in enumerate(zip(*find_messages(buffer, source), strict=True)):
            kind = messages().Node if index else messages().GlobalMetadata
            body = kind.FromString(buffer[start:end]).SerializeToString()
            file.write(varint(len(body)) + body)


def test_readable_attributes(small_et: Path) -> None:
    nodes = read_et(small_et)
    assert nodes.header.version == "0.0.4"
    assert nodes.header.attributes["maya.rank"] == 0
    assert nodes.inputs[1] == ("", "[[4,8],[8,2],[]]", '["Tensor(float32)","Tensor(float32)","Int"]')
    assert nodes.outputs[1] == ("", "[[4,2]]", '["Tensor(float32)"]')

    def of(node: int) -> dict[str, Any]:
        return {
            name: column.values[column.nodes.tolist().index(node)]
            for name, column in nodes.attributes.items()
            if node in column.nodes
        }

    kernel = of(1)
    for name in ("maya.row", "maya.tensors"):
        assert isinstance(kernel.pop(name), bytes)
    assert kernel == {
        "is_cpu_op": False,
        "tensor_size": (4 * 8 + 8 * 2 + 4 * 2) * 4,
        "maya.kind": "KERNEL",
        "maya.phase": "forward",
        "maya.device": 0,
        "maya.stream": 0,
        "maya.module": "Net.fc",
        "maya.source_line": "train.py:3",
        "maya.sequence": 3,
    }
    assert of(0)["is_cpu_op"] is True
    assert "maya.stream" not in of(0)
    assert of(4)["maya.event"] == 5
    collective = of(6)
    assert (collective["comm_type"], collective["comm_size"], collective["pg_name"]) == (0, 32, "1")
    send = of(8)
    assert (send["comm_src"], send["comm_dst"], send["comm_tag"], send["comm_size"]) == (0, 1, 4, 32)
    assert nodes.types.tolist() == [4, 4, 4, 4, 4, 4, 7, 4, 5, 4, 4, 4]


def test_a_receive_counts_what_it_receives(
    tmp_path: Path, build_operations: Any, op: Any, write_trace: Callable[..., Path]
) -> None:
    received = {"communicator": 0, "input_bytes": 0, "output_bytes": 96, "peer": 5, "tag": 1}
    path = write_trace(tmp_path, build_operations([op(Kind.RECV, 9, communication=received)]), rank=2)
    attributes = read_et(path).attributes
    found = {name: attributes[name].values[0] for name in ("comm_size", "comm_src", "comm_dst", "comm_tag")}
    assert found == {"comm_size": 96, "comm_src": 5, "comm_dst": 2, "comm_tag": 1}


@pytest.mark.parametrize("tensors", [3, 4, 511, 512, 513, 65_535, 65_536])
def test_many_tensors_are_read_the_fast_way(
    tmp_path: Path, build_operations: Any, op: Any, write_trace: Any, monkeypatch: Any, tensors: int
) -> None:
    """At the counts where a length takes one more byte."""
    use = [(1, 0, 8, Role.READ)] * tensors
    operations = build_operations([op(Kind.KERNEL, tensors=use), op(Kind.KERNEL, tensors=use[:1])])
    path = write_trace(tmp_path, operations)
    monkeypatch.setattr("maya.traces.rank_reader._parse", None)
    assert same(read_operations(path), operations)


def test_row_layout_can_be_decoded_from_the_header_alone(small_et: Path, small: Operations) -> None:
    nodes = read_et(small_et)
    layout = [tuple(column) for column in json.loads(nodes.header.attributes["maya.row_layout"])]
    rows = np.frombuffer(b"".join(nodes.attributes["maya.row"].values), dtype=np.dtype(layout))
    assert rows["module"].tolist() == small.rows["module"].tolist()


def test_same_input_same_bytes(tmp_path: Path, small: Operations, write_trace: Callable[..., Path]) -> None:
    one, two = write_trace(tmp_path / "a", small), write_trace(tmp_path / "b", small)
    assert one.read_bytes() == two.read_bytes()


def test_names_are_temporary_until_finish(tmp_path: Path, small: Operations, tables: Tables) -> None:
    writer = RankWriter(tmp_path, 0)
    writer.append(small, tables.operators, tables.metadata, tables.modules, tables.source_lines)
    assert all(path.name.endswith(".partial") for path in tmp_path.iterdir())
    with pytest.raises(MayaError, match=r"rank-0\.tables\.json"):
        read_rank(tmp_path, 0)
    writer.finish(tables)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "assumptions-0.json",
        "memory-0.npy",
        "rank-0.et",
        "rank-0.tables.json",
    ]


def test_abort_leaves_nothing(tmp_path: Path, small: Operations, tables: Tables) -> None:
    def record() -> None:
        with RankWriter(tmp_path, 0) as writer:
            writer.append(small, tables.operators, tables.metadata, tables.modules, tables.source_lines)
            raise KeyError("the script")

    with pytest.raises(KeyError):
        record()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_trace(tmp_path: Path) -> None:
    RankWriter(tmp_path, 0).finish(Tables())
    read = read_rank(tmp_path, 0)
    assert (read.operations.count, len(read.memory), read.tables) == (0, 0, Tables())


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("id", 7, "ids must continue"),
        ("operator", 99, "operator refers"),
        ("operator", -1, "operator refers"),
        ("module", 2, "module refers"),
        ("metadata", -2, "metadata refers"),
        ("tensor_count", 9, "tensor_count adds up"),
        ("tensor_count", -1, "must not be negative"),
        ("communication", 2, "communication refers"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    tmp_path: Path, small: Operations, tables: Tables, column: str, value: int, problem: str
) -> None:
    small.rows[column][1] = value
    writer = RankWriter(tmp_path, 0)
    with pytest.raises(ValueError, match=problem):
        writer.append(small, tables.operators, tables.metadata, tables.modules, tables.source_lines)
    writer.finish(Tables())
    assert read_rank(tmp_path, 0).operations.count == 0


def test_communication_rows_must_belong_to_someone(tmp_path: Path, small: Operations, tables: Tables) -> None:
    small.rows["communication"][8] = 0
    with pytest.raises(ValueError, match="every communication row"):
        RankWriter(tmp_path, 0).append(
            small, tables.operators, tables.metadata, tables.modules, tables.source_lines
        )


def test_tables_must_have_what_operations_refer_to(tmp_path: Path, small: Operations, tables: Tables) -> None:
    writer = RankWriter(tmp_path, 0)
    writer.append(small, tables.operators, tables.metadata, tables.modules, tables.source_lines)
    with pytest.raises(ValueError, match="modules lacks entries"):
        writer.finish(replace(tables, modules=tables.modules[:1]))
    with pytest.raises(ValueError, match="an iteration ends at 12"):
        writer.finish(
            Tables(
                tables.operators, tables.metadata, tables.modules, tables.source_lines, iteration_ends=(12,)
            )
        )
