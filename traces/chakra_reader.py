"""Reads any Chakra 0.0.4 file into columns, whoever wrote it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maya.traces.chakra_schema import messages
from maya.traces.file_header import Header, check_header, refuse_unknown_fields
from maya.traces.frames import TraceError, find_messages, open_trace

_LOOK_FOR_UNKNOWN_FIELDS = 64
"""Nodes in which fields of other schemas are looked for; a file is of one schema throughout."""


@dataclass(frozen=True)
class Dependencies:
    """Edges as compressed rows: node i follows `ids[offsets[i]:offsets[i + 1]]`.

    Attributes:
        offsets: int64[n + 1].
        ids: uint64[edges], node ids as written.
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.uint64]

    def of(self, node: int) -> NDArray[np.uint64]:
        """Ids that the node at a position follows."""
        return self.ids[self.offsets[node] : self.offsets[node + 1]]


@dataclass(frozen=True)
class AttributeColumn:
    """One attribute, of the nodes that have it.

    Attributes:
        nodes: int64[k], positions of those nodes, ascending.
        kinds: for each the field that carries it: "int64_val", "bool_list", "" without a value.
            They matter: feeders read an attribute only in the type they expect.
        values: for each the value: int, float, bool, str, bytes, a list of those, or None.
    """

    nodes: NDArray[np.int64]
    kinds: tuple[str, ...]
    values: tuple[Any, ...]

    def dense(self, count: int, kind: str, missing: int) -> NDArray[np.int64]:
        """int64[count]: the value of each node where it is of `kind` and fits, else `missing`."""
        out = np.full(count, missing, dtype=np.int64)
        fitting = [
            (node, value)
            for node, found, value in zip(self.nodes.tolist(), self.kinds, self.values, strict=True)
            if found == kind and -(1 << 63) <= value < 1 << 63
        ]
        if fitting:
            nodes, values = zip(*fitting, strict=True)
            out[list(nodes)] = values
        return out


@dataclass(frozen=True)
class ChakraTrace:
    """A Chakra file as columns of its n nodes, in file order.

    Attributes:
        path: the file.
        header: schema version and the global metadata's attributes.
        ids: uint64[n].
        types: int32[n], of NodeType if known.
        name_ids: int32[n], indices into `names`.
        names: distinct node names.
        start_micros: uint64[n].
        duration_micros: uint64[n].
        control: control dependencies.
        data: data dependencies.
        inputs: (values, shapes, types) texts of the inputs of each node that has them, by position.
        outputs: the same of the outputs.
        attributes: name → column.
        byte_offsets: int64[n], of each node's message in the (unpacked) file.
    """

    path: Path
    header: Header
    ids: NDArray[np.uint64]
    types: NDArray[np.int32]
    name_ids: NDArray[np.int32]
    names: tuple[str, ...]
    start_micros: NDArray[np.uint64]
    duration_micros: NDArray[np.uint64]
    control: Dependencies
    data: Dependencies
    inputs: Mapping[int, tuple[str, str, str]]
    outputs: Mapping[int, tuple[str, str, str]]
    attributes: Mapping[str, AttributeColumn]
    byte_offsets: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many nodes."""
        return len(self.ids)


class _DependencyRows:
    def __init__(self) -> None:
        self._counts: list[int] = []
        self._ids: list[int] = []

    def add(self, ids: Any) -> None:
        self._counts.append(len(ids))
        if ids:
            self._ids.extend(ids)

    def done(self) -> Dependencies:
        offsets = np.zeros(len(self._counts) + 1, dtype=np.int64)
        np.cumsum(self._counts, out=offsets[1:])
        return Dependencies(offsets, np.array(self._ids, dtype=np.uint64))


def read_et(path: str | os.PathLike[str]) -> ChakraTrace:
    """Read a Chakra 0.0.4 file, gzipped or not. Checks its form only; see `validate_et`.

    Raises:
        TraceError: missing, truncated, corrupt or of another schema version.
    """
    from google.protobuf.message import DecodeError

    path = Path(path)
    buffer = open_trace(path)
    header = check_header(buffer, path)
    starts, ends = find_messages(buffer, path)
    starts, ends = starts[1:], ends[1:]
    parse = messages().Node.FromString
    count = len(starts)
    ids: list[int] = []
    types: list[int] = []
    name_ids: list[int] = []
    names: dict[str, int] = {}
    start_micros: list[int] = []
    duration_micros: list[int] = []
    control, data = _DependencyRows(), _DependencyRows()
    texts: tuple[dict[int, tuple[str, str, str]], ...] = ({}, {})
    attributes: dict[str, tuple[list[int], list[str], list[Any]]] = {}
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        try:
            node = parse(buffer[start:end])
        except DecodeError as error:
            last = f"after node {ids[-1]}" if ids else "the first node"
            raise TraceError(
                path, f"corrupt: message {index + 1} ({last}) is not a node: {error}", offset=start
            ) from error
        if index < _LOOK_FOR_UNKNOWN_FIELDS:
            refuse_unknown_fields(node, path, start)
        ids.append(node.id)
        types.append(node.type)
        name_ids.append(names.setdefault(node.name, len(names)))
        start_micros.append(node.start_time_micros)
        duration_micros.append(node.duration_micros)
        control.add(node.ctrl_deps)
        data.add(node.data_deps)
        for text, field in ((texts[0], "inputs"), (texts[1], "outputs")):
            if node.HasField(field):
                info = getattr(node, field)
                text[index] = (info.values, info.shapes, info.types)
        for attribute in node.attr:
            column = attributes.get(attribute.name)
            if column is None:
                column = attributes[attribute.name] = ([], [], [])
            kind = attribute.WhichOneof("value")
            column[0].append(index)
            column[1].append(kind or "")
            if kind is None:
                column[2].append(None)
            else:
                value = getattr(attribute, kind)
                column[2].append(list(value.values) if kind.endswith("_list") else value)
    assert len(ids) == count
    return ChakraTrace(
        path=path,
        header=header,
        ids=np.array(ids, dtype=np.uint64),
        types=np.array(types, dtype=np.int32),
        name_ids=np.array(name_ids, dtype=np.int32),
        names=tuple(names),
        start_micros=np.array(start_micros, dtype=np.uint64),
        duration_micros=np.array(duration_micros, dtype=np.uint64),
        control=control.done(),
        data=data.done(),
        inputs=texts[0],
        outputs=texts[1],
        attributes={
            name: AttributeColumn(np.array(nodes, dtype=np.int64), tuple(kinds), tuple(values))
            for name, (nodes, kinds, values) in attributes.items()
        },
        byte_offsets=starts,
    )
