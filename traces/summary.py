"""The figures that `maya trace info` shows of a file or a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from maya.traces import names
from maya.traces.chakra_reader import ChakraTrace
from maya.traces.chakra_schema import CollectiveType, NodeType
from maya.traces.iterations import iteration_of
from maya.traces.operations import Kind, MemoryAction, Phase
from maya.traces.rank_reader import RankTrace

_MOST_NAMES = 8


@dataclass(frozen=True)
class ChakraSummary:
    """Figures of any Chakra file.

    Attributes:
        schema: schema version, "" where the writer left it out.
        by_maya: whether Maya recorded it.
        nodes: how many.
        node_types: type name → nodes.
        host_nodes: nodes with `is_cpu_op`.
        control_dependencies: edges.
        data_dependencies: edges.
        duration_us: sum of the nodes' durations.
        num_ops: sum of `num_ops`.
        collectives: collective's name → (how many, sum of comm_size as written).
        top_names: most frequent node names, (name, nodes).
    """

    schema: str
    by_maya: bool
    nodes: int
    node_types: dict[str, int]
    host_nodes: int
    control_dependencies: int
    data_dependencies: int
    duration_us: int
    num_ops: int
    collectives: dict[str, tuple[int, int]]
    top_names: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class RankSummary:
    """Figures of what Maya recorded of one rank.

    Attributes:
        rank: global rank.
        operations: how many.
        kinds: kind's name → operations.
        phases: phase's name → operations.
        streams: (device, stream) pairs that have device work.
        iterations: operations of each iteration; one more entry if something follows the last.
        operators: distinct operators.
        signatures: distinct (operator, metadata) pairs.
        modules: distinct modules.
        communications: kind of communication → (how many, bytes of this rank: the larger of in and out).
        allocations: blocks handed out by the caching allocator.
        assumptions: unknown values that the script read.
    """

    rank: int
    operations: int
    kinds: dict[str, int]
    phases: dict[str, int]
    streams: int
    iterations: tuple[int, ...]
    operators: int
    signatures: int
    modules: int
    communications: dict[str, tuple[int, int]]
    allocations: int
    assumptions: int


def summarise_et(trace: ChakraTrace) -> ChakraSummary:
    """Figures of a Chakra file."""
    types = {member.value: member.name for member in NodeType}
    counted = Counter(trace.types.tolist())
    frequency = np.bincount(trace.name_ids, minlength=len(trace.names))
    top = np.argsort(-frequency, kind="stable")[:_MOST_NAMES].tolist()
    return ChakraSummary(
        schema=trace.header.version,
        by_maya=trace.header.of_maya,
        nodes=trace.count,
        node_types={types.get(number, f"type {number}"): counted[number] for number in sorted(counted)},
        host_nodes=sum(1 for value in _values(trace, names.IS_CPU_OP).values() if value),
        control_dependencies=len(trace.control.ids),
        data_dependencies=len(trace.data.ids),
        duration_us=sum(trace.duration_micros.tolist()),
        num_ops=sum(value for value in _values(trace, names.NUM_OPS).values() if isinstance(value, int)),
        collectives=_collectives(trace),
        top_names=tuple((trace.names[index], int(frequency[index])) for index in top),
    )


def summarise_rank(trace: RankTrace) -> RankSummary:
    """Figures of what Maya recorded of one rank."""
    rows = trace.operations.rows
    on_device = ~np.isin(rows["kind"], [Kind.HOST, Kind.MARKER, Kind.DEVICE_SYNC])
    per_iteration = np.bincount(
        iteration_of(trace.operations, trace.tables), minlength=len(trace.tables.iteration_ends)
    )
    return RankSummary(
        rank=trace.rank,
        operations=len(rows),
        kinds=_by_name(rows["kind"], Kind),
        phases=_by_name(rows["phase"], Phase),
        streams=len(np.unique(rows[on_device][["device", "stream"]])),
        iterations=tuple(per_iteration.tolist()),
        operators=len(np.unique(rows["operator"])),
        signatures=len(np.unique(rows[["operator", "metadata"]])),
        modules=len(np.unique(rows["module"][rows["module"] >= 0])),
        communications=_communications(trace),
        allocations=int((trace.memory["action"] == MemoryAction.ALLOCATE).sum()),
        assumptions=len(trace.assumptions),
    )


def _communications(trace: RankTrace) -> dict[str, tuple[int, int]]:
    rows = trace.operations.rows
    chosen = rows[np.isin(rows["kind"], [Kind.COLLECTIVE, Kind.SEND, Kind.RECV])]
    details = trace.operations.communications[chosen["communication"]]
    names = {member.value: member.name.lower() for member in CollectiveType}
    found: dict[str, tuple[int, int]] = {}
    for kind, collective, size in zip(
        chosen["kind"].tolist(),
        details["collective"].tolist(),
        np.maximum(details["input_bytes"], details["output_bytes"]).tolist(),
        strict=True,
    ):
        by_number = names.get(collective, f"collective {collective}")
        name = by_number if kind == Kind.COLLECTIVE else Kind(kind).name.lower()
        count, total = found.get(name, (0, 0))
        found[name] = (count + 1, total + size)
    return found


def _by_name(column: Any, members: type[Kind] | type[Phase]) -> dict[str, int]:
    counted = Counter(column.tolist())
    return {member.name.lower(): counted[member.value] for member in members if counted[member.value]}


def _values(trace: ChakraTrace, name: str) -> dict[int, Any]:
    column = trace.attributes.get(name)
    return dict(zip(column.nodes.tolist(), column.values, strict=True)) if column else {}


def _collectives(trace: ChakraTrace) -> dict[str, tuple[int, int]]:
    kinds = {member.value: member.name for member in CollectiveType}
    sizes = _values(trace, names.COMM_SIZE)
    found: dict[str, tuple[int, int]] = {}
    for node, kind in _values(trace, names.COMM_TYPE).items():
        name = kinds.get(kind, f"type {kind}")
        count, total = found.get(name, (0, 0))
        size = sizes.get(node)
        found[name] = (count + 1, total + (size if isinstance(size, int) else 0))
    return found
