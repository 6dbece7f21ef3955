"""Turns operations into the bytes of Chakra nodes, cheaply: the user waits for it.

Most of a node depends only on (operator, metadata, module, stream, ...), a few hundred distinct
combinations repeated every iteration. Those bytes are made once each; a node is its columns, its
id, its dependencies and a ready-made tail joined together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from maya.traces import names
from maya.traces.chakra_schema import SCHEMA_VERSION, NodeType, value_field
from maya.traces.dependencies import HOST_KINDS, DependencyTracker
from maya.traces.file_header import layout_of
from maya.traces.metadata_shapes import MetadataShapes
from maya.traces.operations import (
    COMMUNICATION_DTYPE,
    OPERATION_DTYPE,
    TENSOR_DTYPE,
    Kind,
    Phase,
)
from maya.traces.tables import Tables
from maya.traces.wire import (
    LENGTH_DELIMITED,
    SMALL_VARINTS,
    VARINT,
    attribute,
    delimited,
    key,
    number,
    text,
    varint,
)

_KIND_NAMES = tuple(kind.name for kind in Kind)
_PHASE_NAMES = tuple(phase.name.lower() for phase in Phase)
_NODE_TYPES: dict[int, NodeType] = {
    Kind.COLLECTIVE: NodeType.COMM_COLL,
    Kind.SEND: NodeType.COMM_SEND,
    Kind.RECV: NodeType.COMM_RECV,
}
"""Everything else is a COMP node: ASTRA-sim asserts on METADATA nodes."""

MAX_TAILS = 1 << 16
"""Distinct tails kept (about 300 bytes each) before starting afresh."""

MAX_SHAPES_TEXT = 2048
"""Longer shape lists (foreach operators over every parameter) are in the tables only."""

_NODE_NAME, _NODE_TYPE, _CTRL_DEPS, _DATA_DEPS, _INPUTS, _OUTPUTS, _ATTRIBUTE = 2, 3, 4, 5, 8, 9, 10
_ROW_BYTES = OPERATION_DTYPE.itemsize
_TENSOR_BYTES = TENSOR_DTYPE.itemsize
_COMMUNICATION_BYTES = COMMUNICATION_DTYPE.itemsize

ROW_PREFIX = attribute(names.ROW, "bytes", b"\0" * _ROW_BYTES)[:-_ROW_BYTES]
"""What every node of Maya's begins with, before the bytes of its row."""
COMMUNICATION_PREFIX = attribute(names.COMMUNICATION, "bytes", b"\0" * _COMMUNICATION_BYTES)[
    :-_COMMUNICATION_BYTES
]


def _int64_heads(name: str) -> tuple[bytes, ...]:
    """What comes before the varint of an int64 attribute, by the varint's length (0 to 10)."""
    before = text(1, name) + key(value_field("int64"), VARINT)
    return tuple(
        key(_ATTRIBUTE, LENGTH_DELIMITED) + varint(len(before) + size) + before for size in range(11)
    )


_EVENT_HEADS = _int64_heads(names.EVENT)
_SEQUENCE_HEADS = _int64_heads(names.SEQUENCE)
_CTRL_DEPS_KEY = key(_CTRL_DEPS, LENGTH_DELIMITED)
_DATA_DEPS_KEY = key(_DATA_DEPS, LENGTH_DELIMITED)

TENSORS_PREFIX = text(1, names.TENSORS) + key(value_field("bytes"), LENGTH_DELIMITED)
"""Within the attribute of the tensors: up to the length of its value."""


def global_metadata(rank: int) -> bytes:
    """The first message of a rank's file, without its length."""

    def entry(name: str, scalar: str, value: int | str) -> bytes:
        return attribute(name, scalar, value, of_metadata=True)

    return (
        text(1, SCHEMA_VERSION)
        + entry(names.SCHEMA, "int64", names.MAYA_TRACE_SCHEMA_VERSION)
        + entry(names.RANK, "int64", rank)
        + entry(names.ROW_LAYOUT, "string", layout_of(OPERATION_DTYPE))
        + entry(names.TENSORS_LAYOUT, "string", layout_of(TENSOR_DTYPE))
        + entry(names.COMMUNICATION_LAYOUT, "string", layout_of(COMMUNICATION_DTYPE))
    )


class NodeEncoder:
    """Encodes the operations of one rank in issue order.

    Args:
        rank: for the source of its sends and the destination of its receives.
        tables: what the operations refer to.
        communications: all rows of the rank, of COMMUNICATION_DTYPE.
    """

    def __init__(self, rank: int, tables: Tables, communications: NDArray[np.void]) -> None:
        self.dependencies = DependencyTracker()
        self._rank = rank
        self._tables = tables
        self._communications = communications
        self._tails: dict[tuple[int, ...], bytes] = {}
        self._tensor_heads: dict[int, bytes] = {}
        self._shapes = MetadataShapes()

    def encode(self, rows: NDArray[np.void], tensors: NDArray[np.void]) -> bytes:
        """Length-delimited nodes of a batch that continues the ones before.

        Args:
            rows: [n] of OPERATION_DTYPE.
            tensors: [m] of TENSOR_DTYPE, those of the rows.
        """
        raw_rows = rows.tobytes()
        raw_tensors = tensors.tobytes()
        storages = tensors["storage"].tolist()
        offsets = tensors["offset_bytes"].tolist()
        extents = tensors["extent_bytes"].tolist()
        roles = tensors["role"].tolist()
        tails = self._tails
        heads = self._tensor_heads
        small = SMALL_VARINTS
        pieces: list[bytes] = []
        tensor = 0
        position = 0
        for (
            identifier,
            sequence,
            stream_id,
            event,
            *ids,
            thread,
            count,
            device,
            kind,
            phase,
            blocking,
            _,
            _,
        ) in (
            rows.tolist()  # tuples in the order of OPERATION_DTYPE
        ):
            operator, metadata, module, source_line, communication, _ = ids
            stream = (device, stream_id)
            node = [ROW_PREFIX, raw_rows[position : position + _ROW_BYTES]]
            position += _ROW_BYTES
            end = tensor + count
            if count:
                node.append(heads.get(count) or self._tensor_head(count))
                node.append(raw_tensors[tensor * _TENSOR_BYTES : end * _TENSOR_BYTES])
            handle = None
            readable = b""
            if communication >= 0:
                details = self._communications[communication]
                node.append(COMMUNICATION_PREFIX)
                node.append(details.tobytes())
                if details["async_handle"] >= 0:
                    handle = (int(details["communicator"]), int(details["async_handle"]))
                readable = _communication_attributes(kind, details, self._rank)
            node.append(b"\x08")  # the key of field 1, the id
            node.append(varint(identifier))
            follows = self.dependencies.control(identifier, kind, stream, event, handle, thread, blocking)
            if follows:
                body = b"".join([small[i] if i < 16384 else varint(i) for i in sorted(follows)])
                node += (_CTRL_DEPS_KEY, varint(len(body)), body)
            if count and kind not in HOST_KINDS:
                follows = self.dependencies.data(
                    identifier,
                    stream,
                    storages[tensor:end],
                    offsets[tensor:end],
                    extents[tensor:end],
                    roles[tensor:end],
                )
                if follows:
                    body = b"".join([small[i] if i < 16384 else varint(i) for i in sorted(follows)])
                    node += (_DATA_DEPS_KEY, varint(len(body)), body)
            tensor = end
            tail_key = (operator, metadata, module, source_line, stream_id, device, kind, phase)
            node.append(tails.get(tail_key) or self._tail(tail_key))
            if event >= 0:
                value = varint(event)
                node += (_EVENT_HEADS[len(value)], value)
            if sequence >= 0:
                value = varint(sequence)
                node += (_SEQUENCE_HEADS[len(value)], value)
            node.append(readable)
            body = b"".join(node)
            pieces.append(varint(len(body)))
            pieces.append(body)
        return b"".join(pieces)

    def _tensor_head(self, count: int) -> bytes:
        """What comes before the bytes of `count` tensors."""
        size = count * _TENSOR_BYTES
        inner = TENSORS_PREFIX + varint(size)
        head = key(_ATTRIBUTE, LENGTH_DELIMITED) + varint(len(inner) + size) + inner
        self._tensor_heads[count] = head
        return head

    def _tail(self, tail_key: tuple[int, ...]) -> bytes:
        """The part of a node that repeats."""
        operator, metadata, module, source_line, stream, device, kind, phase = tail_key
        tables = self._tables
        on_host = kind in HOST_KINDS
        node_type = _NODE_TYPES.get(kind, NodeType.COMP)
        parts = [text(_NODE_NAME, tables.operators[operator]), number(_NODE_TYPE, node_type)]
        shapes = self._shapes.of(metadata, tables.metadata[metadata] if metadata >= 0 else "")
        for field, info in ((_INPUTS, shapes.inputs), (_OUTPUTS, shapes.outputs)):
            if info is not None and len(info[0]) <= MAX_SHAPES_TEXT:
                parts.append(delimited(field, text(2, info[0]) + text(3, info[1])))
        parts.append(attribute(names.IS_CPU_OP, "bool", int(on_host)))
        if node_type == NodeType.COMP and not on_host:
            parts.append(attribute(names.TENSOR_SIZE, "uint64", shapes.device_bytes))
        parts.append(attribute(names.KIND, "string", _KIND_NAMES[kind]))
        parts.append(attribute(names.PHASE, "string", _PHASE_NAMES[phase]))
        parts.append(attribute(names.DEVICE, "int32", device))
        if not on_host:
            parts.append(attribute(names.STREAM, "int64", stream))
        if module >= 0:
            parts.append(attribute(names.MODULE, "string", tables.modules[module]))
        if source_line >= 0:
            parts.append(attribute(names.SOURCE_LINE, "string", tables.source_lines[source_line]))
        tail = b"".join(parts)
        if len(self._tails) >= MAX_TAILS:
            self._tails.clear()
        self._tails[tail_key] = tail
        return tail


def _communication_attributes(kind: int, details: np.void, rank: int) -> bytes:
    """What feeders read of a communication, a row of COMMUNICATION_DTYPE."""
    sent, received = int(details["input_bytes"]), int(details["output_bytes"])
    if kind == Kind.COLLECTIVE:
        return (
            attribute(names.COMM_TYPE, "int64", int(details["collective"]))
            # Chakra and ASTRA-sim count what one rank puts in, for an all-gather its shard.
            + attribute(names.COMM_SIZE, "int64", sent)
            # "0" would mean every rank of the job, which this rank's trace alone cannot tell.
            + attribute(names.PG_NAME, "string", str(int(details["communicator"]) + 1))
        )
    if kind in (Kind.SEND, Kind.RECV):
        peer = int(details["peer"])
        source, destination = (rank, peer) if kind == Kind.SEND else (peer, rank)
        return (
            attribute(names.COMM_SIZE, "int64", max(sent, received))
            + attribute(names.COMM_SRC, "int32", source)
            + attribute(names.COMM_DST, "int32", destination)
            + attribute(names.COMM_TAG, "int32", int(details["tag"]))
        )
    return b""
