"""A recorded GPT run: its execution trace, and the prediction computed again from the files alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from maya.traces import TENSOR_DTYPE, Kind, Phase, Role, read_memory, read_rank

sys.path.insert(0, str(Path(__file__).resolve().parent / "support"))
import plain_chakra

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_gpt.py"
SMALL = (
    "--layers 3 --heads 4 --width 256 --block-size 128 --batch-size 4 --accumulation 2 --vocab-size 4096"
    " --workers 1"
)
DERIVED = ("prediction.json", "durations-0.npz", "timeline.perfetto-trace")
ON_HOST = {"HOST", "MARKER", "EVENT_SYNC", "STREAM_SYNC", "DEVICE_SYNC"}


def maya(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "maya.cli", *words]
    return subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=400, check=True
    ).stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The example, recorded twice."""
    folder = tmp_path_factory.mktemp("gpt")
    for name in ("first.maya", "second.maya"):
        maya(folder, "run", "-q", "-o", name, str(EXAMPLE), *SMALL.split())
    return folder / "first.maya", folder / "second.maya"


@pytest.fixture(scope="module")
def nodes(runs: tuple[Path, Path]) -> list[plain_chakra.Node]:
    """The first run's trace, read with the plain schema."""
    return plain_chakra.read(runs[0] / "rank-0.et")


def test_the_trace_parses_with_the_plain_schema(
    runs: tuple[Path, Path], nodes: list[plain_chakra.Node]
) -> None:
    assert [node.id for node in nodes] == list(range(len(nodes)))
    assert {node.type for node in nodes} == {plain_chakra.COMP_NODE}
    names = Counter(node.name for node in nodes)
    steps = names["aten::_fused_adamw_"]
    assert steps >= 2
    # Flash or, from a newer cuDNN on, cuDNN's; three layers, two micro-batches, two parameter groups.
    attention = [name for name in names.elements() if name.startswith("aten::_scaled_dot_product")]
    assert sum("backward" not in name for name in attention) == 3 * 2 * steps / 2
    trace = read_rank(runs[0], 0)
    assert [trace.tables.operators[row] for row in trace.operations.rows["operator"]] == [
        node.name for node in nodes
    ]


def test_dependencies_cannot_form_a_cycle(nodes: list[plain_chakra.Node]) -> None:
    for node in nodes:
        assert all(0 <= other < node.id for other in node.control + node.data), node.id


def test_device_work_follows_its_streams_predecessor(nodes: list[plain_chakra.Node]) -> None:
    last: dict[tuple[int, int], int] = {}
    for node in nodes:
        if node.text("maya.kind") in ON_HOST:
            continue
        stream = node.attributes.get("maya.device", 0), node.attributes["maya.stream"]
        if stream in last:
            assert last[stream] in node.control, node.id
        last[stream] = node.id
    assert last


def test_kernels_follow_the_producers_of_their_inputs(nodes: list[plain_chakra.Node]) -> None:
    """The producer itself, or a later operation of the producer's stream."""
    writes: dict[int, list[tuple[int, int, int]]] = {}
    checked = 0
    stream_of: dict[int, tuple[int, int]] = {}
    for node in nodes:
        if node.text("maya.kind") in ON_HOST:
            continue
        stream_of[node.id] = node.attributes.get("maya.device", 0), node.attributes["maya.stream"]
        tensors = np.frombuffer(node.attributes.get("maya.tensors", b""), TENSOR_DTYPE)
        followed = [other for other in node.control + node.data if other in stream_of]
        for tensor in tensors:
            begin = int(tensor["offset_bytes"])
            end = begin + int(tensor["extent_bytes"])
            if tensor["storage"] < 0 or begin == end:
                continue
            past = writes.setdefault(int(tensor["storage"]), [])
            if tensor["role"] != Role.WRITE:
                for producer in last_writers(past, begin, end):
                    checked += 1
                    assert any(
                        other >= producer and stream_of[other] == stream_of[producer] for other in followed
                    ), f"{node.id} {node.name} does not follow {producer}"
        for tensor in tensors:
            if tensor["role"] != Role.READ and tensor["storage"] >= 0:
                begin = int(tensor["offset_bytes"])
                written = begin, begin + int(tensor["extent_bytes"]), node.id
                writes.setdefault(int(tensor["storage"]), []).append(written)
    assert checked > 3000


def last_writers(past: list[tuple[int, int, int]], begin: int, end: int) -> set[int]:
    """Who wrote bytes begin to end last, byte for byte."""
    found, missing = set(), [(begin, end)]
    for low, high, writer in reversed(past):
        left = []
        for a, b in missing:
            if high <= a or low >= b:
                left.append((a, b))
                continue
            found.add(writer)
            left += [(x, y) for x, y in ((a, low), (high, b)) if x < y]
        missing = left
        if not missing:
            break
    return found


def test_backward_time_belongs_to_modules(runs: tuple[Path, Path], nodes: list[plain_chakra.Node]) -> None:
    """At least 99% of the backward pass's kernel time is attributed to a module."""
    archive = np.load(runs[0] / "durations-0.npz")
    sums = np.concatenate(([0], np.cumsum(archive["work_ns"])))
    time_ns = sums[archive["operation_offsets"][1:]] - sums[archive["operation_offsets"][:-1]]
    total = attributed = 0
    left_out: Counter[str] = Counter()
    modules = set()
    for node, spent in zip(nodes, time_ns.tolist(), strict=True):
        if node.text("maya.phase") != Phase.BACKWARD.name.lower():
            continue
        total += spent
        if node.text("maya.module"):
            attributed += spent
            modules.add(node.text("maya.module"))
        else:
            left_out[node.name] += spent
    assert total > 0
    print(f"{attributed / total:.4%} of {total:,} ns; without a module: {left_out}")
    assert attributed >= 0.99 * total, left_out
    for block in range(3):
        for part in ("ln_1", "attn", "attn.qkv", "attn.proj", "ln_2", "mlp.fc", "mlp", "mlp.proj"):
            assert f"GPT.blocks.{block}.{part}" in modules
    assert {"GPT.wte", "GPT.wpe", "GPT.ln_f", "GPT.lm_head", "GPT"} <= modules


def test_the_same_script_gives_the_same_files(runs: tuple[Path, Path]) -> None:
    first, second = runs
    for name in ("rank-0.et", "rank-0.tables.json", "assumptions-0.json", *DERIVED):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    # The allocator's log differs in the order of what is freed at once: autocast drops its cached casts
    # in the order of a hash table of addresses. Sizes and times are the same.
    one, other = (read_memory(path / "memory-0.npy") for path in runs)
    assert len(one) == len(other)
    for column in ("operation", "action", "stream", "module", "phase", "device"):
        assert (one[column] == other[column]).all(), column
    allocated = one["action"] == 0
    for column in ("allocation", "size_bytes", "requested_bytes", "address"):
        assert (one[column][allocated] == other[column][allocated]).all(), column


@pytest.mark.parametrize("deleted", [DERIVED, ("durations-0.npz",), ("timeline.perfetto-trace",)])
def test_what_is_derived_can_be_computed_again(
    runs: tuple[Path, Path], tmp_path: Path, deleted: tuple[str, ...]
) -> None:
    """To the nanosecond: the files come back as they were, from the trace files alone."""
    copy = tmp_path / "again.maya"
    shutil.copytree(runs[0], copy)
    for name in deleted:
        (copy / name).unlink()
    shown = maya(tmp_path, "report", "again.maya", "--format", "json")
    assert shown == (runs[0] / "prediction.json").read_text()
    for name in deleted:
        assert (copy / name).read_bytes() == (runs[0] / name).read_bytes(), name


def test_the_rows_of_the_trace_are_whole(runs: tuple[Path, Path]) -> None:
    trace = read_rank(runs[0], 0)
    rows = trace.operations.rows
    assert trace.operations.tensor_offsets()[-1] == len(trace.operations.tensors)
    kernels = rows["kind"] == Kind.KERNEL
    assert (rows["tensor_count"][kernels] > 0).all()
    backward = rows[(rows["phase"] == Phase.BACKWARD) & kernels]
    assert len(np.unique(backward["host_thread"])) == 1
    assert backward["host_thread"][0] != rows["host_thread"][0]
