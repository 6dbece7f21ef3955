"""Is a Chakra file sound? Ids unique, dependencies there and without a cycle, enums known.

`find_problems` lists what is wrong, `validate_et` raises the first. Each problem names the file,
the byte offset of the node's message and the node's id.

Control dependencies are held to this only in files that Maya wrote. Chakra's converter puts the
profiler's call tree there: upstream's own sample (tests/data/feeder_tests_trace.tar.gz at commit
21585d8) names parents that were left out, and operators that "follow" the kernels they launched.
Feeders look at data dependencies alone. In such files it is a warning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from maya.traces import names
from maya.traces.chakra_reader import ChakraTrace, Dependencies, read_et
from maya.traces.chakra_schema import CollectiveType, NodeType
from maya.traces.frames import TraceError
from maya.traces.rank_reader import read_operations

_REQUIRED = {
    NodeType.COMM_COLL: ((names.COMM_TYPE, "int64_val"), (names.COMM_SIZE, "int64_val")),
    NodeType.COMM_SEND: ((names.COMM_SIZE, "int64_val"), (names.COMM_DST, "int32_val")),
    NodeType.COMM_RECV: ((names.COMM_SIZE, "int64_val"), (names.COMM_SRC, "int32_val")),
}
"""What feeder v1 needs of a communication, and the only type in which it sees it."""

_MOST_OF_CYCLE = 8
"""Ids of a cycle that a message spells out."""


def validate_et(path: str | os.PathLike[str]) -> ChakraTrace:
    """Read a Chakra file and check it; returns its columns.

    Raises:
        TraceError: truncated, corrupt, another schema version, or the first of `find_problems`.
    """
    trace = read_et(path)
    for problem in find_problems(trace):
        raise problem
    return trace


def find_problems(trace: ChakraTrace, limit: int = 100) -> list[TraceError]:
    """What is wrong with a trace that could be read, at most `limit` problems.

    Collectives without type or size are not among them: files from PyTorch profiles have host
    operators marked as collectives. `find_warnings` lists those.
    """
    return list(islice(_problems(trace), limit))


def _problems(trace: ChakraTrace) -> Iterator[TraceError]:
    yield from _duplicate_ids(trace)
    positions = _Positions(trace.ids)
    for what, dependencies in _binding(trace).items():
        yield from _dangling(trace, what, dependencies, positions)
    yield from _cycle(trace, positions, _binding(trace))
    for node in np.flatnonzero((trace.types < 0) | (trace.types > max(NodeType))).tolist():
        yield _at(trace, node, f"unknown node type {trace.types[node]}", "written by another schema version")
    comm_type = trace.attributes.get(names.COMM_TYPE)
    if comm_type is not None:
        for node, value in zip(comm_type.nodes.tolist(), comm_type.values, strict=True):
            collective = trace.types[node] == NodeType.COMM_COLL
            if collective and (not isinstance(value, int) or not 0 <= value <= max(CollectiveType)):
                yield _at(trace, node, f"unknown {names.COMM_TYPE} {value!r}")
    if trace.header.of_maya:
        yield from _of_maya(trace)


def find_warnings(trace: ChakraTrace, limit: int = 100) -> list[str]:
    """What other tools would misread: communications that lack what a feeder needs, control
    dependencies that cannot be followed."""
    found: list[str] = []
    if not trace.header.of_maya:
        positions = _Positions(trace.ids)
        unknown = positions.of(trace.control.ids) < 0
        if unknown.any():
            found.append(f"{int(unknown.sum())} control dependencies on nodes that are not in the file")
        for cycle in _cycle(trace, positions, {"control": trace.control, "data": trace.data}):
            found.append(f"counting control dependencies, {cycle.problem}")
    for node_type, required in _REQUIRED.items():
        nodes = np.flatnonzero(trace.types == node_type)
        for name, kind in required:
            column = trace.attributes.get(name)
            right = (
                column.nodes[np.array([found == kind for found in column.kinds], dtype=np.bool_)]
                if column
                else np.zeros(0, dtype=np.int64)
            )
            missing = np.setdiff1d(nodes, right)
            if len(missing):
                first = int(missing[0])
                found.append(
                    f"{len(missing)} of {len(nodes)} {node_type.name}_NODEs have no {name} as {kind} "
                    f"(first: node {trace.ids[first]} at byte {trace.byte_offsets[first]})"
                )
    return found[:limit]


def _binding(trace: ChakraTrace) -> dict[str, Dependencies]:
    """The dependencies that the file's readers follow."""
    binding = {"data": trace.data}
    if trace.header.of_maya:
        binding["control"] = trace.control
    return binding


class _Positions:
    """Where in the file the node of an id is."""

    def __init__(self, ids: NDArray[np.uint64]) -> None:
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]

    def of(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Positions of ids; -1 for one that no node has."""
        if not len(self._sorted):
            return np.full(len(ids), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
        return np.where(self._sorted[at] == ids, self._order[at], -1).astype(np.int64)


def _duplicate_ids(trace: ChakraTrace) -> Iterator[TraceError]:
    order = np.argsort(trace.ids, kind="stable")
    in_order = trace.ids[order]
    for index in np.flatnonzero(in_order[1:] == in_order[:-1]).tolist():
        first, second = int(order[index]), int(order[index + 1])
        yield _at(
            trace,
            second,
            f"duplicate id: the node at byte {trace.byte_offsets[first]} has it too",
            "files of several ranks joined, perhaps",
        )


def _dangling(
    trace: ChakraTrace, what: str, dependencies: Dependencies, positions: _Positions
) -> Iterator[TraceError]:
    missing = np.flatnonzero(positions.of(dependencies.ids) < 0)
    owners = np.searchsorted(dependencies.offsets, missing, side="right") - 1
    for edge, node in zip(missing.tolist(), owners.tolist(), strict=True):
        yield _at(
            trace,
            node,
            f"dangling {what} dependency on node {dependencies.ids[edge]}, which is not in the file",
            "the file is cut short, or nodes were taken out of it",
        )


def _cycle(trace: ChakraTrace, positions: _Positions, edges: dict[str, Dependencies]) -> Iterator[TraceError]:
    sources: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    for dependencies in edges.values():
        source = positions.of(dependencies.ids)
        target = np.repeat(np.arange(trace.count), np.diff(dependencies.offsets))
        sources.append(source[source >= 0])
        targets.append(target[source >= 0])
    source, target = np.concatenate(sources), np.concatenate(targets)
    if bool((source < target).all()):
        return  # every dependency on an earlier node: the usual case
    cycle = _find_cycle(trace.count, source, target)
    if cycle:
        shown = " after ".join(str(trace.ids[node]) for node in cycle[:_MOST_OF_CYCLE])
        more = f" after ... ({len(cycle)} nodes)" if len(cycle) > _MOST_OF_CYCLE else ""
        closing = "" if more else f" after {trace.ids[cycle[0]]}"
        yield _at(trace, cycle[0], f"cyclic dependencies: {shown}{more}{closing}")


def _find_cycle(count: int, source: NDArray[np.int64], target: NDArray[np.int64]) -> list[int]:
    """Positions of one cycle, each following the next; empty if there is none (Kahn 1962)."""
    waiting = np.bincount(target, minlength=count)
    by_source = np.argsort(source, kind="stable")
    followers = target[by_source].tolist()
    bounds = np.searchsorted(source[by_source], np.arange(count + 1)).tolist()
    pending: list[int] = waiting.tolist()
    ready = [node for node in range(count) if not pending[node]]
    while ready:
        node = ready.pop()
        for follower in followers[bounds[node] : bounds[node + 1]]:
            pending[follower] -= 1
            if not pending[follower]:
                ready.append(follower)
    stuck = np.array(pending) > 0
    if not stuck.any():
        return []
    # Each node that is left waits for one that is left: walk that way until one comes again.
    inside = stuck[source] & stuck[target]
    waits_for = dict(zip(target[inside].tolist(), source[inside].tolist(), strict=True))
    node = next(iter(waits_for))
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        node = waits_for[node]
    return list(seen)[seen[node] :]


def _of_maya(trace: ChakraTrace) -> Iterator[TraceError]:
    """Maya's own columns, and that they say what the standard fields say."""
    try:
        operations = read_operations(trace.path)
    except TraceError as error:
        yield error
        return
    for node in np.flatnonzero(operations.rows["id"].astype(np.uint64) != trace.ids).tolist():
        yield _at(trace, node, f"{names.ROW} is of operation {operations.rows['id'][node]}")


def _at(trace: ChakraTrace, node: int, problem: str, hint: str = "") -> TraceError:
    return TraceError(
        trace.path,
        problem,
        offset=int(trace.byte_offsets[node]),
        node=int(trace.ids[node]),
        hint=hint,
    )
