"""Equal ranks are stored once, and every rank's trace comes back as that rank wrote it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maya.errors import MayaError
from maya.traces import (
    COMMUNICATION_DTYPE,
    MEMORY_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    CollectiveType,
    Communicator,
    Ended,
    Kind,
    Manifest,
    MemoryAction,
    Operations,
    RankClass,
    RankWriter,
    Tables,
    merge_equal_ranks,
    read_manifest,
    read_rank,
    read_ranks,
    write_manifest,
)

KERNEL = json.dumps({"args": {"self": {"dtype": "float32", "shape": [4], "stride": [1]}}, "out": []})


def write_rank(
    run_dir: Path,
    rank: int,
    transfers: list[dict[str, Any]],
    groups: list[tuple[str, tuple[int, ...]]],
    **changes: Any,
) -> None:
    """A rank with a view, a kernel and then its communications.

    Args:
        run_dir: the run's folder.
        rank: global rank.
        transfers: `kind` and columns of COMMUNICATION_DTYPE, `group` an index into `groups`.
        groups: communicators as (name, ranks).
        changes: `metadata`, `modules`, `iteration_ends`, `memory` (sizes), `first` (of all ids).
    """
    first = changes.get("first", 0)
    rows = np.zeros(2 + len(transfers), OPERATION_DTYPE)
    rows["id"] = np.arange(len(rows))
    for column in ("sequence", "event", "source_line", "communication", "graph"):
        rows[column] = -1
    rows["kind"] = [Kind.HOST, Kind.KERNEL, *(each["kind"] for each in transfers)]
    rows["operator"] = [0, 1, *[2] * len(transfers)]
    rows["metadata"] = [0, 1, *[1] * len(transfers)]
    rows["device"] = rank
    rows["stream"][2:] = 7 + first
    rows["tensor_count"][1] = 1
    rows["sequence"][1] = first
    rows["communication"][2:] = np.arange(len(transfers))
    rows["source_line"] = rank % 2
    tensors = np.zeros(1, TENSOR_DTYPE)
    tensors["storage"], tensors["offset_bytes"], tensors["extent_bytes"] = 5 + first, 64 * rank, 16
    communications = np.zeros(len(transfers), COMMUNICATION_DTYPE)
    for column in ("peer", "coalescing_group", "async_handle"):
        communications[column] = -1
    communications["collective"] = [
        CollectiveType.ALL_REDUCE if each["kind"] == Kind.COLLECTIVE else -1 for each in transfers
    ]
    for row, each in zip(communications, transfers, strict=True):
        for name, value in each.items():
            if name != "kind":
                row["communicator" if name == "group" else name] = value
    memory = np.zeros(len(changes.get("memory", [512])), MEMORY_DTYPE)
    memory["action"], memory["device"] = MemoryAction.ALLOCATE, rank
    memory["size_bytes"] = changes.get("memory", [512])
    memory["address"] = 4096 * first
    view = json.dumps({"args": {"start": rank}, "out": []})
    tables = Tables(
        operators=("aten::slice.Tensor", "aten::add_.Scalar", "c10d::allreduce_"),
        metadata=(view, changes.get("metadata", KERNEL)),
        modules=changes.get("modules", ("Net",)),
        source_lines=("train.py:3", "train.py:9"),
        iteration_ends=changes.get("iteration_ends", (len(rows) - 1,)),
        communicators=tuple(Communicator(name, ranks) for name, ranks in groups),
    )
    writer = RankWriter(run_dir, rank)
    writer.append(
        Operations(rows, tensors, communications),
        tables.operators,
        tables.metadata,
        tables.modules,
        tables.source_lines,
    )
    writer.append_memory(memory)
    writer.finish(tables)


def all_reduce(**columns: Any) -> dict[str, Any]:
    """One all-reduce of 64 bytes."""
    return {"kind": Kind.COLLECTIVE, "group": 0, "input_bytes": 64, "output_bytes": 64, **columns}


def manifest(classes: tuple[RankClass, ...], world_size: int) -> Manifest:
    """A manifest with rank classes."""
    return Manifest(("train.py",), "H100-SXM5-80GB", "2.13", world_size, classes, Ended.STOPPED)


def said(trace: Any) -> list[Any]:
    """What a trace says to other ranks: communicator and row of each communication, in order."""
    operations = trace.operations
    index = operations.rows["communication"]
    details = operations.communications[index[index >= 0]]
    return [
        (trace.tables.communicators[row["communicator"]], *(row[name].item() for name in row.dtype.names[1:]))
        for row in details
    ]


def test_equal_ranks_are_stored_once(tmp_path: Path) -> None:
    for rank in range(4):
        # The seed, storage ids, the view's offset, the device and the stream are each rank's own.
        value = json.loads(KERNEL)
        value["args"]["other"] = float(rank)
        write_rank(
            tmp_path, rank, [all_reduce()], [("0", (0, 1, 2, 3))], first=10 * rank, metadata=json.dumps(value)
        )
    kept = {name: (tmp_path / name).read_bytes() for name in ("rank-0.et", "rank-0.tables.json")}
    classes = merge_equal_ranks(tmp_path, 4)
    assert classes == (RankClass(0, (0, 1, 2, 3)),)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "assumptions-0.json",
        "memory-0.npy",
        "rank-0.et",
        "rank-0.tables.json",
    ]
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept
    write_manifest(tmp_path, manifest(classes, 4))
    assert json.loads((tmp_path / "manifest.json").read_text())["schema_version"] == 1
    traces = read_ranks(tmp_path, read_manifest(tmp_path))
    assert [trace.rank for trace in traces] == [0, 1, 2, 3]
    assert all(trace.operations.rows is traces[0].operations.rows for trace in traces)


@pytest.mark.parametrize(
    ("transfers", "changes"),
    [
        ([all_reduce(input_bytes=128)], {}),
        ([all_reduce(collective=CollectiveType.BROADCAST)], {}),
        ([all_reduce(), all_reduce(sequence_in_communicator=1)], {"iteration_ends": (2,)}),
        ([all_reduce()], {"metadata": KERNEL.replace("[4]", "[8]")}),
        ([all_reduce()], {"metadata": KERNEL.replace("float32", "bfloat16")}),
        ([all_reduce()], {"modules": ("Other",)}),
        ([all_reduce()], {"iteration_ends": (0, 2)}),
        ([all_reduce()], {"memory": [1024]}),
        ([all_reduce()], {"memory": [512, 512]}),
    ],
)
def test_what_changes_the_cost_splits_ranks(
    tmp_path: Path, transfers: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    for rank in range(3):
        write_rank(tmp_path, rank, [all_reduce()], [("0", (0, 1, 2))])
    write_rank(tmp_path, 1, transfers, [("0", (0, 1, 2))], **changes)
    assert merge_equal_ranks(tmp_path, 3) == (RankClass(0, (0, 2)), RankClass(1, (1,)))
    assert (tmp_path / "rank-1.et").exists()
    assert not (tmp_path / "rank-2.et").exists()


def ring_and_groups(rank: int, world: int, width: int) -> tuple[list[dict[str, Any]], list[Any]]:
    """A rank that passes to the next of the world, and reduces and broadcasts in a group of its own."""
    first = rank // width * width
    group = tuple(range(first, first + width))
    send = {"kind": Kind.SEND, "group": 0, "input_bytes": 8, "peer": (rank + 1) % world, "tag": 3}
    receive = {"kind": Kind.RECV, "group": 0, "output_bytes": 8, "peer": (rank - 1) % world, "tag": 3}
    rooted = all_reduce(group=1, collective=CollectiveType.BROADCAST, peer=group[-1])
    groups = [("world", tuple(range(world))), (f"tensor parallel {first}", group)]
    return [send, receive, all_reduce(group=1, sequence_in_communicator=0), rooted], groups


def test_peers_and_groups_of_each_rank_come_back(tmp_path: Path) -> None:
    originals = []
    for rank in range(6):
        write_rank(tmp_path, rank, *ring_and_groups(rank, 6, 2))
        originals.append(said(read_rank(tmp_path, rank)))
    classes = merge_equal_ranks(tmp_path, 6)
    assert [group.ranks for group in classes] == [(0, 1, 2, 3, 4, 5)]
    assert sorted(classes[0].communicators) == [2, 3, 4, 5]  # rank 1 is in the same groups as rank 0
    write_manifest(tmp_path, manifest(classes, 6))
    assert json.loads((tmp_path / "manifest.json").read_text())["schema_version"] == 2
    read = read_manifest(tmp_path)
    assert read.rank_classes == classes
    assert [said(trace) for trace in read_ranks(tmp_path, read)] == originals


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_jobs_ranks_come_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Random groups, distances, roots and sizes: whatever is merged is rebuilt as it was."""
    run_dir = tmp_path_factory.mktemp("run")
    world = data.draw(st.integers(2, 5))
    transfer = st.fixed_dictionaries(
        {
            "kind": st.sampled_from([Kind.SEND, Kind.RECV, Kind.COLLECTIVE]),
            "group": st.integers(0, 1),
            "distance": st.integers(0, world - 1),
            "input_bytes": st.sampled_from([8, 16]),
        }
    )
    variants = data.draw(st.lists(st.lists(transfer, max_size=3), min_size=2, max_size=2))
    originals = []
    for rank in range(world):
        orders = [tuple(data.draw(st.permutations(range(world)))) for _ in range(2)]
        groups = [("a", orders[0]), ("b", orders[1])]
        transfers = []
        for each in variants[data.draw(st.sampled_from([0, 0, 1]))]:
            order = orders[each["group"]]
            from_here = 0 if each["kind"] == Kind.COLLECTIVE else order.index(rank)
            peer = order[(from_here + each["distance"]) % world]
            transfers.append(
                {**{key: value for key, value in each.items() if key != "distance"}, "peer": peer}
            )
        write_rank(run_dir, rank, transfers, groups)
        originals.append(said(read_rank(run_dir, rank)))
    classes = merge_equal_ranks(run_dir, world)
    assert len(classes) <= 2  # peers that are as far away do not split ranks
    assert [said(trace) for trace in read_ranks(run_dir, manifest(classes, world))] == originals


def test_one_rank_is_not_even_read(tmp_path: Path) -> None:
    assert merge_equal_ranks(tmp_path, 1) == (RankClass(0, (0,)),)


def test_a_rank_without_a_trace_stays_apart(tmp_path: Path) -> None:
    for rank in (0, 2):
        write_rank(tmp_path, rank, [all_reduce()], [("0", (0, 1, 2))])
    assert merge_equal_ranks(tmp_path, 3) == (RankClass(0, (0, 2)), RankClass(1, (1,)))


def test_a_damaged_rank_stops_the_merge_before_anything_is_deleted(tmp_path: Path) -> None:
    for rank in range(3):
        write_rank(tmp_path, rank, [all_reduce()], [("0", (0, 1, 2))])
    trace = tmp_path / "rank-2.et"
    trace.write_bytes(trace.read_bytes()[:-5])
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(MayaError, match=r"rank-2\.et at byte .* truncated"):
        merge_equal_ranks(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def damage_rule(rule: Callable[[dict[str, Any]], None], run_dir: Path) -> None:
    """Change the rule of rank 2 in a manifest."""
    path = run_dir / "manifest.json"
    value = json.loads(path.read_text())
    rule(value["rank_classes"][0]["communicators"])
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (lambda rules: rules.update({"9": rules["2"]}), "'9' is not a rank of the class"),
        (lambda rules: rules["2"][1].update(ranks=[2, 2]), "'ranks' must be distinct"),
        (lambda rules: rules["2"][1].update(ranks=[[2, 99]]), "neither a rank nor a range"),
        (lambda rules: rules["2"][1].pop("name"), "key 'name' is missing in communicator 1 of rank 2"),
        (lambda rules: rules["2"][1].update(ranks=[0, 1]), "rank 2 cannot be rebuilt from rank 0"),
        (lambda rules: rules["2"].pop(), "communicator 1 of its class's rule does not fit"),
    ],
)
def test_damaged_rules_are_refused(
    tmp_path: Path, rule: Callable[[dict[str, Any]], None], problem: str
) -> None:
    for rank in range(4):
        write_rank(tmp_path, rank, *ring_and_groups(rank, 4, 2))
    write_manifest(tmp_path, manifest(merge_equal_ranks(tmp_path, 4), 4))
    damage_rule(rule, tmp_path)
    with pytest.raises(MayaError, match=problem):
        read_ranks(tmp_path, read_manifest(tmp_path))
