"""Export with durations: what a feeder and ASTRA-sim find in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maya.traces import (
    ChakraTrace,
    Ended,
    Manifest,
    Operations,
    RankClass,
    Tables,
    export_with_durations,
    find_warnings,
    read_operations,
    validate_et,
    write_groups,
    write_manifest,
)

DURATIONS = np.array([0, 1_499, 0, 1_500, 0, 0, 123_456_789, 0, 1, 700, 0, 0], dtype=np.int64)


def feed(trace: ChakraTrace) -> list[int]:
    """Issue order of a feeder that, as Chakra's feeder v1, looks at data dependencies only and counts
    each once; raises if some node never becomes free."""
    waiting = {int(trace.ids[node]): trace.data.of(node).tolist() for node in range(trace.count)}
    order: list[int] = []
    while waiting:
        free = [node for node, before in waiting.items() if not before]
        assert free, f"deadlock: {waiting}"
        done = min(free)
        order.append(done)
        del waiting[done]
        for before in waiting.values():
            if done in before:
                before.remove(done)  # one occurrence, as the feeder's erase
    return order


def values(trace: ChakraTrace, name: str, kind: str) -> dict[int, Any]:
    """Node → value of an attribute, all of one type."""
    column = trace.attributes[name]
    assert set(column.kinds) == {kind}
    return dict(zip(column.nodes.tolist(), column.values, strict=True))


def test_durations(small_et: Path, tmp_path: Path) -> None:
    out = export_with_durations(small_et.parent, tmp_path / "out.et", DURATIONS)
    trace = validate_et(out)
    # Host operations, markers and events take none; device work takes at least 1.
    assert trace.duration_micros.tolist() == [0, 1, 0, 2, 0, 0, 123_457, 0, 1, 1, 0, 1]
    assert values(trace, "maya.duration_ns", "int64_val") == dict(enumerate(DURATIONS.tolist()))
    assert find_warnings(trace) == []


def test_host_gaps_are_the_duration_of_host_operations(small_et: Path, tmp_path: Path) -> None:
    gaps = np.full(12, 5_400)
    trace = validate_et(
        export_with_durations(small_et.parent, tmp_path / "out.et", DURATIONS, host_gap_ns=gaps)
    )
    assert trace.duration_micros.tolist() == [5, 1, 5, 2, 5, 5, 123_457, 5, 1, 1, 5, 1]
    assert set(values(trace, "maya.host_gap_ns", "int64_val").values()) == {5_400}


def test_what_the_feeder_reads(small_et: Path, tmp_path: Path) -> None:
    num_ops = np.arange(12) * 100
    trace = validate_et(
        export_with_durations(
            small_et.parent, tmp_path / "out.et", DURATIONS, num_ops=num_ops, moved_bytes=np.arange(12)
        )
    )
    cpu = values(trace, "is_cpu_op", "bool_val")
    assert [cpu[node] for node in range(12)] == [True, False, True] + [False] * 4 + [True] + [False] * 2 + [
        True,
        False,
    ]
    compute = [node for node in range(12) if node not in (6, 8)]
    assert values(trace, "num_ops", "int64_val") == {node: node * 100 for node in compute}
    # At least 1: ASTRA-sim divides by it.
    assert values(trace, "tensor_size", "uint64_val") == {node: max(node, 1) for node in compute}
    assert values(trace, "comm_type", "int64_val") == {6: 0}
    assert values(trace, "comm_size", "int64_val") == {6: 32, 8: 32}
    assert values(trace, "comm_dst", "int32_val") == {8: 1}


def test_a_feeder_runs_it_in_stream_order(small_et: Path, tmp_path: Path) -> None:
    """Control dependencies are among the data dependencies, each once."""
    source = validate_et(small_et)
    trace = validate_et(export_with_durations(small_et.parent, tmp_path / "out.et", DURATIONS))
    for node in range(12):
        follows = trace.data.of(node).tolist()
        assert len(follows) == len(set(follows))
        assert set(follows) == {*source.data.of(node).tolist(), *source.control.of(node).tolist()}
        assert trace.control.of(node).tolist() == source.control.of(node).tolist()
    order = feed(trace)
    assert sorted(order) == list(range(12))
    assert order.index(3) < order.index(6) < order.index(11)


def test_maya_reads_its_export(small_et: Path, tmp_path: Path, small: Operations, tables: Tables) -> None:
    out = export_with_durations(small_et.parent, tmp_path / "out.et", DURATIONS)
    read = read_operations(out, tables)
    assert read.rows.tobytes() == small.rows.tobytes()
    assert read.tensors.tobytes() == small.tensors.tobytes()
    assert read.communications.tobytes() == small.communications.tobytes()


def test_groups(small_et: Path, tmp_path: Path) -> None:
    """Every rank of the job is group 0, which ASTRA-sim knows without a file; others have numbers."""
    run_dir = small_et.parent

    def group() -> str:
        trace = validate_et(export_with_durations(run_dir, tmp_path / "out.et", DURATIONS))
        found = values(trace, "pg_name", "string_val")
        assert list(found) == [6]
        return str(found[6])

    assert group() == "1"  # without a manifest nobody knows how many ranks there are
    manifest = Manifest(("a.py",), "H100", "2", 2, (RankClass(0, (0, 1)),), Ended.STOPPED)
    write_manifest(run_dir, manifest)
    assert group() == "0"
    groups = json.loads(write_groups(run_dir, tmp_path / "groups.json").read_text())
    # "tp" has every rank, though in another order.
    assert groups == {"3": [0]}


def test_only_the_result_is_left(small_et: Path, tmp_path: Path) -> None:
    export_with_durations(small_et.parent, tmp_path / "out.et", DURATIONS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.et", "run"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"duration_ns": DURATIONS[:-1]}, r"duration_ns has shape \(11,\), but the trace has 12 operations"),
        ({"duration_ns": DURATIONS - 1}, "duration_ns must not be negative"),
        ({"num_ops": np.zeros(1)}, "num_ops has shape"),
    ],
)
def test_arrays_that_do_not_fit(small_et: Path, tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    arguments = {"duration_ns": DURATIONS, **change}
    with pytest.raises(ValueError, match=problem):
        export_with_durations(small_et.parent, tmp_path / "out.et", **arguments)
